"""Queues: operations to the committer, answers from it, and the waiting pops of one process.

`Queues` serves every queue of an open store. What people hold is a `Queue` (`queue.py`): the same, bound to one name.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.errors import Closed, HeadwaterError
from headwater.log.committer import CommittedPush, CommittedResult, Committer
from headwater.log.group_operations import GiveBack, GivenBack, ReleaseLeases
from headwater.log.operations import (
    Ack,
    Acked,
    Extend,
    Extended,
    Operation,
    Pop,
    Popped,
    Push,
    Result,
    Seek,
    Transaction,
)
from headwater.log.timings import Timings
from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.services.admission import admit
from headwater.services.follow import Followers, Limits, Step, Steps
from headwater.services.giving_back import releases
from headwater.services.holdings import Holdings
from headwater.services.intentions import Intentions, shared
from headwater.services.life import Life
from headwater.services.pop_lines import IsKnown
from headwater.services.verbs import Verbs, check_push
from headwater.stores.contract import Counts, Store, Traits
from headwater.stores.questions import Answer, FindIdentity, FindLane, FindLastLsn, Question

log = logging.getLogger(__name__)

# After these, records may be free that somebody waits for, though none was added.
_freeing = {GiveBack, ReleaseLeases, Seek, Transaction}


class Queues(Verbs):
    """All queues of an open store."""

    store: Store

    def __init__(
        self,
        store: Store,
        committer: Committer,
        followers: Followers,
        clock: Clock,
        config: Config,
        timings: Timings | None = None,
    ) -> None:
        self.store = store
        self.timings = timings or Timings()
        self.config = config
        self.clock = clock
        # From memory there is nothing to answer but "taken", which is enough for a push and for nothing else.
        self._standing = Durability.WRITTEN if config.durability is Durability.MEMORY else config.durability
        self._committer = committer
        self.followers = followers
        self._identity = ""
        committer.on_orphan = self._take_back
        self.life = Life("this store", "async with headwater.open(...) as hw:")
        # Waited for while the store still takes something: for whoever has something left to write down.
        self.before_close: list[Callable[[], Awaitable[None]]] = []
        self.intentions = Intentions(
            self._pop_together, self.submit_and_forget, store, followers, clock, config.waiters_max
        )
        self.holdings = Holdings(self.intentions.drain)

    # ── pushing ──

    def push(self, push: Push, durability: Durability | None) -> asyncio.Future[CommittedPush]:
        """Append to one partition."""
        check_push(push, self.config)
        answer: asyncio.Future[CommittedPush] = self._committer.submit(push, durability or self.config.durability)
        if push.delay_seconds:
            answer.add_done_callback(lambda _: self._tell_waiters([push]))
        return answer

    async def push_together(self, pushes: Sequence[Push], durability: Durability | None) -> Sequence[CommittedPush]:
        """Append to several partitions in one commit."""
        for push in pushes:
            self.check_push(push)
        answers = await self._all(pushes, durability or self.config.durability)
        self._tell_waiters(pushes)
        return answers

    async def push_each(
        self, pushes: Sequence[Push], durability: Durability | None
    ) -> Sequence[CommittedPush | HeadwaterError]:
        """Append to several partitions in one commit; a partition that refuses is answered with its error."""
        for push in pushes:
            self.check_push(push)
        outcomes = await _outcomes(self._committer.submit_all(pushes, durability or self.config.durability))
        self._tell_waiters(pushes)
        return outcomes

    def _tell_waiters(self, pushes: Sequence[Push]) -> None:
        """Those who wait here for the queue of a message for later look again, to learn when it is due."""
        for push in pushes:
            if push.delay_seconds:
                self.intentions.released(push.database, push.queue)

    # ── popping and reporting ──

    async def pop_batches(
        self,
        operation: Pop,
        wait_seconds: float = 0,
        reports: Sequence[Ack] = (),
        parked: Callable[[], None] = lambda: None,
        *,
        is_known: IsKnown | None = None,
    ) -> Popped:
        """Lease the next records. `parked` is called when there is nothing yet and the wait begins. Whoever comes
        through a door says whether they are known there still, and waits no longer when they are not or pops are held
        off."""
        self.check_pop(operation)
        self.check_wait(wait_seconds)
        if wait_seconds:
            await self.followers.ready()
            if self.intentions.waiting_for(operation):
                return await self._stand_in_line(operation, wait_seconds, reports, parked, is_known)
        mark = self.intentions.mark()
        popped = await self.report_and_pop(reports, shared(operation, self.intentions.waiting_for(operation)))
        if popped.batches or not wait_seconds:
            return popped
        parked()
        return await self.intentions.wait(operation, wait_seconds, (mark, popped), is_known)

    async def _stand_in_line(
        self,
        operation: Pop,
        wait_seconds: float,
        reports: Sequence[Ack],
        parked: Callable[[], None],
        is_known: IsKnown | None,
    ) -> Popped:
        """Wait behind those who wait already: they get what the reports set free, in the same commit."""
        if reports:
            settling = self._committer.submit_all(reports, self._standing)
            self.intentions.serve(operation)
            await self._settled(reports, settling)
        parked()
        return await self.intentions.wait(operation, wait_seconds, is_known=is_known)

    async def report_and_pop(self, reports: Sequence[Ack], operation: Pop) -> Popped:
        """Reports on the last batches and the pop of the next, in one commit. Errors of reports are raised after it."""
        if operation.auto_ack and reports:
            # What it brings cannot be given back for the error that the caller gets in its place.
            await self.settle(reports)
            reports = ()
        settling: list[asyncio.Future[CommittedResult[Acked]]] = []
        if reports:
            together: tuple[Operation, ...] = (*reports, operation)
            *settling, popping = self._committer.submit_all(together, self._standing)
        else:
            popping = self._committer.submit(operation, self._standing)
        try:
            popped: Popped = (await popping).result
        except (HeadwaterError, asyncio.CancelledError):
            for settled in settling:
                settled.add_done_callback(self._look_at)
            # The answer may have come in the same turn of the loop as the word to leave.
            if popping.done() and not popping.cancelled() and popping.exception() is None:
                self._take_back(operation, popping.result().result)
            raise
        if not reports:
            return popped
        try:
            await self._settled(reports, settling)
        except (HeadwaterError, asyncio.CancelledError):
            self.give_back(popped, operation)
            raise
        return popped

    def give_back(self, popped: Popped, operation: Pop) -> None:
        """Let others have what was leased for somebody who will not work on it."""
        for giving_back in releases(popped, operation):
            self.submit_and_forget(giving_back)

    async def settle(self, reports: Sequence[Ack]) -> None:
        """Hand reports in and wake whoever waits for what they set free."""
        await self._settled(reports, self._committer.submit_all(reports, self._standing))

    async def settle_each(self, reports: Sequence[Ack]) -> list[Acked | HeadwaterError]:
        """The same, with what each report came to."""
        return await self._each_settled(reports, self._committer.submit_all(reports, self._standing))

    async def _settled(
        self, reports: Sequence[Ack], settling: Sequence[asyncio.Future[CommittedResult[Acked]]]
    ) -> None:
        for outcome in await self._each_settled(reports, settling):
            if isinstance(outcome, HeadwaterError):
                raise outcome

    async def _each_settled(
        self, reports: Sequence[Ack], settling: Sequence[asyncio.Future[CommittedResult[Acked]]]
    ) -> list[Acked | HeadwaterError]:
        found: list[Acked | HeadwaterError] = []
        for report, answer in zip(reports, settling, strict=True):
            try:
                acked = (await answer).result
            except HeadwaterError as error:
                found.append(error)
            else:
                found.append(acked)
                await self._note_release(report, acked)
        return found

    async def _note_release(self, report: Ack, acked: Acked) -> None:
        if acked.waiting and self.intentions.count:
            lane = await self.store.ask(FindLane(report.partition_id))
            if lane is not None:
                self.intentions.released(lane.database, lane.queue)

    async def extend_leases(self, extensions: Sequence[Extend]) -> list[Extended]:
        """Keep leases for longer; until when each holds now."""
        return [answer.result for answer in await self._all(extensions, self._standing)]

    # ── waiting pops ──

    def _pop_together(self, pops: Sequence[Pop]) -> list[asyncio.Future[CommittedResult[Popped]]]:
        return self._committer.submit_all(pops, self._standing)

    def submit_and_forget(self, operation: Operation) -> None:
        """Hand in an operation whose answer nobody needs."""
        self._committer.submit(operation, self._standing).add_done_callback(self._look_at)

    def _look_at(self, answer: asyncio.Future[CommittedResult]) -> None:
        """A lease that was lost before a report that nobody waits for is no news; what the report set free is."""
        if answer.cancelled() or answer.exception() is not None:
            return
        result = answer.result().result
        if (type(result) is Acked and result.waiting) or (type(result) is GivenBack and result.leases):
            self.intentions.committed_elsewhere()

    def _take_back(self, operation: Operation, result: object) -> None:
        """A pop whose caller has left: others get what was leased for it."""
        if type(result) is not Popped or not isinstance(operation, Pop):
            return
        try:
            for giving_back in releases(result, operation):
                self._committer.submit(giving_back, self._standing, is_late=True).add_done_callback(self._look_at)
        except Closed:
            log.warning("a pop was left while Headwater was closed; its lease runs out by itself")

    # ── reading without a group ──

    async def read_on(
        self,
        queue: tuple[str, str],
        after: Lsn,
        *,
        limit: int,
        wait_seconds: float = 0,
        parked: Callable[[], None] = lambda: None,
    ) -> Step:
        """What a (database, queue) has after an LSN; waits for something when there is nothing."""
        selection, limits = Selection(queue[0], (queue[1],)), Limits(limit)
        if not wait_seconds:
            return await self.followers.read(selection, after, limits)
        async with await self.followers.follow(selection, after, limits) as following:
            return await following.step(wait_seconds, parked)

    async def last_lsn(self) -> Lsn:
        """Where the log ends now."""
        return await self.store.ask(FindLastLsn())

    async def identity(self) -> str:
        """Which store it is. It stays while a store is open: whoever has one open that is restored has to open anew."""
        self._identity = self._identity or await self.store.ask(FindIdentity())
        return self._identity

    async def follow(self, database: str, queue: str, after: Lsn) -> Steps:
        """The log of a queue from an LSN on."""
        return await self.followers.follow(Selection(database, (queue,)), after)

    # ── the rest ──

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question about what is kept."""
        return await self.store.ask(question)

    @property
    def traits(self) -> Traits:
        """What the store is."""
        return self.store.traits

    def store_numbers(self) -> dict[str, float]:
        """What the store counts beside what is counted of every store."""
        return cast(Counts, self.store).numbers() if hasattr(self.store, "numbers") else {}

    async def run(self, operation: Operation[Result], durability: Durability | None = None) -> Result:
        """One operation that may be handed in, and what it came to."""
        operation = admit(operation, self.config)
        result = (await self._committer.submit(operation, durability or self._standing)).result
        if type(operation) in _freeing:
            self.intentions.committed_elsewhere()
        elif isinstance(operation, Transaction):
            self._tell_waiters([step for step in operation.operations if isinstance(step, Push)])
        return result

    async def _all(
        self, operations: Sequence[Operation[Result]], durability: Durability
    ) -> list[CommittedResult[Result]]:
        submitted = self._committer.submit_all(operations, durability)
        if len(submitted) == 1:
            return [await submitted[0]]
        answers = await asyncio.gather(*submitted, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, CommittedResult)]


async def _outcomes(
    submitted: Sequence[asyncio.Future[CommittedResult[Result]]],
) -> list[CommittedResult[Result] | HeadwaterError]:
    """What each operation came to: its answer, or the error that it failed with."""
    if len(submitted) == 1:
        try:
            return [await submitted[0]]
        except HeadwaterError as error:
            return [error]
    found: list[CommittedResult[Result] | HeadwaterError] = []
    for outcome in await asyncio.gather(*submitted, return_exceptions=True):
        if not isinstance(outcome, CommittedResult | HeadwaterError):
            raise outcome
        found.append(outcome)
    return found
