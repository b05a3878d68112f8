"""Reading the log from outside, by LSN: stretches, bodies, and what retention took."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest

from headwater.config import load_config
from headwater.errors import StoreMissing
from headwater.log.operations import DeleteQueue, Pop, Retain, Seek
from headwater.model.names import Lsn
from headwater.model.record import split_records
from headwater.stores.log_reader import Body, LogReader
from headwater.stores.open import open_reader
from tests.client.server import Server
from tests.contracts.clock import FakeClock
from tests.contracts.factories import another
from tests.contracts.log import LSN_MAX, Log, push

KEY = "ab" * 32


@pytest.fixture(params=("itself", "a server"))
async def reader(log: Log, address: str, clock: FakeClock, request: pytest.FixtureRequest) -> AsyncIterator[LogReader]:
    """The store read by its own address, and through a server that has it open."""
    async with AsyncExitStack() as stack:
        if request.param == "a server":
            address = (
                await stack.enter_async_context(Server(address, clock=clock, encryption_key=KEY, housekeeping=False))
            ).url
        # Whoever reads through a server has no key: it stays with the server.
        opened = open_reader(address, load_config({}, encryption_key=KEY if request.param == "itself" else ""))
        await opened.open()
        yield opened
        await opened.close()


async def bodies(reader: LogReader, *queues: str, after: int = 0, through: int = LSN_MAX) -> list[Body]:
    return await reader.bodies(Lsn(after), Lsn(through), 1_000_000, "main", queues)


def values(body: Body) -> list[object]:
    return [msgspec.json.decode(record.data) for record in split_records(body.records)]


async def test_an_empty_log_has_an_empty_span(reader: LogReader) -> None:
    assert await reader.span() == (0, 0)
    assert await reader.queue_names("main") == []
    assert await bodies(reader, "orders") == []


async def test_bodies_come_whole_and_in_order(log: Log, reader: LogReader, clock: FakeClock) -> None:
    await log.commit(push(1, 2, queue="a"), push(3, queue="b", partition="p"))
    await log.push(4, queue="c")
    await log.push(5, queue="a")
    found = await bodies(reader, "a", "b")
    assert [values(body) for body in found] == [[1, 2], [3], [5]]
    assert [(body.lane.queue, body.lane.partition, body.first_offset, body.count) for body in found] == [
        ("a", "Default", 0, 2),
        ("b", "p", 0, 1),
        ("a", "Default", 2, 1),
    ]
    assert {body.written_at for body in found} == {clock.now()}
    assert await bodies(reader, "a", after=found[0].lsn, through=found[1].lsn) == []
    assert await reader.queue_names("main") == ["a", "b", "c"]


async def test_a_look_ends_when_it_has_enough_bytes(log: Log, reader: LogReader) -> None:
    for number in range(3):
        await log.push("x" * 100, number)
    one = await reader.bodies(Lsn(0), LSN_MAX, 1, "main", ["orders"])
    assert [body.first_offset for body in one] == [0]
    two = await reader.bodies(Lsn(0), LSN_MAX, 150, "main", ["orders"])
    assert [body.first_offset for body in two] == [0, 2]


async def test_compressed_and_encrypted_segments_are_opened(log: Log, open_log: object, reader: LogReader) -> None:
    store = await open_log(encryption_key=KEY)  # type: ignore[operator]
    await store.configure(compress_bytes_min=1, encrypted=True)
    await store.push("secret " * 50, "more")
    assert [values(body) for body in await bodies(reader, "orders")] == [["secret " * 50, "more"]]


async def test_the_outline_tells_sizes_without_records(log: Log, reader: LogReader) -> None:
    await log.push(1, 2, 3)
    await log.push(4, queue="other")
    await log.push(5)
    outline = await reader.outline(Lsn(0), LSN_MAX, 10, "main", ["orders"])
    assert [(segment.first_offset, segment.count) for segment in outline] == [(0, 3), (3, 1)]
    assert len(await reader.outline(Lsn(0), LSN_MAX, 1, "main", ["orders"])) == 1
    assert await reader.newest(Lsn(0), LSN_MAX, "main", ["orders"]) == outline[-1].lsn
    assert await reader.newest(outline[-1].lsn, LSN_MAX, "main", ["orders"]) is None


async def test_partitions_are_told_with_where_they_begin_and_end(log: Log, reader: LogReader) -> None:
    for partition in ("a", "b", "c"):
        await log.push(1, 2, partition=partition)
    await log.push(3, partition="b")
    await log.push(4, queue="other")
    found = await reader.partitions("main", "orders", 2, 0)
    assert [(one.queue, one.partition, one.start, one.end) for one in found] == [
        ("orders", "a", 0, 2),
        ("orders", "b", 0, 3),
    ]
    (rest,) = await reader.partitions("main", "orders", 2, found[-1].partition_id)
    assert rest.partition == "c"
    assert await reader.partitions("main", "none", 2, 0) == []


async def test_a_time_is_found_as_an_lsn(log: Log, reader: LogReader, clock: FakeClock) -> None:
    await log.push(1)
    clock.advance(10)
    between = clock.now()
    clock.advance(10)
    second = await log.push(2)
    assert await reader.lsn_at(between) == second.lsn - 1


async def test_what_retention_took_is_told_to_those_who_had_not_read_it(
    log: Log, reader: LogReader, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=60)
    first = await log.push(1, partition="a")
    before = await reader.drops(Lsn(0), 0, "main", ["orders"])
    assert (before.number, before.lost) == (0, 0)
    clock.advance(61)
    last = await log.push(2, partition="b")
    await log.run(Retain())
    after = await reader.drops(Lsn(0), before.number, "main", ["orders"])
    assert (after.lost, after.partitions) == (1, ["orders/a"])
    assert (await reader.drops(first.lsn, before.number, "main", ["orders"])).lost == 0
    assert (await reader.drops(Lsn(0), after.number, "main", ["orders"])).lost == 0
    assert (await reader.drops(Lsn(0), 0, "main", ["other"])).lost == 0
    assert (await reader.drops(Lsn(0), 0, "main", ["orders"], ["b", "c"])).lost == 0
    assert (await reader.drops(Lsn(0), 0, "main", ["orders"], ["b", "a"])).partitions == ["orders/a"]
    assert await reader.span() == (last.lsn - 1, last.lsn)


async def test_a_later_drop_is_told_again(log: Log, reader: LogReader, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1)
    clock.advance(61)
    await log.run(Retain())
    known = await reader.drops(Lsn(0), 0, "main", ["orders"])
    await log.push(2)
    clock.advance(61)
    await log.run(Retain())
    assert (await reader.drops(Lsn(0), known.number, "main", ["orders"])).lost == 1


async def test_a_deleted_queue_is_gone_for_readers(log: Log, reader: LogReader) -> None:
    await log.push(1)
    await log.run(DeleteQueue(queue="orders"))
    assert await bodies(reader, "orders") == []
    assert await reader.queue_names("main") == []


async def test_a_group_is_moved_behind_an_lsn(log: Log) -> None:
    await log.push(1, 2)
    second = await log.push(3, partition="p")
    await log.push(4)
    await log.run(Seek(queue="orders", group="g", lsn=second.lsn, create=True))
    assert (await log.group("g")).lag == 1
    popped = await log.run(Pop(queue="orders", group="g", batch=10))
    assert [msgspec.json.decode(record.data) for record in popped.batches[0].records] == [4]


async def test_a_reader_between_two_looks_holds_nothing_back(log: Log, reader: LogReader) -> None:
    for number in range(20):
        await log.push("x" * 1_000, number)
    assert len(await reader.bodies(Lsn(0), LSN_MAX, 1, "main", ["orders"])) == 1
    await log.push("more")
    for chore in log.store.chores():
        await chore.run()
    assert not (await log.store.examine()).named("wal_pinned_pages")


async def test_reading_makes_no_store(address: str) -> None:
    missing = open_reader(another(address), load_config({}))
    with pytest.raises(StoreMissing):
        await missing.open()
