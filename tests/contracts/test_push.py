"""Appending: dense offsets, one segment a partition a commit, every caller's own place, and the bound on a queue."""

import msgspec
import pytest

from headwater.errors import QueueFull
from headwater.log.operations import Pop, Pushed, Retain
from headwater.model.record import Record
from headwater.stores.questions import FindLastLsn
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, ack, payloads, push


async def test_a_record_comes_back_as_it_was_pushed(log: Log) -> None:
    sent = Record(
        data=msgspec.Raw(b'{"id": 7, "text": "gr\xc3\xbc\xc3\x9fe"}'),
        transaction_id="tx-1",
        trace_id="trace-1",
        type="order",
        headers={"source": "web"},
        producer_sub="alice",
        timestamp=12_345,
    )
    await log.run(msgspec.structs.replace(push(0), records=[sent]))
    batch = await log.take()
    assert bytes(batch.records[0].data) == bytes(sent.data)
    assert batch.records == [sent]


async def test_offsets_count_from_zero_without_gaps(log: Log) -> None:
    first, second = await log.push("a"), await log.push("b", "c", "d")
    assert first.offsets() == [0]
    assert second.offsets() == [1, 2, 3]
    assert await log.drain() == ["a", "b", "c", "d"]


async def test_a_push_tells_where_and_when_it_was_written(log: Log, clock: FakeClock) -> None:
    pushed = await log.push("a", "b")
    assert (pushed.count, pushed.written_at, pushed.duplicates) == (2, clock.now(), {})
    assert pushed.lsn == await log.store.ask(FindLastLsn())
    batch = await log.take(2)
    assert batch.partition_id == pushed.partition_id
    assert batch.written_at == [clock.now()] * 2
    assert batch.lsns == [pushed.lsn] * 2


async def test_every_partition_counts_for_itself(log: Log) -> None:
    await log.push("a", partition="one")
    assert (await log.push("b", partition="two")).offsets() == [0]
    assert (await log.push("c", partition="one")).offsets() == [1]


async def test_pushes_of_one_commit_to_one_partition_share_a_segment(log: Log) -> None:
    commit = await log.commit(push("a", "b"), push("c"), push("d", "e"))
    assert [result.offsets() for result in commit.results] == [[0, 1], [2], [3, 4]]
    assert [(touch.first_offset, touch.count) for touch in commit.touched] == [(0, 5)]
    assert [payloads(segment) for segment in await log.read()] == [["a", "b", "c", "d", "e"]]


async def test_one_commit_pushes_to_several_queues_and_partitions(log: Log) -> None:
    commit = await log.commit(
        push(1, queue="orders", partition="a"),
        push(2, queue="orders", partition="b"),
        push(3, queue="bills", partition="a"),
        push(4, queue="orders", partition="a"),
    )
    assert [result.offsets() for result in commit.results] == [[0], [0], [0], [1]]
    assert len({result.partition_id for result in commit.results}) == 3
    assert len(commit.touched) == 3
    assert await log.drain(queue="orders", partition="a") == [1, 4]
    assert await log.drain(queue="orders", partition="b") == [2]
    assert await log.drain(queue="bills") == [3]


async def test_a_push_too_big_for_one_segment_stays_one_push(log: Log) -> None:
    large = ["x" * 400_000, "y" * 400_000, "z" * 400_000, "end"]
    pushed = await log.push(*large)
    assert pushed.offsets() == [0, 1, 2, 3]
    assert pushed.lsn == await log.store.ask(FindLastLsn())
    assert payloads(await log.take(10)) == large


async def test_records_with_different_times_to_live_keep_their_own_offsets(log: Log) -> None:
    results = await log.results(push("a"), push("b", ttl_seconds=5.0), push("c", "d"))
    assert sorted(offset for result in results for offset in result.offsets()) == [0, 1, 2, 3]
    assert sorted(await log.drain()) == ["a", "b", "c", "d"]


