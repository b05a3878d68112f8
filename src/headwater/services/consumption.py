"""The loop of a consumer: `async with queue.consume(group=…) as messages:` and `async for message in messages:`.

A message is acked when the next one is asked for; the ack and the next pop share a commit. What becomes of the message
at which a loop is left depends on what is known of the leaving:

    the block is left normally (break, return, the end)    it is acked
    the block is left by an exception                      it fails, and comes again or ends in the dead letters
    cancel, Ctrl-C, exit, the store is closed              it is released: no attempt counted, free at once
    a loop without a block is left, however                it is released: a dropped iterator knows no reason

What was taken before it is done, the rest of its batch goes back. One pop may bring the leases of several partitions:
each is kept alive and reported on by itself. A message that was reported by hand is not reported again.
"""

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from headwater.clock import SECOND
from headwater.errors import Closed, HeadwaterError, InvalidInput, QueueError
from headwater.log.operations import Ack, Batch, Pop
from headwater.model.cursor import Outcome
from headwater.services.error_texts import named_text_of
from headwater.services.messages import (
    ERROR_LENGTH_MAX,
    Message,
    ack_of,
    extension_of,
    first_of_each_batch,
    mark_reported,
    messages_of,
)

if TYPE_CHECKING:
    from headwater.services.verbs import Verbs

log = logging.getLogger(__name__)

# Who asks for messages: a task, or, without async, a thread.
Taker = asyncio.Task[object] | threading.Thread

# A pop that came back with nothing before its time was sent away by somebody who is closing: no reason to hurry.
PAUSE_SECONDS = 0.1
# Said to those with async and to those without.
BLOCK_LEFT = "the block of this consume() was left; begin another block with it, or call consume() again"


class Consumption:
    """Messages of one group, one after the other: a block with a loop in it, or a bare loop."""

    def __init__(self, queues: "Verbs", operation: Pop, idle_seconds: float | None = None) -> None:
        self._queues = queues
        self._operation = operation
        self._idle_seconds = idle_seconds
        self._session = self._begin()
        self._in_block = self._was_left = False
        self._loops: weakref.WeakSet[Session] = weakref.WeakSet()

    def _begin(self) -> "Session":
        return Session(self._queues, self._operation, self._idle_seconds)

    def __aiter__(self) -> "AsyncIterator[Message]":
        if self._in_block:
            return self
        if self._was_left:
            # It would be a bare loop now, which acks by other rules.
            raise InvalidInput(BLOCK_LEFT)
        # The loop alone holds its iterator: when it is left that is dropped, even if somebody keeps this object.
        session, self._session = self._session, self._begin()
        self._loops.add(session)
        return Loop(session)

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # What is awaited for every message: one coroutine, not three that hand it on.
        return self._session.take()

    async def take(self, received: int | None = None, taker: Taker | None = None) -> Message:
        """The next message. `received` says how many the caller has got, if one may have been lost on the way; `taker`
        who it is, if that is not the running task."""
        return await self._session.take(received, taker)

    async def __aenter__(self) -> Self:
        if self._in_block:
            raise InvalidInput("this consume() is used by a block already; call consume() again for another")
        if self._was_left:
            self._session, self._was_left = self._begin(), False
        self._in_block = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_block, self._was_left = False, True
        await self._session.leave(error)

    async def aclose(self) -> None:
        """Leave it without a word on the current message: it is released, as are those of loops over this."""
        for session in (self._session, *self._loops):
            await session.release()

    async def fail_current(self, error: BaseException) -> None:
        """Report the current message as failed and go on: the rest of its partition goes back, so that order holds."""
        await self._session.fail_current(error)

    async def release_current(self) -> None:
        """Give the current message and the rest of its partition back, and go on."""
        await self._session.release_current()

    def __del__(self) -> None:
        self._session.abandon()

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "consume() of an async queue needs `async for message in queue.consume():`; "
            "for a plain `for`, open with `with headwater.sync.open(...) as hw:`"
        )

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "consume() of an async queue needs `async with queue.consume() as messages:`; "
            "for a plain `with`, open with `with headwater.sync.open(...) as hw:`"
        )

    def __exit__(self, *_: object) -> None: ...


