"""How a runner tells its worker: at once, or together with what comes next, a moment later at most.

What is kept for later stands on the slate, which outlives the runner: a call that is done stays done.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.forks import Origin, OwnLock
from headwater.worker.calls import Slate
from headwater.worker.frames import ToWorker, encode_frame

TELL_SECONDS = 0.001


class Teller:
    """Everything that a runner says, from any of its threads."""

    def __init__(self, slate: Slate, descriptor: int) -> None:
        self._slate = slate
        self._descriptor = descriptor
        # Functions fork: whoever speaks in a child must not wait for a thread that it has not.
        self._lock = OwnLock()
        self._origin = Origin()
        self._untold = bytearray()
        self._told_at = 0.0
        self._late = threading.Event()
        self._ticking = False
        self._telling = 0
        self._afterwards: Callable[[], None] | None = None

    def defer(self, interrupt: Callable[[], None]) -> bool:
        """Whether this thread is telling something just now; then it is interrupted behind that: half a frame would
        take what comes behind it along."""
        if self._telling != threading.get_ident():
            return False
        self._afterwards = interrupt
        return True

    def send(self, message: ToWorker) -> None:
        """Tell something now, after whatever was kept."""
        with self._lock, self._undisturbed():
            self._write_kept()
            self._write(encode_frame(message))

    def keep(self, message: ToWorker) -> None:
        """Tell something later; what is too long for that is told now."""
        frame = encode_frame(message)
        with self._lock, self._undisturbed():
            if not self._slate.keep(frame):
                self._write_kept()
                if not self._slate.keep(frame):
                    self._write(frame)
                    return
            # Told from here: functions may write to what is shared.
            self._untold += frame

    def tell(self) -> None:
        """Tell what was kept."""
        with self._lock, self._undisturbed():
            self._write_kept()

    def tell_soon(self) -> None:
        """Tell what was kept within a moment, whatever this thread does meanwhile: the next call may take hours."""
        if not self._untold:
            return
        if time.monotonic() - self._told_at >= TELL_SECONDS:
            self.tell()
        elif not self._late.is_set():
            if not self._ticking:
                self._ticking = True
                threading.Thread(target=self._tick, name="headwater-teller", daemon=True).start()
            self._late.set()

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        self._telling = threading.get_ident()
        try:
            yield
        finally:
            self._telling = 0
            afterwards, self._afterwards = self._afterwards, None
            if afterwards is not None:
                afterwards()

    def _tick(self) -> None:
        while self._late.wait():
            time.sleep(TELL_SECONDS)
            self._late.clear()
            try:
                self.tell()
            except OSError:
                return  # Some function has closed it; the worker reads the slate when this process ends.

    def _write_kept(self) -> None:
        # What a child finds here its parent will tell.
        if self._untold and self._origin.is_here:
            self._write(bytes(self._untold))
            self._slate.told()
            self._untold.clear()
        self._told_at = time.monotonic()

    def _write(self, content: bytes) -> None:
        frames = memoryview(content)
        while frames:
            frames = frames[os.write(self._descriptor, frames) :]
