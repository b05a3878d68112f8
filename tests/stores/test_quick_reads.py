"""Small reads of the log on the event loop: what the thread that reads would answer, and nothing that takes long."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater.log.room_operations import TrimRoom
from headwater.model.names import Lsn, Offset
from headwater.model.room import KEPT, PRESENCE
from headwater.stores.questions import FindLastLsn, FindLoss, ListPartitions, ReadPartition, Segment
from headwater.stores.sqlite.quick_reads import QUICK_BYTES, QUICK_SEGMENTS
from headwater.stores.sqlite.store import SqliteStore

PATIENCE_SECONDS = 20.0


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as hw:
        yield hw


def store_of(hw: headwater.Headwater) -> SqliteStore:
    store = hw.queues_service.store._store  # type: ignore[attr-defined]
    assert isinstance(store, SqliteStore)
    return store


async def say(hw: headwater.Headwater, count: int, text: str = "word") -> ReadPartition:
    """Messages of a room, each a segment; the question for all of them."""
    for number in range(count):
        await hw.room("tree").send({"number": number, "text": text})
    [status] = await hw.queues_service.ask(ListPartitions("main", "rooms/tree"))
    assert status.partition == KEPT != PRESENCE
    return ReadPartition(status.partition_id, Offset(0), 100)


async def in_the_thread(hw: headwater.Headwater, asked: ReadPartition) -> list[Segment]:
    return await store_of(hw)._reads.ask(asked)


@pytest.mark.parametrize(("first", "limit"), [(0, 100), (3, 100), (3, 2), (9, 100), (99, 100)])
async def test_what_is_read_quickly_is_what_is_read(hw: headwater.Headwater, first: int, limit: int) -> None:
    told = await say(hw, 10)
    asked = ReadPartition(told.partition_id, Offset(first), limit)
    found = store_of(hw)._log_here.partition_to_end(asked)
    assert found == await in_the_thread(hw, asked)
    assert found is not None
    assert len(found) == min(limit, max(10 - first, 0))


async def test_a_stretch_at_the_end_of_the_log_is_what_is_read(hw: headwater.Headwater) -> None:
    await say(hw, 10)
    store, last = store_of(hw), await hw.queues_service.ask(FindLastLsn())
    found = store._log_here.stretch(Lsn(last - 4), last)
    assert found == await store._reads.read(Lsn(last - 4), last, 4, None)
    assert found is not None
    assert [one.lsn for one in found] == list(range(last - 3, last + 1))


async def test_more_than_is_soon_read_is_left_to_the_thread(hw: headwater.Headwater) -> None:
    asked = await say(hw, QUICK_SEGMENTS + 1)
    store, last = store_of(hw), await hw.queues_service.ask(FindLastLsn())
    assert store._log_here.partition_to_end(asked) is None
    assert store._log_here.stretch(Lsn(last - QUICK_SEGMENTS - 1), last) is None
    assert len(await hw.queues_service.ask(asked)) == QUICK_SEGMENTS + 1


@pytest.mark.parametrize(("compress_bytes_min", "size"), [(0, QUICK_BYTES), (100, 200)], ids=["large", "compressed"])
async def test_what_is_large_or_may_be_once_it_is_opened_is_left_to_the_thread(
    hw: headwater.Headwater, compress_bytes_min: int, size: int
) -> None:
    await hw.queue("rooms/tree").configure(compress_bytes_min=compress_bytes_min)
    asked = await say(hw, 1, "x" * size)
    assert store_of(hw)._log_here.partition_to_end(asked) is None
    [segment] = await hw.queues_service.ask(asked)
    assert len(segment.records) == 1


async def test_a_drop_that_was_not_told_yet_is_left_to_the_thread(hw: headwater.Headwater) -> None:
    await say(hw, 2)
    known = await hw.queues_service.ask(FindLoss("main", ("rooms/*",)))
    asked = FindLoss("main", ("rooms/*",), (), known.number)
    assert store_of(hw)._log_here.loss(asked) is not None
    last = await hw.queues_service.ask(FindLastLsn())
    hw.queues_service.submit_and_forget(TrimRoom(queue="rooms/tree", through=last))
    # Goes with the same commit, or a later one.
    await hw.room("tree").send({})
    assert store_of(hw)._log_here.loss(asked) is None


async def test_a_small_history_does_not_wait_for_the_thread_that_reads(hw: headwater.Headwater) -> None:
    asked, go_on = await say(hw, 3), threading.Event()
    slow = asyncio.ensure_future(store_of(hw)._reads._thread.run(lambda: go_on.wait(PATIENCE_SECONDS)))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            assert len(await hw.queues_service.ask(asked)) == 3
    finally:
        go_on.set()
        await slow


async def test_who_reads_again_and_again_lets_others_have_their_turn(hw: headwater.Headwater) -> None:
    asked, turns = await say(hw, 3), 0

    def turn() -> None:
        nonlocal turns
        turns += 1

    asyncio.get_running_loop().call_soon(turn)
    for _ in range(1_000):
        if turns:
            break
        await hw.queues_service.ask(asked)
    assert turns
