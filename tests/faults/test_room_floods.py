"""Clients of rooms that flood: each is closed with a code, or read no faster than it may speak; the memory of the
server stays within bounds, and a member beside them hears everything."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.config import MIB
from headwater.doors.sessions import CloseCode
from headwater.doors.websocket import Opcode
from tests.doors.realtime.guests import joined
from tests.doors.realtime.test_conformance import KEY, frame
from tests.faults.conftest import Rounds
from tests.scenarios.servers import Server

PATIENCE_SECONDS = 60.0
FLOOD_SECONDS = 5.0
FLOOD_BYTES_MAX = 64 * MIB
# So much is said and heard beside a flood, however long that takes on a machine that is busy with it.
HEARD_MIN = 20
# For each of them the server may hold a message (1 MiB), an outbox (1 MiB) and what sockets and the allocator keep.
CLIENT_BYTES_MAX = 4 * MIB
BASE_BYTES_MAX = 48 * MIB


def text(type: str, payload: object) -> bytes:
    return frame(Opcode.TEXT, json.dumps({"id": "1", "type": type, "payload": payload}).encode())


JOIN = text("join", {"room": "a"})
PIECE = frame(Opcode.CONTINUATION, b"x" * 60_000, last=False)
SAY = text("send", {"room": "a", "type": "test", "data": "x" * 1_000})
# What is sent first, and then again and again without ever reading; and what it may be closed with. None: it is kept,
# and read as slowly as it may speak.
FLOODS: dict[str, tuple[bytes, bytes, set[int] | None]] = {
    "pings": (JOIN, frame(Opcode.PING, b"x" * 125) * 100, {CloseCode.TRY_AGAIN_LATER}),
    "messages": (JOIN, SAY * 10, None),
    "what nobody knows": (b"", text("dance", {}) * 100, None),
    "joins of one room": (b"", JOIN * 100, None),
    "joins of many rooms": (
        b"",
        b"".join(text("join", {"room": f"r{number}", "profile": "x" * 4_000}) for number in range(200)),
        None,
    ),
    "history again and again": (b"", text("join", {"room": "long", "since": "beginning"}) * 10, None),
    "a message without end": (frame(Opcode.TEXT, b"[", last=False), PIECE, {CloseCode.TOO_BIG}),
    "a message in empty pieces": (
        frame(Opcode.TEXT, last=False),
        frame(Opcode.CONTINUATION, last=False) * 1_000,
        {CloseCode.TOO_BIG},
    ),
    "noise": (b"", bytes(range(256)) * 100, {CloseCode.PROTOCOL_ERROR}),
    "a handshake without end": (b"", b"X-More: 1\r\n" * 1_000, None),
}


# Others read nothing for so long that what waits for them is thrown away, with the code at its end.
TOLD = ("a message without end", "noise")


class Flood:
    """One client that says the same again and again and reads nothing until it is over."""

    def __init__(self, server: Server, name: str) -> None:
        self._place = urlsplit(server.url)
        self._first, self._again, self._codes = FLOODS[name]
        self._is_handshake = name == "a handshake without end"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.code: int | None = None
        self.sent = 0
        self._thread.start()

    def _run(self) -> None:
        with socket.create_connection((self._place.hostname or "", self._place.port or 0), timeout=5.0) as wire:
            upgrade = (
                f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13"
            )
            head = f"GET /realtime/ws HTTP/1.1\r\nHost: {self._place.netloc}\r\n{upgrade}\r\n"
            try:
                wire.sendall(head.encode() + (b"" if self._is_handshake else b"\r\n" + self._first))
                wire.settimeout(0.5)
                ends = time.monotonic() + FLOOD_SECONDS
                while time.monotonic() < ends and self.sent < FLOOD_BYTES_MAX:
                    try:
                        self.sent += wire.send(self._again)
                    except TimeoutError:
                        continue
            except OSError:
                pass
            self.code = self._goodbye(wire)

    def _goodbye(self, wire: socket.socket) -> int | None:
        """What it was closed with; None when it was not: what it said is still being answered."""
        read = b""
        wire.settimeout(2.0)
        ends = time.monotonic() + 2 * FLOOD_SECONDS
        try:
            while time.monotonic() < ends and (more := wire.recv(65_536)):
                read = read[-65_536:] + more
        except (TimeoutError, ConnectionError):
            pass
        at = max((read.rfind(bytes((0x88, size))) for size in range(2, 125)), default=-1)
        return int.from_bytes(read[at + 2 : at + 4]) if at >= 0 else None

    def finish(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def is_closed_rightly(self) -> bool:
        """A close frame can be lost behind what it never read, with the connection."""
        return self._codes is None or self.code is None or self.code in self._codes


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.pid}/statm").read_text().split()
    return int(status[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "headwater.db")
    yield started
    started.stop()


def say_much(server: Server) -> None:
    """A history that is larger than what may wait for one client."""
    with joined(server.url) as guest:
        for _ in range(40):
            guest.ask("send", room="long", type="test", data="x" * 100_000)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_closed_or_slowed_and_neither_memory_nor_others_suffer(
    server: Server, name: str, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    count = rounds(6, 100)
    if name == "history again and again":
        say_much(server)
    with joined(server.url) as ann:
        ann.ask("join", room="quiet")
        before = resident_bytes(server)
        floods = [Flood(server, name) for _ in range(count)]
        highest, heard = before, 0
        ends = time.monotonic() + FLOOD_SECONDS
        while time.monotonic() < ends or heard < HEARD_MIN:
            ann.say("send", room="quiet", type="test", data=heard)
            assert ann.until("room-message")["data"] == heard
            heard += 1
            highest = max(highest, resident_bytes(server))
        for flood in floods:
            flood.finish()
        highest = max(highest, resident_bytes(server))
        ann.say("send", room="quiet", type="test", data="still here")
        assert ann.until("room-message")["data"] == "still here"
    record_property(f"{name}: MiB more for {count}", round((highest - before) / MIB, 1))
    record_property(f"{name}: heard beside it", heard)
    assert highest - before < BASE_BYTES_MAX + count * CLIENT_BYTES_MAX
    assert [flood.code for flood in floods if not flood.is_closed_rightly()] == []
    wanted = FLOODS[name][2] or set()
    if name in TOLD:
        assert {flood.code for flood in floods} & wanted, "at least one of them was told why"
