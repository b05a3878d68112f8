"""Dead letters: listed with the reason, pushed back, dropped."""

import pytest

from headwater.errors import QueueMissing
from headwater.log.operations import Purge, Requeue, Retain
from headwater.model.cursor import Outcome
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, report


async def bury(log: Log, count: int, partition: str = "Default") -> None:
    """Push records and give all of them up."""
    await log.push(*range(count), ids=[f"{partition}-{number}" for number in range(count)], partition=partition)
    await log.settle(await log.take(count, partition=partition), Outcome.DEAD, error="no good")


async def test_a_dead_letter_tells_everything_about_its_record(log: Log, clock: FakeClock) -> None:
    written_at = clock.now()
    pushed = await log.push("a", ids=["tx-1"], partition="p")
    batch = await log.take(group="billing")
    clock.advance(5)
    await log.settle(batch, Outcome.DEAD, error="no good")
    (letter,) = await log.dead_letters()
    assert (letter.queue, letter.partition, letter.partition_id) == ("orders", "p", pushed.partition_id)
    assert (letter.group, letter.offset, letter.record.transaction_id) == ("billing", 0, "tx-1")
    assert bytes(letter.record.data) == b'"a"'
    assert (letter.error, letter.attempts) == ("no good", 1)
    assert (letter.written_at, letter.failed_at) == (written_at, clock.now())


async def test_a_reason_is_given_by_offset_or_by_transaction_id(log: Log) -> None:
    await log.push("a", "b", "c", ids=["1", "2", "3"])
    batch = await log.take(3)
    report_with_reasons = report(batch, {0: Outcome.DEAD, "2": Outcome.DEAD}, "told")
    await log.run(report_with_reasons)
    await log.run(report(batch, {2: Outcome.DEAD}))
    assert [letter.error for letter in await log.dead_letters()] == ["told", "told", "failed"]


async def test_dead_letters_are_listed_page_by_page(log: Log) -> None:
    await bury(log, 5)
    first = await log.dead_letters(limit=2)
    rest = await log.dead_letters(after=first[-1].id)
    assert [letter.offset for letter in first + rest] == [0, 1, 2, 3, 4]
    assert (await log.queue()).dead_letters == 5


async def test_dead_letters_of_a_queue_that_is_not_there_are_an_error(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.dead_letters("missing")
    for operation in (Requeue(queue="missing"), Purge(queue="missing")):
        with pytest.raises(QueueMissing):
            await log.run(operation)


async def test_dead_letters_go_back_to_their_partitions(log: Log) -> None:
    await bury(log, 2, "a")
    await bury(log, 1, "b")
    assert (await log.run(Requeue(queue="orders"))).count == 3
    assert await log.dead_letters() == []
    assert await log.drain(partition="a") == [0, 1]
    assert await log.drain(partition="b") == [0]


async def test_a_requeued_record_begins_its_count_anew(log: Log) -> None:
    await bury(log, 1)
    await log.run(Requeue(queue="orders"))
    batch = await log.take()
    assert (batch.offsets, batch.attempts) == ([1], 1)


async def test_chosen_dead_letters_go_back(log: Log) -> None:
    await bury(log, 3)
    chosen = (await log.dead_letters())[1]
    assert (await log.run(Requeue(queue="orders", ids=[chosen.id]))).count == 1
    assert [letter.offset for letter in await log.dead_letters()] == [0, 2]
    assert await log.drain() == [1]


async def test_dead_letters_are_dropped(log: Log) -> None:
    await bury(log, 3)
    chosen = (await log.dead_letters())[0]
    assert (await log.run(Purge(queue="orders", ids=[chosen.id]))).count == 1
    assert (await log.run(Purge(queue="orders", limit=1))).count == 1
    assert [letter.offset for letter in await log.dead_letters()] == [2]
    assert (await log.run(Purge(queue="orders"))).count == 1
    assert (await log.run(Purge(queue="orders"))).count == 0


@pytest.mark.parametrize("kind", [Requeue, Purge])
async def test_a_dead_letter_that_is_not_there_refuses_the_whole_choice(
    log: Log, kind: type[Requeue] | type[Purge]
) -> None:
    await bury(log, 2)
    known = (await log.dead_letters())[0].id
    with pytest.raises(QueueMissing):
        await log.run(kind(queue="orders", ids=[known, 999]))
    assert len(await log.dead_letters()) == 2
    assert await log.drain() == []


@pytest.mark.parametrize("kind", [Requeue, Purge])
async def test_a_dead_letter_named_twice_counts_once(log: Log, kind: type[Requeue] | type[Purge]) -> None:
    await bury(log, 1)
    (letter,) = await log.dead_letters()
    assert (await log.run(kind(queue="orders", ids=[letter.id, letter.id]))).count == 1
    assert await log.drain() == ([0] if kind is Requeue else [])


async def test_a_dead_letter_outlives_its_record(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await bury(log, 1)
    clock.advance(60)
    assert (await log.run(Retain())).records == 1
    assert len(await log.dead_letters()) == 1
    await log.run(Requeue(queue="orders"))
    assert await log.drain() == [0]
