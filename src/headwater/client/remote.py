"""Serves the interfaces from afar: operations become requests of `/v1`, answers what the log would have answered."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from headwater.client.connection import Broken, HttpResponse, Orphaned
from headwater.client.exchange import Exchange, decoder_of, encode
from headwater.client.following import ServerFollowing
from headwater.client.jobs import RemoteJobs
from headwater.client.wire import Wire
from headwater.clock import SystemClock, Timestamp
from headwater.config import Config, Durability
from headwater.errors import Closed, HeadwaterError, ServerUnreadable
from headwater.log.committer import CommittedPush, CommittedResult
from headwater.log.document_operations import CreateDocument, DeleteDocument, SetDocument, UpdateDocument
from headwater.log.job_operations import Enqueue
from headwater.log.operations import (
    Ack,
    Acked,
    Extend,
    Extended,
    Operation,
    Pop,
    Popped,
    Push,
    Transacted,
    Transaction,
)
from headwater.log.room_operations import RoomPush
from headwater.model.names import Lsn
from headwater.services.admission import admit
from headwater.services.follow import Steps
from headwater.services.giving_back import release, releases
from headwater.services.holdings import Holdings
from headwater.services.life import Life
from headwater.services.requests import SEVERAL_MAX, Bounds, PopResponse, PushResponse, SegmentsResponse
from headwater.services.room_requests import as_send
from headwater.services.verbs import Verbs
from headwater.services.wire_forms import answer_of, result_kind, to_wire
from headwater.stores.questions import Question

log = logging.getLogger(__name__)

# What stands between client and server may hang up on a connection that is quiet for longer.
SLICE_SECONDS = 20.0
# How long closing waits for a server to take back what consumers hold.
LET_GO_SECONDS = 5.0

Result = TypeVar("Result")
Answer = TypeVar("Answer")


class ServerClock:
    """The server's time, as far as its last answer told."""

    def __init__(self) -> None:
        self._here = SystemClock()
        self._ahead = 0

    def now(self) -> Timestamp:
        """Microseconds since 1970, as the server counts them."""
        return Timestamp(self._here.now() + self._ahead)

    def set(self, now: Timestamp) -> None:
        """It is this late there."""
        self._ahead = now - self._here.now()


