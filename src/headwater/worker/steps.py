"""Whose step of the event loop runs: noted on the slate, where the worker sees it, and in the context of each task.

Async calls share a loop. When one of them blocks it, ends the process or cancels what is not its own, the worker has to
know which one it was: the others are not at fault.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

from headwater.model.job import JobNumber
from headwater.worker.calls import NOBODY, Slate

_owner: ContextVar[JobNumber] = ContextVar("headwater-call", default=NOBODY)


def owner() -> JobNumber:
    """The call to which the code belongs that runs now, 0 for none: its tasks and callbacks inherit it."""
    return _owner.get()


def keep_from_calls(loop: asyncio.AbstractEventLoop, heard: set[int]) -> None:
    """What would change the loop for the others, or keep it from hearing the worker, does nothing when a call does it.
    Loops that are not written in Python, as an app may choose them, cannot be kept so."""
    for name in ("stop", "close", "set_task_factory", "set_exception_handler", "set_default_executor", "set_debug"):
        with suppress(AttributeError):
            setattr(loop, name, _unless_called(getattr(loop, name), None))
    for name in ("add_reader", "remove_reader"):
        with suppress(AttributeError):
            setattr(loop, name, _unless_called(getattr(loop, name), heard))


def _unless_called(method: Callable[..., Any], heard: set[int] | None) -> Callable[..., Any]:
    """The method, for calls only if its first argument is none of those that are heard."""

    def guarded(*arguments: Any) -> Any:
        if owner() == NOBODY or (heard is not None and arguments and arguments[0] not in heard):
            return method(*arguments)
        return None

    return guarded


class Steps:
    """Makes the tasks of a loop so that each step of them is noted."""

    def __init__(self, slate: Slate, on_disturbed: Callable[[JobNumber], None]) -> None:
        self._slate = slate
        self._on_disturbed = on_disturbed
        self._running = NOBODY

    def task(self, loop: asyncio.AbstractEventLoop, number: JobNumber, work: Coroutine[Any, Any, None]) -> "OwnedTask":
        """A task for a call; whatever is made in it belongs to that call too."""
        context = copy_context()
        context.run(_owner.set, number)
        return OwnedTask(Stepped(work, number, self), number, self._on_disturbed, loop=loop, context=context)

    def make(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """The loop's task factory."""
        context = options.get("context")
        number = owner() if context is None else context.get(_owner, NOBODY)
        if number == NOBODY or not asyncio.iscoroutine(work):
            return asyncio.Task(work, loop=loop, **options)
        return OwnedTask(Stepped(work, number, self), number, self._on_disturbed, loop=loop, **options)

    def enter(self, number: JobNumber) -> JobNumber:
        """A step of this call begins; what it has interrupted, if anything."""
        before, self._running = self._running, number
        self._slate.step(number, time.monotonic())
        return before

    def leave(self, before: JobNumber) -> None:
        """The step is over."""
        self._running = before
        self._slate.step(before, time.monotonic() if before else 0.0)


class OwnedTask(asyncio.Task[Any]):
    """A task of a call. It is told when another call cancels it, as one does that cancels every task of the loop."""

    def __init__(self, work: Any, number: JobNumber, on_disturbed: Callable[[JobNumber], None], **options: Any) -> None:
        super().__init__(work, **options)
        self._number = number
        self._on_disturbed = on_disturbed

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task, as ever."""
        if owner() not in (NOBODY, self._number) and not self.done():
            self._on_disturbed(self._number)
        return super().cancel(msg)


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are noted."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: JobNumber, steps: Steps) -> None:
        self._work = work
        self._call = number
        self._steps = steps

    def send(self, value: Any) -> Any:
        """The next step."""
        before = self._steps.enter(self._call)
        try:
            return self._work.send(value)
        finally:
            self._steps.leave(before)

    def throw(self, *error: Any) -> Any:
        """The next step, with an exception."""
        before = self._steps.enter(self._call)
        try:
            return self._work.throw(*error)
        finally:
            self._steps.leave(before)

    def close(self) -> None:
        """No further step."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def __getattr__(self, name: str) -> Any:
        # Those who look into a coroutine, at its frame or its name, see the one that was meant.
        return getattr(self._work, name)
