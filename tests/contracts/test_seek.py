"""Moving a group: to the beginning, the end, a time or an offset; a live lease ends."""

import pytest

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, LeaseLost, QueueMissing
from headwater.log.operations import Retain, Seek
from headwater.model.cursor import Outcome
from headwater.model.names import Offset
from headwater.stores.questions import ListGroups
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads


async def test_a_group_goes_back_to_the_beginning(log: Log) -> None:
    await log.push(1, 2)
    await log.push(3, partition="b")
    await log.drain()
    assert (await log.run(Seek(queue="orders", to="beginning"))).partitions == 2
    assert sorted(await log.drain()) == [1, 2, 3]


async def test_a_group_skips_to_the_end(log: Log) -> None:
    await log.push(1, 2)
    await log.push(3, partition="b")
    await log.run(Seek(queue="orders", to="end"))
    assert await log.drain() == []
    await log.push(4)
    assert await log.drain() == [4]


async def test_a_group_is_moved_to_a_time(log: Log, clock: FakeClock) -> None:
    await log.push("early")
    await log.push("early", partition="b")
    at = clock.advance(10)
    await log.push("at")
    clock.advance(10)
    await log.push("late", partition="b")
    await log.drain()
    await log.run(Seek(queue="orders", timestamp=at))
    assert sorted(await log.drain()) == ["at", "late"]
    await log.run(Seek(queue="orders", timestamp=Timestamp(clock.now() + 1)))
    assert await log.drain() == []
    await log.run(Seek(queue="orders", timestamp=Timestamp(0)))
    assert sorted(await log.drain()) == ["at", "early", "early", "late"]


async def test_a_group_is_moved_to_an_offset_of_one_partition(log: Log) -> None:
    await log.push(*range(5))
    await log.push("b", partition="b")
    await log.drain()
    moved = await log.run(Seek(queue="orders", partition="Default", offset=Offset(3)))
    assert moved.partitions == 1
    assert await log.drain() == [3, 4]


async def test_an_offset_before_the_beginning_means_the_beginning_and_one_beyond_the_end_is_refused(
    log: Log, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=10)
    await log.push(0, 1)
    clock.advance(11)
    await log.run(Retain())
    await log.push(2, 3)
    await log.run(Seek(queue="orders", partition="Default", offset=Offset(0)))
    batch = await log.take(10)
    assert (payloads(batch), batch.lost) == ([2, 3], 0)
    with pytest.raises(InvalidOption, match="ends at offset 4; got 5"):
        await log.run(Seek(queue="orders", partition="Default", offset=Offset(5)))
    await log.run(Seek(queue="orders", partition="Default", offset=Offset(4)))
    assert await log.drain() == []
    await log.push(4)
    assert await log.drain() == [4]


async def test_an_offset_without_a_partition_is_refused(log: Log) -> None:
    await log.push(1)
    with pytest.raises(InvalidOption):
        await log.run(Seek(queue="orders", offset=Offset(0)))


async def test_what_is_not_there_cannot_be_sought(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.run(Seek(queue="missing"))
    await log.push(1)
    with pytest.raises(QueueMissing):
        await log.run(Seek(queue="orders", partition="missing"))


async def test_a_group_that_never_popped_can_be_placed_when_that_is_said(log: Log) -> None:
    """A name that was mistyped is none of a group, and makes none."""
    await log.push(1, 2)
    with pytest.raises(QueueMissing, match="no group 'fresh'"):
        await log.run(Seek(queue="orders", group="fresh", to="end"))
    assert await log.store.ask(ListGroups("main")) == []
    await log.run(Seek(queue="orders", group="fresh", to="end", create=True))
    await log.push(3)
    assert await log.drain(group="fresh") == [3]


async def test_a_move_ends_the_live_lease(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take()
    await log.run(Seek(queue="orders", to="beginning"))
    with pytest.raises(LeaseLost):
        await log.ack(batch)
    assert await log.drain() == [1, 2]


async def test_a_move_of_one_partition_leaves_the_leases_of_others(log: Log) -> None:
    await log.push(1, partition="a")
    await log.push(2, partition="b")
    a, b = await log.take(partition="a"), await log.take(partition="b")
    await log.run(Seek(queue="orders", partition="a", to="beginning"))
    await log.ack(b)
    with pytest.raises(LeaseLost):
        await log.ack(a)


async def test_a_move_begins_the_count_of_attempts_anew(log: Log) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    await log.run(Seek(queue="orders", to="beginning"))
    assert (await log.take()).attempts == 1


async def test_a_move_does_not_touch_other_groups(log: Log) -> None:
    await log.push(1)
    batch = await log.take(group="still")
    await log.run(Seek(queue="orders", group="moved", to="end", create=True))
    await log.ack(batch)
    assert await log.drain(group="moved") == []


@pytest.mark.parametrize("way", ["since", "seek"])
async def test_a_group_begins_at_no_time_that_has_not_come(log: Log, clock: FakeClock, way: str) -> None:
    """It would begin now, and whoever mistyped a year would lose what there is."""
    await log.push(1)

    async def begin(at: Timestamp) -> None:
        if way == "since":
            await log.pop(group="late", since=at)
        else:
            await log.run(Seek(queue="orders", timestamp=at))

    with pytest.raises(InvalidOption, match="future"):
        await begin(Timestamp(clock.now() + 3_600 * SECOND))
    assert await log.drain() == [1], "nothing was moved"
    assert "late" not in [status.group for status in await log.store.ask(ListGroups("main", "orders"))]
    assert await log.drain(group="late") == [1]
    # The clocks of two machines are never quite the same.
    await begin(Timestamp(clock.now() + 5 * SECOND))


async def test_a_time_is_found_although_commits_of_another_began_earlier(
    log: Log, other: Log, clock: FakeClock
) -> None:
    """Who waits long for its turn has looked at the clock before those who were quicker."""
    late = Log(other.store, FakeClock(Timestamp(clock.now() - 5 * SECOND)))
    await log.push("before", partition="p")
    clock.advance(1)
    sought = clock.now()
    await log.push("since", partition="p")
    written = [(await late.push(f"late {number}", partition="p")).written_at for number in range(9)]
    assert written == [sought] * 9
    times = [segment.written_at for segment in await log.read()]
    assert times == sorted(times)
    for number in range(9):
        await log.run(Seek(queue="orders", timestamp=sought, create=True))
        assert payloads(await log.take(100, partition="p"))[0] == "since"
        await late.push(f"later {number}", partition="p")