class Loop:
    """The iterator of one bare loop. It is dropped when the loop is left, and what it holds goes back."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # What is awaited for every message: one coroutine, not three that hand it on.
        return self._session.take()

    async def take(self, received: int | None = None, taker: Taker | None = None) -> Message:
        """The next message, as `Consumption.take` gives it."""
        return await self._session.take(received, taker)

    async def aclose(self) -> None:
        """Give back what is held now, and not when this is dropped."""
        await self._session.release()

    def __del__(self) -> None:
        self._session.abandon()


class Session:
    """What one loop holds: the messages of its last pop, how many were taken, and whether the last is worked on."""

    def __init__(self, queues: "Verbs", operation: Pop, idle_seconds: float | None) -> None:
        self._queues = queues
        self._operation = operation
        self._idle_seconds = idle_seconds
        self._messages: list[Message] = []
        self._taken = 0
        self._handed = 0
        self._is_working = False
        # Until the pop under way has come to its end.
        self._asking: asyncio.Future[None] | None = None
        self._is_ended = False
        # It came to its end by itself: as any iterator it stays there.
        self._is_over = False
        self._was_left = False
        self._taker: Taker | None = None
        # Whether what is done was reported with a pop that then failed: a second report may find it settled.
        self._was_reported = False
        self._heartbeat = _Heartbeat(queues)

    # ── taking ──

    async def take(self, received: int | None = None, taker: Taker | None = None) -> Message:
        """The next message; the one before it is done. One that the caller did not receive is given once more."""
        taker = taker or asyncio.current_task()
        self._queues.life.check()
        if self._is_ended or self._asking is not None:
            self._refuse()
        place = self._taken
        comes_back = False
        if self._is_working:
            if received is not None and received < self._handed:
                return self._messages[place - 1]
            if self._taker is not taker:
                self._check_taker()
            comes_back = self._messages[place - 1].delivery.comes_back
        if comes_back or place >= len(self._messages):
            await self._go_on(comes_back=comes_back)
            place = self._taken
        self._taken = place + 1
        self._handed += 1
        self._is_working = True
        self._taker = taker
        return self._messages[place]

    def _refuse(self) -> NoReturn:
        if self._is_over:
            raise StopAsyncIteration
        if self._was_left:
            raise InvalidInput(BLOCK_LEFT)
        if self._is_ended:
            raise Closed("Headwater was closed while this loop ran; what it held was given back")
        raise InvalidInput(
            "two tasks or threads ask one consume() for messages at once; give each a consume() of its own"
        )

    async def _go_on(self, *, comes_back: bool) -> None:
        """There is none to take: get more. What lies behind a message that comes back in its partition must not be
        done before it, so it is given back first."""
        asking = self._asking = asyncio.get_running_loop().create_future()
        try:
            if comes_back:
                await self._drop_lease(Outcome.RELEASED, "")
            self._is_working = False
            if self._taken >= len(self._messages):
                await self._turn_over()
        finally:
            self._asking = None
            asking.set_result(None)

    def _check_taker(self) -> None:
        """Somebody else asks for the next message: raises when that would ack what is being worked on."""
        if not self._messages[self._taken - 1].is_reported and _still_runs(self._taker):
            raise InvalidInput(
                "somebody else works on the last message of this consume(), and asking for the next would ack it; give "
                "each task or thread a consume() of its own, or use queue.run(handler, concurrency=n)"
            )

    async def _turn_over(self) -> None:
        """Report on the last batch and get the next, in one commit."""
        self._queues.holdings.add(self)
        await self._queues.holdings.settled()
        reports = self._all_done() or self._reports(Outcome.COMPLETED)
        self._heartbeat.let_go()
        loop = asyncio.get_running_loop()
        deadline = None if self._idle_seconds is None else loop.time() + self._idle_seconds
        while True:
            found = await self._next_batch(reports, deadline)
            reports = []
            self._forget()
            if self._is_ended:
                self._give_back(found)
                raise Closed("Headwater was closed while this loop ran")
            if found:
                self._messages = found
                self._heartbeat.keep([message for message in first_of_each_batch(found) if message.batch.token])
                return
            if deadline is not None and loop.time() >= deadline:
                self._queues.holdings.discard(self)
                self._is_ended = self._is_over = True
                raise StopAsyncIteration

    async def _next_batch(self, reports: list[Ack], deadline: float | None) -> list[Message]:
        """The next messages, with reports on the last ones in the same commit; nothing when none came for a while."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        seconds = self._queues.config.wait_seconds_max
        if deadline is not None:
            seconds = max(min(seconds, deadline - begun), 0)
        self._was_reported = bool(reports)
        try:
            popped = await self._queues.pop_batches(self._operation, seconds, reports)
        except QueueError as error:
            if not reports:
                raise
            # It costs a second delivery, not the loop.
            log.warning("a lease of group %s was lost before its ack: %s", self._operation.group, error)
            return await self._next_batch([], deadline)
        if not popped.batches and (deadline is None or loop.time() < deadline):
            early = loop.time() - begun < min(seconds, PAUSE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS if early or not seconds else 0)
        return messages_of(popped.batches, self._operation.database, self._queues)

    def _give_back(self, messages: list[Message]) -> None:
        """What came for somebody who may take no more."""
        self._messages = messages
        reports = self._reports(Outcome.RELEASED)
        self._forget()
        if reports:
            self._queues.holdings.start(self._settle(reports, asyncio.CancelledError()))

    # ── leaving ──

    async def leave(self, error: BaseException | None) -> None:
        """The block was left: normally, or by this exception."""
        self._is_ended = self._was_left = True
        outcome, text = _verdict(error)
        await self._report(self._reports(outcome, text), error)

    async def release(self) -> None:
        """Give back what is held; what is done is reported as done. What comes for one that has ended goes back."""
        if self._is_ended and self._asking is not None:
            await asyncio.wait({self._asking})
        await self._report(self._reports(Outcome.RELEASED), asyncio.CancelledError())

    def abandon(self) -> None:
        """Nobody can take the next message any more. Called from any thread, at any moment."""
        if self._queues.life.is_here:
            self._queues.holdings.leave(self)

    def end(self) -> None:
        """Take no more."""
        self._is_ended = True

    async def fail_current(self, error: BaseException) -> None:
        """Report the current message as failed, give the rest of its lease back, and go on with other leases."""
        await self._drop_lease(Outcome.FAILED, named_text_of(error, ERROR_LENGTH_MAX))

    async def release_current(self) -> None:
        """Give the current message and the rest of its lease back."""
        await self._drop_lease(Outcome.RELEASED, "")

    async def _drop_lease(self, outcome: Outcome, error: str) -> None:
        if not self._is_working:
            return
        batch = self._messages[self._taken - 1].batch
        reports = self._reports(outcome, error, only=batch)
        mark_reported((message for message in self._messages if message.batch is batch), outcome)
        before = sum(message.batch is not batch for message in self._messages[: self._taken])
        self._messages = [message for message in self._messages if message.batch is not batch]
        self._taken, self._is_working = before, False
        await self._settle(reports, None)

    async def _report(self, reports: list[Ack], error: BaseException | None) -> None:
        """Hold nothing any more, and say so; whoever waits for it may be cancelled meanwhile, the report is not."""
        self._forget()
        self._queues.holdings.discard(self)
        if reports:
            await asyncio.shield(self._queues.holdings.start(self._settle(reports, error)))

    async def _settle(self, reports: list[Ack], error: BaseException | None) -> None:
        try:
            await self._queues.settle(reports)
        except QueueError as lost:
            level = logging.DEBUG if self._was_reported else logging.WARNING
            log.log(level, "a lease of group %s was lost before its report: %s", self._operation.group, lost)
        except HeadwaterError as failure:
            if error is None:
                raise
            log.warning("a lease of group %s runs out by itself: %s", self._operation.group, failure)

    def _forget(self) -> None:
        self._messages, self._taken, self._is_working = [], 0, False
        self._heartbeat.let_go()

    def _all_done(self) -> list[Ack]:
        """What to say of what is held when all of it is done and nothing was said before: the usual case, without a
        look at each message. Nothing when it is another case."""
        held = first_of_each_batch(self._messages)
        if self._taken < len(self._messages) or any(message.delivery.reported for message in held):
            return []
        return [ack_of(message.batch, self._operation.database) for message in held if message.batch.token]

    def _reports(self, outcome: Outcome, error: str = "", only: Batch | None = None) -> list[Ack]:
        """What to say of what is held, a report for each lease: what was taken is done, the current message came to
        `outcome`, the rest goes back."""
        current = self._taken - 1 if self._is_working else -1
        leases: dict[int, tuple[Batch, dict[int | str, Outcome]]] = {}
        errors: dict[int | str, str] = {}
        for place, message in enumerate(self._messages):
            batch = message.batch
            if not batch.token or message.is_reported or (only is not None and batch is not only):
                continue
            said = leases.setdefault(id(batch), (batch, {}))[1]
            if place == current:
                said[message.offset] = outcome
                if error:
                    errors[message.offset] = error
            else:
                said[message.offset] = Outcome.COMPLETED if place < self._taken else Outcome.RELEASED
        owner = self._messages[current].batch if current >= 0 else None
        database = self._operation.database
        return [_report_on(batch, database, said, errors if batch is owner else {}) for batch, said in leases.values()]


