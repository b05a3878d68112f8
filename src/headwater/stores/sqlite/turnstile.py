"""Turns at the write lock, so that every process on the file is served.

SQLite's own busy wait starves: of eight processes some get no turn for seconds. A `flock` on a file of its own in front
of `BEGIN IMMEDIATE` makes them queue. It is manners only: the database's lock stays the truth, and a program that does
not know the turnstile is waited for like any other. A turn that a thread has won for an event loop which does not come
to take it is given to the next: a program that keeps its loop busy for long holds up itself, and nobody else.
"""

import asyncio
import fcntl
import os
import queue
import threading

from headwater.errors import StoreBusy

TRIES = 8
HAND_OVER_SECONDS = 0.1
LOOK_SECONDS = 1.0

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Turnstile:
    """One place in the queue for the write lock of one file."""

    def __init__(self, path: str, wait_seconds: float) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._wait_seconds = wait_seconds
        self._waiters: queue.SimpleQueue[_Waiter | None] | None = None

    def try_enter(self) -> bool:
        """Take the turn if nobody has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    async def enter(self) -> None:
        """Wait for the turn: a few tries between other work of the loop, then in a thread."""
        for _ in range(TRIES):
            if self.try_enter():
                return
            await asyncio.sleep(0)
        turn = self._ask_thread()
        try:
            async with asyncio.timeout(self._wait_seconds):
                await asyncio.shield(turn)
        except (TimeoutError, asyncio.CancelledError) as error:
            turn.add_done_callback(lambda _: self.leave())
            if isinstance(error, asyncio.CancelledError):
                raise
            raise StoreBusy(f"other programs held the write lock for {self._wait_seconds:g} s") from error

    def leave(self) -> None:
        """Let the next one in."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up the place; a turn that is held ends."""
        if self._waiters is not None:
            self._waiters.put(None)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _ask_thread(self) -> "asyncio.Future[None]":
        if self._waiters is None:
            self._waiters = queue.SimpleQueue()
            arguments = (self._descriptor, self._waiters)
            threading.Thread(target=_serve, args=arguments, daemon=True, name="headwater-turnstile").start()
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiters.put((loop, turn))
        return turn


def _serve(descriptor: int, waiters: "queue.SimpleQueue[_Waiter | None]") -> None:
    """Wait for turns, one after the other. Whoever holds the lock for ever keeps this thread, and nothing else."""
    while (waiter := waiters.get()) is not None:
        loop, turn = waiter
        try:
            while not _win(descriptor, loop, turn):
                pass
        except (OSError, RuntimeError):
            # The store was closed meanwhile: nobody waits for this turn any more.
            return


def _win(descriptor: int, loop: asyncio.AbstractEventLoop, turn: "asyncio.Future[None]") -> bool:
    """Wait for a turn and hand it over; False when the loop did not come for it, and others were let in."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    offer = _Offer(turn)
    loop.call_soon_threadsafe(offer.take)
    if offer.is_taken():
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    while not offer.seen.wait(LOOK_SECONDS):
        if loop.is_closed():
            raise RuntimeError("the event loop is closed")
    return False


class _Offer:
    """A turn on its way from the thread to the loop: taken by the one, or taken back by the other."""

    def __init__(self, turn: "asyncio.Future[None]") -> None:
        self._turn = turn
        self._deciding = threading.Lock()
        self._withdrawn = False
        # The loop has looked at it.
        self.seen = threading.Event()

    def take(self) -> None:
        """On the loop: the turn is ours, unless it was taken back."""
        with self._deciding:
            self.seen.set()
            if not self._withdrawn and not self._turn.done():
                self._turn.set_result(None)

    def is_taken(self) -> bool:
        """In the thread: whether the loop has come for it; if not, it is withdrawn."""
        if self.seen.wait(HAND_OVER_SECONDS):
            return True
        with self._deciding:
            self._withdrawn = not self.seen.is_set()
        return not self._withdrawn
