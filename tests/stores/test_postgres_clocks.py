"""Machines whose clocks differ, on one PostgreSQL: they go by the server's clock, and none ends what another holds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import headwater
from headwater.clock import SECOND, SharedClock, SystemClock, Timestamp
from headwater.stores.questions import ListLeases
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_this_process

AHEAD, BEHIND = 600, -600

# A program on a machine whose clock is wrong. It does what it is told, a line of JSON each, until its input ends.
PROGRAM = """
import asyncio, json, sys, time
wrong, address = int(sys.argv[1]) * 10**9, sys.argv[2]
right = time.time_ns
time.time_ns = lambda: right() + wrong
import headwater

async def main():
    async with headwater.open(address, housekeeping=False) as hw:
        queue, held = hw.queue("orders"), []
        for line in iter(sys.stdin.readline, ""):
            what, *about = json.loads(line)
            if what == "push":
                await queue.push(about[0], delay=about[1])
                told = None
            elif what == "pop":
                held = await queue.pop(batch=10, lease_seconds=30)
                told = [[message.payload, message.attempts] for message in held]
            elif what == "ack":
                await queue.ack(held)
                told = len(held)
            print(json.dumps(told), flush=True)

asyncio.run(main())
"""


class Machine:
    """A program that runs there."""

    def __init__(self, wrong_by: int, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(wrong_by), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._complaints = ""

    def do(self, *what: object) -> Any:
        """What came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> str:
        """End it; what it had to complain of."""
        if self._process.returncode is None:
            _, self._complaints = self._process.communicate(timeout=60)
        return self._complaints


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


@pytest.fixture
def address(server: Server) -> str:
    return server.address(server.new_schema())


@pytest.fixture
def machines(address: str) -> Iterator[tuple[Machine, Machine]]:
    with ExitStack() as opened:
        pair = Machine(AHEAD, address), Machine(BEHIND, address)
        for machine in pair:
            opened.callback(machine.end)
        yield pair


def test_what_one_holds_the_other_does_not_get(machines: tuple[Machine, Machine]) -> None:
    ahead, behind = machines
    for holder, other in ((ahead, behind), (behind, ahead)):
        holder.do("push", "a", 0)
        assert holder.do("pop") == [["a", 1]]
        for number in range(5):
            other.do("push", number, 3_600)
            assert other.do("pop") == []
            holder.do("push", number, 3_600)
        assert holder.do("ack") == 1
    assert [machine.end() for machine in machines] == ["", ""]


async def test_times_are_those_of_the_server(machines: tuple[Machine, Machine], address: str) -> None:
    for machine in machines:
        machine.do("push", "a", 0)
        assert machine.do("pop") == [["a", 1]]
        async with headwater.open(address, housekeeping=False) as hw:
            (lease,) = await hw.store.ask(ListLeases("main", "orders"))
            assert abs(lease.lease_until - SystemClock().now() - 30 * SECOND) < 20 * SECOND
        machine.do("ack")


# ── the clock itself ──


class WrongClock(SystemClock):
    """A machine's clock that is set by hand."""

    def __init__(self) -> None:
        self.passed = 0
        self.wrong = 0

    def now(self) -> Timestamp:
        return Timestamp(1_000 * SECOND + self.passed + self.wrong)

    def steady(self) -> int:
        return self.passed


def test_before_a_server_is_heard_of_it_is_the_machines_clock() -> None:
    machine = WrongClock()
    clock = SharedClock(machine)
    machine.wrong = 5 * SECOND
    assert clock.now() == 1_005 * SECOND
    assert not clock.heard_lately(60)


def test_afterwards_nobody_sets_it_but_the_server() -> None:
    machine = WrongClock()
    clock = SharedClock(machine)
    clock.hear(5_000 * SECOND, 0, 0)
    machine.wrong = -600 * SECOND
    machine.passed = 7 * SECOND
    assert clock.now() == 5_007 * SECOND
    clock.hear(9_000 * SECOND, machine.passed, machine.passed)
    assert clock.now() == 9_000 * SECOND


def test_how_long_an_answer_took_does_not_set_it() -> None:
    machine = WrongClock()
    clock = SharedClock(machine)
    clock.hear(5_000 * SECOND, 0, 0)
    machine.passed = 10 * SECOND
    clock.hear(5_001 * SECOND, 0, machine.passed)
    assert clock.now() == 5_010 * SECOND
    clock.hear(4_999 * SECOND, 0, machine.passed)
    assert clock.now() == 5_009 * SECOND


def test_it_is_known_how_old_that_is() -> None:
    machine = WrongClock()
    clock = SharedClock(machine)
    clock.hear(5_000 * SECOND, 0, 0)
    assert clock.heard_lately(60)
    machine.passed = 61 * SECOND
    assert not clock.heard_lately(60)
