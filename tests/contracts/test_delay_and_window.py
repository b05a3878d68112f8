"""Records that are not due yet: held back by the queue's delay, or until the partition has been quiet."""

from headwater.model.cursor import Outcome
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads


async def test_a_delayed_record_is_delivered_when_it_is_old_enough(log: Log, clock: FakeClock) -> None:
    await log.configure(delay_seconds=10)
    await log.push(1)
    assert await log.free_at() == clock.now() + 10_000_000
    clock.advance(9.999)
    assert await log.pop() == []
    clock.advance(0.001)
    assert payloads(await log.take()) == [1]


async def test_each_record_is_delayed_for_itself(log: Log, clock: FakeClock) -> None:
    await log.configure(delay_seconds=10)
    await log.push("early")
    clock.advance(5)
    await log.push("late")
    clock.advance(5)
    batch = await log.take(10)
    assert payloads(batch) == ["early"]
    await log.ack(batch)
    assert await log.free_at() == clock.now() + 5_000_000
    clock.advance(5)
    assert await log.drain() == ["late"]


async def test_a_group_that_waits_already_is_told_when_a_delayed_record_is_due(log: Log, clock: FakeClock) -> None:
    await log.configure(delay_seconds=10)
    assert await log.free_at() is None
    await log.push(1)
    assert await log.free_at() == clock.now() + 10_000_000


async def test_a_delay_does_not_hold_a_retry_back_twice(log: Log, clock: FakeClock) -> None:
    await log.configure(delay_seconds=10, retry_delay_seconds=1)
    await log.push(1)
    clock.advance(10)
    await log.settle(await log.take(), Outcome.FAILED)
    clock.advance(1)
    assert payloads(await log.take()) == [1]


async def test_a_delay_that_is_taken_away_holds_nothing_back(log: Log) -> None:
    await log.configure(delay_seconds=10)
    await log.push(1)
    await log.configure(delay_seconds=0)
    assert payloads(await log.take(group="fresh")) == [1]


async def test_a_window_holds_a_partition_until_it_is_quiet(log: Log, clock: FakeClock) -> None:
    await log.configure(window_seconds=10)
    for number in range(4):
        await log.push(number)
        clock.advance(6)
        assert await log.pop(10) == []
    assert await log.free_at(batch=10) == clock.now() + 4_000_000
    clock.advance(4)
    assert payloads(await log.take(10)) == [0, 1, 2, 3]


async def test_a_window_holds_no_record_for_more_than_ten_windows(log: Log, clock: FakeClock) -> None:
    await log.configure(window_seconds=10)
    begin = clock.now()
    await log.push("first")
    while not (batches := await log.pop(1_000)):
        clock.advance(5)
        await log.push("more")
    assert clock.now() - begin == 100_000_000
    assert len(batches[0].offsets) == 21


async def test_a_quiet_partition_is_not_held_back_by_a_busy_one(log: Log, clock: FakeClock) -> None:
    await log.configure(window_seconds=10)
    await log.push("quiet", partition="quiet")
    clock.advance(10)
    await log.push("busy", partition="busy")
    assert [batch.partition for batch in await log.pop(10, partitions=10)] == ["quiet"]
