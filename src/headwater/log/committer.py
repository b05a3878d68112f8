"""Group commit: everyone who waits shares one transaction and one wait for the disk.

    submit ─► pending ─► store.apply ─► answers that asked for less than durable
                              │
                              └───────► store.make_durable ─► the other answers
                                        (a flight)

While the disk is busy, operations gather; they go in with the next commit. Only an operation that does not need the
disk makes a commit start meanwhile. While every turn of the event loop brings more callers, a commit waits for them, a
millisecond at most: a caller who is alone waits for nobody. `memory` is answered when it is taken, `written` when it is
committed, `synced`, the default, when it survives power loss. Every answer says which level it reached.

A store may let several flights be under way; they are answered in the order of their commits. Where another may take
the store over (`answers_wait`), nobody is answered from what has not landed, not even whoever only looked, and the tail
hears of a commit when it has. A race that is lost takes back everything on its way: nobody was answered for it, so it
goes to the head of those that wait, and is applied again to what the store holds then.

An operation that cannot be applied is refused alone, because it decides before it writes. One that breaks where nobody
foresaw it breaks its commit, which leaves no trace: the commit is tried again in halves, until who breaks it is alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter

from headwater.clock import Clock
from headwater.config import Durability
from headwater.errors import (
    Closed,
    HeadwaterError,
    StoreFailed,
    StoreFull,
    StoreReplaced,
    StoreSilent,
)
from headwater.log.backlog import Backlog, is_of_one
from headwater.log.home_loop import HomeLoop
from headwater.log.operations import Commit, Operation, Result
from headwater.log.submissions import CommittedPush, CommittedResult, Flight, Submission, nobody_knows, tell_waiting
from headwater.log.timings import Timings
from headwater.outage import OUTAGES
from headwater.stores.contract import RaceLost, Store

__all__ = ["CommittedPush", "CommittedResult", "Committer"]

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.001
# How long whoever is on the way to a store that takes nothing waits, before it is told that nobody knows; and how long
# whoever closes it waits.
OVERDUE_SECONDS = 15.0
CLOSE_SECONDS = 3.0
LOOK_SECONDS = 0.25


class Committer:
    """Takes operations from any number of callers on one event loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        pending_max: int,
        on_commit: Callable[[Commit], None] = lambda _: None,
        timings: Timings | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timings = timings or Timings()
        self._on_commit = on_commit
        self._answers_wait = store.traits.answers_wait
        self._flights_max = store.traits.flights_max
        self._backlog = Backlog(pending_max)
        self._unsynced: list[Submission] = []
        self._untold: list[Commit] = []
        self._flights: deque[Flight] = deque()
        # Those of them that wait for stable storage; the others only wait until the store is known to be ours.
        self._syncing = 0
        self._urgent = False
        self._broken = False
        self._scheduled = False
        self._callers = 0
        self._callers_seen = 0
        self._gather_until = 0.0
        self._applying = False
        # What is applied as soon as the store has recovered, and since when it waits for that.
        self._applied: list[Submission] = []
        self._applied_since = 0.0
        self._overdue_seconds = OVERDUE_SECONDS
        self._closing = False
        self._closed: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.home = HomeLoop("this store")
        self.on_orphan: Callable[[Operation, object], None] = lambda operation, result: None
        # They hear of every commit that holds.
        self.on_held: list[Callable[[Commit], None]] = []
        # Whether the disk has refused a commit for want of room, and no room was found since.
        self.full = False
        self.commits = 0
        self.syncs = 0

    @property
    def pending(self) -> int:
        """How many operations wait for a commit."""
        return len(self._backlog)

    def start(self) -> None:
        """Begin to commit, on the running event loop."""
        self._loop = self.home.settle()

    def hurry(self) -> None:
        """Everything is about to end: whoever is on the way to a store that takes nothing is told soon."""
        self._overdue_seconds = CLOSE_SECONDS

    async def close(self) -> None:
        """Finish what was taken, then stop. StoreFailed when the store is full or silent, and something was given up:
        nobody knows whether it holds."""
        if self._loop is None:
            return
        self._closing = True
        give_up_at = self._loop.time() + CLOSE_SECONDS
        while self.pending or self._flights or self._applying:
            self._closed = self._loop.create_future()
            if self.pending:
                self._schedule()
            await asyncio.wait({self._closed}, timeout=LOOK_SECONDS)
            if not self._closed.done() and self._loop.time() >= give_up_at and (trouble := self._find_trouble()):
                await self._give_up(trouble)
                return
        self._loop = None

    def _find_trouble(self) -> StoreFull | StoreSilent | None:
        try:
            self._store.check()
        except (StoreFull, StoreSilent) as error:
            return error
        except HeadwaterError as error:
            log.debug("the store could not be looked at: %s", error)
        return None

    async def _give_up(self, trouble: StoreFull | StoreSilent) -> None:
        """Wait for nothing any more. What was sent may land, what waited behind it will not: nobody is told success."""
        sent = [submission for flight in self._flights if flight.sync_begun for submission in flight.submissions]
        looked = [submission for flight in self._flights if not flight.sync_begun for submission in flight.submissions]
        lost = [*sent, *self._unsynced, *self._applied, *self._backlog.take_all()]
        self._flights.clear()
        self._unsynced, self._untold = [], []
        self._loop = None
        if self._applying:
            self._waiting.cancel()
            await asyncio.wait({self._waiting})
        tell_waiting(looked, trouble)
        tell_waiting(lost, nobody_knows(trouble))
        if lost:
            error = StoreFailed(f"what was taken ({len(lost)}) is given up, and may hold or not: {trouble}")
            log.error("%s", error)
            raise error

    def submit(
        self, operation: Operation[Result], durability: Durability = Durability.SYNCED, *, is_late: bool = False
    ) -> asyncio.Future[CommittedResult[Result]]:
        """Hand in an operation; await what it came to. What an answer that nobody took makes necessary may come late:
        closing waits for it."""
        loop = self._loop_with_room(1, is_late=is_late)
        submission = Submission(operation, durability, loop.create_future())
        self._backlog.pending.append(submission)
        self._handed_in((submission,), durability)
        return submission.answer

    def submit_all(
        self, operations: Sequence[Operation[Result]], durability: Durability = Durability.SYNCED
    ) -> list[asyncio.Future[CommittedResult[Result]]]:
        """Hand in operations that go together: all are taken, by one commit, or none. Each is answered by itself."""
        loop = self._loop_with_room(len(operations))
        submitted = [
            Submission(operation, durability, loop.create_future(), place > 0)
            for place, operation in enumerate(operations)
        ]
        self._backlog.pending += submitted
        self._handed_in(submitted, durability)
        return [submission.answer for submission in submitted]

    def _loop_with_room(self, count: int, *, is_late: bool = False) -> asyncio.AbstractEventLoop:
        """The loop to wait on; raises when so many more cannot be taken."""
        if self._loop is None or (self._closing and not is_late):
            raise Closed("Headwater is closed")
        self.home.check()
        self._backlog.check_room(count)
        return self._loop

    def _handed_in(self, submitted: Sequence[Submission], durability: Durability) -> None:
        """One caller more: what it waits for goes with the next commit."""
        self._callers += 1
        if durability is not Durability.SYNCED:
            self._urgent = not self._answers_wait
            if durability is Durability.MEMORY:
                for submission in submitted:
                    submission.settle(Durability.MEMORY)
        if not self._scheduled:
            self._schedule()

    # ── committing: everything that was handed in during one turn of the event loop goes together ──

    def _schedule(self) -> None:
        """Commit at the end of this turn of the loop, unless it must wait for the disk or for a commit under way."""
        if self._loop is None or self._applying:
            return
        if self._broken and self._flights:
            # Those of a lost race come back first.
            return
        if self._urgent or self._closing or self._syncing < self._flights_max:
            self._scheduled = True
            self._callers_seen = 1
            self._gather_until = 0.0
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        if self._callers > self._callers_seen and self._gathers_on():
            return
        self._scheduled = False
        if self._applying or not self._backlog or (self._broken and self._flights):
            self._wake_closer()
            return
        batch = self._backlog.take()
        self._callers = 0
        self._urgent = not self._answers_wait and any(
            waiting.durability is not Durability.SYNCED for waiting in self._backlog.pending
        )
        operations = [submission.operation for submission in batch]
        now = self._clock.now()
        begun = perf_counter()
        try:
            commit = None if self._broken else self._store.apply_now(operations, now)
        except Exception as error:
            self._break(batch, error)
        else:
            if commit is None:
                self._commit_later(batch, operations)
                return
            self._timings.applied(operations, perf_counter() - begun)
            self._committed(batch, commit)
        if self._backlog or self._closing:
            self._schedule()

    def _gathers_on(self) -> bool:
        """Whether the commit waits for another turn of the loop, because this one brought more callers."""
        if self._loop is None:
            return False
        now = self._loop.time()
        self._gather_until = self._gather_until or now + GATHER_SECONDS
        if now > self._gather_until:
            return False
        self._callers_seen = self._callers
        self._loop.call_soon(self._commit)
        return True

    def _commit_later(self, batch: list[Submission], operations: list[Operation]) -> None:
        """The store has to be waited for; meanwhile operations gather."""
        assert self._loop is not None
        self._applying = True
        self._applied, self._applied_since = batch, perf_counter()
        self._waiting = self._loop.create_task(self._apply(batch, operations), name="headwater-committer")

    async def _apply(self, batch: list[Submission], operations: list[Operation]) -> None:
        try:
            if self._broken:
                await self._store.recover()
                self._broken = False
            begun = perf_counter()
            commit = await self._store.apply(operations, self._clock.now())
        except RaceLost:
            # Behind those whose commits came before it.
            self._backlog.returned += batch
            self._broken = True
        except Exception as error:
            self._break(batch, error)
        else:
            self._timings.applied(operations, perf_counter() - begun)
            self._committed(batch, commit)
        finally:
            self._applying, self._applied = False, []
            self._schedule()

    def has_room(self) -> None:
        """There is room: what was refused may come again."""
        if self.full:
            self.full = False
            log.warning("there is room again: pushes are taken")

    def refuse_waiting(self, error: StoreFull | StoreSilent) -> None:
        """What is on its way finds no room, or no answer, and all there is may be on its way: whoever waits behind
        it is told; and at last, whoever is on the way, that nobody knows."""
        if isinstance(error, StoreFull):
            self._fill_up(error)
        self._backlog.refuse_pending(error)
        self._tell_overdue(error)

    def _tell_overdue(self, error: StoreFull | StoreSilent) -> None:
        """They stay on their way, and may arrive. Whoever only looked has changed nothing."""
        overdue = [flight for flight in self._flights if flight.is_overdue(self._overdue_seconds)]
        late = [submission for flight in overdue for submission in flight.submissions]
        if overdue:
            late += self._unsynced
        if self._applying and perf_counter() - self._applied_since >= self._overdue_seconds:
            late += self._applied
        tell_waiting(late, nobody_knows(error))
        for flight in self._flights:
            if flight.sync_begun is None:
                tell_waiting(flight.submissions, error)

    def _fill_up(self, error: StoreFull) -> None:
        """Told once, however many are refused: a full disk must not fill the log as well."""
        if not self.full:
            self.full = True
            log.error("the store is full: only what deletes or drops records is taken until there is room (%s)", error)

    def _committed(self, batch: list[Submission], commit: Commit) -> None:
        self.commits += 1
        self._backlog.widen()
        if commit.full is not None:
            self._fill_up(commit.full)
        elif self.full and commit.touched:
            self.has_room()
        if self._answers_wait:
            self._answer_landed(batch, commit)
        else:
            self._answer(batch, commit)
            self._tell(commit)

    def _break(self, batch: list[Submission], error: Exception) -> None:
        """Nothing of this commit took effect. Where that may be the fault of one of them, the others go on without."""
        if len(batch) > 1 and is_of_one(error):
            log.warning("a commit of %d operations failed, and is tried in parts: %r", len(batch), error)
            self._backlog.halve(batch)
        else:
            self._refuse(batch, error)

    def _refuse(self, batch: list[Submission], error: Exception) -> None:
        """Nothing of this commit took effect: everybody is told."""
        if isinstance(error, StoreFull):
            self._fill_up(error)
        elif not isinstance(error, HeadwaterError):
            log.error("a commit failed", exc_info=error)
        for submission in batch:
            submission.fail(error)

    def _wake_closer(self) -> None:
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    def _answer(self, batch: list[Submission], commit: Commit) -> None:
        """Answer those that need no more, and queue the others for the disk."""
        wrote, unsynced = commit.wrote, self._unsynced
        at_once = []
        for submission, result in zip(batch, commit.results, strict=True):
            submission.result = result
            if wrote and submission.durability is Durability.SYNCED:
                unsynced.append(submission)
            else:
                at_once.append(submission)
        if at_once:
            self._answer_at_once(at_once, wrote=wrote)
        if self._unsynced and self._syncing < self._flights_max:
            self._sync()

    def _answer_landed(self, batch: list[Submission], commit: Commit) -> None:
        """Queue all of them for a flight that begins after they looked, and so brings home what they saw."""
        for submission, result in zip(batch, commit.results, strict=True):
            submission.result = result
        if commit.wrote or self._unsynced:
            self._unsynced += batch
            self._untold.append(commit)
            if self._syncing < self._flights_max:
                self._sync()
        else:
            self._take_off(batch, [], self._begin_landing(), None)

    def _answer_at_once(self, batch: list[Submission], *, wrote: bool) -> None:
        """Answer those that do not wait for the disk, if the store they ask of is still the one that was opened."""
        try:
            self._store.landed()
        except (OSError, HeadwaterError) as error:
            for submission in batch:
                submission.fail(error)
            return
        for submission in batch:
            self._settle(submission, Durability.WRITTEN if wrote else submission.durability)

    def _settle(self, submission: Submission, durability: Durability) -> None:
        """Answer the caller; what a caller who has left would have got is told to `on_orphan`."""
        if not submission.settle(durability):
            self.on_orphan(submission.operation, submission.result)

    # ── flights: on the way to stable storage, answered in order ──

    def _sync(self) -> None:
        submissions, self._unsynced = self._unsynced, []
        commits, self._untold = self._untold, []
        self.syncs += 1
        begun = perf_counter()
        try:
            done = self._store.make_durable(len(submissions))
        except (OSError, HeadwaterError, RaceLost) as error:
            done = Flight.failed(error)
        self._take_off(submissions, commits, done, begun)

    def _begin_landing(self) -> asyncio.Future[None] | None:
        try:
            return self._store.landed()
        except (OSError, HeadwaterError, RaceLost) as error:
            return Flight.failed(error)

    def _take_off(
        self,
        submissions: list[Submission],
        commits: list[Commit],
        done: asyncio.Future[None] | None,
        sync_begun: float | None,
    ) -> None:
        """Send them on their way; where that needs no time, they are answered now, unless others are before them."""
        if done is None and not self._flights:
            self._land(submissions, commits, sync_begun)
            return
        if done is None:
            done = self._flights[-1].done
        self._flights.append(Flight(submissions, commits, done, sync_begun))
        self._syncing += sync_begun is not None
        if done.done():
            self._arrived(done)
        else:
            done.add_done_callback(self._arrived)

    def _arrived(self, done: asyncio.Future[None]) -> None:
        """A flight is home: answer in order, as far as everything before is home too."""
        done.exception()
        while self._flights and self._flights[0].done.done():
            flight = self._flights.popleft()
            self._syncing -= flight.sync_begun is not None
            error = flight.done.exception()
            if error is not None:
                self._lose(flight.submissions, error)
                return
            self._land(flight.submissions, flight.commits, flight.sync_begun)
        self._go_on()

    def _land(self, submissions: list[Submission], commits: list[Commit], sync_begun: float | None) -> None:
        if sync_begun is not None:
            self._timings.syncs.observe(perf_counter() - sync_begun)
        for submission in submissions:
            self._settle(submission, Durability.SYNCED)
        for commit in commits:
            self._tell(commit)

    def _tell(self, commit: Commit) -> None:
        """A commit holds: those hear of it who count or follow."""
        for call in self.on_held:
            call(commit)
        self._on_commit(commit)

    def _go_on(self) -> None:
        """There is room for another flight."""
        if self._unsynced and self._syncing < self._flights_max:
            self._sync()
        if self._backlog or self._closing:
            self._schedule()

    def _lose(self, submissions: list[Submission], error: BaseException) -> None:
        """They did not arrive, and neither did any behind them. Nothing is taken until the store has recovered."""
        lost = [*submissions]
        for flight in self._flights:
            lost += flight.submissions
        lost += self._unsynced
        self._flights.clear()
        self._syncing = 0
        self._unsynced, self._untold = [], []
        self._broken = True
        if isinstance(error, RaceLost):
            self._backlog.returned = lost + self._backlog.returned
        else:
            self._fail(lost, error)
        self._schedule()

    def _fail(self, lost: list[Submission], error: BaseException) -> None:
        """The disk refused: nobody is told success."""
        if isinstance(error, StoreReplaced):
            # Whoever watches the store tells the log, once.
            unsure: HeadwaterError = error
        else:
            level = logging.DEBUG if isinstance(error, OUTAGES) else logging.ERROR
            log.log(level, "a commit could not be made durable: %s", error)
            unsure = StoreFailed(
                f"the disk refused to make this commit durable ({error}); whether it holds is not known"
            )
        for submission in lost:
            submission.fail(unsure)
