"""Serves the faces from afar: operations become requests of `/v1`, answers become what the log would have answered."""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from headwater.client.connection import Answer as HttpAnswer
from headwater.client.connection import Broken
from headwater.client.exchange import Exchange, decoder_of, encode
from headwater.client.jobs import RemoteJobs
from headwater.clock import SystemClock, Timestamp
from headwater.config import Config, Durability
from headwater.errors import Closed, HeadwaterError, ServerUnreadable
from headwater.log.committer import Answer
from headwater.log.group_operations import ConfigureGroup, ReleaseLeases
from headwater.log.job_operations import Enqueue
from headwater.log.operations import (
    Ack,
    Acked,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Extended,
    Operation,
    Pop,
    Popped,
    Purge,
    Push,
    Requeue,
    Seek,
    Trace,
    Transacted,
    Transaction,
    result_type,
)
from headwater.model.names import Lsn
from headwater.services.holdings import Holdings
from headwater.services.intentions import release
from headwater.services.life import Life
from headwater.services.requests import (
    SEVERAL_MAX,
    Bounds,
    ExtendRequest,
    Lease,
    PopAnswer,
    PopRequest,
    PushAnswer,
    Report,
    SegmentsAnswer,
)
from headwater.services.verbs import Verbs
from headwater.stores.questions import (
    ListDeadLetters,
    ListGroups,
    ListLeases,
    ListQueues,
    ListTraces,
    Question,
    answer_type,
)

log = logging.getLogger(__name__)

# What stands between client and server may hang up on a connection that is quiet for longer.
SLICE_SECONDS = 20.0
# How long closing waits for a server to take back what consumers hold.
LET_GO_SECONDS = 5.0

Result = TypeVar("Result")
Asked = TypeVar("Asked")

_paths: dict[type[Operation], str] = {
    Configure: "/v1/configure",
    DeleteQueue: "/v1/delete-queue",
    Seek: "/v1/seek",
    DeleteGroup: "/v1/delete-group",
    ConfigureGroup: "/v1/configure-group",
    ReleaseLeases: "/v1/release-leases",
    Requeue: "/v1/requeue",
    Purge: "/v1/purge",
    Trace: "/v1/trace",
}


