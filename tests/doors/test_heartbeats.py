"""How often WebSockets are pinged, and who is cut off, by a clock that is the test's: hours take moments.

However few or many sockets there are, each is looked at once in every period. One that is idle and answers stays for
ever; one that is dead is asked once, and is gone in the third period.
"""

import asyncio
from typing import Any, cast

import pytest

from headwater.doors.edge.budget import Budget
from headwater.doors.edge.contract import SocketServer
from headwater.doors.edge.heartbeats import TICK_SECONDS, Heartbeats
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.websocket import WebSocket
from headwater.doors.websocket import Opcode, encode, unmask
from tests.loop_clock import LoopClock, standing_still

PING = encode(Opcode.PING, b"")
PONG = bytes((0x80 | Opcode.PONG, 0x80)) + b"\0\0\0\0"
HELLO = bytes((0x80 | Opcode.TEXT, 0x80 | 2)) + b"\1\2\3\4" + unmask(b"\1\2\3\4", b"{}")
PERIOD = Limits().ping_seconds


class Wire:
    """The transport of one socket: notes when it is pinged, and answers if it is alive."""

    def __init__(self, clock: LoopClock, *, answers: bool = True) -> None:
        self._clock = clock
        self._answers = answers
        self._reads = True
        self.pinged_at: list[float] = []
        self.cut_at: float | None = None
        self.socket = WebSocket(cast(SocketServer, _Server()), cast(asyncio.Transport, self), "")

    def write(self, data: bytes) -> None:
        assert data == PING
        self.pinged_at.append(self._clock.time())
        if self._answers:
            asyncio.get_running_loop().call_soon(self.socket.data_received, PONG)

    def abort(self) -> None:
        self.cut_at = self.cut_at or self._clock.time()

    def is_closing(self) -> bool:
        return self.cut_at is not None

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def gaps(self) -> list[float]:
        """Seconds between two pings."""
        return [later - earlier for earlier, later in zip(self.pinged_at, self.pinged_at[1:], strict=False)]


class _Server:
    limits = Limits()
    sessions: Any = None
    budget = Budget(1_000, 1_000)


async def pass_time(clock: LoopClock, seconds: float, step: float = TICK_SECONDS) -> None:
    for _ in range(round(seconds / step)):
        await clock.advance(step)


@pytest.mark.parametrize("count", [1, 2, 3, 49, 50, 51, 400])
async def test_whoever_is_idle_and_answers_is_asked_seldom_and_stays_for_ever(count: int) -> None:
    """Few sockets are no reason to look at each of them at every tick."""
    with standing_still() as clock:
        hearts = Heartbeats(PERIOD)
        wires = [Wire(clock) for _ in range(count)]
        for wire in wires:
            hearts.add(wire.socket)
        minutes = 20
        await pass_time(clock, minutes * 60)
        assert [wire.cut_at for wire in wires] == [None] * count
        # Looked at once in a period, an idle one is asked in every second.
        asked = minutes * 60 / PERIOD / 2
        assert all(asked - 1 <= len(wire.pinged_at) <= asked + 1 for wire in wires)
        assert min(min(wire.gaps()) for wire in wires) >= PERIOD
        assert max(max(wire.gaps()) for wire in wires) <= 2 * PERIOD + 2 * TICK_SECONDS
        for wire in wires:
            hearts.remove(wire.socket)


@pytest.mark.parametrize("count", [1, 2, 50])
async def test_one_that_is_dead_is_asked_once_and_is_gone_in_the_third_period(count: int) -> None:
    with standing_still() as clock:
        hearts = Heartbeats(PERIOD)
        begun = clock.time()
        dead = Wire(clock, answers=False)
        alive = [Wire(clock) for _ in range(count - 1)]
        for wire in (dead, *alive):
            hearts.add(wire.socket)
        await pass_time(clock, 4 * PERIOD)
        assert len(dead.pinged_at) == 1
        assert dead.cut_at is not None
        assert PERIOD <= dead.pinged_at[0] - begun <= 2 * PERIOD + TICK_SECONDS
        assert PERIOD <= dead.cut_at - dead.pinged_at[0] <= PERIOD + 2 * TICK_SECONDS
        assert [wire.cut_at for wire in alive] == [None] * (count - 1)
        for wire in (dead, *alive):
            hearts.remove(wire.socket)


async def test_one_that_talks_is_not_asked() -> None:
    with standing_still() as clock:
        hearts = Heartbeats(PERIOD)
        wire = Wire(clock, answers=False)
        hearts.add(wire.socket)
        for _ in range(20):
            wire.socket.data_received(HELLO)
            await pass_time(clock, PERIOD - TICK_SECONDS)
        assert (wire.pinged_at, wire.cut_at) == ([], None)
        hearts.remove(wire.socket)


async def test_one_that_the_server_does_not_read_is_not_taken_for_dead() -> None:
    """Its pong would not be heard, and what it said before is still being worked on."""
    with standing_still() as clock:
        hearts = Heartbeats(PERIOD)
        wire = Wire(clock, answers=False)
        hearts.add(wire.socket)
        wire.socket.pause()
        await pass_time(clock, 10 * PERIOD)
        assert (wire.pinged_at, wire.cut_at) == ([], None)
        wire.socket.resume()
        await pass_time(clock, 3 * PERIOD + 2)
        assert len(wire.pinged_at) == 1
        assert wire.cut_at is not None
        hearts.remove(wire.socket)


@pytest.mark.parametrize("period", [0.1, 0.5, 0.7, 3.0, 60.0])
async def test_the_period_is_kept_whatever_it_is(period: float) -> None:
    with standing_still() as clock:
        hearts = Heartbeats(period)
        wires = [Wire(clock) for _ in range(5)]
        for wire in wires:
            hearts.add(wire.socket)
        step = min(TICK_SECONDS, period)
        await pass_time(clock, 40 * period, step)
        assert all(wire.cut_at is None and 17 <= len(wire.pinged_at) <= 21 for wire in wires)
        for wire in wires:
            hearts.remove(wire.socket)


async def test_those_who_come_and_go_neither_hurry_nor_delay_the_others() -> None:
    with standing_still() as clock:
        hearts = Heartbeats(PERIOD)
        steady = [Wire(clock) for _ in range(4)]
        for wire in steady:
            hearts.add(wire.socket)
        for _ in range(round(20 * 60 / TICK_SECONDS)):
            passing = [Wire(clock) for _ in range(3)]
            for wire in passing:
                hearts.add(wire.socket)
            await clock.advance(TICK_SECONDS)
            for wire in passing:
                hearts.remove(wire.socket)
        assert [wire.cut_at for wire in steady] == [None] * 4
        assert all(len(wire.pinged_at) >= 20 for wire in steady)
        assert min(min(wire.gaps()) for wire in steady) >= PERIOD
        for wire in steady:
            hearts.remove(wire.socket)
        # Nobody is there: nothing is held, and no timer runs.
        assert (hearts.members(), len(hearts._ring), hearts._timer) == ([], 0, None)
