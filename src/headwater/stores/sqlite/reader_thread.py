"""One thread that does all the reading of a store.

To hand a question to another thread and to be told of the answer takes as long as a small answer itself. So whatever
waits goes together: the thread takes questions for as long as there are any, then tells the loop once. Lest answers
wait for a slow question that came after them, the loop looks for them from time to time while questions wait. Questions
of different databases are answered in turn: who asks much waits for itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from headwater.forks import ForkGuard

LOOK_SECONDS = 0.001

Result = TypeVar("Result")


class _Call(NamedTuple):
    """Something to do in the thread, and who waits for it."""

    answer: "asyncio.Future[Any]"
    work: Callable[[], object]


class _Done(NamedTuple):
    """What a call came to."""

    answer: "asyncio.Future[Any]"
    result: object
    error: BaseException | None


class ReaderThread:
    """Does what it is handed, one after the other, for callers on one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-reads")
        self._lock = Lock()
        self._fork_guard = ForkGuard()
        self._working = False
        # What waits, in a line for each database; the first of the next line is done next.
        self._lines: dict[str, deque[_Call]] = {}
        self._done: deque[_Done] = deque()
        self._looking: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[[], Result], line: str = "") -> Result:
        """What the work comes to; it is not begun when nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        with self._lock:
            is_alone = not self._working
            if is_alone:
                self._thread.submit(self._work, loop)
                self._working = True
            self._lines.setdefault(line, deque()).append(_Call(answer, work))
        if not is_alone and self._looking is None:
            self._looking = loop.call_later(LOOK_SECONDS, self._look, loop)
        return await answer

    def close(self) -> None:
        """Wait for the last answer."""
        self._thread.shutdown()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """When nothing waits, the thread is at its last question, and tells."""
        self._looking = loop.call_later(LOOK_SECONDS, self._look, loop) if self._lines else None
        self._settle()

    def _settle(self) -> None:
        while self._done:
            answer, result, error = self._done.popleft()
            if answer.done():
                continue
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

    # ── in the thread ──

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (call := self._next()) is not None:
            if not call.answer.cancelled():
                with self._fork_guard:
                    self._done.append(_do(call))
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _next(self) -> _Call | None:
        with self._lock:
            if not self._lines:
                self._working = False
                return None
            name = next(iter(self._lines))
            line = self._lines.pop(name)
            call = line.popleft()
            if line:
                # Behind all others that wait.
                self._lines[name] = line
            return call


def _do(call: _Call) -> _Done:
    try:
        return _Done(call.answer, call.work(), None)
    except BaseException as error:
        return _Done(call.answer, None, error)
