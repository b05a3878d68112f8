"""A store that is deleted, replaced or restored under open handles: each says so, and nothing more is answered."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

import headwater
import headwater.sync
from headwater import outbox
from headwater.config import load_config
from headwater.errors import HeadwaterError, StoreReplaced
from headwater.log.store_operations import RenewIdentity
from headwater.model.names import Lsn
from headwater.stores.open import open_reader
from tests.doors.live_door import on_the_edge
from tests.waiting import expect_soon_async
from tests.worker.bench import Bench

PATIENCE_SECONDS = 30.0

Headwater = headwater.Headwater


async def delete_everything(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


async def delete_the_file(path: Path) -> None:
    path.unlink()


async def delete_the_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


async def delete_the_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


async def put_another_in_its_place(path: Path) -> None:
    async with headwater.open(str(path.with_name("other.db"))) as other:
        await other.queue("orders").push("of another store")
    path.with_name("other.db").rename(path)


async def put_a_copy_in_its_place(path: Path) -> None:
    """The same bytes, the same identity; and yet what is written to the old file is lost."""
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


async def move_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


async def move_it_and_leave_a_link(path: Path) -> None:
    """The same file is found under the same name, but its log is not beside it any more."""
    path.rename(path.with_name("real.db"))
    path.symlink_to("real.db")


async def renew_the_identity(path: Path) -> None:
    async with headwater.open(str(path)) as other:
        await other.committer.submit(RenewIdentity())


WAYS: dict[str, Callable[[Path], Awaitable[None]]] = {
    function.__name__: function
    for function in (
        delete_everything,
        delete_the_file,
        delete_the_log,
        delete_the_index,
        put_another_in_its_place,
        put_a_copy_in_its_place,
        move_the_folder,
        move_it_and_leave_a_link,
        renew_the_identity,
    )
}


async def push(hw: Headwater) -> None:
    await hw.queue("orders").push("lost")


async def push_without_sync(hw: Headwater) -> None:
    await hw.queue("orders").push("lost", durability="written")


async def pop(hw: Headwater) -> None:
    await hw.queue("orders").pop()


async def list_queues(hw: Headwater) -> None:
    await hw.queues()


async def enqueue(hw: Headwater) -> None:
    await hw.jobs.add(command="true")


async def list_jobs(hw: Headwater) -> None:
    await hw.jobs.list()


async def transact(hw: Headwater) -> None:
    async with hw.transaction() as together:
        together.push("orders", "lost")


USES: dict[str, Callable[[Headwater], Awaitable[None]]] = {
    function.__name__: function
    for function in (push, push_without_sync, pop, list_queues, enqueue, list_jobs, transact)
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "headwater.db"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", WAYS)
async def test_the_next_use_of_a_lost_store_says_so_and_every_later_one(place: Path, way: str, use: str) -> None:
    async with headwater.open(str(place)) as hw:
        await hw.queue("orders").push("before")
        await WAYS[way](place)
        if use in ("list_queues", "list_jobs"):
            # A look at the identity costs a query, so questions go by the sentinel's.
            hw.sentinel.look()
        for _ in range(2):
            with pytest.raises(StoreReplaced, match="open the store again"):
                await USES[use](hw)
        if way == "delete_the_file":
            place.touch()
            with pytest.raises(StoreReplaced):
                await USES[use](hw)


@pytest.mark.parametrize("way", WAYS)
async def test_those_who_wait_are_told(place: Path, way: str) -> None:
    async with headwater.open(str(place)) as hw:
        job = await hw.jobs.add(command="true")
        waiting = [
            asyncio.ensure_future(hw.queue("orders").pop(wait=60)),
            asyncio.ensure_future(hw.jobs.wait(job.id)),
            asyncio.ensure_future(hw.queues_service.read_on(("main", "orders"), Lsn(0), limit=1, wait_seconds=60)),
        ]
        await asyncio.sleep(0.05)
        await WAYS[way](place)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), PATIENCE_SECONDS)
        assert [type(answer) for answer in answers] == [StoreReplaced] * 3


@pytest.mark.parametrize("way", [name for name in WAYS if name != "renew_the_identity"])
async def test_a_reader_of_a_lost_store_says_so(place: Path, way: str) -> None:
    async with headwater.open(str(place)) as hw:
        await hw.queue("orders").push("before")
        reader = open_reader(str(place), load_config({}))
        await reader.open()
        assert (await reader.span())[1] == 1
        await WAYS[way](place)
        asked: list[Callable[[], Awaitable[Any]]] = [
            reader.span,
            reader.identity,
            lambda: reader.queue_names("main"),
            lambda: reader.fingerprint(Lsn(1)),
            lambda: reader.bodies(Lsn(0), Lsn(9), 1, "main", ["orders"]),
            lambda: reader.outline(Lsn(0), Lsn(9), 1, "main", ["orders"]),
        ]
        for question in asked:
            with pytest.raises(StoreReplaced):
                await question()
        await reader.close()


def test_the_sync_face_says_so_too(place: Path) -> None:
    with headwater.sync.open(str(place)) as hw:
        hw.queue("orders").push("before")
        place.unlink()
        with pytest.raises(StoreReplaced):
            hw.queue("orders").push("lost")
        with pytest.raises(StoreReplaced):
            hw.queue("orders").pop()


async def test_a_handle_of_before_leaves_the_new_store_alone_when_it_closes(place: Path) -> None:
    """SQLite's last close deletes the log by its name, which is the new store's by then."""
    async with headwater.open(str(place)) as old:
        await old.queue("orders").push("old")
        await delete_everything(place)
        async with headwater.open(str(place)) as new:
            await new.queue("orders").push("new")
            with pytest.raises(StoreReplaced):
                await old.queue("orders").push("lost")
            await old.close()
            log = Path(f"{place}-wal").stat()
            assert log.st_size > 0
            await new.queue("orders").push("newer")
            assert os.stat(f"{place}-wal").st_ino == log.st_ino
    async with headwater.open(str(place)) as again:
        assert [message.payload for message in await again.queue("orders").pop(batch=9)] == ["new", "newer"]


async def test_a_file_that_is_deleted_while_the_disk_syncs_is_not_answered_as_synced(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        await hw.queue("orders").push("before")
        pushing = asyncio.ensure_future(hw.queue("orders").push("lost"))
        apply = hw.store.apply_now

        def apply_then_delete(*arguments: Any) -> Any:
            commit = apply(*arguments)
            place.unlink(missing_ok=True)
            return commit

        hw.store.apply_now = apply_then_delete  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreReplaced):
            await pushing


@pytest.mark.parametrize("way", ["delete_everything", "put_another_in_its_place"])
async def test_a_server_without_its_store_answers_nothing_but_that(place: Path, way: str) -> None:
    async with headwater.open(str(place)) as hw, on_the_edge(hw) as url, httpx.AsyncClient(base_url=url) as client:
        message = {"items": [{"queue": "orders", "payload": 1}]}
        assert (await client.post("/api/v1/push", json=message)).status_code == 201
        waiting = asyncio.ensure_future(
            client.get("/api/v1/pop/queue/empty", params={"wait": "true", "timeout": 60_000}, timeout=70)
        )
        await asyncio.sleep(0.05)
        await WAYS[way](place)
        native = {"pushes": [{"queue": "orders", "records": [{"data": 1}]}]}
        answers = [
            await client.post("/api/v1/push", json=message),
            await client.post("/v1/push", json=native),
            await client.get("/api/v1/pop/queue/orders"),
            await client.get("/health"),
            await client.get("/ready"),
            await asyncio.wait_for(waiting, PATIENCE_SECONDS),
        ]
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "store_replaced")}


async def test_the_log_says_it_once(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with headwater.open(str(place), housekeeping_seconds=0.01) as hw:
        await hw.queue("orders").push("before")
        await delete_everything(place)
        for _ in range(20):
            with pytest.raises(HeadwaterError):
                await hw.queue("orders").push("lost")
        hw.sentinel.look()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, told
    assert "lost its store" in told[0]


async def test_an_idle_worker_ends_when_its_store_is_lost(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        working = asyncio.ensure_future(Bench(hw, place.parent).worker(app="").run())
        await expect_soon_async(lambda: has_workers(hw))
        await delete_everything(place)
        with pytest.raises(StoreReplaced):
            await asyncio.wait_for(working, PATIENCE_SECONDS)


async def has_workers(hw: Headwater) -> bool:
    return bool(await hw.jobs.workers())


def test_an_outbox_on_a_lost_file_is_refused(place: Path) -> None:
    with headwater.sync.open(str(place)) as hw:
        hw.queue("orders").push("before")
    with closing(apsw.Connection(str(place))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        outbox.push(connection, "orders", "well")
        connection.execute("COMMIT")
        place.unlink()
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreReplaced):
            outbox.push(connection, "orders", "lost")
        connection.execute("ROLLBACK")
