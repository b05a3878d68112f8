"""Event loops of other threads, for those who call without async or from a loop of their own."""

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from headwater.errors import Closed
from headwater.forks import Origin
from headwater.services.life import Life

# For how long calls of other threads may take to end when a loop is closed.
END_SECONDS = 1.0

R = TypeVar("R")


class Runs(Protocol):
    """Brings coroutines to the loop that they belong to."""

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The outcome of a coroutine, from the loop's thread."""
        ...


class Bridge:
    """An event loop in a thread."""

    def __init__(self, line: str, name: str = "this Headwater") -> None:
        self._name = name
        self._life = Life(name, line)
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="headwater-loop")
        self._thread.start()
        self._life.begin()
        self._is_in_block = False
        # Nothing is handed to the loop behind its end. Both locks let a signal handler in, in the thread that has them.
        self._handing_in = threading.RLock()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._finishing = threading.RLock()
        # What to do when the program ends and it was not closed.
        self.at_exit: Callable[[], Coroutine[Any, Any, None]] | None = None
        _running.add(self)

    @property
    def is_open(self) -> bool:
        """Whether it runs, in this process: a fork copies the loop and leaves its thread behind."""
        return self._life.is_open

    def enter(self) -> None:
        """A block begins, at whose end it is closed. Raises when there is one already, or nothing that is open."""
        self._life.check()
        if self._is_in_block:
            raise self._life.is_taken()
        self._is_in_block = True

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The outcome of a coroutine, from the loop's thread."""
        try:
            # A process that was forked may have the lock of a thread that it has not.
            self._life.check()
            with self._handing_in:
                self._life.check()
                waiting = asyncio.run_coroutine_threadsafe(_contained(work), self._loop)
                self._waiting.add(waiting)
        except BaseException:
            work.close()
            raise
        try:
            result, escaped = waiting.result()
        except concurrent.futures.CancelledError:
            if self._life.is_open:
                raise
            raise Closed(f"{self._name} was closed by another thread meanwhile") from None
        except BaseException:
            # Ctrl-C while it waits: nobody would take what comes.
            waiting.cancel()
            raise
        finally:
            self._waiting.discard(waiting)
        if escaped is not None:
            raise escaped
        return cast(R, result)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""
        return self._loop

    def finish(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do what is left to do, then stop. Whoever comes second waits for the first."""
        if not self._life.is_here:
            return
        with self._finishing:
            if self._life.is_open:
                self.run(last())
                self.close()

    def close(self) -> None:
        """Stop the loop and its thread. Calls of other threads end first: they would wait for an answer for ever."""
        _running.discard(self)
        with self._handing_in:
            if not self._life.is_open:
                return
            self._life.end()
        asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result()
        for waiting in list(self._waiting):
            waiting.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Hand:
    """Hands coroutines to a loop that somebody else keeps going. `name` and `line` are what is open on it, and how to
    open that anew: a fork of this process has a copy of the loop, which looks as if it ran, and nobody turns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, line: str) -> None:
        self._loop = loop
        self._name = name
        self._line = line
        self._origin = Origin()

    def check(self) -> None:
        """Raises where nobody would ever take what is handed over."""
        self._origin.check(self._name, self._line)
        if not self._loop.is_running():
            raise Closed(f"the event loop that {self._name} is open on runs no more: use `{self._line}` instead")

    def give(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        """What a coroutine will come to on the loop."""
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The outcome of a coroutine, from the loop's thread."""
        return self.give(work).result()


_running: set[Bridge] = set()


@atexit.register
def _leave() -> None:
    """A program that ends without closing, by Ctrl-C say, gives back what its consumers hold: others get it at once."""
    for bridge in _running:
        if bridge.is_open and bridge.at_exit is not None:
            left = asyncio.run_coroutine_threadsafe(bridge.at_exit(), bridge.loop)
            with suppress(Exception):
                left.result(END_SECONDS)


async def _end_others() -> None:
    """Let everything else on this loop come to its end: by itself, as what was closed says, or told to."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=END_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=END_SECONDS)
    # What they came to goes to the threads that wait a turn of the loop later.
    for _ in range(3):
        await asyncio.sleep(0)


async def _contained(work: Coroutine[Any, Any, R]) -> tuple[R | None, BaseException | None]:
    """What the work came to. What would end a program is handed over: raised here it would end the loop's thread."""
    try:
        return await work, None
    except (KeyboardInterrupt, SystemExit) as escaped:
        return None, escaped


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