async def test_a_push_that_cannot_be_taken_leaves_its_neighbours_alone(log: Log) -> None:
    await log.configure("small", size_max=1)
    first, refused, last = await log.results(push(1), push(2, 3, queue="small"), push(4))
    assert isinstance(refused, QueueFull)
    assert (first.offsets(), last.offsets()) == ([0], [1])
    assert (await log.queue("small")).records == 0


# ── size_max ──


async def test_a_full_queue_refuses_until_something_is_consumed(log: Log) -> None:
    await log.configure(size_max=3)
    await log.push(1, 2, 3)
    with pytest.raises(QueueFull):
        await log.push(4)
    await log.ack(await log.take(2))
    await log.push(4, 5)
    with pytest.raises(QueueFull):
        await log.push(6)
    assert await log.drain() == [3, 4, 5]


async def test_a_push_larger_than_the_room_left_is_refused_whole(log: Log) -> None:
    await log.configure(size_max=3)
    await log.push(1, 2)
    with pytest.raises(QueueFull):
        await log.push(3, 4)
    await log.push(3)
    assert await log.drain() == [1, 2, 3]


async def test_pushes_that_share_a_commit_share_the_room(log: Log) -> None:
    await log.configure(size_max=2)
    results = await log.results(*[push(number) for number in range(6)])
    assert [isinstance(result, Pushed) for result in results] == [True, True, False, False, False, False]
    assert await log.drain() == [0, 1]


async def test_an_ack_makes_room_for_a_push_of_the_same_commit(log: Log) -> None:
    await log.configure(size_max=1)
    await log.push(1)
    batch = await log.take()
    _, pushed = await log.results(ack(batch), push(2))
    assert pushed.offsets() == [1]


@pytest.mark.parametrize("partition", ["p", ""], ids=["a partition", "lanes"])
async def test_a_full_queue_recognises_what_it_has(log: Log, partition: str) -> None:
    """Whoever repeats a push because its answer was lost learns that it is there, however full the queue is."""
    await log.configure(size_max=3)
    first = await log.push("a", "b", ids=["1", "2"], partition=partition)
    await log.run(push("later", ids=["3"], partition=partition, delay_seconds=60))
    again = await log.push("a", "b", ids=["1", "2"], partition=partition)
    assert again.offsets() == first.offsets()
    repeated = await log.run(push("later", ids=["3"], partition=partition, delay_seconds=60))
    assert list(repeated.due) == [0]
    for refused in (push("c", partition=partition), push("a", "c", ids=["1", "4"], partition=partition)):
        with pytest.raises(QueueFull):
            await log.run(refused)
    assert (await log.queue()).records == 2
    await log.configure(size_max=4)
    await log.push("a", "c", ids=["1", "4"], partition=partition)
    await log.configure(size_max=1)
    assert (await log.push("a", ids=["1"], partition=partition)).duplicates
    assert sorted(await log.drain()) == ["a", "b", "c"]


async def test_the_slowest_group_decides_whether_a_queue_is_full(log: Log) -> None:
    await log.configure(size_max=2)
    await log.results(Pop(queue="orders", group="fast"), Pop(queue="orders", group="slow"))
    await log.push(1, 2)
    await log.pop(group="slow")
    assert await log.drain(group="fast") == [1, 2]
    with pytest.raises(QueueFull):
        await log.push(3)


async def test_room_is_shared_between_stores_at_one_place(log: Log, other: Log) -> None:
    await log.configure(size_max=3)
    await log.push(1)
    await other.push(2)
    await log.push(3)
    with pytest.raises(QueueFull):
        await other.push(4)


async def test_records_that_retention_dropped_take_no_room(log: Log, clock: FakeClock) -> None:
    await log.configure(size_max=2, retention_seconds=60)
    await log.pop(group="idle")
    await log.push(1, 2)
    assert await log.pop(1, group="idle", auto_ack=True)
    clock.advance(61)
    await log.run(Retain())
    assert (await log.queue()).waiting == 0
    assert (await log.push(3, 4)).offsets() == [2, 3]
