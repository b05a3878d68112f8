"""The file and its write-ahead log stay small: under write load, beside slow readers, after records were dropped."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

import headwater
from headwater.config import MIB, Config
from headwater.housekeeping.retainer import Retainer
from headwater.model.names import Lsn
from tests.contracts.clock import FakeClock
from tests.stores.chores import run_chore
from tests.waiting import expect_soon_async

CAP = 8 * MIB
ROUNDS = 240
BATCH = 100
PAYLOAD = "x" * 1_000


class Writer:
    """Pushes 100 KB a commit, and notes how long the log was at its longest."""

    def __init__(self, hw: headwater.Headwater, path: Path) -> None:
        self._hw = hw
        self._wal = Path(f"{path}-wal")
        self.longest = 0
        self.written = 0

    async def write(self, rounds: int) -> None:
        await self._hw.queue("orders").configure(compress_bytes_min=0)
        for _ in range(rounds):
            await self._hw.queue("orders").push_many([PAYLOAD] * BATCH)
            self.written += BATCH * len(PAYLOAD)
            self.longest = max(self.longest, self.size())

    def size(self) -> int:
        return self._wal.stat().st_size


@pytest.fixture
async def hw(path: Path) -> AsyncIterator[headwater.Headwater]:
    """Only the checkpointer has anything to do."""
    async with headwater.open(str(path), wal_bytes_max=CAP, housekeeping_seconds=3_600.0) as opened:
        yield opened


@pytest.fixture
def writer(hw: headwater.Headwater, path: Path) -> Writer:
    return Writer(hw, path)


async def test_the_log_stays_under_its_cap_under_write_load(writer: Writer) -> None:
    await writer.write(ROUNDS)
    assert writer.written > 2 * CAP
    assert writer.longest <= CAP


async def test_the_log_stays_under_its_cap_beside_a_slow_reader(hw: headwater.Headwater, writer: Writer) -> None:
    """A reader that goes through the whole log in chunks keeps no snapshot between them."""
    writing = asyncio.ensure_future(writer.write(ROUNDS))
    position, records = Lsn(0), 0
    while not writing.done():
        segments = await hw.store.read(position, Lsn(2**62), 5)
        records += sum(len(segment.records) for segment in segments)
        position = segments[-1].lsn if segments else position
        await asyncio.sleep(0.002)
    await writing
    assert records > 0
    assert writer.longest <= CAP


async def test_a_reader_that_pins_a_snapshot_is_told_and_the_log_shrinks_after_it(
    hw: headwater.Headwater, writer: Writer, path: Path
) -> None:
    await writer.write(5)
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM hw_segments").fetchall()
    await writer.write(ROUNDS)

    async def is_told() -> bool:
        return int((await hw.store.examine()).named("wal_pinned_pages") or 0) > 0

    await expect_soon_async(is_told)
    assert writer.longest > CAP, "the pinned log had to grow: nothing may be lost"
    reader.execute("COMMIT")
    reader.close()

    async def is_short_again() -> bool:
        await writer.write(1)
        await run_chore(hw.store, "checkpointer")
        return writer.size() <= CAP and not await is_told()

    await expect_soon_async(is_short_again)
    writer.longest = 0
    await writer.write(ROUNDS // 2)
    assert writer.longest <= CAP


async def test_pages_of_dropped_records_are_given_back(path: Path) -> None:
    """S0-29, T0-f."""
    clock = FakeClock()
    async with headwater.open(str(path), clock=clock, housekeeping=False) as hw:
        orders = hw.queue("orders")
        await orders.configure(retention_seconds=60)
        await Writer(hw, path).write(40)
        await run_chore(hw.store, "checkpointer")
        full = path.stat().st_size
        clock.advance(60)
        await orders.push("kept")
        assert await Retainer(hw.committer, Config()).run() == 40 * BATCH
        given_back = 0
        checkpointer, vacuum = hw.store.chores()
        while pages := await vacuum.run():
            given_back += pages
        await checkpointer.run()
        assert given_back > 0
        assert path.stat().st_size < full // 4
        assert (await hw.store.examine()).named("free_pages") == 0
        assert [message.payload for message in await orders.pop(batch=10)] == ["kept"]


async def test_pages_are_given_back_while_others_write(path: Path) -> None:
    """Two chores and the committer share the write lock: none of them may fail for it."""
    async with headwater.open(str(path), housekeeping_seconds=3_600.0) as hw:
        orders = hw.queue("orders")
        writing = asyncio.ensure_future(Writer(hw, path).write(60))
        while not writing.done():
            await hw.queue("doomed").configure(compress_bytes_min=0)
            await hw.queue("doomed").push_many([PAYLOAD] * BATCH)
            await hw.queue("doomed").delete()
            await asyncio.gather(run_chore(hw.store, "vacuum"), run_chore(hw.store, "checkpointer"))
        await writing
        status = await orders.status()
        assert status is not None
        assert status.records == 60 * BATCH
