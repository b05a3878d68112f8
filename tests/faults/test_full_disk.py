"""A disk that is really full: pushes are refused, deletes and the doctor work, and it ends by itself."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

import headwater
import headwater.sync
from headwater.errors import StoreFull
from headwater.log.operations import Clear, Operation
from headwater.stores.sqlite.connection import connect_to_read
from tests.cli.program import Program
from tests.contracts.log import push as push_of
from tests.doors.live_door import on_the_edge
from tests.faults.small_disk import fill, mounted
from tests.waiting import expect_soon_async

PATIENCE_SECONDS = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder) as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        yield disk


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The command line, in a folder on another disk."""
    return Program(tmp_path)


@pytest.fixture
async def hw(disk: Path) -> AsyncIterator[headwater.Headwater]:
    """A store with its reserve, on a disk that has room."""
    async with headwater.open(str(disk / "headwater.db")) as opened:
        assert await opened.store.has_room()
        assert (disk / "headwater.db-reserve").stat().st_size == opened.config.reserve_bytes
        yield opened


def noise() -> str:
    """What no codec makes smaller."""
    return os.urandom(60_000).hex()


async def push_until_full(hw: headwater.Headwater) -> int:
    """How many messages went in."""
    for count in range(10_000):
        try:
            await hw.queue("orders").push(noise())
        except StoreFull:
            return count
    raise AssertionError("the disk was never full")


async def test_what_was_answered_before_the_disk_was_full_is_there(hw: headwater.Headwater) -> None:
    count = await push_until_full(hw)
    assert count > 10
    (status,) = await hw.queues()
    assert status.records == count
    reader = hw.queue("orders")
    assert (await reader.status()) is not None


async def test_a_delete_makes_room_and_pushes_go_on_by_themselves(
    hw: headwater.Headwater, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await hw.queue("kept").push("kept")
    await push_until_full(hw)
    for _ in range(50):
        with pytest.raises(StoreFull):
            await hw.queue("orders").push(noise())
    assert hw.committer.full
    await hw.queue("orders").delete()

    async def has_room() -> bool:
        return not hw.committer.full

    await expect_soon_async(has_room, PATIENCE_SECONDS)
    assert (disk / "headwater.db-reserve").stat().st_size == hw.config.reserve_bytes
    for _ in range(20):
        await hw.queue("orders").push(noise())
    (kept,) = await hw.queue("kept").pop()
    assert kept.payload == "kept"
    told = [record.getMessage() for record in caplog.records if record.name == "headwater.log.committer"]
    assert [text.partition(":")[0] for text in told] == ["the store is full", "there is room again"]


async def test_a_disk_that_the_write_ahead_log_has_filled_gets_room_again(hw: headwater.Headwater, disk: Path) -> None:
    reader = connect_to_read(str(disk / "headwater.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    await push_until_full(hw)
    assert (disk / "headwater.db-wal").stat().st_size > 3 * (disk / "headwater.db").stat().st_size
    await hw.queue("orders").delete()
    reader.close()

    async def has_room() -> bool:
        return not hw.committer.full

    await expect_soon_async(has_room, PATIENCE_SECONDS)
    assert (disk / "headwater.db-reserve").stat().st_size == hw.config.reserve_bytes
    for _ in range(20):
        await hw.queue("orders").push(noise())


async def test_pushes_do_not_touch_the_reserve(hw: headwater.Headwater, disk: Path) -> None:
    await push_until_full(hw)
    for _ in range(20):
        with pytest.raises(StoreFull):
            await hw.queue("orders").push(noise())
    assert (disk / "headwater.db-reserve").stat().st_size == hw.config.reserve_bytes


async def test_a_delete_beside_pushes_takes_effect_alone(hw: headwater.Headwater) -> None:
    await push_until_full(hw)
    together: list[Operation] = [Clear(queue="orders"), push_of(noise(), queue="other")]
    cleared, pushed = hw.committer.submit_all(together)
    assert (await cleared).result.count > 10
    with pytest.raises(StoreFull):
        await pushed
    assert [(status.queue, status.records) for status in await hw.queues()] == [("orders", 0)]


async def test_purging_dead_letters_and_revoking_a_token_work(hw: headwater.Headwater) -> None:
    await hw.queue("orders").configure(retry_limit=0)
    await hw.queue("orders").push("bad")
    (message,) = await hw.queue("orders").pop()
    await hw.queue("orders").fail([message], error="bad")
    token, _ = await hw.access_tokens().create("ci", ["publish"])
    await push_until_full(hw)
    fill(Path(hw.store.traits.location).parent)
    assert await hw.queue("orders").purge() == 1
    await hw.access_tokens().revoke(token.id)
    (kept,) = await hw.access_tokens().list()
    assert kept.revoked_at is not None


async def test_a_server_says_that_it_is_not_ready_until_there_is_room(
    hw: headwater.Headwater, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with on_the_edge(hw) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        assert (await client.get("/ready")).status_code == 200
        filler = fill(disk)
        await push_until_full(hw)
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["code"]) == (503, "store_full")
        assert (await client.get("/health")).status_code == 200
        refused = [
            await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": noise()}] * 3}),
            await client.post("/v1/push", json={"pushes": [{"queue": "q", "records": [{"data": noise()}]}]}),
        ]
        assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(507, "store_full")] * 2
        assert [status.queue for status in await hw.queues()] == ["orders"]
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["the store is full"]
        filler.unlink()

        async def is_ready() -> bool:
            return (await client.get("/ready")).status_code == 200

        await expect_soon_async(is_ready, PATIENCE_SECONDS)
        answer = await client.post("/api/v1/push", json={"items": [{"queue": "q", "payload": 1}]})
        assert answer.status_code == 201


def test_the_doctor_and_a_delete_work_where_nothing_else_does(disk: Path, program: Program) -> None:
    """Nobody has the store open, so that even its small files must be made on the full disk."""
    place = disk / "headwater.db"
    store = ("--store", str(place))
    with headwater.sync.open(str(place)) as hw:
        for _ in range(20):
            hw.queue("orders").push(noise())
    with place.with_name("headwater.db-reserve").open("wb") as reserve:
        reserve.write(bytes(4 * 1_048_576))
    fill(disk)
    report = program.run("doctor", "--json", *store)
    assert report.code == 5
    assert "disk_nearly_full" in [problem["code"] for problem in report.document()["problems"]]
    assert report.document()["store"]["queues"] == 1
    fill(disk)
    assert program.run("queues", "delete", "orders", "--yes", *store).code == 0
    assert program.run("queues", "--json", *store).out == ""
    assert program.run("push", "orders", "1", *store).code == 0
