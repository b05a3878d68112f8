"""A corpus of WebSocket frames, byte by byte over a socket, on the edge and inside another app: what is taken, and the
code that each broken rule is closed with (RFC 6455)."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from headwater.doors.sessions import CloseCode
from headwater.doors.websocket import Opcode, unmask
from tests.doors.live_door import LiveDoor
from tests.doors.realtime.guests import PATIENCE_SECONDS, joined

MASK = b"\x12\x34\x56\x78"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ASK = json.dumps({"id": "7", "type": "auth", "payload": {"token": ""}}).encode()
RESERVED = (0x40, 0x20, 0x10)


def frame(opcode: int, data: bytes = b"", *, last: bool = True, mask: bytes | None = MASK, bits: int = 0) -> bytes:
    """One frame of a client."""
    size = len(data)
    first = (0x80 if last else 0) | bits | opcode
    masked = 0x80 if mask is not None else 0
    if size <= 125:
        head = bytes((first, masked | size))
    elif size <= 0xFFFF:
        head = bytes((first, masked | 126)) + size.to_bytes(2)
    else:
        head = bytes((first, masked | 127)) + size.to_bytes(8)
    return head + (data if mask is None else mask + unmask(mask, data))


def close(code: int, reason: bytes = b"") -> bytes:
    return frame(Opcode.CLOSE, code.to_bytes(2) + reason)


class Heard(NamedTuple):
    """A frame of the server."""

    opcode: int
    data: bytes

    @property
    def code(self) -> int:
        return int.from_bytes(self.data[:2]) if self.data else int(CloseCode.NO_CODE)


class Wire:
    """A WebSocket whose every byte is ours."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._read = b""

    def _take(self, count: int) -> bytes:
        while len(self._read) < count:
            more = self.connection.recv(65_536)
            if not more:
                raise EOFError
            self._read += more
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    def head(self) -> bytes:
        """What answers the handshake."""
        read = b""
        while not read.endswith(b"\r\n\r\n"):
            read += self._take(1)
        return read

    def hear(self) -> Heard:
        """The next frame; a server's is whole, and never masked."""
        first, second = self._take(2)
        assert first & 0x80
        assert not first & 0x70
        assert not second & 0x80
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8))
        return Heard(first & 0x0F, self._take(size))

    def until(self, opcode: int) -> Heard:
        """The next frame of a kind; heartbeats and the like are passed over."""
        while (heard := self.hear()).opcode != opcode:
            continue
        return heard

    def is_over(self) -> bool:
        """Whether the server hangs up, whatever comes before."""
        try:
            while True:
                self._take(1)
        except (EOFError, ConnectionError):
            return True