class RemoteQueues(Verbs):
    """All queues that a server lets this client use."""

    clock: ServerClock
    is_remote = True

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._wire = wire = Wire(exchange)
        self._keys = wire.keys
        self._forgotten: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Lock()
        self.life = Life("this client", "async with headwater.connect(...) as hw:")
        self.holdings = Holdings(exchange.end_waits)
        self.clock = ServerClock()
        self.config = Config()
        self.store: RemoteQuestions = RemoteQuestions(exchange, wire)
        self.jobs = RemoteJobs(exchange, wire, self)

    def opening(self) -> AbstractContextManager[None]:
        """The client is opened meanwhile, and the running event loop is its own from now on."""
        return self.life.opening(self._exchange.home)

    async def greet(self) -> Bounds:
        """Ask the server what it takes; from now on the checks here go by that."""
        bounds = await self._exchange.ask("GET", "/v1/bounds", b"", decoder_of(Bounds))
        self.clock.set(bounds.now)
        self.config = Config(
            record_bytes_max=bounds.record_bytes_max,
            batch_max=bounds.batch_max,
            batch_bytes_max=bounds.batch_bytes_max,
            wait_seconds_max=bounds.wait_seconds_max,
        )
        return bounds

    async def close(self) -> None:
        """Give back what consumers hold, send what is on its way, then hang up. Whoever else closes it waits."""
        if not self.life.is_here:
            # The connections are those of the process that this one was forked from.
            return
        self._exchange.home.check()
        async with self._closing:
            if self.life.is_open:
                await self._let_go()
            self.life.end()
            while self._forgotten:
                await asyncio.gather(*self._forgotten, return_exceptions=True)
            self._exchange.close()

    async def _let_go(self) -> None:
        """Give back what consumers hold; from a server that cannot be reached it comes back when the leases run out."""
        try:
            async with asyncio.timeout(LET_GO_SECONDS):
                await self.holdings.close()
        except TimeoutError:
            log.warning("the server does not answer; what consumers of this client hold comes back when leases run out")

    # ── pushing ──

    async def push(self, push: Push, durability: Durability | None) -> CommittedPush:
        """Append to one partition."""
        return (await self.push_together([push], durability))[0]

    async def push_together(self, pushes: Sequence[Push], durability: Durability | None) -> list[CommittedPush]:
        """Append to several partitions in one commit."""
        for push in pushes:
            self.check_push(push)
        path, what = _pushed_to(pushes)
        body = {
            **what,
            "durability": durability,
            # The server makes the keys of the other partitions from that of the first.
            "key": pushes[0].key or next(self._keys),
        }
        answers = await self._post(path, body, list[PushResponse])
        if len(answers) != len(pushes):
            raise ServerUnreadable(f"{len(pushes)} pushes got {len(answers)} answers")
        return [CommittedResult(answer.pushed, answer.durability) for answer in answers]

    # ── following ──

    async def last_lsn(self) -> Lsn:
        """Where the log ends now."""
        return (await self.greet()).lsn

    async def follow(self, database: str, queue: str, after: Lsn) -> Steps:
        """The log of a queue from an LSN on."""
        return ServerFollowing(self.store.segments, queue, after)

    # ── popping and reporting ──

    async def pop_batches(self, operation: Pop, wait_seconds: float = 0, reports: Sequence[Ack] = ()) -> Popped:
        """Lease the next records; waits in slices, so that nothing between here and there finds it too quiet."""
        self.check_pop(operation)
        self.check_wait(wait_seconds)
        # Whoever asks with a key that somebody gave may share what it brings.
        orphaned = partial(self._leave, operation)
        # An answer that is lost is asked for again, and brings what the lost one did.
        operation = msgspec.structs.replace(operation, key=operation.key or next(self._keys))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        told = [self._report(report) for report in reports]
        slice_seconds = min(wait_seconds, SLICE_SECONDS)
        while True:
            answer = await self._pop(operation, slice_seconds, told, orphaned)
            told = []
            slice_seconds = min(deadline - loop.time(), SLICE_SECONDS)
            if answer.batches or slice_seconds <= 0:
                return Popped(answer.batches)

    async def _pop(
        self, operation: Pop, wait_seconds: float, reports: list[dict[str, Any]], orphaned: Orphaned
    ) -> PopResponse:
        request = {**to_wire(operation), "wait_seconds": wait_seconds, "reports": reports}
        answer = await self._exchange.ask(
            "POST",
            "/v1/pop",
            encode(request),
            decoder_of(PopResponse),
            wait_seconds=wait_seconds,
            orphaned=orphaned,
        )
        self.clock.set(answer.now)
        return answer

    def _leave(self, operation: Pop, late: asyncio.Future[HttpResponse]) -> None:
        """The caller of a pop was cancelled. What still comes for it goes back before the next pop from here."""
        self.holdings.start(self._take_back(operation, late))

    async def _take_back(self, operation: Pop, late: asyncio.Future[HttpResponse]) -> None:
        try:
            answer = decoder_of(PopResponse).decode((await late).body)
        except (Broken, msgspec.MsgspecError):
            # The server saw the caller leave and kept the records, or it was no good answer.
            return
        try:
            if operation.key:
                for giving_back in releases(Popped(answer.batches), operation):
                    await self.run(giving_back)
            else:
                await self.settle([release(batch, "") for batch in answer.batches if batch.token])
        except HeadwaterError as error:
            log.debug("what came for a caller who left comes back when its lease runs out: %s", error)

    async def settle(self, reports: Sequence[Ack]) -> None:
        """Hand reports in."""
        for start in range(0, len(reports), SEVERAL_MAX):
            body = {"reports": [self._report(report) for report in reports[start : start + SEVERAL_MAX]]}
            await self._post("/v1/report", body, list[Acked])

    def _report(self, report: Ack) -> dict[str, Any]:
        return {**to_wire(report), "key": report.key or next(self._keys)}

    async def extend_leases(self, extensions: Sequence[Extend]) -> list[Extended]:
        """Keep leases for longer."""
        if not extensions:
            return []
        body = {"leases": [_unkeyed(one) for one in extensions]}
        return await self._post("/v1/extend", body, list[Extended])

    # ── the rest ──

    async def run(self, operation: Operation) -> Any:
        """One operation, and what it came to."""
        if isinstance(operation, Transaction):
            return await self._transact(operation)
        return await self._wire.run(admit(operation, self.config))

    async def _transact(self, transaction: Transaction) -> Transacted:
        body = {
            "operations": [_step(step) for step in transaction.operations],
            "leases": [
                {"partition_id": partition_id, "group": group, "token": token}
                for partition_id, group, token in transaction.leases
            ],
            "key": transaction.key or next(self._keys),
        }
        answer = await self._post("/v1/transaction", body, _Transacted)
        steps = zip(answer.results, transaction.operations, strict=True)
        return Transacted([answer_of(decoder_of(result_kind(type(step))).decode(result)) for result, step in steps])

    def submit_and_forget(self, operation: Operation) -> None:
        """Hand in an operation whose answer nobody needs."""
        task = asyncio.get_running_loop().create_task(self._hand_in(operation))
        self._forgotten.add(task)
        task.add_done_callback(self._forgotten.discard)

    async def _hand_in(self, operation: Operation) -> None:
        try:
            if isinstance(operation, Ack):
                await self.settle([operation])
            elif isinstance(operation, Extend):
                await self.extend_leases([operation])
            else:
                await self.run(operation)
        except Closed:
            log.warning("a client was closed before all was said; leases run out by themselves")
        except HeadwaterError as error:
            # A lease that was lost is no news to somebody who does not wait for an answer.
            log.debug("a report that nobody waits for was not taken: %s", error)

    async def _post(self, path: str, body: Any, kind: type[Result]) -> Result:
        return await self._exchange.ask("POST", path, encode(body), decoder_of(kind))


