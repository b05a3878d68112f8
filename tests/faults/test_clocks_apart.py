"""Machines that share a database of a server and whose clocks are apart: all go by the server's clock."""

from collections.abc import AsyncIterator

import pytest

import headwater
from headwater.clock import SECOND, SharedClock, SystemClock, Timestamp
from tests.postgres_server import Server, server

HOUR = 3_600


class WrongClock(SystemClock):
    """The clock of a machine that nobody has set right."""

    def __init__(self, seconds: float) -> None:
        self.ahead = round(seconds * SECOND)

    def now(self) -> Timestamp:
        return Timestamp(super().now() + self.ahead)


@pytest.fixture(scope="module")
def database() -> Server:
    """A PostgreSQL server."""
    return server()


Machines = tuple[headwater.Headwater, headwater.Headwater]


@pytest.fixture(params=[-HOUR, -50, 50, HOUR])
async def machines(request: pytest.FixtureRequest, database: Server) -> AsyncIterator[Machines]:
    """Two machines on one store: the clock of the first is right."""
    address = database.address(database.new_schema())
    async with (
        headwater.open(address, housekeeping=False) as right,
        headwater.open(address, housekeeping=False, clock=SharedClock(WrongClock(request.param))) as wrong,
    ):
        yield right, wrong


async def written(machine: headwater.Headwater) -> Timestamp:
    """The time that a message gets there."""
    written_at = (await machine.queue("orders").push("now")).written_at
    assert written_at is not None
    return written_at


async def test_what_one_machine_has_leased_is_not_leased_by_another(machines: Machines) -> None:
    leased = []
    await machines[0].queue("orders").push_many([headwater.Outgoing(payload=n, partition=f"p{n}") for n in range(6)])
    for _ in range(3):
        for machine in machines:
            leased += await machine.queue("orders").pop(partitions=1, lease_seconds=45)
    assert sorted(message.payload for message in leased) == list(range(6))
    assert [message.attempts for message in leased] == [1] * 6
    for machine in machines:
        assert await machine.queue("orders").pop() == []
    # Whoever took them can still report on them.
    for message in leased:
        await message.ack()


async def test_what_is_to_come_later_comes_later_at_every_machine(machines: Machines) -> None:
    for machine in machines:
        await machine.queue("orders").push("later", delay=45)
    for machine in machines:
        await machine.queue("orders").push("now", partition="now")
        messages = await machine.queue("orders").pop(batch=10)
        assert [message.payload for message in messages] == ["now"]
        await machine.queue("orders").ack(messages)


async def test_messages_of_all_machines_tell_the_same_time(machines: Machines) -> None:
    first, second = [await written(machine) for machine in machines]
    assert abs(second - first) < 40 * SECOND


async def test_a_machine_whose_clock_is_set_meanwhile_goes_on_as_before(database: Server) -> None:
    clock = WrongClock(0)
    address = database.address(database.new_schema())
    async with headwater.open(address, housekeeping=False, clock=SharedClock(clock)) as hw:
        before = await written(hw)
        clock.ahead = -HOUR * SECOND
        after = await written(hw)
    assert 0 <= after - before < HOUR * SECOND // 2
