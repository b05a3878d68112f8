"""Messages for later: delivered when they are due and not before, recognised when they come twice, kept and dropped."""

import pytest

from headwater.clock import SECOND
from headwater.config import load_config
from headwater.errors import QueueFull
from headwater.log.operations import Clear, DeleteQueue, Promote, Promoted, Pushed, Transaction
from headwater.stores.open import open_store
from headwater.stores.questions import FindNextDue
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, push


async def test_a_message_for_later_is_delivered_when_it_is_due_and_not_before(log: Log, clock: FakeClock) -> None:
    pushed = await log.push("later", partition="p", delay_seconds=10)
    assert pushed.due_at == clock.now() + 10 * SECOND
    assert await log.free_at() == pushed.due_at
    clock.advance(9.999)
    assert await log.pop() == []
    clock.advance(0.001)
    assert await log.drain() == ["later"]


async def test_messages_for_later_come_in_the_order_of_their_times(log: Log, clock: FakeClock) -> None:
    for delay in (30, 10, 20, 10):
        await log.push((delay, clock.now()), partition="p", delay_seconds=delay)
        clock.advance(0.5)
    await log.push("now", partition="p")
    assert await log.drain() == ["now"]
    clock.advance(60)
    assert [delay for delay, _ in await log.drain()] == [10, 10, 20, 30]


async def test_messages_for_later_without_a_partition_are_spread_over_lanes(log: Log, clock: FakeClock) -> None:
    pushed = await log.push(*range(6), partition="", delay_seconds=5)
    assert len(pushed.parts) == 6
    clock.advance(5)
    held = [await log.take() for _ in range(6)]
    assert len({batch.partition for batch in held}) == 6


async def test_what_is_still_to_come_is_counted_and_is_not_in_the_log(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2, partition="p", delay_seconds=5)
    status = await log.queue()
    assert (status.delayed, status.records) == (2, 0)
    assert await log.read() == []
    assert await log.store.ask(FindNextDue()) == clock.now() + 5 * SECOND
    clock.advance(5)
    promoted: Promoted = await log.run(Promote())
    assert promoted.count == 2
    status = await log.queue()
    assert (status.delayed, status.records) == (0, 2)
    assert await log.store.ask(FindNextDue()) is None


async def test_any_commit_delivers_what_is_due_and_tells_whom_to_wake(log: Log, clock: FakeClock) -> None:
    await log.push(1, partition="p", delay_seconds=5)
    clock.advance(5)
    commit = await log.commit(push(2, queue="other"))
    assert [touch.lane.queue for touch in commit.touched] == [QUEUE, "other"]


async def test_a_message_for_later_survives_a_restart(log: Log, clock: FakeClock) -> None:
    await log.push(1, partition="p", delay_seconds=5)
    other = open_store(log.store.traits.location, clock=clock, config=load_config({}))
    await other.open()
    clock.advance(5)
    assert await Log(other, clock).drain() == [1]
    await other.close()


async def test_a_second_push_of_a_message_for_later_is_a_duplicate(log: Log, clock: FakeClock) -> None:
    await log.push(1, ids=["a"], partition="p", delay_seconds=5)
    for delay in (0.0, 7.0):
        again = await log.push(1, ids=["a"], partition="p", delay_seconds=delay)
        assert (again.count, list(again.duplicates)) == (0, [0])
    twice = await log.push(1, 1, ids=["b", "b"], partition="p", delay_seconds=5)
    assert twice.count == 1
    clock.advance(5)
    assert await log.drain() == [1, 1]
    after = await log.push(1, ids=["a"], partition="p")
    assert after.duplicates == {0: 0}, "it is in the log now, and found there"


async def test_a_message_that_is_there_is_not_pushed_again_for_later(log: Log, clock: FakeClock) -> None:
    await log.push(1, ids=["a"], partition="p")
    again = await log.push(1, ids=["a"], partition="p", delay_seconds=5)
    assert (again.count, again.duplicates) == (0, {0: 0})
    clock.advance(5)
    assert await log.drain() == [1]


async def test_a_key_repeats_the_answer_of_a_push_for_later(log: Log, clock: FakeClock) -> None:
    later = push(1, partition="p", delay_seconds=5, key="k")
    first: Pushed = await log.run(later)
    assert await log.run(later) == first
    clock.advance(5)
    assert await log.drain() == [1]


async def test_a_push_for_later_is_undone_with_its_transaction(log: Log, clock: FakeClock) -> None:
    operations = (push(1, partition="p", delay_seconds=5), Clear(queue="missing"))
    (result,) = await log.results(Transaction(operations=operations))
    assert isinstance(result, Exception)
    clock.advance(5)
    assert await log.pop() == []


async def test_clearing_and_deleting_drop_what_is_still_to_come(log: Log, clock: FakeClock) -> None:
    await log.push(1, ids=["a"], partition="p", delay_seconds=5)
    await log.push(2, partition="q", delay_seconds=5)
    assert (await log.run(Clear(queue=QUEUE, partition="p"))).count == 1
    assert (await log.queue()).delayed == 1
    assert (await log.push(1, ids=["a"], partition="p")).count == 1
    await log.run(DeleteQueue(queue=QUEUE))
    clock.advance(5)
    assert await log.store.ask(FindNextDue()) is None
    assert await log.pop() == []


async def test_what_is_still_to_come_takes_room_in_a_queue(log: Log) -> None:
    await log.configure(size_max=2)
    await log.push(1, 2, partition="p", delay_seconds=5)
    with pytest.raises(QueueFull):
        await log.push(3, partition="p")


async def test_a_clock_that_is_set_back_takes_what_was_pushed_under_it_along(log: Log, clock: FakeClock) -> None:
    await log.push("before", partition="p", delay_seconds=7_000)
    clock.advance(3_600)
    await log.push("ahead", partition="p", delay_seconds=10)
    clock.advance(-3_600)
    await log.push("now", partition="p")
    clock.advance(10)
    assert await log.drain() == ["now", "ahead"]
    clock.advance(6_990)
    assert await log.drain() == ["before"]


async def test_a_message_for_later_makes_no_partition_more_than_a_queue_may_have(log: Log, clock: FakeClock) -> None:
    await log.configure(lanes=1, partitions_max=1)
    await log.push(1, partition="p")
    with pytest.raises(QueueFull, match="partitions_max"):
        await log.push(2, partition="q", delay_seconds=5)
    await log.push(3, partition="p", delay_seconds=5)
    clock.advance(5)
    assert await log.drain() == [1, 3]


@pytest.mark.parametrize("ids", ["tut", "tuu", "utu", "tuvtvu", "uutvv"])
async def test_offsets_beside_duplicates_of_what_is_still_to_come_are_true(log: Log, ids: str) -> None:
    """A duplicate of a message for later takes no place in the log, and so shifts none."""
    later = await log.push("later", ids=["t"], delay_seconds=60.0)
    pushed = await log.push(*ids, ids=list(ids))
    kept = {payload: offset for offset, payload in enumerate(dict.fromkeys(ids.replace("t", "")))}
    assert pushed.offsets() == [kept.get(identity, -1) for identity in ids]
    assert pushed.due == {place: later.due_at for place, identity in enumerate(ids) if identity == "t"}
    assert await log.drain() == list(kept)
