"""The log of a server, for reading: what `stores/log_reader.py` promises, over HTTP.

Every question may be asked again, so a server that is restarted in the middle of a scan is asked on when it is back.
Which part of the log this is, the token says. An answer of another store than the one that was opened is refused.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

from headwater.client.access import Access, find_address, find_token, telling_of_no_token
from headwater.client.exchange import Decoder, Exchange, Timing, decoder_of, encode
from headwater.client.pool import Pool
from headwater.clock import Timestamp
from headwater.errors import InvalidOption, StoreReplaced
from headwater.model.names import Lsn
from headwater.services.log_requests import (
    PARTITIONS_MAX,
    STRETCHES_MAX,
    DropsRequest,
    LogAbout,
    LogPlace,
    Newest,
    Outline,
    OutlineRequest,
    Partitions,
    PartitionsRequest,
    Range,
    Remembered,
    Seen,
    SeenRequest,
    Segments,
    SegmentsDecoder,
    SegmentsRequest,
)
from headwater.services.wire_forms import question_path
from headwater.stores.contract import Traits
from headwater.stores.log_reader import Body, Drops, Fingerprint, SegmentOutline
from headwater.stores.questions import ListQueues, PartitionStatus, QueueStatus

ANSWER_SECONDS = 60.0

Result = TypeVar("Result")


class RemoteLogReader:
    """A server, for reading only."""

    def __init__(self, url: str, access: Access) -> None:
        address = find_address(url, access)
        self._token = find_token(access)
        self._url = url
        self._access = access
        self._address = address
        self._identity = ""
        self.traits = Traits(
            name="server", location=url, engine="Headwater", several_machines=True, durable_by="the server"
        )

    async def open(self) -> None:
        """Greet the server: a token that is not good is told here."""
        timing = Timing(answer_seconds=ANSWER_SECONDS, retry_seconds=self._access.retry_seconds)
        pool = Pool(self._address, connections_max=1, connect_seconds=timing.connect_seconds)
        self._exchange = Exchange(self._address, self._token, pool, timing, partial(find_token, self._access))
        try:
            self._identity = (await self._about()).identity
        except BaseException:
            self._exchange.close()
            raise

    async def close(self) -> None:
        """Hang up."""
        self._exchange.close()

    async def identity(self) -> str:
        """Which store the server serves now."""
        return (await self._about()).identity

    async def database(self) -> str:
        """The database of the token."""
        return (await self._about()).database

    async def fingerprint(self, through: Lsn) -> Fingerprint | None:
        """The newest segment at or before `through` that this reader may read."""
        return (await self._get("/v1/log/fingerprint", Seen, through=through)).fingerprint

    async def remembers(self, seen: Fingerprint) -> bool | None:
        """Whether this is the log that a fingerprint was taken of; None when nothing can be said."""
        return (await self._post("/v1/log/remembers", SeenRequest(seen.lsn, seen.mark), Remembered)).remembered

    async def span(self) -> tuple[Lsn, Lsn]:
        """The LSN before the oldest segment for this reader, and the newest of what it may read."""
        about = await self._about()
        return about.after, about.through

    async def lsn_at(self, time: Timestamp) -> Lsn:
        """The LSN before the first segment written at or after `time`."""
        return (await self._get("/v1/log/at", LogPlace, time=time)).lsn

    async def queue_names(self, database: str) -> list[str]:
        """The names of the queues that may be read."""
        return list(await self.queue_numbers(database))

    async def queue_numbers(self, database: str) -> dict[str, int]:
        """The queues that may be read, each with its number; no database stands for that of the token."""
        about = await self._about()
        if database not in ("", about.database):
            raise InvalidOption(
                f"the token is for the database {about.database!r}, not for {database!r}: "
                "on a server the database is that of the token; leave the option database out"
            )
        return about.queues

    async def queue_statuses(self) -> list[QueueStatus]:
        """The queues that may be read, with their options and sizes."""
        return await self._post(question_path(ListQueues), {}, list[QueueStatus])

    async def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """Partitions of a queue, with where their records begin and end."""
        request = PartitionsRequest(queue=queue, after=after, limit=min(limit, PARTITIONS_MAX))
        return (await self._post("/v1/log/partitions", request, Partitions)).partitions

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        while through > after:
            found = await self._post("/v1/log/newest", Range(after=after, through=through, queues=list(queues)), Newest)
            if found.lsn is not None or found.reached >= through:
                return found.lsn
            through = found.reached
        return None

    async def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """Where the log ends for this reader: who it is says what it may read."""
        return (await self._about()).through

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        """Segments of these queues in LSN order, without their records."""
        told: list[SegmentOutline] = []
        while after < through and len(told) < limit:
            wanted = min(limit - len(told), STRETCHES_MAX)
            request = OutlineRequest(after=after, through=through, limit=wanted, queues=list(queues))
            found = await self._post("/v1/log/outline", request, Outline)
            told += found.stretches
            if found.reached <= after:
                break
            after = found.reached
        return told

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        """Segments of these queues in LSN order, until their records come to `bytes_max` or the server's own bound."""
        while after < through:
            request = SegmentsRequest(after=after, through=through, bytes_max=bytes_max, queues=list(queues))
            found = await self._ask("POST", "/v1/log/segments", encode(request), _segments)
            self._check_identity(found.identity)
            if found.bodies:
                return found.bodies
            if found.reached <= after:
                break
            after = found.reached
        return []

    async def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        """What these queues, or some of their partitions, lost after the LSN `after` in drops after number `since`."""
        request = DropsRequest(after=after, since=since, queues=list(queues), partitions=list(partitions))
        return await self._post("/v1/log/drops", request, Drops)

    def _check_identity(self, identity: str) -> None:
        if identity != self._identity:
            raise StoreReplaced(
                f"{self._url} serves another store now than when it was opened: nothing of it was read; "
                "begin with a new checkpoint, or set failOnDataLoss to false"
            )

    async def _about(self) -> LogAbout:
        return await self._get("/v1/log", LogAbout)

    async def _get(self, path: str, kind: type[Result], **query: int) -> Result:
        return await self._ask("GET", f"{path}?{urlencode(query)}" if query else path, b"", decoder_of(kind))

    async def _post(self, path: str, body: Any, kind: type[Result]) -> Result:
        return await self._ask("POST", path, encode(body), decoder_of(kind))

    async def _ask(self, method: str, path: str, body: bytes, decoder: Decoder[Result]) -> Result:
        with telling_of_no_token(self._url, self._token):
            return await self._exchange.ask(method, path, body, decoder)


_segments: Decoder[Segments] = SegmentsDecoder()
