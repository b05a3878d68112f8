"""What a worker and its runner tell each other besides the calls in line: length-prefixed frames over pipes."""

import struct
from collections.abc import Iterator

import msgspec

from headwater.model.job import JobNumber, Outcome
from headwater.model.job_policy import JobPolicy
from headwater.services.job_functions import RunAbout

FRAME_BYTES_MAX = 64 * 1_048_576


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Call a function."""

    number: JobNumber
    about: RunAbout
    arguments: bytes
    timeout_seconds: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Cancel an async call."""

    number: JobNumber


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """An async call runs now."""

    number: JobNumber


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
    outcome: Outcome
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
_length = struct.Struct("<I")
decode_to_runner = msgspec.msgpack.Decoder(Stop).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode


def encode_frame(message: Stop | ToWorker) -> bytes:
    """A message as it goes over the wire."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes | bytearray]:
        """The frames that are complete now."""
        held: bytes | bytearray = chunk
        if self._rest:
            self._rest += chunk
            held = self._rest
        start, size = 0, len(held)
        while size - start >= _length.size:
            begin = start + _length.size
            length = _length.unpack_from(held, start)[0]
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length:,} bytes is none")
            end = begin + length
            if size < end:
                break
            yield held[begin:end]
            start = end
        if held is self._rest:
            del self._rest[:start]
        else:
            self._rest += held[start:]
