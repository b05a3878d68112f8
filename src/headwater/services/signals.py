"""Signals that ask a program to end, for those who would rather finish what they are at.

Python runs signal handlers in the main thread and lets nobody else set them. So the main thread is `listening`, and
whoever wants to hear of it, in whatever thread its loop runs, has it `calling` a function. A handler that the program
has set itself is left alone: it knows better what should happen.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_listeners: set[Callable[[], None]] = set()


@contextlib.contextmanager
def calling(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, on the running event loop, for each signal that asks the program to end."""
    loop = asyncio.get_running_loop()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop)

    _listeners.add(tell)
    try:
        yield
    finally:
        _listeners.discard(tell)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Take SIGINT and SIGTERM as long as this lasts; from another thread than the main one, do nothing.

    Inside another of these the signals are taken already, and stay so: that handler is no ordinary one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    taken = {number: handler for number, handler in before.items() if _is_ordinary(handler)}
    for number in taken:
        signal.signal(number, _tell_all)
    try:
        yield
    finally:
        for number, handler in taken.items():
            # Somebody may have set their own meanwhile.
            if signal.getsignal(number) is _tell_all:
                signal.signal(number, handler)


def _tell_all(number: int, frame: FrameType | None) -> None:
    for tell in list(_listeners):
        tell()


def _is_ordinary(handler: object) -> bool:
    """Whether this is what Python, or asyncio's own runner, does with a signal when nobody has said otherwise."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return isinstance(owner, asyncio.Runner)
