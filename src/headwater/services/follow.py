"""Following the log: who in this process wants to know of what, and the way from a position to what came after it.

    tail ── touches ──► Followers ── by (database, queue) ──► those whose selection holds them
                                                                │  woken
                        segments in memory, or in the store ◄── Following.step

There is one subscription to the tail for the whole process, and an index: a commit costs nothing for those who follow
other queues. A `Following` is a position and a selection. Its steps are bounded, and nothing is gathered for it between
them: what it has not taken yet is in the end of the log that is kept in memory (`log/recent.py`), or else in the store.
It tells when records were dropped that it had not got yet (`Step.resync`); nothing is passed over in silence.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

import msgspec

from headwater.config import MIB
from headwater.errors import Closed, StoreDamaged
from headwater.log.home_loop import HomeLoop
from headwater.log.operations import Touch
from headwater.log.recent import take
from headwater.log.tail import LOOK_LIMIT, Tail
from headwater.model.lane import Lane
from headwater.model.names import Lsn
from headwater.model.selection import Selection, fits, is_pattern
from headwater.outage import OUTAGES, PAUSE_SECONDS
from headwater.stores.contract import Store
from headwater.stores.questions import FindLastLsn, FindLastLsnOf, FindLoss, Segment

log = logging.getLogger(__name__)

# How many segments are read before it is known how large they are.
FIRST_SEGMENTS = 16
SELECTIONS_KNOWN_MAX = 1_000

Listener = Callable[[Sequence[Touch]], None]


class Limits(msgspec.Struct, frozen=True):
    """How much one step brings at most; one segment at least."""

    segments: int = 100
    bytes: int = 4 * MIB


class Step(msgspec.Struct, frozen=True):
    """What came after a position, and how far that is.

    `resync` is set when records were dropped that should have come with it: whoever keeps a state of them makes it
    anew, and goes on from this position, behind which the segments of the step are.
    """

    segments: list[Segment]
    through: Lsn
    resync: Lsn | None = None

    def __bool__(self) -> bool:
        return bool(self.segments) or self.resync is not None


STANDARD = Limits()


class Steps(ABC):
    """A way through the log, one bounded step after the other: of a store (`Following`), or of a server."""

    position: Lsn

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing more will come."""

    @abstractmethod
    async def step(self, wait_seconds: float | None = None) -> Step:
        """What comes next. Waits for it, for ever when no time is given, also for a store that is away; an empty step
        when the time is over."""

    @abstractmethod
    def close(self) -> None:
        """Follow no more."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncGenerator[Step, None]:
        """Steps with something in them, for ever."""
        while not self.is_over:
            step = await self.step()
            if step:
                yield step

    async def until(self, end: Lsn) -> AsyncGenerator[Step, None]:
        """Steps up to this LSN, without waiting; they end before it when there is no more for this follower."""
        while self.position < end and (step := await self.step(0)):
            yield msgspec.structs.replace(step, segments=[one for one in step.segments if one.lsn <= end])


class Watch:
    """Somebody who is called when something of a selection is new."""

    __slots__ = ("call", "selection")

    def __init__(self, selection: Selection, call: Listener) -> None:
        self.selection = selection
        self.call = call


class Index:
    """Who watches what, by database and queue; those of named partitions by these."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str, str], dict[Watch, None]] = {}
        self._patterns: dict[tuple[str, str], dict[Watch, None]] = {}
        # Of queues that were touched, the patterns that they fit; found anew when there are other patterns.
        self._fitting: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def __iter__(self) -> Iterator[Watch]:
        tables = (*self._named.values(), *self._patterns.values())
        return iter(list(dict.fromkeys(watch for table in tables for watch in table)))

    def add(self, watch: Watch) -> None:
        """From now on."""
        for key in self._names(watch.selection):
            self._named.setdefault(key, {})[watch] = None
        for pattern in self._wide(watch.selection):
            if pattern not in self._patterns:
                self._fitting.clear()
            self._patterns.setdefault(pattern, {})[watch] = None

    def discard(self, watch: Watch) -> None:
        """No more; a second time changes nothing."""
        for key in self._names(watch.selection):
            if key in self._named:
                self._named[key].pop(watch, None)
                if not self._named[key]:
                    del self._named[key]
        for pattern in self._wide(watch.selection):
            if pattern in self._patterns:
                self._patterns[pattern].pop(watch, None)
                if not self._patterns[pattern]:
                    del self._patterns[pattern]
                    self._fitting.clear()

    def holding(self, lane: Lane) -> Iterator[Watch]:
        """Those who watch a partition."""
        yield from self._named.get((lane.database, lane.queue, ""), ())
        yield from self._named.get((lane.database, lane.queue, lane.partition), ())
        if self._patterns:
            for pattern in self._fits(lane):
                for watch in self._patterns[pattern]:
                    if not watch.selection.partitions or lane.partition in watch.selection.partitions:
                        yield watch

    def _fits(self, lane: Lane) -> list[tuple[str, str]]:
        key = (lane.database, lane.queue)
        found = self._fitting.get(key)
        if found is None:
            if len(self._fitting) >= SELECTIONS_KNOWN_MAX:
                self._fitting.clear()
            wide = [one for one in self._patterns if one[0] == lane.database and fits(lane.queue, one[1:])]
            found = self._fitting[key] = wide
        return found

    @staticmethod
    def _names(selection: Selection) -> list[tuple[str, str, str]]:
        queues = [queue for queue in selection.queues if not is_pattern(queue)]
        return [(selection.database, queue, part) for queue in queues for part in selection.partitions or ("",)]

    @staticmethod
    def _wide(selection: Selection) -> list[tuple[str, str]]:
        return [(selection.database, queue) for queue in selection.queues if is_pattern(queue)]


