"""A broker of one's own: pull, batch, flush, without our server."""

import gc
from collections.abc import Iterator

import msgspec
import pytest

from headwater.bucket import batch_operations, flush_to_s3, pull_from_s3
from headwater.errors import InvalidName, InvalidOption, InvalidPayload, QueueMissing, TooLarge
from headwater.log.operations import Clear, Operation, Pop, Push, Transaction
from headwater.model.record import Record
from tests.contracts.clock import FakeClock
from tests.contracts.factories import in_memory
from tests.contracts.log import payloads, push


@pytest.fixture
def folder() -> Iterator[str]:
    with in_memory() as place:
        yield place


@pytest.mark.parametrize("ship", ["chain", "image"])
async def test_a_loop_of_three_functions_is_a_broker(folder: str, ship: str) -> None:
    """S2-3, S2-4, S2-5, S2-10."""
    address = f"file://{folder}/queue.sqlite?ship={ship}"
    broker = await pull_from_s3(address, clock=FakeClock())
    await batch_operations(broker, [push(1), push(2)])
    await batch_operations(broker, [push(3)])
    pushed = await flush_to_s3(broker)
    assert [one.first_offset for one in pushed] == [0, 1, 2]
    assert await flush_to_s3(broker) == []
    await broker.close()
    broker = await pull_from_s3(address, clock=FakeClock())
    await batch_operations(broker, [Pop(queue="orders", batch=10)])
    (popped,) = await flush_to_s3(broker)
    assert [payload for batch in popped.batches for payload in payloads(batch)] == [1, 2, 3]
    await broker.close()


@pytest.mark.parametrize("ship", ["chain", "image"])
async def test_what_was_not_flushed_is_applied_again_to_what_another_broker_left(folder: str, ship: str) -> None:
    """S2-7, T2-b."""
    address = f"file://{folder}/queue.sqlite?ship={ship}&lease_seconds=0"
    one = await pull_from_s3(address, clock=FakeClock())
    guessed = await batch_operations(one, [push("ours", partition="a")])
    assert guessed[0].first_offset == 0
    other = await pull_from_s3(address, clock=FakeClock())
    await batch_operations(other, [push("theirs", partition="a")])
    assert [pushed.first_offset for pushed in await flush_to_s3(other)] == [0]
    assert [pushed.first_offset for pushed in await flush_to_s3(one)] == [1]
    await batch_operations(other, [Pop(queue="orders", batch=10)])
    (popped,) = await flush_to_s3(other)
    assert [payload for batch in popped.batches for payload in payloads(batch)] == ["theirs", "ours"]
    await one.close()
    await other.close()


async def test_a_race_that_was_lost_is_told_to_nobody_but_who_flushes(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"file://{folder}/queue.sqlite?lease_seconds=0"
    one, other = [await pull_from_s3(address, clock=FakeClock()) for _ in range(2)]
    for number in range(4):
        for broker in (one, other):
            await batch_operations(broker, [push(number)])
        for broker in (one, other):
            await flush_to_s3(broker)
    await one.close()
    await other.close()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (push(1, queue="bad name!!"), InvalidName),
        (push(1, partition="bad name!!"), InvalidName),
        (push("x" * 300_000), TooLarge),
        (Push(queue="orders", records=[]), TooLarge),
        (Push(queue="orders", records=[Record(msgspec.Raw(b"{not json"))]), InvalidPayload),
        (Pop(queue="orders", batch=0), InvalidOption),
        (Clear(queue="bad name!!"), InvalidName),
        (Push(database="bad name!!", queue="orders", records=[Record(msgspec.Raw(b"1"))]), InvalidName),
        (Transaction(operations=(push(1, queue="bad name!!"),)), InvalidName),
        ("orders", InvalidOption),
        (Transaction(operations=({"queue": "orders"},)), InvalidOption),  # type: ignore[arg-type]
    ],
)
async def test_what_no_other_way_in_takes_is_refused_with_all_that_came_along(
    folder: str, operation: Operation, error: type[Exception]
) -> None:
    broker = await pull_from_s3(f"file://{folder}/queue.sqlite", clock=FakeClock())
    with pytest.raises(error):
        await batch_operations(broker, [push("before"), operation])
    await batch_operations(broker, [push("after")])
    assert [pushed.first_offset for pushed in await flush_to_s3(broker)] == [0]
    await broker.close()


async def test_an_operation_that_is_refused_is_an_error_in_its_place(folder: str) -> None:
    broker = await pull_from_s3(f"file://{folder}/queue.sqlite", clock=FakeClock())
    await batch_operations(broker, [push(1), Clear(queue="none")])
    pushed, refused = await flush_to_s3(broker)
    assert pushed.first_offset == 0
    assert isinstance(refused, QueueMissing)
    await broker.close()
