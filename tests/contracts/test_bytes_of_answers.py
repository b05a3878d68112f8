"""No answer has more bytes than it may: whoever asks for many large records gets some of them, then the next."""

import pytest

from headwater.log.operations import Pop, Popped
from headwater.model.cursor import Outcome
from headwater.model.names import Offset
from headwater.stores.questions import ListPartitions, ReadPartition, Segment
from headwater.stores.tables import connection, pops
from tests.contracts.log import QUEUE, Log, payloads

SIZE = 1_000
MAX = 4_500
# So many records of that size are in as many bytes, and one that was begun.
FEW = 4


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pops, "POP_BYTES_MAX", MAX)
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", MAX)


def large(number: int) -> str:
    """A payload of so many bytes."""
    return f"{number:04}".ljust(SIZE - 2, ".")


def numbers(found: list[str]) -> list[int]:
    return [int(text[:4]) for text in found]


@pytest.mark.parametrize("at_once", [1, 3, 20])
async def test_a_pop_brings_as_many_as_it_may_and_the_next_one_goes_on(log: Log, at_once: int) -> None:
    for first in range(0, 20, at_once):
        await log.push(*map(large, range(first, min(first + at_once, 20))))
    seen = []
    while batches := await log.pop(1_000):
        (batch,) = batches
        assert len(batch.records) <= FEW
        assert len(batch.records) == len(batch.offsets) == len(batch.written_at) == len(batch.lsns)
        seen.append(len(batch.offsets))
        assert numbers(payloads(batch)) == [int(offset) for offset in batch.offsets]
        await log.ack(batch)
    assert sum(seen) == 20
    assert seen == [4, 4, 4, 4, 4]


async def test_what_is_acked_by_the_pop_itself_is_what_it_brings(log: Log) -> None:
    await log.push(*map(large, range(10)))
    found: list[int] = []
    while batches := await log.pop(1_000, auto_ack=True):
        found += numbers([payload for batch in batches for payload in payloads(batch)])
        assert (await log.group()).lag == 10 - len(found)
    assert found == list(range(10))


async def test_one_record_comes_however_large_it_is(log: Log) -> None:
    await log.push("x" * 3 * MAX, large(1), "y" * 3 * MAX)
    found = await log.drain(1_000)
    assert [text[0] for text in found] == ["x", "0", "y"]


async def test_partitions_share_what_a_pop_may_bring(log: Log) -> None:
    for partition in "abc":
        await log.push(*map(large, range(3)), partition=partition)
    batches = await log.pop(1_000, partitions=0)
    assert sum(len(batch.offsets) for batch in batches) == FEW
    for batch in batches:
        await log.ack(batch)
    assert len(await log.drain(1_000, partitions=0)) == 9 - FEW


async def test_pops_of_one_commit_share_a_larger_bound(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pops, "POPS_BYTES_MAX", 2 * MAX)
    for number in range(6):
        await log.push(*map(large, range(FEW)), partition=f"p{number}")
    found: list[Popped] = await log.results(*(Pop(queue=QUEUE, batch=1_000) for _ in range(6)))
    counts = [sum(len(batch.offsets) for batch in popped.batches) for popped in found]
    assert counts == [4, 4, 1, 1, 1, 1]


async def test_what_failed_comes_again_in_as_many_parts_as_it_takes(log: Log) -> None:
    await log.push(*map(large, range(10)))
    batch = await log.take(1_000)
    await log.ack(batch, [1])
    await log.settle(batch, Outcome.RELEASED, [0, 2, 3])
    assert sorted(numbers(await log.drain(1_000))) == [0, *range(2, 10)]


async def test_a_partition_is_read_in_parts(log: Log) -> None:
    for number in range(10):
        await log.push(large(number))
    (status,) = await log.store.ask(ListPartitions("main", QUEUE))
    found: list[Segment] = []
    first = Offset(0)
    while segments := await log.store.ask(ReadPartition(status.partition_id, first, 1_000)):
        assert len(segments) <= FEW + 1
        found += segments
        first = Offset(segments[-1].first_offset + len(segments[-1].records))
    assert [segment.first_offset for segment in found] == list(range(10))


async def test_dead_letters_are_listed_in_parts(log: Log) -> None:
    await log.push(*map(large, range(10)))
    while batches := await log.pop(1_000):
        await log.settle(batches[0], Outcome.DEAD)
    found: list[int] = []
    after = 0
    while letters := await log.dead_letters(after=after):
        assert len(letters) <= FEW + 1
        found += [letter.offset for letter in letters]
        after = letters[-1].id
    assert found == list(range(10))
