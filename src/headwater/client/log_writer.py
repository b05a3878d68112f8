"""Commits of a query through a server: what `Handle.commit` does with a file, over HTTP.

A commit is one request, or, when it is large, an upload in parts that one request commits. Each may be repeated: the
request has a key, and its step is taken once. So an answer that was lost is asked for again and has one effect.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.client.access import Access, find_address, find_token, telling_of_no_token
from headwater.client.exchange import Exchange, Timing, decoder_of, encode
from headwater.client.pool import Pool
from headwater.errors import AlreadyReached, HeadwaterError, StagingLost
from headwater.log.flow_operations import Load, Loaded, Staged, Unstage
from headwater.log.operations import Deleted, Push, Reach, Seek, Transaction
from headwater.model.record import Record, encode_records
from headwater.services.log_requests import CommitResponse, GroupMove, LogAbout, StepTaken
from headwater.services.wire_forms import operation_path, to_wire

log = logging.getLogger(__name__)

ANSWER_SECONDS = 120.0
# Below what a server, and most proxies before it, take as the body of one request.
PART_BYTES = 512 * 1_024
UPLOADS_MAX = 3

Result = TypeVar("Result")


class Piece(NamedTuple):
    """Records of one partition, encoded."""

    queue: str
    partition: str
    records: bytes

    def shown(self) -> dict[str, Any]:
        """As the wire has it."""
        return {"queue": self.queue, "partition": self.partition, "records": msgspec.Raw(self.records)}


class RemoteLogWriter:
    """Commits through one server."""

    def __init__(self, url: str, access: Access) -> None:
        address = find_address(url, access)
        timing = Timing(answer_seconds=ANSWER_SECONDS, retry_seconds=access.retry_seconds)
        pool = Pool(address, connections_max=1, connect_seconds=timing.connect_seconds)
        self._url = url
        self._token = find_token(access)
        self._exchange = Exchange(address, self._token, pool, timing, partial(find_token, access))

    async def identity(self) -> str:
        """Which store the server serves now."""
        with telling_of_no_token(self._url, self._token):
            return (await self._exchange.ask("GET", "/v1/log", b"", decoder_of(LogAbout))).identity

    async def commit(self, transaction: Transaction) -> CommitResponse:
        """Commit a transaction of a step, pushes and moved groups; raises when the step was taken before."""
        request = _request(transaction)
        pieces = list(cut(_pushes(transaction)))
        answer = await self._commit(request, pieces)
        if answer.taken is not None:
            raise _already(request["step"], answer.taken)
        return answer

    async def load(self, load: Load) -> Loaded:
        """Append what of a source is not there yet. It may be asked again, also when an answer was lost."""
        # Who sent it is for the server to say.
        records = [msgspec.structs.replace(record, producer_sub="") for record in load.records]
        return await self._post(operation_path(Load), {**to_wire(load), "records": records}, Loaded)

    async def _commit(self, request: dict[str, Any], pieces: list[Piece]) -> CommitResponse:
        parts = list(gather(pieces))
        if len(parts) <= 1:
            return await self._post(
                "/v1/log/commit", {**request, "pushes": [p.shown() for p in pieces]}, CommitResponse
            )
        for attempt in range(UPLOADS_MAX):
            upload = await self._upload(parts)
            try:
                whole = {**request, "upload": upload, "parts": len(parts)}
                answer = await self._post("/v1/log/commit", whole, CommitResponse)
                await self._drop(upload)
                return answer
            except StagingLost:
                if attempt + 1 == UPLOADS_MAX:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _upload(self, parts: Sequence[Sequence[Piece]]) -> str:
        upload = secrets.token_hex(16)
        for number, part in enumerate(parts):
            body = {"upload": upload, "part": number, "pushes": [piece.shown() for piece in part]}
            await self._post("/v1/log/stage", body, Staged)
        return upload

    async def _drop(self, upload: str) -> None:
        """The server drops it by itself in an hour, too."""
        try:
            await self._post(operation_path(Unstage), {"upload": upload}, Deleted)
        except HeadwaterError as error:
            log.debug("an upload was not dropped: %s", error)

    async def close(self) -> None:
        """Hang up."""
        self._exchange.close()

    async def _post(self, path: str, body: Any, kind: type[Result]) -> Result:
        with telling_of_no_token(self._url, self._token):
            return await self._exchange.ask("POST", path, encode(body), decoder_of(kind))


def _request(transaction: Transaction) -> dict[str, Any]:
    """All of a transaction but what it pushes."""
    steps = [one for one in transaction.operations if isinstance(one, Reach)]
    moves = [one for one in transaction.operations if isinstance(one, Seek)]
    if len(steps) > 1 or any(not isinstance(one, Reach | Seek | Push) for one in transaction.operations):
        raise TypeError("a commit through a server has one step at most, pushes, and groups that are moved")
    return {
        "key": transaction.key or secrets.token_hex(16),
        "step": to_wire(steps[0]) if steps else None,
        "moves": [GroupMove(move.queue, move.group, move.lsn or 0) for move in moves],
    }


def _pushes(transaction: Transaction) -> list[Push]:
    return [one for one in transaction.operations if isinstance(one, Push)]


def _already(step: dict[str, Any], taken: StepTaken) -> AlreadyReached:
    message = f"{step['name']!r} is at step {taken.number}; step {step['number']} was taken before"
    return AlreadyReached(message, taken.number, taken.note)


# ── cutting: by bytes, in the order of the records ──


def cut(pushes: Sequence[Push], bytes_max: int = PART_BYTES) -> Iterator[Piece]:
    """The records of pushes in pieces of about so many bytes, of one partition each; one record at least."""
    for push in pushes:
        for records in _halves(list(push.records), bytes_max):
            yield Piece(push.queue, push.partition, records)


def _halves(records: list[Record], bytes_max: int) -> Iterator[bytes]:
    """Records, encoded; cut in the middle until they are small enough."""
    encoded = encode_records(records)
    if len(encoded) <= bytes_max or len(records) == 1:
        yield encoded
        return
    middle = len(records) // 2
    yield from _halves(records[:middle], bytes_max)
    yield from _halves(records[middle:], bytes_max)


def gather(pieces: Sequence[Piece], bytes_max: int = PART_BYTES) -> Iterator[list[Piece]]:
    """Pieces in parts of at most so many bytes, in their order; one piece at least."""
    part: list[Piece] = []
    size = 0
    for piece in pieces:
        if part and size + len(piece.records) > bytes_max:
            yield part
            part, size = [], 0
        part.append(piece)
        size += len(piece.records)
    if part:
        yield part
