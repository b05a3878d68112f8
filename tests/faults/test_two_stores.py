"""Two stores on one file, as two processes have them, and a program that is not ours: nobody works from old news."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater.clock import SECOND
from headwater.log.operations import Retain, Touch
from tests.faults.bent_clock import START, BentClock
from tests.faults.tables import dump_file, find_faults


def open_at(path: Path, clock: BentClock | None = None, **settings: Any) -> headwater.Headwater:
    """A store that looks often whether others have written."""
    return headwater.open(str(path), clock=clock, housekeeping=False, wakeup="data_version", **settings)


@pytest.fixture
def clock() -> BentClock:
    """The same time for both."""
    return BentClock()


@pytest.fixture
async def both(folder: Path, clock: BentClock) -> AsyncIterator[tuple[headwater.Headwater, headwater.Headwater]]:
    """Two open stores."""
    async with open_at(folder / "store.db", clock) as one, open_at(folder / "store.db", clock) as two:
        yield one, two


Both = tuple[headwater.Headwater, headwater.Headwater]


async def test_pushes_from_both_sides_get_dense_offsets(both: Both, folder: Path) -> None:
    one, two = (hw.queue("orders") for hw in both)
    offsets = [(await queue.push(number, partition="p")).offset for number in range(20) for queue in (one, two)]
    assert offsets == list(range(40))
    connection = apsw.Connection(str(folder / "store.db"))
    assert find_faults(connection) == []
    connection.close()


async def test_pushes_side_by_side_all_succeed(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    receipts = await asyncio.gather(
        *(queue.push(number, partition="p") for number in range(50) for queue in (one, two))
    )
    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(100))


async def test_a_duplicate_from_the_other_side_is_known(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    await one.push("mine", transaction_id="a")
    await two.push("theirs", transaction_id="b")
    assert (await one.push("theirs", transaction_id="b")).duplicate
    assert (await two.push("mine", transaction_id="a")).duplicate


async def test_a_lease_of_the_other_side_is_respected(both: Both, clock: BentClock) -> None:
    one, two = (hw.queue("orders") for hw in both)
    await one.push_many([1, 2], partition="p")
    first = await one.pop(batch=2, lease_seconds=60)
    assert await two.pop(batch=2) == []
    clock.move(61)
    second = await two.pop(batch=2)
    assert [message.payload for message in second] == [1]
    with pytest.raises(headwater.LeaseLost):
        await one.ack(first)


async def test_options_that_the_other_side_set_are_in_force(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    await one.push(1, partition="p")
    await two.configure(lease_seconds=5)
    (message,) = await one.pop()
    assert message.batch.lease_until == START + 5 * SECOND


async def test_a_queue_that_the_other_side_deleted_begins_anew(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    await one.push_many([1, 2, 3], partition="p")
    assert await two.delete()
    assert (await one.push("new", partition="p")).offset == 0
    assert [message.payload for message in await two.pop(batch=10)] == ["new"]


async def test_a_follower_hears_of_every_segment_once_and_in_order(both: Both) -> None:
    """Own commits are told on the spot; one of the other side in between must not be jumped over."""
    one, two = both
    heard: list[int] = []
    complete = asyncio.Event()

    def note(touches: Sequence[Touch]) -> None:
        heard.extend(touch.lsn for touch in touches)
        if len(heard) >= 10:
            complete.set()

    await one.tail.follow(note)
    for number in range(5):
        await two.queue("orders").push(number, partition="p")
        await one.queue("orders").push(number, partition="p")
    async with asyncio.timeout(5):
        await complete.wait()
    assert heard == list(range(1, 11))


async def test_a_waiting_pop_is_served_by_a_push_of_the_other_side(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    waiting = asyncio.ensure_future(one.pop(wait=20))
    await asyncio.sleep(0)
    await two.push("from there", partition="p")
    async with asyncio.timeout(5):
        assert [message.payload for message in await waiting] == ["from there"]


async def test_a_waiting_pop_is_served_by_an_ack_of_the_other_side(both: Both) -> None:
    one, two = (hw.queue("orders") for hw in both)
    await two.push_many([1, 2], partition="p")
    first = await two.pop()
    waiting = asyncio.ensure_future(one.pop(wait=20))
    await asyncio.sleep(0)
    await two.ack(first)
    async with asyncio.timeout(5):
        assert [message.payload for message in await waiting] == [2]


async def test_lsns_go_on_where_they_were_after_everything_was_dropped(folder: Path, clock: BentClock) -> None:
    path = folder / "store.db"
    async with open_at(path, clock) as hw:
        await hw.queue("orders").configure(retention_seconds=60)
        receipts = await hw.queue("orders").push_many([1, 2, 3], partition="p")
        last = (await hw.queue("orders").push(4, partition="p")).lsn or 0
        clock.move(3_600)
        await hw.committer.submit(Retain())
    assert dump_file(str(path))["hw_segments"] == []
    async with open_at(path, clock) as hw:
        receipt = await hw.queue("orders").push(5, partition="p")
    assert (receipt.lsn or 0) > last
    assert receipt.offset == len(receipts) + 1


async def test_lsns_go_on_where_they_were_after_a_queue_was_deleted(folder: Path, clock: BentClock) -> None:
    async with open_at(folder / "store.db", clock) as hw:
        last = (await hw.queue("orders").push(4, partition="p")).lsn or 0
        await hw.queue("orders").delete()
    async with open_at(folder / "store.db", clock) as hw:
        assert ((await hw.queue("mails").push(5, partition="p")).lsn or 0) > last


async def test_a_program_that_holds_the_write_lock_is_waited_for(folder: Path) -> None:
    path = folder / "store.db"
    async with open_at(path) as hw:
        await hw.queue("orders").push("before", partition="p")
        stranger = apsw.Connection(str(path))
        stranger.execute("BEGIN IMMEDIATE")
        stranger.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
        push = asyncio.ensure_future(hw.queue("orders").push("after", partition="p"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(push), 0.05)
        assert not push.done()
        stranger.execute("COMMIT")
        stranger.close()
        assert (await push).offset == 1


async def test_a_program_that_holds_the_write_lock_too_long_is_told_of(folder: Path) -> None:
    path = folder / "store.db"
    async with open_at(path, lock_wait_seconds=0.05) as hw:
        await hw.queue("orders").push("before", partition="p")
        stranger = apsw.Connection(str(path))
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(headwater.StoreError) as refused:
            await hw.queue("orders").push("refused", partition="p")
        assert refused.value.code == "store_busy"
        stranger.execute("ROLLBACK")
        stranger.close()
        assert (await hw.queue("orders").push("after", partition="p")).offset == 1
