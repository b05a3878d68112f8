"""What lies between a worker and a runner: the line in which calls wait, and the slate on which a runner notes.

The line is a socket of whole messages. The kernel gives each to exactly one reader, so a call has either been taken by
the runner or can be taken back by the worker, at once and without asking; nobody has to listen while a call runs. The
slate is memory that both see: it outlives a runner that is killed. A function may write anything into it: what makes no
sense there is nothing, for whoever reads it.
"""

import fcntl
import math
import mmap
import os
import socket
import struct
from collections.abc import Iterator

import msgspec

from headwater.model.job import JobNumber
from headwater.worker.frames import Run

# More than this goes as a file in memory: hundreds of messages of this size fit into the socket.
MESSAGE_BYTES_MAX = 4_096
_READ_BYTES = 2 * MESSAGE_BYTES_MAX
_FILES_SPACE = socket.CMSG_SPACE(struct.calcsize("i"))
NOBODY = JobNumber(0)
_NOTHING = (NOBODY, 0.0)
KEPT_BYTES_MAX = 65_536
_INTERRUPT_AT, _USED_AT, _STEP_AT, _BEAT_AT, _KEPT_AT = 64, 128, 192, 256, 4_096
# Whoever holds the loop is to be interrupted, as far as that is known in the runner alone.
ANYBODY = JobNumber(-1)
SLATE_BYTES = _KEPT_AT + KEPT_BYTES_MAX
# Looks at an entry that changes while it is read.
_LOOKS_MAX = 100

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Run).decode
_entry = struct.Struct("<qd")
_whole = struct.Struct("<q")


class CallLine:
    """One end of the line; the worker has both."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.is_over = False

    def fileno(self) -> int:
        """The descriptor that a runner inherits."""
        return self._socket.fileno()

    def close(self) -> None:
        """Let go of this end."""
        self._socket.close()

    def end(self) -> None:
        """Put nothing more into the line: whoever takes from it learns that none will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def put(self, run: Run) -> bool:
        """Put a call at the end of the line; False when there is no room now."""
        body = _encode(run)
        try:
            if len(body) <= MESSAGE_BYTES_MAX:
                self._socket.send(body, socket.MSG_DONTWAIT)
            else:
                self._put_file(body)
        except BlockingIOError:
            return False
        return True

    def take(self, *, wait: bool = False) -> Run | None:
        """The next call, which is nobody else's then; None when there is none; having waited, when none will come."""
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            body, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, _FILES_SPACE, flags)
        except BlockingIOError:
            return None
        if ancillary:
            body = _read_file(ancillary[0][2])
        self.is_over = not body
        return _decode(body) if body else None

    def take_all(self) -> Iterator[Run]:
        """Everything that still waits in the line."""
        while (run := self.take()) is not None:
            yield run

    def _put_file(self, body: bytes) -> None:
        file = os.memfd_create("headwater-call")
        try:
            with open(file, "wb", closefd=False) as writing:
                writing.write(body)
            socket.send_fds(self._socket, [b"file"], [file], socket.MSG_DONTWAIT)
        finally:
            os.close(file)


def _read_file(descriptors: bytes) -> bytes:
    (file,) = struct.unpack_from("i", descriptors)
    with open(file, "rb") as reading:
        reading.seek(0)
        return reading.read()


def make_line() -> tuple[CallLine, CallLine]:
    """The worker's end and the runner's."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return CallLine(ends[0]), CallLine(ends[1])


def join_line(descriptor: int) -> CallLine:
    """The runner's end, as it was inherited."""
    return CallLine(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptor))


class Slate:
    """Memory that a runner shares with its worker and that stays when either is killed.

    It says which plain call runs, and since when on the monotonic clock; of which async call a step runs, and how often
    their loop has turned; which call is to be interrupted; and what calls came to that the runner has not told yet, so
    that a call that is done is never taken for one that is not.
    """

    def __init__(self, file: int) -> None:
        self._page = mmap.mmap(file, SLATE_BYTES)
        self._number_max: JobNumber | None = None
        self._used = 0
        self._beats = 0

    def expect(self, number: JobNumber) -> None:
        """This call was sent: a higher one than was ever sent does not run."""
        self._number_max = max(self._number_max or NOBODY, number)

    def begin(self, number: JobNumber, now: float) -> None:
        """A call runs from now on."""
        _entry.pack_into(self._page, 0, number, now)

    def end(self) -> None:
        """None runs any more."""
        _entry.pack_into(self._page, 0, NOBODY, 0.0)

    def read(self) -> tuple[JobNumber, float]:
        """The call that runs, 0 for none."""
        return self._read_entry(0)

    def step(self, number: JobNumber, now: float) -> None:
        """A step of this async call runs from now on; 0 for none."""
        _entry.pack_into(self._page, _STEP_AT, number, now)

    def read_step(self) -> tuple[JobNumber, float]:
        """The async call of which a step runs, and since when."""
        return self._read_entry(_STEP_AT)

    def beat(self) -> None:
        """The loop has turned."""
        self._beats += 1
        _whole.pack_into(self._page, _BEAT_AT, self._beats)

    def beats(self) -> int:
        """How often the loop has turned, as far as anybody counts that."""
        return int(_whole.unpack_from(self._page, _BEAT_AT)[0])

    def _read_entry(self, place: int) -> tuple[JobNumber, float]:
        """The other side may write meanwhile: two equal looks are a true one. Bytes are compared, because there are
        numbers that do not even equal themselves."""
        seen = b""
        for _ in range(_LOOKS_MAX):
            before, seen = seen, self._page[place : place + _entry.size]
            if seen == before:
                number, moment = _entry.unpack(seen)
                is_sound = 0 < number <= (self._number_max or number) and math.isfinite(moment) and moment >= 0
                return (JobNumber(number), moment) if is_sound else _NOTHING
        return _NOTHING

    def interrupt(self, number: JobNumber) -> None:
        """This call is to be interrupted: the signal that follows means no other."""
        _whole.pack_into(self._page, _INTERRUPT_AT, number)

    def interrupted(self) -> JobNumber:
        """The call that is to be interrupted, 0 for none."""
        return JobNumber(_whole.unpack_from(self._page, _INTERRUPT_AT)[0])

    def keep(self, frame: bytes) -> bool:
        """Keep what is not told yet; False when there is no room for it."""
        begin, end = self._used, self._used + len(frame)
        if end > KEPT_BYTES_MAX:
            return False
        self._page[_KEPT_AT + begin : _KEPT_AT + end] = frame
        self._used = end
        _whole.pack_into(self._page, _USED_AT, end)
        return True

    def kept(self) -> bytes:
        """What is not told yet, oldest first."""
        (used,) = _whole.unpack_from(self._page, _USED_AT)
        return self._page[_KEPT_AT : _KEPT_AT + min(max(used, 0), KEPT_BYTES_MAX)]

    def told(self) -> None:
        """Everything is told."""
        self._used = 0
        _whole.pack_into(self._page, _USED_AT, 0)

    def close(self) -> None:
        """Let go of the memory."""
        self._page.close()


def make_slate() -> int:
    """New memory, as a descriptor that a runner inherits."""
    file = os.memfd_create("headwater-slate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, SLATE_BYTES)
    # Memory that somebody has made shorter is the end of whoever reads it.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return file