class RemoteQuestions:
    """What can be asked about what is kept."""

    def __init__(self, exchange: Exchange, wire: Wire) -> None:
        self._exchange = exchange
        self._wire = wire

    async def ask(self, question: Question[Answer]) -> Answer:
        """What the server answers to a question."""
        return await self._wire.ask(question)

    async def segments(self, queue: str, after: Lsn, limit: int, wait_seconds: float) -> SegmentsResponse:
        """A stretch of a queue's log; waits for one."""
        about = {"queue": queue, "after": after, "limit": limit, "wait_seconds": wait_seconds}
        query = urlencode(about)
        return await self._exchange.ask(
            "GET", f"/v1/segments?{query}", b"", decoder_of(SegmentsResponse), wait_seconds=wait_seconds
        )


class _Transacted(msgspec.Struct, frozen=True):
    results: list[msgspec.Raw]


def _pushed_to(pushes: Sequence[Push]) -> tuple[str, dict[str, Any]]:
    """Where pushes are handed in, and as what. Nobody pushes to queues and rooms at once but in a transaction."""
    if isinstance(pushes[0], RoomPush):
        return "/v1/send", {"messages": [as_send(push) for push in pushes if isinstance(push, RoomPush)]}
    return "/v1/push", {"pushes": [_unkeyed(push) for push in pushes]}


def _step(operation: Operation) -> dict[str, Any]:
    if isinstance(operation, RoomPush):
        return {"kind": "send", **as_send(operation)}
    kind = _steps.get(type(operation))
    if kind is None:
        raise TypeError(
            f"a transaction over HTTP takes pushes, reports, jobs and documents; got {type(operation).__name__}"
        )
    return {"kind": kind, **_unkeyed(operation)}


_steps: dict[type[Operation], str] = {
    Push: "push",
    Ack: "report",
    Enqueue: "jobs",
    CreateDocument: "create-document",
    SetDocument: "set-document",
    UpdateDocument: "update-document",
    DeleteDocument: "delete-document",
}


def _unkeyed(operation: Operation) -> dict[str, Any]:
    """An operation within a request that has the key."""
    fields = to_wire(operation)
    fields.pop("key", None)
    return fields
