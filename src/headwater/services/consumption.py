"""The endless loop of a consumer: `async for message in queue.consume(group=…)`.

A message is acked when the body ends, which is when the loop asks for the next one: the ack and the next pop share a
commit. When the body raises, the message fails and the rest of its batch is given back. Leases are kept alive while the
body runs. With `async with queue.consume() as messages:` around the loop, the dead letters get the body's own error.
"""

import asyncio
import dis
import logging
import sys
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from headwater.clock import SECOND
from headwater.errors import Closed, HeadwaterError, LeaseLost
from headwater.log.operations import Ack, Pop
from headwater.model.cursor import Outcome
from headwater.services.messages import ERROR_LENGTH_MAX, Message, ack_of, extension_of, messages_of

if TYPE_CHECKING:
    from headwater.services.verbs import Verbs

log = logging.getLogger(__name__)

# A loop that is left by break or return drops its iterator with one of these instructions; an exception does not.
_ordinary_exits = {"POP_TOP", "POP_ITER", "END_ASYNC_FOR"}


class Consumption:
    """Messages of one group, one after the other. An iterator, and a context manager around it."""

    def __init__(self, queues: "Verbs", operation: Pop) -> None:
        self._queues = queues
        self._operation = operation
        self._messages: list[Message] = []
        self._next = 0
        self._heartbeat = _Heartbeat(queues)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._next >= len(self._messages):
            await self._turn_over()
        message = self._messages[self._next]
        self._next += 1
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose(error)

    async def aclose(self, error: BaseException | None = None) -> None:
        """Settle what is open: the current message is done, or failed with `error`; the rest of its batch goes back."""
        report = self._last_report(error)
        if report is not None:
            await self._queues.settle([report])

    # ── turning over: reports on the last batch, and the next one ──

    async def _turn_over(self) -> None:
        self._loop = asyncio.get_running_loop()
        report = self._last_report(None)
        try:
            self._take(await self._next_batch([] if report is None else [report]))
        except LeaseLost as error:
            # It costs a second delivery, not the loop.
            log.warning("a lease of group %s was lost before its ack: %s", self._operation.group, error)
        while not self._messages:
            self._take(await self._next_batch([]))

    async def _next_batch(self, reports: list[Ack]) -> list[Message]:
        """The next messages, with reports on the last ones in the same commit; nothing when none came for a while."""
        seconds = self._queues.config.wait_seconds_max
        popped = await self._queues.pop_batches(self._operation, seconds, reports)
        return messages_of(popped.batches, self._operation.database)

    def _take(self, messages: list[Message]) -> None:
        self._messages = messages
        self._next = 0
        if messages and messages[0].token:
            self._heartbeat.keep(messages[0])

    def _last_report(self, error: BaseException | None, *, released: bool = False) -> Ack | None:
        """What to say of the batch at hand; None when there is none. Afterwards there is none."""
        messages, taken = self._messages, self._next
        self._messages, self._next = [], 0
        self._heartbeat.let_go()
        if not messages or not messages[0].token or not taken:
            return None
        batch, database = messages[0].batch, self._operation.database
        offsets = [message.offset for message in messages]
        if error is None and not released and taken == len(messages):
            # All that is left of the lease: the body may have reported on some of them by itself.
            return ack_of(batch, database)
        outcomes: dict[int | str, Outcome] = dict.fromkeys(offsets, Outcome.RELEASED)
        outcomes.update(dict.fromkeys(offsets[: taken - 1], Outcome.COMPLETED))
        current = offsets[taken - 1]
        if error is not None:
            outcomes[current] = Outcome.FAILED
        elif not released:
            outcomes[current] = Outcome.COMPLETED
        errors: dict[int | str, str] | None = None if error is None else {current: _describe(error)}
        return ack_of(batch, database, outcomes=outcomes, errors=errors)

    # ── a loop that was simply left ──

    def __del__(self) -> None:
        if not self._messages or self._loop is None or self._loop.is_closed():
            return
        raised = _is_unwinding(sys._getframe(1))
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        self._loop.call_soon_threadsafe(_settle_later, self._detached(), raised, task)

    def _detached(self) -> "Consumption":
        """What is open, moved into an object of its own: this one is going away."""
        heir = Consumption(self._queues, self._operation)
        heir._messages, heir._next, heir._heartbeat = self._messages, self._next, self._heartbeat
        self._messages = []
        return heir


class _Heartbeat:
    """Keeps a lease alive: extends it whenever a third of it is over. Knows nothing of the loop it serves, so that a
    loop that is left is noticed. One timer outlives many short leases: when it goes off, it looks what is held by then.
    """

    def __init__(self, queues: "Verbs") -> None:
        self._queues = queues
        self._message: Message | None = None
        self._seconds = 0.0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def keep(self, message: Message) -> None:
        """Keep the lease of this message from now on."""
        loop = asyncio.get_running_loop()
        self._message = message
        self._seconds = max((message.batch.lease_until - self._queues.clock.now()) / SECOND, 0.003)
        self._due = loop.time() + self._seconds / 3
        if self._timer is None or self._due < self._timer_at:
            self._arm(loop)

    def let_go(self) -> None:
        """Let the lease run out."""
        self._message = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._due
        self._timer = loop.call_later(self._due - loop.time(), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._message is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._due:
            self._beat(self._message)
            self._due = loop.time() + self._seconds / 3
        self._arm(loop)

    def _beat(self, message: Message) -> None:
        try:
            self._queues.submit_and_forget(extension_of(message, self._seconds))
        except HeadwaterError as error:
            log.warning("a lease could not be extended: %s", error)


def _settle_later(heir: Consumption, raised: bool, task: "asyncio.Task[object] | None") -> None:
    """Report for a loop that was left: done on break or return, failed when the body raised, back when cancelled."""
    error: BaseException | None = None
    cancelled = task is not None and (task.cancelled() or task.cancelling() > 0)
    if raised and not cancelled:
        error = task.exception() if task is not None and task.done() else None
        error = error or RuntimeError("the body of the loop raised")
    report = heir._last_report(error, released=cancelled)
    if report is not None:
        try:
            heir._queues.submit_and_forget(report)
        except Closed:
            log.warning("a consumer was left after Headwater was closed; its lease runs out by itself")


def _is_unwinding(frame: FrameType | None) -> bool:
    """Whether `frame` lets go of its iterator because of an exception.

    An ordinary exit from a loop executes an instruction that drops the iterator; an exception drops it while the frame
    still stands at the instruction that raised.
    """
    if frame is None or frame.f_lasti < 0:
        return False
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] not in _ordinary_exits


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
