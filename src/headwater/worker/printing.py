"""What functions print, and what they log, is their job's output: live, for `queuectl logs`.

Whose it is follows from the context: each call has one of its own, and what it awaits shares it. A thread that a
function starts is its call's until that ends; not one of a pool, which works for whoever comes. What is printed outside
of a call goes where the worker's own output goes.
"""

import io
import logging
import sys
import threading
import time
from concurrent.futures.thread import _worker
from contextvars import ContextVar
from typing import TextIO
from weakref import WeakKeyDictionary

from headwater.forks import OwnLock
from headwater.model.job import JobNumber
from headwater.model.terminal import clean_lines
from headwater.worker.frames import Output
from headwater.worker.telling import Teller

# So many pieces are told as they come, so that not even a crash takes them; whoever prints more waits a little.
PIECES_AT_ONCE = 64
PIECE_CHARACTERS_MAX = 8_192
PAUSE_SECONDS = 0.2

_printing: ContextVar["Printer"] = ContextVar("headwater_printer")


class Printer:
    """The output of one call."""

    def __init__(self, number: JobNumber, teller: Teller) -> None:
        self._number = number
        self._teller = teller
        self._pieces: list[str] = []
        self._length = 0
        self._count = 0
        self._told_at = 0.0
        self._timer: threading.Timer | None = None
        self._lock = OwnLock()
        self._ended = False

    @property
    def has_ended(self) -> bool:
        """Whether the call is over."""
        return self._ended

    def enter(self) -> None:
        """From here on, in this context, what is printed is this call's."""
        _printing.set(self)

    def add(self, text: str) -> None:
        """Some more output; nothing that comes after the end."""
        with self._lock:
            if self._ended or not text:
                return
            self._pieces.append(text)
            self._length += len(text)
            self._count += 1
            if self._count <= PIECES_AT_ONCE or self._length >= PIECE_CHARACTERS_MAX or self._is_time():
                self._tell()
            elif self._timer is None:
                self._timer = threading.Timer(PAUSE_SECONDS, self._tell_late)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """The call is over: tell the rest."""
        with self._lock:
            self._ended = True
            if self._pieces:
                self._tell()
            if self._timer is not None:
                self._timer.cancel()

    def _is_time(self) -> bool:
        return time.monotonic() - self._told_at >= PAUSE_SECONDS

    def _tell_late(self) -> None:
        with self._lock:
            self._timer = None
            if self._pieces:
                self._tell()

    def _tell(self) -> None:
        text = "".join(self._pieces).encode("utf-8", "replace").decode()
        self._pieces.clear()
        self._length = 0
        self._told_at = time.monotonic()
        self._teller.send(Output(self._number, text))


# The calls that started threads, by these: not every Python hands the context on.
_of_threads: WeakKeyDictionary[threading.Thread, Printer] = WeakKeyDictionary()
_start = threading.Thread.start


def _start_for_the_call(thread: threading.Thread) -> None:
    printer = current_printer()
    if printer is not None and getattr(thread, "_target", None) is not _worker:
        _of_threads[thread] = printer
    _start(thread)


def current_printer() -> Printer | None:
    """Whose output it is that is printed here and now; None when it is of no call that is under way."""
    printer = _printing.get(None)
    if printer is not None:
        return printer
    printer = _of_threads.get(threading.current_thread())
    return None if printer is None or printer.has_ended else printer


class JobStream(io.TextIOBase):
    """Stands for standard output or error."""

    def __init__(self, own: TextIO) -> None:
        self._own = own
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "replace"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._own.fileno()

    def write(self, text: str) -> int:
        printer = current_printer()
        if printer is None:
            self._own.write(clean_lines(text))
            return len(text)
        printer.add(text)
        return len(text)

    def flush(self) -> None:
        if current_printer() is None:
            self._own.flush()


class _Bytes(io.RawIOBase):
    """The same for those who write bytes."""

    def __init__(self, stream: JobStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self._stream.write(bytes(content).decode("utf-8", "replace"))
        return len(content)


class _JobLog(logging.Handler):
    """`current_job().log` writes to the job's output."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def capture_output() -> tuple[JobStream, JobStream]:
    """From now on, what functions print and log is theirs. The streams, to be put back if a function replaces them."""
    threading.Thread.start = _start_for_the_call  # type: ignore[assignment,method-assign]
    streams = JobStream(sys.stdout), JobStream(sys.stderr)
    sys.stdout, sys.stderr = streams
    handler = _JobLog()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    jobs = logging.getLogger("headwater.job")
    jobs.addHandler(handler)
    jobs.setLevel(logging.INFO)
    jobs.propagate = False
    return streams
