"""The WebSocket protocol (RFC 6455) without any I/O: the handshake, frames in and frames out.

A server's frames are never masked, a client's always are; who hands on to another server reads the one and writes the
other (`masked=False`, `encode_masked`). Whatever breaks a rule fails the connection with the code the
RFC gives for it. Extensions are not spoken, so reserved bits must be zero.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from enum import IntEnum
from hashlib import sha1
from http import HTTPStatus
from secrets import token_bytes
from typing import NamedTuple

from headwater.doors.sessions import CloseCode, Frame
from headwater.doors.wire import Refused, Request

VERSION = "13"
CONTROL_BYTES_MAX = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES = 16
_FIN = 0x80
_RESERVED = 0x70
_MASKED = 0x80
_LENGTH_16 = 126
_LENGTH_64 = 127
_SMALL_MAX = 125
_MEDIUM_MAX = 0xFFFF
# What a few bytes take beside themselves.
_PIECE_BYTES = 48


class Opcode(IntEnum):
    """Kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


# ── the handshake ──


def asks_for_websocket(request: Request) -> bool:
    """Whether the client wants to go on as a WebSocket."""
    return request.headers.get("upgrade", "").lower() == "websocket"


def accept(request: Request) -> str:
    """What `Sec-WebSocket-Accept` must say; raises when the client's side of the handshake is not as it should be."""
    headers = request.headers
    words = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    if request.method != "GET" or "upgrade" not in words or request.body:
        raise Refused(
            HTTPStatus.BAD_REQUEST, "bad_request", "a WebSocket begins with GET, Connection: Upgrade, no body"
        )
    if headers.get("sec-websocket-version") != VERSION:
        detail = f"version {VERSION} of the WebSocket protocol is spoken here"
        raise Refused(HTTPStatus.UPGRADE_REQUIRED, "websocket_version", detail, (("sec-websocket-version", VERSION),))
    key = headers.get("sec-websocket-key", "")
    try:
        is_key = len(b64decode(key, validate=True)) == _KEY_BYTES
    except (Base64Error, ValueError):
        is_key = False
    if not is_key:
        raise Refused(HTTPStatus.BAD_REQUEST, "bad_request", "Sec-WebSocket-Key must be 16 bytes in base64")
    return b64encode(sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


# ── frames out ──


def encode(opcode: Opcode, data: bytes) -> bytes:
    """One whole frame."""
    size = len(data)
    if size <= _SMALL_MAX:
        return bytes((_FIN | opcode, size)) + data
    if size <= _MEDIUM_MAX:
        return b"%c%c%b%b" % (_FIN | opcode, _LENGTH_16, size.to_bytes(2), data)
    return b"%c%c%b%b" % (_FIN | opcode, _LENGTH_64, size.to_bytes(8), data)


def encode_masked(opcode: Opcode, data: bytes) -> bytes:
    """One whole frame, as a client sends it."""
    mask, plain = token_bytes(4), encode(opcode, data)
    at = len(plain) - len(data)
    return b"%b%c%b%b%b" % (plain[:1], plain[1] | _MASKED, plain[2:at], mask, unmask(mask, data))


def encode_message(frame: Frame) -> bytes:
    """A frame as WebSockets carry it; made once for all of them."""
    encoded = frame.as_websocket
    if encoded is None and frame.parts:
        encoded = frame.as_websocket = b"".join(map(encode_message, frame.parts))
    elif encoded is None:
        data = frame.data
        encoded = encode(Opcode.TEXT, data.encode()) if isinstance(data, str) else encode(Opcode.BINARY, data)
        frame.as_websocket = encoded
    return encoded


def encode_close(code: int, reason: str = "") -> bytes:
    """A goodbye. A reason that is too long is cut between two letters."""
    if code == CloseCode.NO_CODE:
        return encode(Opcode.CLOSE, b"")
    cut = reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore")
    return encode(Opcode.CLOSE, code.to_bytes(2) + cut.encode())


# ── frames in ──


class Message(NamedTuple):
    """A whole message, its parts put together."""

    data: str | bytes


class Ping(NamedTuple):
    """Wants a pong with the same data."""

    data: bytes


class Goodbye(NamedTuple):
    """The client closes, with a code or without."""

    code: int


class Failure(NamedTuple):
    """A rule was broken; nothing after it is looked at."""

    code: CloseCode
    reason: str


Arrived = Message | Ping | Goodbye | Failure


class FrameReader:
    """Reads what one client sends. It holds the message that is not complete yet, and no more of it than is allowed."""

    __slots__ = (
        "_finished",
        "_gathered",
        "_kind",
        "_mask_bytes",
        "_needed",
        "_parts",
        "_unread",
        "_unread_bytes",
        "bytes_max",
    )

    def __init__(self, message_bytes_max: int, *, masked: bool = True) -> None:
        self.bytes_max = message_bytes_max
        self._mask_bytes = 4 if masked else 0
        # The beginning of a frame, in the pieces it came in, and how many bytes it takes to read on: a client that
        # sends byte by byte must not make us put them together each time.
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._needed = 0
        # Of a message in several frames: its kind, what has come of it, and how many: an empty one costs time as well.
        self._kind: int | None = None
        self._gathered = bytearray()
        self._parts = 0
        self._finished = False

    def feed(self, data: bytes) -> list[Arrived]:
        """What these bytes complete. After a goodbye or a failure nothing more is read."""
        if self._finished:
            return []
        if self._unread:
            self._unread.append(data)
            self._unread_bytes += len(data)
            if self._unread_bytes < self._needed:
                return []
            data = b"".join(self._unread)
        arrived: list[Arrived] = []
        start = 0
        try:
            while not self._finished:
                frame = self._frame(data, start)
                if frame is None:
                    break
                opcode, is_last, payload, start = frame
                self._take(opcode, is_last, payload, arrived)
        except _Broken as broken:
            self._finished = True
            arrived.append(Failure(broken.code, str(broken)))
        if self._finished:
            self.give_up()
            return arrived
        self._unread = [] if start == len(data) else [data[start:]]
        self._unread_bytes = len(data) - start
        return arrived

    def held_bytes(self) -> int:
        """How much the message takes that is not complete yet, each unread piece with what it takes to keep it."""
        return self._unread_bytes + len(self._unread) * _PIECE_BYTES + len(self._gathered)

    def give_up(self) -> None:
        """Read nothing more, and hold nothing."""
        self._finished = True
        self._unread, self._unread_bytes = [], 0
        self._gathered, self._parts = bytearray(), 0

    def _frame(self, data: bytes, start: int) -> tuple[int, bool, bytes, int] | None:
        """The frame that begins here: opcode, whether it ends its message, payload, where the next begins."""
        if not self._has(data, start, 2):
            return None
        first, second = data[start], data[start + 1]
        opcode, is_last, size = first & 0x0F, bool(first & _FIN), second & 0x7F
        self._check_head(first, second, opcode, is_last, size)
        at = start + 2
        if size >= _LENGTH_16:
            width = 2 if size == _LENGTH_16 else 8
            if not self._has(data, start, 2 + width):
                return None
            size = int.from_bytes(data[at : at + width])
            if size <= (_SMALL_MAX if width == 2 else _MEDIUM_MAX) or size >> 63:
                raise _Broken(CloseCode.PROTOCOL_ERROR, "a length is not written in the shortest way")
            at += width
        if len(self._gathered) + self._parts + size > self.bytes_max:
            raise _Broken(CloseCode.TOO_BIG, f"a message may have {self.bytes_max:,} bytes")
        begin = at + self._mask_bytes
        end = begin + size
        if not self._has(data, start, end - start):
            return None
        payload = data[begin:end]
        return opcode, is_last, unmask(data[at:begin], payload) if begin > at else payload, end

    def _has(self, data: bytes, start: int, count: int) -> bool:
        """Whether so many bytes of a frame are there; if not, it is not looked at before they are."""
        self._needed = count
        return len(data) >= start + count

    def _check_head(self, first: int, second: int, opcode: int, is_last: bool, size: int) -> None:
        if first & _RESERVED:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "a reserved bit is set and no extension was agreed on")
        if bool(second & _MASKED) != bool(self._mask_bytes):
            raise _Broken(CloseCode.PROTOCOL_ERROR, "a client's frame must be masked, and no server's")
        if opcode not in _opcodes:
            raise _Broken(CloseCode.PROTOCOL_ERROR, f"there is no opcode {opcode}")
        if opcode >= Opcode.CLOSE and (not is_last or size > CONTROL_BYTES_MAX):
            raise _Broken(CloseCode.PROTOCOL_ERROR, "a control frame is short and in one piece")
        if opcode == Opcode.CONTINUATION and self._kind is None:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "there is no message to continue")
        if opcode in (Opcode.TEXT, Opcode.BINARY) and self._kind is not None:
            raise _Broken(CloseCode.PROTOCOL_ERROR, "a message begins before the one before it has ended")

    def _take(self, opcode: int, is_last: bool, payload: bytes, arrived: list[Arrived]) -> None:
        if opcode == Opcode.PING:
            arrived.append(Ping(payload))
        elif opcode == Opcode.CLOSE:
            self._finished = True
            arrived.append(Goodbye(_close_code(payload)))
        elif opcode != Opcode.PONG:
            self._take_part(opcode, is_last, payload, arrived)

    def _take_part(self, opcode: int, is_last: bool, payload: bytes, arrived: list[Arrived]) -> None:
        if opcode != Opcode.CONTINUATION:
            self._kind = opcode
        if not is_last:
            self._gathered += payload
            self._parts += 1
            return
        kind, self._kind = self._kind, None
        if self._parts:
            payload = bytes(self._gathered + payload)
            self._gathered, self._parts = bytearray(), 0
        arrived.append(Message(_text(payload) if kind == Opcode.TEXT else payload))


class _Broken(Exception):
    """A rule of the protocol was broken."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


_opcodes = frozenset(Opcode)


def unmask(mask: bytes, data: bytes) -> bytes:
    """A client's bytes as they were meant, and the other way round."""
    size = len(data)
    if not size or mask == b"\0\0\0\0":
        return data
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(size, "little")


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise _Broken(CloseCode.INVALID_DATA, "a text is not UTF-8") from None


def _close_code(payload: bytes) -> int:
    if not payload:
        return CloseCode.NO_CODE
    code = int.from_bytes(payload[:2])
    is_known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(payload) == 1 or not (is_known or 3000 <= code <= 4999):
        raise _Broken(CloseCode.PROTOCOL_ERROR, "this is no code to close with")
    _text(payload[2:])
    return code
