"""Dropping what a queue holds, passing single records over, and looking at partitions one by one."""

import pytest

from headwater.errors import LeaseLost, QueueMissing, UnknownRecord
from headwater.log.operations import Clear, PassOver, Trace
from headwater.model.names import Offset
from headwater.stores.questions import ListCursors, ListPartitions, ListTraceNames, ListTracesNamed, ReadPartition
from tests.contracts.log import Log, ack, payloads


async def test_a_cleared_queue_has_nothing_and_goes_on(log: Log) -> None:
    await log.push(1, 2, partition="a")
    await log.push(3, partition="b")
    assert (await log.run(Clear(queue="orders"))).count == 3
    assert (await log.queue()).records == 0
    assert await log.pop(10) == []
    pushed = await log.push(4, partition="a")
    assert pushed.first_offset == 2
    assert await log.drain() == [4]
    assert (await log.group()).lost == 0


async def test_one_partition_is_cleared_and_no_other(log: Log) -> None:
    await log.push(1, partition="a")
    await log.push(2, partition="b")
    assert (await log.run(Clear(queue="orders", partition="a"))).count == 1
    assert await log.drain() == [2]
    with pytest.raises(QueueMissing):
        await log.run(Clear(queue="orders", partition="c"))


async def test_clearing_ends_leases(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take()
    await log.run(Clear(queue="orders"))
    with pytest.raises(LeaseLost):
        await log.run(ack(batch))
    assert await log.pop() == []


async def test_a_record_that_is_passed_over_reaches_no_group(log: Log) -> None:
    pushed = await log.push(1, 2, 3)
    await log.ack(await log.take(group="first"))
    await log.pop(group="second", batch=1, auto_ack=True)
    over = PassOver(partition_id=pushed.partition_id, offset=Offset(1))
    assert (await log.run(over)).count == 2
    assert (await log.run(over)).count == 0
    assert [await log.drain(group=group) for group in ("first", "second")] == [[3], [3]]


async def test_a_record_that_is_worked_on_is_not_passed_over(log: Log) -> None:
    pushed = await log.push(1, 2)
    batch = await log.take(2)
    with pytest.raises(UnknownRecord):
        await log.run(PassOver(partition_id=pushed.partition_id, offset=Offset(1)))
    await log.ack(batch)


async def test_a_record_can_be_moved_to_the_dead_letters(log: Log) -> None:
    pushed = await log.push(1, 2)
    await log.pop(auto_ack=True)
    await log.run(PassOver(partition_id=pushed.partition_id, offset=Offset(1), bury=True))
    (letter,) = await log.dead_letters()
    assert (letter.offset, letter.error) == (1, "moved to the dead letters")
    assert await log.pop() == []


async def test_nobody_passes_over_a_record_of_another_database(log: Log) -> None:
    pushed = await log.push(1)
    with pytest.raises(QueueMissing):
        await log.run(PassOver(database="other", partition_id=pushed.partition_id, offset=Offset(0)))


# ── looking ──


async def test_partitions_are_listed_with_their_bounds(log: Log) -> None:
    await log.push(1, 2, partition="a")
    await log.push(3, partition="b")
    await log.push(4, queue="other")
    found = await log.store.ask(ListPartitions("main", "orders"))
    assert [(status.partition, status.start, status.end) for status in found] == [("a", 0, 2), ("b", 0, 1)]
    assert len(await log.store.ask(ListPartitions("main"))) == 3
    assert [
        status.partition for status in await log.store.ask(ListPartitions("main", "orders", 1, found[0].partition_id))
    ] == ["b"]
    assert await log.store.ask(ListPartitions("another")) == []


async def test_a_partition_is_read_from_an_offset_on(log: Log) -> None:
    pushed = await log.push(0, 1)
    await log.push(2)
    await log.push(9, partition="other")
    segments = await log.store.ask(ReadPartition(pushed.partition_id, Offset(1), 10))
    assert [payloads(segment) for segment in segments] == [[0, 1], [2]]
    assert [
        payloads(segment) for segment in await log.store.ask(ReadPartition(pushed.partition_id, Offset(2), 10))
    ] == [[2]]


async def test_a_partition_is_read_until_that_is_large_enough(log: Log) -> None:
    """However small it was made in the store: what counts is what whoever asks gets."""
    texts = ["x" * 100_000 + str(number) for number in range(5)]
    for text in texts:
        pushed = await log.push(text)
    found: list[object] = []
    while len(found) < 5:
        asked = ReadPartition(pushed.partition_id, Offset(len(found)), 10, 150_000)
        segments = await log.store.ask(asked)
        assert 1 <= len(segments) <= 2
        found += [payload for segment in segments for payload in payloads(segment)]
    assert found == texts


async def test_a_group_shows_where_it_stands(log: Log) -> None:
    await log.push(1, 2, 3)
    await log.take(2, group="g")
    (status,) = await log.store.ask(ListCursors("main", "g", 10))
    assert (status.queue, status.position, status.lag, status.leased) == ("orders", 0, 3, True)
    assert await log.store.ask(ListCursors("other", "g", 10)) == []


async def test_events_are_found_by_their_names(log: Log) -> None:
    pushed = await log.push(1)
    for number, name in enumerate(("mail", "bill", "mail")):
        await log.run(Trace(partition_id=pushed.partition_id, transaction_id=str(number), names=(name,)))
    assert [event.transaction_id for event in await log.store.ask(ListTracesNamed("main", "mail", 10))] == ["2", "0"]
    assert [event.transaction_id for event in await log.store.ask(ListTracesNamed("main", "mail", 10, 1))] == ["0"]
    assert {name.name: name.count for name in await log.store.ask(ListTraceNames("main", 10))} == {"mail": 2, "bill": 1}
    assert await log.store.ask(ListTraceNames("other", 10)) == []