def _report_on(batch: Batch, database: str, said: dict[int | str, Outcome], errors: dict[int | str, str]) -> Ack:
    if any(outcome is not Outcome.COMPLETED for outcome in said.values()):
        return ack_of(batch, database, outcomes=said, errors=errors or None)
    if len(said) == len(batch.offsets):
        # All that is left of the lease: somebody else may have reported on some of them.
        return ack_of(batch, database)
    return ack_of(batch, database, offsets=[offset for offset in batch.offsets if offset in said])


def _still_runs(taker: Taker | None) -> bool:
    if isinstance(taker, threading.Thread):
        return taker.is_alive()
    return taker is not None and not taker.done()


def _verdict(error: BaseException | None) -> tuple[Outcome, str]:
    """What the way in which a block was left says of the current message."""
    if error is None:
        return Outcome.COMPLETED, ""
    if isinstance(error, Exception) and not isinstance(error, Closed):
        return Outcome.FAILED, named_text_of(error, ERROR_LENGTH_MAX)
    return Outcome.RELEASED, ""


class _Heartbeat:
    """Keeps leases alive: extends them whenever a third of their time is over. Knows nothing of the loop it serves, so
    that a loop that is left is noticed. One timer outlives many short leases: when it goes off, it looks what is held.
    """

    def __init__(self, queues: "Verbs") -> None:
        self._queues = queues
        self._leases: list[Message] = []
        self._seconds = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def keep(self, leases: list[Message]) -> None:
        """Keep these leases, each shown by a message of it, from now on."""
        self._leases = leases
        if not leases:
            return
        loop = asyncio.get_running_loop()
        until = min(message.batch.lease_until for message in leases)
        self._seconds = max((until - self._queues.clock.now()) / SECOND, 0.003)
        self._due = loop.time() + self._seconds / 3
        if self._timer is None or self._due < self._timer_at:
            self._arm(loop)

    def let_go(self) -> None:
        """Let the leases run out."""
        self._leases = []

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        self._timer = loop.call_later(self._due - loop.time(), self._look)

    def _look(self) -> None:
        self._timer = None
        self._leases = [message for message in self._leases if not message.delivery.is_settled]
        if not self._leases:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._due:
            for message in self._leases:
                self._beat(message)
            self._due = loop.time() + self._seconds / 3
        self._arm(loop)

    def _beat(self, message: Message) -> None:
        try:
            self._queues.submit_and_forget(extension_of(message, self._seconds))
        except HeadwaterError as error:
            log.warning("a lease could not be extended: %s", error)
