"""One file, opened under two names: what lies beside it goes by the name, so each would write over the other."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

import headwater
from headwater import outbox
from headwater.config import Config
from headwater.errors import InvalidOption, StoreDamaged, StoreLinked, StoreReplaced
from headwater.stores.open import open_reader, open_transfer
from tests.cli.program import Program

HOLD = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("SELECT count(*) FROM hw_meta").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    async with headwater.open(str(path)) as hw:
        await hw.queue("orders").push(1)
    return path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program has the file open by this name."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        yield
        other.stdin.close()


async def kept(hw: headwater.Headwater) -> list[int]:
    """All messages, whatever lane they are in."""
    found: list[int] = []
    while messages := await hw.queue("orders").pop(group="all", batch=10):
        found += [message.payload for message in messages]
    return sorted(found)


async def pushed(path: str) -> list[int]:
    async with headwater.open(path) as hw:
        return await kept(hw)


async def test_a_file_with_a_hard_link_is_opened_by_neither_name(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "other.db"
    os.link(store, link)
    for name in (store, link):
        with pytest.raises(StoreLinked, match=r"hard links.*samefile"):
            await headwater.open(str(name)).start()
        with pytest.raises(StoreLinked):
            await open_reader(str(name), Config()).open()
        with pytest.raises(StoreLinked), open_transfer(str(name), Config()).hold(writes=False):
            pass
    assert not list(tmp_path.glob("other.db-*"))
    link.unlink()
    assert await pushed(str(store)) == [1]


async def test_a_link_that_is_made_while_the_store_is_open_lets_nobody_in(store: Path, tmp_path: Path) -> None:
    """Who has it open goes on: nobody else can come by the other name."""
    async with headwater.open(str(store)) as hw:
        link = tmp_path / "other.db"
        os.link(store, link)
        with pytest.raises(StoreLinked):
            await headwater.open(str(link)).start()
        with pytest.raises(StoreLinked):
            await headwater.open(str(store)).start()
        await hw.queue("orders").push(2)
        link.unlink()
    assert await pushed(str(store)) == [1, 2]


async def test_a_store_that_moves_to_another_name_while_it_is_open_is_not_opened_there(
    store: Path, tmp_path: Path
) -> None:
    async with headwater.open(str(store)) as hw:
        await hw.queue("orders").push(2)
        store.rename(tmp_path / "other.db")
        with pytest.raises(StoreLinked, match=f"in this process, as {store}"):
            await headwater.open(str(tmp_path / "other.db")).start()
        with pytest.raises(StoreReplaced):
            await hw.queue("orders").push(3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who has a file open is asked of Linux")
async def test_a_file_that_another_program_has_open_by_another_name_is_not_opened(store: Path, tmp_path: Path) -> None:
    """As a file that was bound to another place: one file, one link, and other files beside it."""
    link = tmp_path / "other.db"
    os.link(store, link)
    with held(link):
        link.unlink()
        with pytest.raises(StoreLinked, match="open under another name in another program"):
            await headwater.open(str(store)).start()
        with pytest.raises(StoreLinked):
            await open_reader(str(store), Config()).open()
    assert await pushed(str(store)) == [1]


async def test_a_file_that_another_program_has_open_by_the_same_name_is_opened(store: Path) -> None:
    with held(store):
        assert await pushed(str(store)) == [1]


async def test_other_ways_to_the_same_name_are_the_same_store(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link by name, to a folder, a relative path, and `..` behind a link."""
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "link.db").symlink_to(store)
    inside = tmp_path / "inside"
    inside.mkdir()
    elsewhere = tmp_path / "far" / "away"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(inside)
    monkeypatch.chdir(tmp_path)
    ways = ("link.db", "here/log.db", "./log.db", "inside/../log.db", "far/away/../log.db", "here/here/link.db")
    async with headwater.open(str(store)) as hw:
        for number, way in enumerate(ways, 2):
            async with headwater.open(way) as other:
                await other.queue("orders").push(number)
        waiting = await kept(hw)
    assert waiting == list(range(1, len(ways) + 2))
    assert not list((tmp_path / "far").glob("*.db*"))


async def test_a_message_is_not_pushed_through_a_connection_by_another_name(store: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(store))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        outbox.push(connection, "orders", 2)
        os.link(store, tmp_path / "other.db")
        with pytest.raises(StoreLinked):
            outbox.push(connection, "orders", 3)
        connection.execute("COMMIT")


def test_the_command_line_and_the_server_refuse_it(store: Path, tmp_path: Path) -> None:
    program = Program(tmp_path)
    os.link(store, tmp_path / "headwater.db")
    for command in (["push", "orders", "2"], ["serve", "--port", "0"], ["store", "identity"]):
        ended = program.run(*command)
        assert ended.code == 3, ended
        assert "hard links" in ended.err
    assert "samefile" in program.run("doctor").out
    (tmp_path / "headwater.db").unlink()
    assert asyncio.run(pushed(str(store))) == [1]


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", "-turn", "-reserve"])
async def test_no_store_is_made_under_the_name_of_what_lies_beside_another(store: Path, suffix: str) -> None:
    beside = f"{store}{suffix}"
    before = Path(beside).read_bytes() if os.path.exists(beside) else None
    with pytest.raises((InvalidOption, StoreDamaged)):
        async with headwater.open(beside):
            pass
    fresh = store.with_name(f"other.db{suffix}")
    with pytest.raises(InvalidOption, match=r"other\.db is called; choose a name with another ending"):
        async with headwater.open(str(fresh)):
            pass
    async with headwater.open(str(store)) as hw:
        with pytest.raises(InvalidOption, match="another ending"):
            await hw.store.backup(str(fresh))  # type: ignore[attr-defined]
        assert len(await hw.queue("orders").pop()) == 1
    assert not fresh.exists()
    if before is not None:
        assert Path(beside).read_bytes() == before
