"""What a worker and its runner tell each other besides the calls in line: frames over pipes.

A frame begins with a mark and its length. Functions can write to descriptors that are not theirs: with the mark, the
frames before and behind such nonsense are found all the same.
"""

import struct

import msgspec

from headwater.model.job import JobNumber, JobOutcome
from headwater.model.job_policy import JobPolicy
from headwater.services.job_functions import RunAbout

FRAME_BYTES_MAX = 64 * 1_048_576


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Call a function."""

    number: JobNumber
    about: RunAbout
    arguments: bytes
    timeout_seconds: float
    slot: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Cancel an async call."""

    number: JobNumber


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """An async call runs from this moment of the monotonic clock on."""

    number: JobNumber
    at: float


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far a call is."""

    number: JobNumber
    value: str


class Output(msgspec.Struct, frozen=True, tag="output"):
    """What a call has printed since the last time."""

    number: JobNumber
    text: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What a call came to."""

    number: JobNumber
    outcome: JobOutcome
    duration_seconds: float
    result: str | None = None
    error: str = ""
    after_seconds: float | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The runner has loaded its functions, and says which there are; or it could not: then `error` says why.

    `policies` and `schedules` are what they declare; the latter as JSON, because calls have their arguments as that.
    """

    error: str = ""
    plain: tuple[str, ...] = ()
    asynchronous: tuple[str, ...] = ()
    policies: dict[str, JobPolicy] = {}
    schedules: bytes = b"[]"


ToWorker = Ready | Begun | Done | Progress | Output

_encoder = msgspec.msgpack.Encoder()
# No MessagePack value begins with the byte 0xc1.
MARK = b"\xc1hwframe"
_head = struct.Struct("<8sI")
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
decode_to_runner = msgspec.msgpack.Decoder(Stop).decode


class NoFrame(Exception):
    """What was heard is nothing that the other side says."""


def encode_frame(message: Stop | ToWorker) -> bytes:
    """A message as it goes over the wire."""
    body = _encoder.encode(message)
    return _head.pack(MARK, len(body)) + body


def decode_to_worker(frame: bytes | bytearray) -> ToWorker:
    """What a runner says; NoFrame when that is no message."""
    try:
        return _to_worker.decode(frame)
    except (msgspec.MsgspecError, ValueError) as error:
        raise NoFrame(f"a frame of {len(frame):,} bytes is no message: {error}") from error


class FrameReader:
    """Cuts a stream of bytes into frames, and counts the bytes that belong to none."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.nonsense_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The frames that are complete now."""
        self._rest += chunk
        frames = []
        start = self._next_mark(0)
        while len(self._rest) - start >= _head.size:
            _, length = _head.unpack_from(self._rest, start)
            if length > FRAME_BYTES_MAX:
                self.nonsense_bytes += len(MARK)
                start = self._next_mark(start + len(MARK))
                continue
            end = start + _head.size + length
            if len(self._rest) < end:
                break
            frames.append(bytes(self._rest[start + _head.size : end]))
            start = self._next_mark(end)
        del self._rest[:start]
        return frames

    def _next_mark(self, start: int) -> int:
        """Where the next frame begins, or may begin when more has come."""
        if self._rest.startswith(MARK, start):
            return start
        found = self._rest.find(MARK, start)
        if found < 0:
            found = len(self._rest) - self._mark_begun(start)
        self.nonsense_bytes += found - start
        return found

    def _mark_begun(self, start: int) -> int:
        """How many bytes at the end may be the beginning of a mark."""
        longest = min(len(MARK) - 1, len(self._rest) - start)
        return next((size for size in range(longest, 0, -1) if self._rest.endswith(MARK[:size])), 0)
