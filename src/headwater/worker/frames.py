"""What a worker and its runner tell each other: length-prefixed frames over a pair of sockets."""

import struct
from collections.abc import Iterator

import msgspec

from headwater.model.job import JobNumber, Outcome
from headwater.services.job_functions import RunAbout

FRAME_BYTES_MAX = 64 * 1_048_576


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Call a function."""

    number: JobNumber
    about: RunAbout
    arguments: bytes
    timeout_seconds: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Cancel a call that runs, if it can be."""

    number: JobNumber


class Recall(msgspec.Struct, frozen=True, tag="recall"):
    """Give back what has not begun."""


class Recalled(msgspec.Struct, frozen=True, tag="recalled"):
    """What had not begun."""

    numbers: list[JobNumber]


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A call runs now."""

    number: JobNumber
    is_async: bool


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far a call is."""

    number: JobNumber
    value: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What a call came to."""

    number: JobNumber
    outcome: Outcome
    duration_seconds: float
    result: str | None = None
    error: str = ""
    after_seconds: float | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The runner has loaded its app, or could not: then `error` says why."""

    error: str = ""


ToRunner = Run | Stop | Recall
ToWorker = Ready | Begun | Done | Progress | Recalled

_encoder = msgspec.msgpack.Encoder()
_length = struct.Struct("<I")
decode_to_runner = msgspec.msgpack.Decoder(ToRunner).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode


def encode_frame(message: ToRunner | ToWorker) -> bytes:
    """A message as it goes over the wire."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that are complete now."""
        self._buffer += chunk
        start = 0
        while len(self._buffer) - start >= _length.size:
            (size,) = _length.unpack_from(self._buffer, start)
            end = start + _length.size + size
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[start + _length.size : end])
            start = end
        del self._buffer[:start]