class Followers:
    """Everybody in this process who follows the log."""

    def __init__(self, store: Store, tail: Tail, home: HomeLoop | None = None) -> None:
        self.store = store
        self.home = home or HomeLoop("this store")
        self.tail = tail
        self._index = Index()
        self._losses: OrderedDict[Selection, tuple[int, Lsn]] = OrderedDict()
        self._closed = False
        self.under_way: set[Following] = set()
        self.draining = False
        # Called when another process has committed, whatever it was.
        self.on_elsewhere: list[Callable[[], None]] = []
        # Called when somebody set the clock, with how many microseconds forward: for who waits for a time of day.
        self.on_clock_set: list[Callable[[int], None]] = []

    # ── who is told ──

    async def ready(self) -> None:
        """From when this is answered, whoever watches is told of all that is new."""
        self.check()
        self.home.check()
        await self.tail.join(self.touched, self._elsewhere)

    def watch(self, selection: Selection, call: Listener) -> Callable[[], None]:
        """Call `call` with what is new of a selection, once this is `ready`; returns what ends that. It is called with
        nothing when the store is lost."""
        watch = Watch(selection, call)
        self._index.add(watch)
        return lambda: self._index.discard(watch)

    def drain(self) -> None:
        """Nobody may wait any more: steps come back with nothing."""
        self.draining = True
        self._wake_all()

    def close(self) -> None:
        """Whoever still follows is told that it is over."""
        self._closed = True
        self._wake_all()

    def check(self) -> None:
        """Raises when it is over."""
        if self._closed:
            raise Closed("Headwater is closed")

    def touched(self, touches: Sequence[Touch]) -> None:
        """The tail has something new, or nothing when the store is lost: tell those who watch it."""
        if not touches:
            for watch in self._index:
                _tell(watch, ())
            return
        called: dict[Watch, list[Touch]] = {}
        for touch in touches:
            for watch in self._index.holding(touch.lane):
                theirs = called.setdefault(watch, [])
                if not theirs or theirs[-1] is not touch:
                    theirs.append(touch)
        for watch, theirs in called.items():
            _tell(watch, theirs)

    def _wake_all(self) -> None:
        for following in list(self.under_way):
            following.wake()

    def _elsewhere(self) -> None:
        for call in list(self.on_elsewhere):
            call()

    # ── what they get ──

    async def follow(
        self, selection: Selection, after: Lsn | None = None, limits: Limits = STANDARD, *, seen: bool = False
    ) -> "Following":
        """A way from an LSN on; from the beginning of what is kept with 0, from the end of the log with None.

        `seen` says that the LSN is that of a segment which the follower has got: when that is not kept any more, or
        never was, nobody can tell what else is missing, and the first step says so. With 0 they have got nothing yet:
        only what was dropped is missing to them.

        >>> async with await followers.follow(Selection("main", ("orders",)), Lsn(0)) as following:
        ...     async for step in following:
        """
        await self.ready()
        following = Following(self, selection, limits)
        try:
            following.position = await self.store.ask(FindLastLsn()) if after is None else after
            if after == 0 and not seen:
                following.forgiven = await self.lost_through(selection)
            if seen and following.position and not await self._is_kept(selection, following.position):
                newest = await self.store.ask(FindLastLsnOf(selection.database, selection.queues))
                following.position = min(following.position, newest)
                following.is_unsure_of_past = True
        except BaseException:
            following.close()
            raise
        return following

    async def read(self, selection: Selection, after: Lsn, limits: Limits = STANDARD) -> Step:
        """What there is now after an LSN, without following."""
        self.check()
        through = Lsn(max(await self.store.ask(FindLastLsn()), after))
        segments, reached = await self.stretch(selection, after, through, limits)
        lost = await self.lost_through(selection) if after else Lsn(0)
        return Step(segments, reached, begin_of(segments, lost) if lost > after else None)

    async def stretch(
        self, selection: Selection, after: Lsn, through: Lsn, limits: Limits
    ) -> tuple[list[Segment], Lsn]:
        """Segments from the store, and how far they reach. One that cannot be read is told when it is the first."""
        found: list[Segment] = []
        size = 0
        while after < through and len(found) < limits.segments and size < limits.bytes:
            room = limits.segments - len(found)
            wanted = room if size and size * 8 < limits.bytes else min(room, FIRST_SEGMENTS)
            try:
                segments, after = await self._bite(selection, after, through, wanted)
            except StoreDamaged:
                if not found:
                    raise
                break
            for segment in segments:
                if selection.holds(segment.lane):
                    found.append(segment)
                    size += sum(len(record.data) for record in segment.records)
        return found, after

    async def _bite(self, selection: Selection, after: Lsn, through: Lsn, wanted: int) -> tuple[list[Segment], Lsn]:
        """Some segments among which those of a selection are, and how far was looked."""
        if selection.queue:
            lane = (selection.database, selection.queue)
            segments = await self.store.read(after, through, wanted, lane)
            return segments, segments[-1].lsn if segments else through
        touches = await self.store.touched(after, LOOK_LIMIT)
        first = next((place for place, touch in enumerate(touches) if selection.holds(touch.lane)), None)
        if first is None or touches[first].lsn > through:
            return [], Lsn(min(touches[-1].lsn, through)) if len(touches) == LOOK_LIMIT else through
        run = touches[first : first + wanted]
        end = next((place for place, touch in enumerate(run) if not selection.holds(touch.lane)), len(run))
        last = Lsn(min(run[end - 1].lsn, through))
        segments = await self.store.read(Lsn(run[0].lsn - 1), last, end)
        return segments, segments[-1].lsn if segments else last

    async def lost_through(self, selection: Selection) -> Lsn:
        """The newest LSN up to which records of a selection were dropped. Asked anew when there was a drop since."""
        number, known = self._losses.get(selection, (-1, Lsn(0)))
        loss = await self.store.ask(FindLoss(selection.database, selection.queues, selection.partitions, number))
        found = known if loss.lsn is None else loss.lsn
        self._losses[selection] = (loss.number, found)
        if len(self._losses) > SELECTIONS_KNOWN_MAX:
            self._losses.popitem(last=False)
        return found

    async def _is_kept(self, selection: Selection, lsn: Lsn) -> bool:
        segments, _ = await self.stretch(selection, Lsn(max(lsn - 1, 0)), lsn, STANDARD)
        return bool(segments)


