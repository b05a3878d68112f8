"""Pops that wait: each is an intention in a registry, not a thread, a timer or a query of its own.

Intentions with the same selection and group share a key, and follow the log together (`follow.py`): only the keys that
could want what is new get a pop, at most one commit's worth at a time, oldest intention first, until one comes back
empty. An answer is claimed by taking the intention out of the registry before anything is delivered, so a deadline and
a delivery can never both answer. Whoever leaves early gets nothing; what was leased for them is given back at once.

Who is served, by rule: those who wait for the same stand in a line, and what becomes free goes to the one who has
waited longest. Whoever comes while others wait stands behind them, also when it hands in a report that sets something
free. A pop of several partitions takes no more than its share of them while others wait.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Protocol

import msgspec

from headwater.clock import MILLISECOND, SECOND, Clock
from headwater.errors import HeadwaterError, Overloaded
from headwater.log.committer import CommittedResult
from headwater.log.operations import Operation, Pop, Popped, Touch
from headwater.model.histogram import Histogram
from headwater.model.names import Lsn
from headwater.model.principal import Principal
from headwater.outage import OUTAGES, PAUSE_SECONDS, tell
from headwater.services.deadlines import Deadlines
from headwater.services.follow import Followers
from headwater.services.giving_back import releases
from headwater.services.pop_keys import Key, is_wanted, key_of, selection_of
from headwater.services.pop_lines import Intention, IsKnown, Line
from headwater.stores.contract import Store
from headwater.stores.questions import ListReady

log = logging.getLogger(__name__)

ELSEWHERE_SECONDS = 0.02
# Pops of one line that go into a commit together: few at first, because most wakes bring a few records, then more.
POPS_FIRST = 4
POPS_GROWTH = 4
POPS_AT_ONCE = 1_024


# How often something happened that the tail does not tell, and where that is.
Mark = tuple[int, Lsn]


class Gate(Protocol):
    """Whether pops that came through a door are held off."""

    def is_shut(self, database: str) -> bool:
        """As far as this process knows."""

    async def look(self) -> None:
        """Ask the store."""

    def doubt(self) -> None:
        """What is known may have changed."""


class Intentions:
    """The registry of waiting pops of one process."""

    def __init__(
        self,
        pop: Callable[[Sequence[Pop]], Sequence[asyncio.Future[CommittedResult[Popped]]]],
        give_back: Callable[[Operation], None],
        store: Store,
        followers: Followers,
        clock: Clock,
        waiters_max: int,
    ) -> None:
        self._pop = pop
        self._give_back = give_back
        self._store = store
        self._followers = followers
        self._clock = clock
        self._waiters_max = waiters_max
        followers.on_elsewhere.append(self.committed_elsewhere)
        followers.on_clock_set.append(self._clock_set)
        self._lines: dict[Key, Line] = {}
        # Keys that name a queue are found under it; those that name none are under "" of their database.
        self._by_queue: dict[tuple[str, str], set[Key]] = {}
        self._deadlines = Deadlines(self._is_waiting, self._time_is_over)
        self._elsewhere_timer: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._happened = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[asyncio.Future[CommittedResult[Popped]]] = set()
        self._draining = False
        self._access_version = 0
        self.gate: Gate | None = None
        self.count = 0
        self.wakes = 0
        self.useful_wakes = 0
        self.pops = 0
        self.served = 0
        self.timeouts = 0
        self.overflows = 0
        self.delivery = Histogram()

    @property
    def draining(self) -> bool:
        """Whether nobody may wait any more."""
        return self._draining

    def keys(self) -> int:
        """How many selections are waited for."""
        return len(self._lines)

    def count_for(self, principal: Principal) -> int:
        """How many pops wait for what a principal may use; one that names no queue could want any of its database."""
        return sum(
            len(line.waiting)
            for key, line in self._lines.items()
            if key.database == principal.database
            and (principal.may_use(key.queue) if key.queue else principal.may_use_all())
        )

    def mark(self) -> Mark:
        """What stays the same while nothing happens that a waiting pop would be woken for."""
        return self._happened, self._followers.tail.position

    async def wait(
        self, operation: Pop, seconds: float, empty: tuple[Mark, Popped] | None = None, is_known: IsKnown | None = None
    ) -> Popped:
        """What the pop gets, as soon as there is something; nothing when the time is over, or, for somebody who came
        through a door, when the gate is shut or they are not known any more.

        `empty` is the mark before a pop that found nothing, and what it said: if nothing has happened since, there is
        no need to ask again before waiting.
        """
        if self._draining or (is_known is not None and self._is_shut(operation.database)):
            return Popped()
        if self.count >= self._waiters_max:
            self.overflows += 1
            raise Overloaded(f"{self._waiters_max:,} pops wait already; try again later")
        if not self.count:
            self._access_version = self._store.access_version()
        loop = asyncio.get_running_loop()
        key = key_of(operation)
        intention = Intention(operation, key, loop.time() + seconds, loop.create_future(), is_known)
        number = next(self._numbers)
        line = self._enter(number, intention)
        if empty is not None and empty[0] == self.mark() and not line.busy:
            self._look_later(key, line, empty[1].ready_at)
        else:
            self._serve(key, line)
        try:
            return await intention.answer
        except asyncio.CancelledError:
            self._leave(number, key)
            answer = intention.answer
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._return(answer.result(), operation)
            raise

    def waiting_for(self, operation: Pop) -> int:
        """How many wait for the same as this pop."""
        line = self._lines.get(key_of(operation)) if self._lines else None
        return 0 if line is None else len(line.waiting)

    def serve(self, operation: Pop) -> None:
        """Something may be free for those who wait for the same as this pop."""
        key = key_of(operation)
        line = self._lines.get(key)
        if line is not None:
            self._serve(key, line)

    def _return(self, popped: Popped, operation: Pop) -> None:
        """Give records back that nobody will work on, without burning an attempt."""
        for giving_back in releases(popped, operation):
            try:
                self._give_back(giving_back)
            except HeadwaterError as error:
                log.warning("records for a caller who has left come back when their lease runs out: %s", error)

    # ── who is woken ──

    def _touched(self, key: Key, line: Line, touches: Sequence[Touch]) -> None:
        """New segments of the queues of a key, or of all: serve it if it could want one of them."""
        if (key.queue and touches) or any(is_wanted(key, touch.lane) for touch in touches):
            self._serve(key, line)

    def released(self, database: str, queue: str) -> None:
        """A lease of this process ended with records left behind it."""
        self._happened += 1
        for key in (*self._by_queue.get((database, queue), ()), *self._by_queue.get((database, ""), ())):
            self._serve(key, self._lines[key])

    def committed_elsewhere(self) -> None:
        """Another process has committed: a lease may have ended there. Looked at together, a little later."""
        self._happened += 1
        if self.gate is not None:
            self.gate.doubt()
        self._look_elsewhere_in(ELSEWHERE_SECONDS)

    def _look_elsewhere_in(self, seconds: float) -> None:
        if self.count and self._elsewhere_timer is None:
            loop = asyncio.get_running_loop()
            self._elsewhere_timer = loop.call_later(seconds, self._look_elsewhere)

    def _look_elsewhere(self) -> None:
        self._elsewhere_timer = None
        self._start(self._serve_ready())

    async def _serve_ready(self) -> None:
        """Serve the keys that have something to lease: one question for all of them, without the write lock."""
        keys = list(self._lines)
        names = {(key.database, key.queue, key.group) for key in keys if key.queue}
        try:
            if self.gate is not None:
                # What was committed elsewhere may be that pops are held off.
                await self.gate.look()
            ready = set(await self._store.ask(ListReady(list(names), self._clock.now())))
        except OUTAGES:
            self._look_elsewhere_in(PAUSE_SECONDS)
            return
        for key in keys:
            line = self._lines.get(key)
            if line is not None and (not key.queue or (key.database, key.queue, key.group) in ready):
                self._serve(key, line)

    # ── serving ──

    def send_home(self) -> None:
        """Answer those with nothing whose gate is shut; what was leased for one of them meanwhile is given back."""
        self._send_home(lambda key: self._is_shut(key.database))

    def _send_home(self, whom: Callable[[Key], bool]) -> None:
        for key, line in list(self._lines.items()):
            if whom(key):
                for number, intention in list(line.waiting.items()):
                    # Nobody could give back what a pop that acks on the way gets.
                    if intention.is_known is not None and not intention.is_asked_for:
                        self._answer_nothing(number, intention)

    def _look_at_access(self) -> None:
        """Who may read what was changed: whoever came through a door asks there again before anything is popped."""
        version = self._store.access_version()
        if version != self._access_version:
            self._access_version = version
            self._send_home(lambda key: True)

    def _is_shut(self, database: str) -> bool:
        return self.gate is not None and self.gate.is_shut(database)

    def _serve(self, key: Key, line: Line) -> None:
        """Pop for a key, unless a pop for it is under way: then once more after it."""
        if line.busy:
            line.again = True
            return
        if line.waiting:
            self.wakes += 1
            line.busy = True
            line.served_before = self.served
            self._ask(key, line, POPS_FIRST)

    def _ask(self, key: Key, line: Line, size: int) -> None:
        """Pops for the oldest intentions of a line, in one commit; on to more when all of them got something."""
        line.again = False
        self._look_at_access()
        chosen = self._choose(line, size)
        if not chosen:
            self._end_turn(key, line)
            return
        self.pops += len(chosen)
        try:
            answers = self._pop([shared(intention.operation, len(line.waiting) - 1) for _, intention in chosen])
        except HeadwaterError as error:
            # Whoever came to wait meanwhile would be refused as well.
            for number, intention in list(line.waiting.items()):
                self._refuse(number, intention, error)
            self._end_turn(key, line)
            return
        for _, intention in chosen:
            intention.is_asked_for = intention.operation.auto_ack
        self._await(key, line, chosen, answers)

    def _choose(self, line: Line, size: int) -> list[tuple[int, Intention]]:
        """The oldest intentions. Whose credential has ended is sent to the door, before anything is popped for them."""
        chosen: list[tuple[int, Intention]] = []
        while line.waiting and not chosen:
            # Not all of them: thousands may wait for what one push brings.
            for number, intention in list(itertools.islice(line.waiting.items(), size)):
                if intention.is_known is None or intention.is_known():
                    chosen.append((number, intention))
                else:
                    self._answer_nothing(number, intention)
        return chosen

    def _await(
        self,
        key: Key,
        line: Line,
        chosen: list[tuple[int, Intention]],
        answers: Sequence[asyncio.Future[CommittedResult[Popped]]],
    ) -> None:
        """Go on when all pops are answered. Most often they are together; some may have to wait for the disk longer."""
        open_ones = [answer for answer in answers if not answer.done()]
        if not open_ones:
            self._popped(key, line, chosen, answers)
            return
        last = open_ones[-1]
        self._under_way.add(last)

        def go_on(_: asyncio.Future[CommittedResult[Popped]]) -> None:
            self._under_way.discard(last)
            self._await(key, line, chosen, answers)

        last.add_done_callback(go_on)

    def _popped(
        self,
        key: Key,
        line: Line,
        chosen: list[tuple[int, Intention]],
        answers: Sequence[asyncio.Future[CommittedResult[Popped]]],
    ) -> None:
        """Hand over what the pops have got, and go on while there may be more."""
        served = 0
        ready_at: int | None = None
        for (number, intention), answer in zip(chosen, answers, strict=True):
            intention.is_asked_for = False
            error = answer.exception()
            if error is not None:
                served += 1
                self._refuse(number, intention, error)
                continue
            popped = answer.result().result
            if popped.batches:
                served += 1
                self._deliver(number, intention, popped)
            else:
                ready_at = popped.ready_at if popped.ready_at is not None else ready_at
                self._end_if_over(number, intention)
        if self._draining:
            self._send_all_home(line)
        if line.waiting and (served == len(chosen) or line.again):
            self._ask(key, line, min(len(chosen) * POPS_GROWTH, POPS_AT_ONCE))
            return
        self._look_later(key, line, ready_at)
        self._end_turn(key, line)

    def _deliver(self, number: int, intention: Intention, popped: Popped) -> None:
        """Hand over what was leased for an intention; back with it when its caller has left."""
        if self._leave(number, intention.key) and not intention.answer.done():
            self.served += 1
            self.delivery.observe(max(self._clock.now() - popped.batches[0].written_at[-1], 0) / SECOND)
            intention.answer.set_result(popped)
        else:
            self._return(popped, intention.operation)

    def _end_turn(self, key: Key, line: Line) -> None:
        line.busy = False
        self.useful_wakes += self.served > line.served_before
        if not line.waiting:
            self._drop_line(key, line)

    def _refuse(self, number: int, intention: Intention, error: BaseException) -> None:
        if self._leave(number, intention.key) and not intention.answer.done():
            intention.answer.set_exception(error)

    def _look_later(self, key: Key, line: Line, ready_at: int | None) -> None:
        """Nothing is free now; what is leased or delayed may be at `ready_at`."""
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        if ready_at is not None and line.waiting:
            delay = max(ready_at - self._clock.now() + MILLISECOND, MILLISECOND) / SECOND
            line.timer = asyncio.get_running_loop().call_later(delay, self._serve_again, key, line)

    def _clock_set(self, by: int) -> None:
        """What is waited for may be due now. The pop is a commit, and takes leases and delays along with the clock."""
        for key, line in list(self._lines.items()):
            if line.timer is not None:
                line.timer.cancel()
                self._serve_again(key, line)

    def _serve_again(self, key: Key, line: Line) -> None:
        line.timer = None
        self._serve(key, line)

    # ── coming and going ──

    def _enter(self, number: int, intention: Intention) -> Line:
        key = intention.key
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line()
            line.unwatch = self._followers.watch(selection_of(key), partial(self._touched, key, line))
            self._by_queue.setdefault((key.database, key.queue), set()).add(key)
        line.waiting[number] = intention
        self.count += 1
        self._deadlines.add(intention.deadline, number, key, self.count)
        return line

    def _leave(self, number: int, key: Key) -> bool:
        """Take an intention out; True for the one who did: only that one may answer it."""
        line = self._lines.get(key)
        if line is None or line.waiting.pop(number, None) is None:
            return False
        self.count -= 1
        if not line.waiting and not line.busy:
            self._drop_line(key, line)
        return True

    def _drop_line(self, key: Key, line: Line) -> None:
        if line.timer is not None:
            line.timer.cancel()
        if self._lines.get(key) is not line:
            return
        line.unwatch()
        del self._lines[key]
        keys = self._by_queue[key.database, key.queue]
        keys.discard(key)
        if not keys:
            del self._by_queue[key.database, key.queue]

    # ── how waits end ──

    def _is_waiting(self, number: int, key: Key) -> bool:
        line = self._lines.get(key)
        return line is not None and number in line.waiting

    def _time_is_over(self, number: int, key: Key) -> None:
        line = self._lines.get(key)
        intention = line.waiting.get(number) if line is not None else None
        if intention is not None and not intention.is_asked_for:
            self._end_if_over(number, intention)

    def _end_if_over(self, number: int, intention: Intention) -> None:
        """Answer with nothing when the time is over."""
        if intention.deadline <= asyncio.get_running_loop().time():
            self.timeouts += self._answer_nothing(number, intention)

    def _answer_nothing(self, number: int, intention: Intention) -> bool:
        """End a wait with nothing; whether it was there to be ended."""
        is_open = self._leave(number, intention.key) and not intention.answer.done()
        if is_open:
            intention.answer.set_result(Popped())
        return is_open

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            tell(log, "serving waiting pops failed", error)

    def fail(self, error: HeadwaterError) -> None:
        """End all waits with this error: nothing will come any more."""
        for line in list(self._lines.values()):
            for number, intention in list(line.waiting.items()):
                self._refuse(number, intention, error)

    def drain(self) -> None:
        """End all waits with nothing; from now on nobody waits."""
        self._draining = True
        self._followers.drain()
        for line in list(self._lines.values()):
            self._send_all_home(line)

    def _send_all_home(self, line: Line) -> None:
        """End the waits of a line. What a pop that acks on the way gets is gone for everybody else, so whoever has one
        under way is answered when it is known what that has got."""
        for number, intention in list(line.waiting.items()):
            if not intention.is_asked_for:
                self._answer_nothing(number, intention)

    async def close(self) -> None:
        """End all waits with nothing, and wait for what is under way."""
        self.drain()
        self._deadlines.cancel()
        if self._elsewhere_timer is not None:
            self._elsewhere_timer.cancel()
        while self._tasks or self._under_way:
            await asyncio.gather(*self._tasks, *self._under_way, return_exceptions=True)


def shared(operation: Pop, others: int) -> Pop:
    """The pop when so many others wait for the same; one that takes a single partition leaves the rest anyway."""
    if not others or operation.partitions == 1 or operation.batch == 1:
        return operation
    return msgspec.structs.replace(operation, sharers=others)
