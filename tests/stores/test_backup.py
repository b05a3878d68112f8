"""A backup: everything that was committed, in one file, while others write; put back, it is another store."""

import asyncio
import shutil
from pathlib import Path

import pytest

import headwater
from headwater.config import load_config
from headwater.errors import InvalidOption
from headwater.stores.contract import Store, WritesBackups
from headwater.stores.open import open_reader
from headwater.stores.questions import FindIdentity
from tests.cli.program import Program
from tests.waiting import expect_soon_async


async def identity_of(path: Path) -> str:
    async with headwater.open(str(path)) as hw:
        return await hw.store.ask(FindIdentity())


async def back_up(store: Store, path: str) -> None:
    assert isinstance(store, WritesBackups)
    await store.backup(path)


async def test_a_backup_has_what_was_committed_and_one_file(tmp_path: Path) -> None:
    place, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with headwater.open(str(place)) as hw:
        for number in range(50):
            await hw.queue("orders").push(number, partition="p")
        (first,) = await hw.queue("orders").pop()
        await hw.queue("orders").ack(first)
        await back_up(hw.store, str(copy))
        await hw.queue("orders").push("later", partition="p")
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy.db"]
    assert copy.stat().st_mode & 0o777 == 0o600
    async with headwater.open(str(copy)) as restored:
        messages = await restored.queue("orders").pop(batch=100)
    assert [message.payload for message in messages] == list(range(1, 50))


async def test_a_backup_is_taken_while_others_write(tmp_path: Path) -> None:
    place, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with headwater.open(str(place)) as hw:
        answered: list[int] = []
        stop = asyncio.Event()

        async def write() -> None:
            while not stop.is_set():
                await hw.queue("orders").push({"n": len(answered), "filling": "x" * 500}, partition="p")
                answered.append(len(answered))

        async def has_many() -> bool:
            return len(answered) >= 100

        writing = asyncio.ensure_future(write())
        await expect_soon_async(has_many)
        before = len(answered)
        await back_up(hw.store, str(copy))
        stop.set()
        await writing
    async with headwater.open(str(copy)) as restored:
        found = [message.payload["n"] for message in await restored.queue("orders").pop(batch=1_000)]
    assert found == list(range(len(found)))
    assert len(found) >= before


async def test_a_backup_that_is_put_back_is_another_store_each_time(tmp_path: Path) -> None:
    place, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with headwater.open(str(place)) as hw:
        await hw.queue("orders").push(1)
        original = await hw.store.ask(FindIdentity())
        await back_up(hw.store, str(copy))
    reader = open_reader(str(copy), load_config({}))
    await reader.open()
    seen = {original, await reader.identity()}
    await reader.close()
    for number in range(2):
        shutil.copy(copy, tmp_path / f"restored-{number}.db")
        restored = await identity_of(tmp_path / f"restored-{number}.db")
        assert await identity_of(tmp_path / f"restored-{number}.db") == restored
        seen.add(restored)
    assert len(seen) == 4
    assert await identity_of(place) == original


async def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_bytes(b"mine")
    async with headwater.open(str(tmp_path / "a.db")) as hw:
        with pytest.raises(InvalidOption, match="is there already"):
            await back_up(hw.store, str(tmp_path / "copy.db"))
        await hw.queue("orders").push("the store goes on")
    assert (tmp_path / "copy.db").read_bytes() == b"mine"


def test_the_command_backs_up(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.expect(0, "push", "orders", "1")
    assert program.expect(0, "store", "backup", "copy.db").out.startswith("wrote ")
    assert program.expect(0, "pop", "orders", "--store", "copy.db", "--json").document()["payload"] == 1
    assert "is there already" in program.expect(2, "store", "backup", "copy.db").err
    assert "there is no folder" in program.expect(2, "store", "backup", "none/copy.db").err
    program.store.unlink()
    assert program.expect(3, "store", "backup", "other.db").err.startswith("error[store_missing]")
    assert not (tmp_path / "other.db").exists()
