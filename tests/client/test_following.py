"""Following the log of a queue, of an open store and of a server's: the same steps."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import headwater
from headwater.cli.following import follow, last_lsn
from headwater.client.client import Client
from headwater.log.operations import Retain
from headwater.model.names import Lsn
from headwater.services.follow import Step
from tests.client.conftest import INTERFACES
from tests.client.server import Server
from tests.contracts.clock import FakeClock


class Stand:
    """A server, and one of the ways to its log."""

    def __init__(self, server: Server, interface: headwater.Headwater | Client, clock: FakeClock) -> None:
        self.hw = server.hw
        self.interface = interface
        self.clock = clock

    async def push(self, *payloads: object) -> None:
        """A segment each."""
        for payload in payloads:
            await self.hw.queue("orders").push(payload)


@pytest.fixture(params=INTERFACES)
async def stand(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stand]:
    clock = FakeClock()
    async with Server(tmp_path / "headwater.db", clock=clock, housekeeping=False) as server:
        if request.param == "embedded":
            yield Stand(server, server.hw, clock)
            return
        async with headwater.connect(server.url) as client:
            yield Stand(server, client, clock)


def payloads(steps: Sequence[Step]) -> list[bytes]:
    return [bytes(record.data) for step in steps for segment in step.segments for record in segment.records]


async def test_what_was_there_and_what_comes(stand: Stand) -> None:
    await stand.push(*range(40))
    async with await follow(stand.interface, "orders", Lsn(10)) as following:
        before = [step async for step in following.until(await last_lsn(stand.interface))]
        assert payloads(before) == [b"%d" % number for number in range(10, 40)]
        assert len(before) > 1
        waiting = asyncio.ensure_future(anext(aiter(following)))
        await asyncio.sleep(0)
        await stand.push("new")
        assert payloads([await waiting]) == [b'"new"']


async def test_a_look_at_the_end_waits_for_nothing(stand: Stand) -> None:
    await stand.push(1)
    await stand.hw.queue("mails").push(2)
    async with await follow(stand.interface, "orders", Lsn(0)) as following:
        assert payloads([step async for step in following.until(Lsn(2))]) == [b"1"]
        assert [step async for step in following.until(Lsn(2))] == []


async def test_what_retention_took_unread_is_told(stand: Stand) -> None:
    await stand.hw.queue("orders").configure(retention_seconds=60)
    await stand.push(1)
    async with await follow(stand.interface, "orders", Lsn(0)) as following:
        first = await following.step(0)
        assert (payloads([first]), first.resync) == ([b"1"], None)
        await stand.push(2, 3)
        stand.clock.advance(61)
        await stand.push(4)
        await stand.hw.committer.submit(Retain())
        step = await following.step(0)
        assert (payloads([step]), step.resync) == ([b"4"], 3)
        assert not await following.step(0)


async def test_whoever_may_not_know_where_the_log_ends_gets_to_the_end_of_a_queue(stand: Stand) -> None:
    """Nothing more comes, and the position stays: a look at what is there must end all the same."""
    await stand.push(1)
    async with await follow(stand.interface, "orders", Lsn(1)) as following:
        assert [step async for step in following.until(Lsn(1_000))] == []