@contextmanager
def raw(door: LiveDoor, **headers: str) -> Iterator[Wire]:
    """A handshake by hand."""
    place = urlsplit(door.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=PATIENCE_SECONDS) as connection:
        asked = {
            "Host": place.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": KEY,
            "Sec-WebSocket-Version": "13",
            **headers,
        }
        lines = [f"GET {place.path}/realtime/ws HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        yield Wire(connection)


TAKEN = {
    "in one frame": frame(Opcode.TEXT, ASK),
    "masked with zeros": frame(Opcode.TEXT, ASK, mask=b"\0\0\0\0"),
    "in two frames": frame(Opcode.TEXT, ASK[:5], last=False) + frame(Opcode.CONTINUATION, ASK[5:]),
    "with an empty beginning": frame(Opcode.TEXT, last=False) + frame(Opcode.CONTINUATION, ASK),
    "with an empty end": frame(Opcode.TEXT, ASK, last=False) + frame(Opcode.CONTINUATION),
    "a byte a frame": frame(Opcode.TEXT, last=False)
    + b"".join(frame(Opcode.CONTINUATION, ASK[place : place + 1], last=False) for place in range(len(ASK)))
    + frame(Opcode.CONTINUATION),
    "with a ping inside": frame(Opcode.TEXT, ASK[:9], last=False)
    + frame(Opcode.PING, b"inside")
    + frame(Opcode.CONTINUATION, ASK[9:]),
    "with a pong nobody asked for": frame(Opcode.PONG, b"hm") + frame(Opcode.TEXT, ASK),
    "a letter cut in two": frame(
        Opcode.TEXT, b'{"id": "7", "type": "auth", "payload": {"token": "", "x": "\xc3', last=False
    )
    + frame(Opcode.CONTINUATION, b'\xa4"}}'),
    "with a length of 16 bits": frame(Opcode.TEXT, ASK + b" " * 200),
    "with a length of 64 bits": frame(Opcode.TEXT, ASK + b" " * 70_000),
}
PROTOCOL, DATA = {int(CloseCode.PROTOCOL_ERROR)}, {int(CloseCode.INVALID_DATA)}
BROKEN: dict[str, tuple[bytes, set[int]]] = {
    **{f"reserved bit {bit:#x}": (frame(Opcode.TEXT, ASK, bits=bit), PROTOCOL) for bit in RESERVED},
    **{f"opcode {opcode}": (frame(opcode, b"x"), PROTOCOL) for opcode in (3, 7, 11, 15)},
    "not masked": (frame(Opcode.TEXT, ASK, mask=None), PROTOCOL),
    "a ping that is not masked": (frame(Opcode.PING, mask=None), PROTOCOL),
    "a ping in pieces": (frame(Opcode.PING, b"x", last=False), PROTOCOL),
    "a ping that is too long": (frame(Opcode.PING, b"x" * 126), PROTOCOL),
    "an end without a beginning": (frame(Opcode.CONTINUATION, ASK), PROTOCOL),
    "a beginning inside a message": (frame(Opcode.TEXT, ASK, last=False) + frame(Opcode.TEXT, ASK), PROTOCOL),
    "not UTF-8": (frame(Opcode.TEXT, b"\xff\xfe"), DATA),
    "half a letter at the end": (frame(Opcode.TEXT, b"\xc3"), DATA),
    "a surrogate": (frame(Opcode.TEXT, b"\xed\xa0\x80"), DATA),
    "not UTF-8 over two frames": (
        frame(Opcode.TEXT, b"\xc3", last=False) + frame(Opcode.CONTINUATION, b"\x28"),
        DATA,
    ),
    "a goodbye of one byte": (frame(Opcode.CLOSE, b"\x03"), PROTOCOL),
    **{f"a goodbye with {code}": (close(code), PROTOCOL) for code in (0, 999, 1004, 1005, 1006, 1016, 2999, 5000)},
    "a goodbye that is not UTF-8": (close(1000, b"\xff"), PROTOCOL | DATA),
    "larger than a message may be": (frame(Opcode.TEXT, b"x" * (1_048_576 + 1)), {int(CloseCode.TOO_BIG)}),
    "parts that are too large together": (
        frame(Opcode.TEXT, b"x" * 600_000, last=False) + frame(Opcode.CONTINUATION, b"x" * 600_000),
        {int(CloseCode.TOO_BIG)},
    ),
    "bytes": (frame(Opcode.BINARY, ASK), {int(CloseCode.NOT_ACCEPTED)}),
}


def test_what_a_client_may_send_is_taken_in_whatever_frames_it_comes(door: LiveDoor) -> None:
    for name, sent in TAKEN.items():
        with raw(door) as wire:
            assert b" 101 " in wire.head(), name
            wire.connection.sendall(sent)
            if b"inside" in name.encode():
                assert wire.until(Opcode.PONG).data == b"inside"
            answer = json.loads(wire.until(Opcode.TEXT).data)
            assert (answer["id"], answer["type"]) == ("7", "auth_ack"), name


def test_what_breaks_a_rule_is_closed_with_its_code_and_harms_nobody(door: LiveDoor) -> None:
    with joined(door.url) as bystander:
        for name, (sent, codes) in BROKEN.items():
            with raw(door) as wire:
                assert b" 101 " in wire.head(), name
                # A server may close before all of it was sent; what it said is still to be read.
                with suppress(ConnectionError):
                    wire.connection.sendall(sent)
                assert wire.until(Opcode.CLOSE).code in codes, name
        assert bystander.ask("auth", token="")["type"] == "auth_ack"


def test_a_goodbye_is_answered_with_its_code_and_the_end(door: LiveDoor) -> None:
    for code in (1000, 1001, 1003, 1011, 3000, 4999):
        with raw(door) as wire:
            wire.head()
            wire.connection.sendall(close(code, b"so long"))
            assert wire.until(Opcode.CLOSE).code == code
            assert wire.is_over()
    with raw(door) as wire:
        wire.head()
        wire.connection.sendall(frame(Opcode.CLOSE))
        assert wire.until(Opcode.CLOSE).code in (CloseCode.NO_CODE, CloseCode.NORMAL)


def test_a_ping_is_answered_with_what_it_had(door: LiveDoor) -> None:
    with raw(door) as wire:
        wire.head()
        for data in (b"", b"x", b"\0" * 125):
            wire.connection.sendall(frame(Opcode.PING, data))
            assert wire.until(Opcode.PONG).data == data


def test_one_who_sends_no_more_but_listens_is_let_go_and_leaves_its_room(door: LiveDoor) -> None:
    """Half of a connection is none: nobody can answer a ping, or say goodbye."""
    with joined(door.url) as bystander, raw(door) as wire:
        bystander.ask("join", room="a")
        wire.head()
        join = {"id": "1", "type": "join", "payload": {"room": "a"}}
        wire.connection.sendall(frame(Opcode.TEXT, json.dumps(join).encode()))
        assert bystander.until("presence")["state"] == "joined"
        wire.connection.shutdown(socket.SHUT_WR)
        assert bystander.until("presence")["state"] == "left"
        assert wire.is_over()


def test_a_handshake_that_is_none_is_refused(door: LiveDoor) -> None:
    for name, value in (("Version", "8"), ("Key", "short"), ("Key", "")):
        with raw(door, **{f"Sec-WebSocket-{name}": value}) as wire:
            assert wire.head().split(b" ")[1][:1] == b"4", (name, value)


def test_a_message_is_not_compressed_by_the_edge_whatever_a_client_offers(door: LiveDoor) -> None:
    """S0-68: docs/decisions says why; inside another app that is for its server to say."""
    with raw(door, **{"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}) as wire:
        head = wire.head().lower()
        if b"server: uvicorn" not in head:
            assert b"sec-websocket-extensions" not in head