class Following(Steps):
    """One who follows. `forgiven` is the LSN up to which losses are known, or were before it began."""

    def __init__(self, followers: Followers, selection: Selection, limits: Limits) -> None:
        self._followers = followers
        self._selection = selection
        self._limits = limits
        self._news = asyncio.Event()
        # Everything that the tail has told of the selection lies up to the position, or from `_due` on.
        self._is_caught_up = False
        self._due: Lsn | None = None
        self._is_unsure = True
        self.is_unsure_of_past = False
        self.position = Lsn(0)
        self.forgiven = Lsn(0)
        self._unwatch = followers.watch(selection, self._wake)
        followers.under_way.add(self)

    @property
    def is_over(self) -> bool:
        """Whether nobody may wait any more."""
        return self._followers.draining

    def close(self) -> None:
        """Follow no more."""
        self._unwatch()
        self._followers.under_way.discard(self)

    def wake(self) -> None:
        """Look up: something has changed for everybody who follows."""
        self._news.set()

    async def step(self, wait_seconds: float | None = None, parked: Callable[[], None] = lambda: None) -> Step:
        """What comes next, or nothing when the time is over or nobody may wait any more. `parked` is called when there
        is nothing yet and the wait begins.

        Raises StoreReplaced when the store is lost, and Closed when it is closed already. Whoever waits for ever waits
        for a store that is away, too, and goes on where they were.
        """
        loop = asyncio.get_running_loop()
        deadline = None if wait_seconds is None else loop.time() + wait_seconds
        while True:
            self._news.clear()
            try:
                found = await self._look()
            except OUTAGES:
                if wait_seconds is not None:
                    raise
                await self._may_go_on(loop.time() + PAUSE_SECONDS)
                if self.is_over:
                    return Step([], self.position)
                continue
            if found or self.is_over or wait_seconds == 0:
                return found
            parked()
            if not await self._may_go_on(deadline):
                self._skip()
                return Step([], self.position)

    async def _may_go_on(self, deadline: float | None) -> bool:
        """Whether something has come before the time is over, and anybody may still wait."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            return False
        return not self.is_over

    def _wake(self, touches: Sequence[Touch]) -> None:
        if not touches:
            self._is_unsure = True
        if self._is_caught_up and self._due is None:
            self._due = next((touch.lsn for touch in touches if touch.lsn > self.position), None)
        self._news.set()

    async def _look(self) -> Step:
        """What there is now after the position, which moves behind it."""
        self._followers.check()
        self._skip()
        found = None if self.is_unsure_of_past else await self._recent()
        return await self._stored() if found is None else found

    def _skip(self) -> None:
        """Pass what is known to be others': whoever follows a quiet queue must not fall behind a busy log."""
        tail = self._followers.tail
        if self._is_caught_up and tail.hole_through <= self.position:
            quiet = Lsn(self._due - 1) if self._due is not None else tail.position
            self.position = max(self.position, quiet)

    async def _recent(self) -> Step | None:
        """What is in memory; None when only the store can tell."""
        tail = self._followers.tail
        end = tail.position
        if self.position < tail.recent.floor:
            return None
        found, are_all = take(
            tail.recent.after(self._selection, self.position), self._limits.segments, self._limits.bytes
        )
        if found:
            # Reading would have said that this is the store which was opened.
            landed = self._followers.store.landed()
            if landed is not None:
                await landed
        elif self._is_unsure:
            return None
        self._reach(end if are_all else found[-1].touch.lsn, is_all=are_all and tail.position == end)
        return Step([kept.segment() for kept in found], self.position)

    async def _stored(self) -> Step:
        """What is in the store, and whether anything is missing there."""
        followers, tail = self._followers, self._followers.tail
        last = tail.position
        if self._is_unsure:
            last = await followers.store.ask(FindLastLsn())
            self._is_unsure = False
            found = await self._recent() if last <= tail.position and not self.is_unsure_of_past else None
            if found is not None:
                return found
        after, through = self.position, Lsn(max(last, self.position))
        segments, reached = await followers.stretch(self._selection, after, through, self._limits)
        # Asked behind the read: what was dropped before it is known by now.
        lost = await followers.lost_through(self._selection)
        is_lost = self.is_unsure_of_past or lost > max(after, self.forgiven)
        resync = begin_of(segments, max(after, lost)) if is_lost else None
        self.is_unsure_of_past, self.forgiven = False, max(lost, self.forgiven)
        # What is told meanwhile of the selection is news; without any, all that the tail told is others'.
        self._reach(reached, is_all=reached >= through and not self._news.is_set())
        return Step(segments, reached, resync)

    def _reach(self, through: Lsn, *, is_all: bool) -> None:
        self.position = max(self.position, through)
        self._due = None
        self._is_caught_up = is_all


def begin_of(segments: Sequence[Segment], lost: Lsn) -> Lsn:
    """Where to go on behind a loss: before the first segment that is kept; where none is, behind what is lost."""
    return Lsn(segments[0].lsn - 1) if segments else lost


def _tell(watch: Watch, touches: Sequence[Touch]) -> None:
    try:
        watch.call(touches)
    except Exception:
        log.exception("somebody who follows the log failed")