# Where each question goes, with those of its fields that go with it.
_asked: dict[type[Question[Any]], tuple[str, tuple[str, ...]]] = {
    ListQueues: ("/v1/queues", ()),
    ListGroups: ("/v1/groups", ("queue",)),
    ListLeases: ("/v1/leases", ("queue", "group", "limit")),
    ListDeadLetters: ("/v1/dead-letters", ("queue", "limit", "after")),
    ListTraces: ("/v1/traces", ("partition_id", "transaction_id")),
}


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

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._keys: Iterator[str] = (
            f"{prefix}{number}" for prefix in (secrets.token_hex(8) + ".",) for number in itertools.count()
        )
        self._forgotten: set[asyncio.Task[None]] = set()
        self.life = Life("this client", "async with headwater.connect(...) as hw:")
        self.holdings = Holdings()
        self.clock = ServerClock()
        self.config = Config()
        self.store: RemoteQuestions = RemoteQuestions(exchange)
        self.jobs = RemoteJobs(exchange, self._keys, self)

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
        """Give back what consumers hold, send what is on its way, then hang up."""
        if not self.life.is_here:
            # The connections are those of the process that this one was forked from.
            return
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

    async def push(self, push: Push, durability: Durability | None) -> Answer:
        """Append to one partition."""
        return (await self.push_together([push], durability))[0]

    async def push_together(self, pushes: Sequence[Push], durability: Durability | None) -> list[Answer]:
        """Append to several partitions in one commit."""
        for push in pushes:
            self.check_push(push)
        body = {
            "pushes": [_lane_push(push) for push in pushes],
            "durability": durability,
            "ttl_seconds": pushes[0].ttl_seconds,
            # The server makes the keys of the other partitions from that of the first.
            "key": pushes[0].key or next(self._keys),
        }
        answers = await self._post("/v1/push", body, list[PushAnswer])
        if len(answers) != len(pushes):
            raise ServerUnreadable(f"{len(pushes)} pushes got {len(answers)} answers")
        return [Answer(answer.pushed, answer.durability) for answer in answers]

    # ── popping and reporting ──

    async def pop_batches(self, operation: Pop, wait_seconds: float = 0, reports: Sequence[Ack] = ()) -> Popped:
        """Lease the next records; waits in slices, so that nothing between here and there finds it too quiet."""
        self.check_pop(operation)
        self.check_wait(wait_seconds)
        # An answer that is lost is asked for again, and brings what the lost one did.
        operation = msgspec.structs.replace(operation, key=operation.key or next(self._keys))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        said = [self._report(report) for report in reports]
        slice_seconds = min(wait_seconds, SLICE_SECONDS)
        while True:
            answer = await self._pop(operation, slice_seconds, said)
            said = []
            slice_seconds = min(deadline - loop.time(), SLICE_SECONDS)
            if answer.batches or slice_seconds <= 0:
                return Popped(answer.batches)

    async def _pop(self, operation: Pop, wait_seconds: float, reports: list[Report]) -> PopAnswer:
        request = PopRequest(**_pop_fields(operation), wait_seconds=wait_seconds, reports=reports)
        answer = await self._exchange.ask(
            "POST",
            "/v1/pop",
            encode(request),
            decoder_of(PopAnswer),
            wait_seconds=wait_seconds,
            orphaned=self._leave,
        )
        self.clock.set(answer.now)
        return answer

    def _leave(self, late: asyncio.Future[HttpAnswer]) -> None:
        """The caller of a pop was cancelled. What still comes for it goes back before the next pop from here."""
        self.holdings.start(self._take_back(late))

    async def _take_back(self, late: asyncio.Future[HttpAnswer]) -> None:
        try:
            batches = decoder_of(PopAnswer).decode((await late).body).batches
        except (Broken, msgspec.MsgspecError):
            # The server saw the caller leave and kept the records, or it was no good answer.
            return
        releases = [release(batch, "") for batch in batches if batch.token]
        try:
            await self.settle(releases)
        except HeadwaterError as error:
            log.debug("what came for a caller who left comes back when its lease runs out: %s", error)

    async def settle(self, reports: Sequence[Ack]) -> None:
        """Hand reports in."""
        for start in range(0, len(reports), SEVERAL_MAX):
            body = {"reports": [self._report(report) for report in reports[start : start + SEVERAL_MAX]]}
            await self._post("/v1/report", body, list[Acked])

    def _report(self, report: Ack) -> Report:
        return Report(**{**_fields(report), "key": report.key or next(self._keys)})

    async def extend_leases(self, extensions: Sequence[Extend]) -> list[Extended]:
        """Keep leases for longer."""
        if not extensions:
            return []
        leases = [Lease(one.partition_id, one.token, one.group) for one in extensions]
        return await self._post("/v1/extend", ExtendRequest(leases, extensions[0].seconds), list[Extended])

    # ── the rest ──

    async def run(self, operation: Operation) -> Any:
        """One operation, and what it came to."""
        if isinstance(operation, Transaction):
            return await self._transact(operation)
        body = {**_fields(operation), "key": operation.key or next(self._keys)}
        body.pop("lanes", None)
        return await self._post(_paths[type(operation)], body, result_type(type(operation)))

    async def _transact(self, transaction: Transaction) -> Transacted:
        body = {
            "operations": [_step(step) for step in transaction.operations],
            "leases": [Lease(partition_id, token, group) for partition_id, group, token in transaction.leases],
            "key": transaction.key or next(self._keys),
        }
        answer = await self._post("/v1/transaction", body, _Transacted)
        steps = zip(answer.results, transaction.operations, strict=True)
        return Transacted([decoder_of(result_type(type(step))).decode(result) for result, step in steps])

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
    """What can be asked about what is kept. The database is that of the token, whatever is named."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def ask(self, question: Question[Asked]) -> Asked:
        """What the server answers to a question."""
        kind = type(question)
        fields = msgspec.structs.asdict(question)
        about = {name: fields[name] for name in _asked[kind][1]}
        path = _asked[kind][0]
        target = f"{path}?{urlencode(about)}" if about else path
        return await self._exchange.ask("GET", target, b"", decoder_of(answer_type(kind)))

    async def segments(self, queue: str, after: Lsn, limit: int, wait_seconds: float) -> SegmentsAnswer:
        """A stretch of a queue's log; waits for one."""
        about = {"queue": queue, "after": after, "limit": limit, "wait_seconds": wait_seconds}
        query = urlencode(about)
        return await self._exchange.ask(
            "GET", f"/v1/segments?{query}", b"", decoder_of(SegmentsAnswer), wait_seconds=wait_seconds
        )


class _Transacted(msgspec.Struct, frozen=True):
    results: list[msgspec.Raw]


def _fields(operation: Operation) -> dict[str, Any]:
    """An operation as the wire has it: all but the database, which is the server's to say."""
    fields = msgspec.structs.asdict(operation)
    del fields["database"]
    return fields


def _pop_fields(operation: Pop) -> dict[str, Any]:
    """A pop as the wire has it: who else waits, and how a queue is made, is for the server to know."""
    fields = _fields(operation)
    del fields["sharers"], fields["lanes"], fields["asks_again"]
    return fields


def _lane_push(push: Push) -> dict[str, Any]:
    lane = {"queue": push.queue, "partition": push.partition, "records": push.records}
    # Left out where nothing is asked for: a server of an older version knows them not.
    asked = {"delay_seconds": push.delay_seconds, "priority": push.priority}
    return lane | {name: value for name, value in asked.items() if value}


def _step(operation: Operation) -> dict[str, Any]:
    if isinstance(operation, Push):
        ttl = {} if operation.ttl_seconds is None else {"ttl_seconds": operation.ttl_seconds}
        return {"kind": "push", **_lane_push(operation), **ttl}
    if isinstance(operation, Enqueue):
        return {"kind": "jobs", "jobs": operation.jobs}
    if not isinstance(operation, Ack):
        raise TypeError(f"a transaction over HTTP takes pushes, reports and jobs; got {type(operation).__name__}")
    fields = _fields(operation)
    del fields["key"]
    return {"kind": "report", **fields}
