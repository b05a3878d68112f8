"""A file that is damaged, cut off, foreign, newer or locked away: the right error, and the file as it was."""

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater.errors import StoreDamaged, StoreError, StoreFailed, StoreForeign, StoreMissing, StoreNewer
from headwater.stores.sqlite.migrate import migrations
from tests.stores.chores import run_chore

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
RECORDS = 60


def open_at(path: Path, **options: Any) -> headwater.Headwater:
    """The store, without anything in the background."""
    return headwater.open(str(path), housekeeping=False, wakeup="data_version", **options)


async def open_and_close(path: Path, **options: Any) -> None:
    async with open_at(path, **options):
        pass


async def stock(path: Path) -> None:
    """A store with something of everything, closed, so that all of it is in the file itself."""
    async with open_at(path) as hw:
        orders = hw.queue("orders")
        await orders.configure(retry_limit=0, namespace="shop")
        for number in range(RECORDS):
            payload = {"number": number, "filling": f"{number:04d}" * 50}
            await orders.push(payload, partition=f"p{number % 3}", transaction_id=f"id-{number}")
        await orders.ack(await orders.pop(group="billing", batch=5))
        await orders.fail(await orders.pop(group="billing", batch=2), error="broken", retry=False)
        await hw.queue("mails").push_many([{"number": number} for number in range(20)])


@pytest.fixture(scope="module")
def stocked() -> Iterator[Path]:
    """One stocked file for all tests of this module; they work on copies."""
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(stock(Path(name) / "store.db"))
        yield Path(name) / "store.db"


def fingerprint(folder: Path) -> dict[str, str]:
    """What lies in a folder, by content."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        for path in sorted(folder.iterdir())
    }


def check_refused(path: Path, *kinds: type[StoreError], **options: Any) -> StoreError:
    """Opening fails with one of these errors, twice the same, and changes nothing that was in the folder."""
    before = fingerprint(path.parent)
    with pytest.raises(kinds) as refused:
        asyncio.run(open_and_close(path, **options))
    with pytest.raises(type(refused.value)):
        asyncio.run(open_and_close(path, **options))
    after = fingerprint(path.parent)
    assert {name: after.get(name) for name in before} == before
    assert isinstance(refused.value, kinds)
    return refused.value


# ── foreign ──


@pytest.mark.parametrize(
    "content",
    [
        b"Dear diary, this is not a database.\n" * 40,
        b"x",
        b"#!/bin/sh\n",
        b"\x89PNG\r\n\x1a\n" + bytes(5_000),
        bytes(4_096),
        b"SQLite format 3",
        b"SQLite format 3\x00" + b"\xff" * 4_080,
        b"PK\x03\x04" + os.urandom(10_000),
    ],
    ids=["text", "one letter", "script", "picture", "zeros", "short header", "header and noise", "archive"],
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    check_refused(path, StoreDamaged, StoreForeign)


def make_foreign(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


OTHER_TABLES = ("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)", "INSERT INTO customers VALUES (1, 'Ada')")


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    make_foreign(tmp_path / "store.db", "PRAGMA application_id = 1234", *OTHER_TABLES)
    check_refused(tmp_path / "store.db", StoreForeign)
    check_refused(tmp_path / "store.db", StoreForeign, adopt=True)


def test_a_database_with_other_tables_is_left_alone(tmp_path: Path) -> None:
    make_foreign(tmp_path / "store.db", *OTHER_TABLES)
    error = check_refused(tmp_path / "store.db", StoreForeign)
    assert "customers" in str(error)
    assert "adopt=True" in str(error)


def test_a_database_with_other_tables_and_a_log_of_its_own_is_left_alone(tmp_path: Path) -> None:
    make_foreign(tmp_path / "store.db", "PRAGMA journal_mode = WAL", *OTHER_TABLES)
    check_refused(tmp_path / "store.db", StoreForeign)


def test_a_foreign_database_with_something_in_its_log_is_left_alone(tmp_path: Path) -> None:
    """As a program leaves it that was killed: its log is not ours to move into its file."""
    living = apsw.Connection(str(tmp_path / "living.db"))
    for statement in ("PRAGMA journal_mode = WAL", *OTHER_TABLES):
        living.execute(statement)
    (tmp_path / "left").mkdir()
    for ending in ("", "-wal"):
        shutil.copy(tmp_path / f"living.db{ending}", tmp_path / "left" / f"store.db{ending}")
    living.close()
    check_refused(tmp_path / "left" / "store.db", StoreForeign)


def test_a_refusal_leaves_no_files_of_its_own_behind(tmp_path: Path) -> None:
    make_foreign(tmp_path / "store.db", "PRAGMA journal_mode = WAL", *OTHER_TABLES)
    check_refused(tmp_path / "store.db", StoreForeign)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_a_database_whose_tables_only_begin_like_ours_is_left_alone(tmp_path: Path) -> None:
    make_foreign(tmp_path / "store.db", "CREATE TABLE hw_devices (id INTEGER PRIMARY KEY)", *OTHER_TABLES)
    check_refused(tmp_path / "store.db", StoreForeign)


def test_an_adopted_file_keeps_the_tables_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    make_foreign(path, *OTHER_TABLES, "CREATE TABLE message_queue (id INTEGER PRIMARY KEY, body TEXT)")
    make_foreign(path, "INSERT INTO message_queue VALUES (7, 'mine')", "PRAGMA user_version = 42")

    async def use() -> list[headwater.Message]:
        async with open_at(path, adopt=True) as hw:
            await hw.queue("orders").push({"id": 1})
            return await hw.queue("orders").pop()

    assert [message.payload for message in asyncio.run(use())] == [{"id": 1}]
    connection = apsw.Connection(str(path))
    assert list(connection.execute("SELECT * FROM customers")) == [(1, "Ada")]
    assert list(connection.execute("SELECT * FROM message_queue")) == [(7, "mine")]
    assert connection.pragma("user_version") == 42
    assert connection.pragma("application_id") == 0
    connection.close()
    asyncio.run(open_and_close(path))


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    check_refused(tmp_path / "store.db", StoreForeign)


@pytest.mark.parametrize("name", ["pipe", "device"])
def test_what_is_no_ordinary_file_is_no_store(tmp_path: Path, name: str) -> None:
    path = tmp_path / "store.db"
    if name == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    check_refused(path, StoreForeign, StoreFailed)


def test_a_store_is_not_made_where_there_is_no_folder(tmp_path: Path) -> None:
    check_refused(tmp_path / "missing.db", StoreMissing, create=False)
    with pytest.raises(StoreMissing):
        asyncio.run(open_and_close(tmp_path / "no folder" / "store.db"))
    assert not (tmp_path / "no folder").exists()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    asyncio.run(open_and_close(tmp_path / "store.db"))
    assert (tmp_path / "store.db").stat().st_size > 0


# ── newer ──


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_file_of_a_newer_version_is_left_alone_and_both_versions_are_named(
    tmp_path: Path, stocked: Path, journal: str
) -> None:
    path = tmp_path / "store.db"
    shutil.copy(stocked, path)
    newest = migrations()[-1][0]
    bump = f"UPDATE hw_meta SET value = {newest + 1} WHERE key = 'schema_version'"
    make_foreign(path, f"PRAGMA journal_mode = {journal}", bump)
    before = path.read_bytes()
    with pytest.raises(StoreNewer) as refused:
        asyncio.run(open_and_close(path))
    assert path.read_bytes() == before
    assert str(newest) in str(refused.value)
    assert str(newest + 1) in str(refused.value)


# ── damaged ──


@pytest.mark.parametrize("kept", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, stocked: Path, kept: float) -> None:
    path = tmp_path / "store.db"
    whole = stocked.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    check_refused(path, StoreDamaged)


def flip(path: Path, place: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ (1 << bit)]))


def read_body(path: Path, lsn: int) -> bytes:
    connection = apsw.Connection(str(path))
    (body,) = connection.execute("SELECT records FROM hw_segments WHERE lsn = ?", (lsn,)).fetchone() or (b"",)
    connection.close()
    return bytes(body)


def damage_segment(path: Path, lsn: int) -> None:
    """Flip a bit in the middle of a segment's body. Old pages may hold copies of it: the living one is meant."""
    body, content, place = read_body(path, lsn), path.read_bytes(), -1
    while (place := content.find(body, place + 1)) > 0:
        flip(path, place + len(body) // 2, 3)
        if read_body(path, lsn) != body:
            return
        flip(path, place + len(body) // 2, 3)
    raise AssertionError(f"segment {lsn} is not in the file in one piece")


async def pop_everything(hw: headwater.Headwater, queue: str) -> tuple[list[headwater.Message], list[str]]:
    """All that can be read by a fresh group, and the codes of the errors on the way."""
    found: list[headwater.Message] = []
    refused: list[str] = []
    for _ in range(RECORDS + 10):
        try:
            messages = await hw.queue(queue).pop(group="reader", batch=3, auto_ack=True)
        except headwater.HeadwaterError as error:
            refused.append(error.code)
            continue
        if not messages:
            break
        found += messages
    return found, refused


async def test_a_flipped_bit_in_a_record_is_told_and_the_other_partitions_are_served(
    tmp_path: Path, stocked: Path
) -> None:
    path = tmp_path / "store.db"
    shutil.copy(stocked, path)
    damage_segment(path, 5)
    async with open_at(path) as hw:
        found, refused = await pop_everything(hw, "orders")
    assert refused == ["store_damaged"]
    assert {message.partition for message in found} >= {"p0", "p2"}
    assert all(message.payload["filling"] == f"{message.payload['number']:04d}" * 50 for message in found)
    assert len(found) < RECORDS


async def test_a_damaged_record_fails_no_neighbour_in_the_same_commit(tmp_path: Path, stocked: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copy(stocked, path)
    damage_segment(path, 5)
    async with open_at(path) as hw:
        orders, mails = hw.queue("orders"), hw.queue("mails")
        known = orders.push({"again": True}, partition="p1", transaction_id="id-4")
        answers = await asyncio.gather(
            known, mails.push({"fresh": True}), mails.push({"other": True}, transaction_id="x"), return_exceptions=True
        )
    assert all(isinstance(answer, headwater.Receipt) for answer in answers[1:]), answers
    assert isinstance(answers[0], headwater.Receipt | StoreDamaged), answers


async def test_a_damaged_record_does_not_bury_its_forerunner_again_and_again(tmp_path: Path, stocked: Path) -> None:
    """A lease that ran out ends in the dead letters once, even if what comes after it cannot be read."""
    from tests.faults.bent_clock import BentClock

    path = tmp_path / "store.db"
    clock = BentClock()
    async with open_at(path, clock=clock) as hw:
        orders = hw.queue("orders")
        await orders.configure(retry_limit=0, retry_delay_seconds=0, lease_seconds=10)
        for number in range(3):
            await orders.push({"number": number, "filling": "x" * 100}, partition="one")
        assert len(await orders.pop()) == 1
    damage_segment(path, 2)
    async with open_at(path, clock=clock) as hw:
        orders = hw.queue("orders")
        for _ in range(3):
            clock.move(3_600)
            with pytest.raises(StoreDamaged):
                await orders.pop()
        assert len(await orders.dead_letters()) == 1


DAMAGES = {
    "options": ("UPDATE hw_queues SET options = '{\"lease' WHERE name = 'orders'", "push"),
    "options of a wrong type": ("UPDATE hw_queues SET options = '[1]' WHERE name = 'orders'", "pop"),
    "body that is no list": ("UPDATE hw_segments SET records = CAST('{}' AS BLOB), checksum = 2745614147", "pop"),
    "count": ("UPDATE hw_segments SET count = count + 1 WHERE lsn = 60", "pop"),
    "settled": ("UPDATE hw_cursors SET settled = '[1,' WHERE partition_id = 1", "pop"),
    "dead letter": ("UPDATE hw_dead_letters SET records = replace(CAST(records AS TEXT), 'filling', 'f')", "requeue"),
    "dead letter that is no list": ("UPDATE hw_dead_letters SET records = '[{'", "requeue"),
    "name": ("UPDATE hw_partitions SET name = CAST(x'c328' AS TEXT) WHERE id = 1", "pop"),
    "remembered answer": ("UPDATE hw_applied SET result = '{' WHERE key = 'once'", "keyed push"),
}


async def use_damaged(orders: headwater.Queue, how: str) -> object:
    if how == "pop":
        # What lies before the damage comes first, and must be done before the damage is met.
        for _ in range(4):
            await orders.ack(await orders.pop(group="billing", batch=100))
        return None
    if how == "requeue":
        return await orders.requeue()
    return await orders.push({"new": True}, idempotency_key="once" if how == "keyed push" else "")


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_row_is_called_damage_and_harms_no_neighbour(
    tmp_path: Path, stocked: Path, damage: str
) -> None:
    path = tmp_path / "store.db"
    shutil.copy(stocked, path)
    statement, how = DAMAGES[damage]
    async with open_at(path) as hw:
        await hw.queue("orders").push({"new": True}, idempotency_key="once")
    make_foreign(path, statement)
    async with open_at(path) as hw:
        used, neighbour = await asyncio.gather(
            use_damaged(hw.queue("orders"), how), hw.queue("mails").push({"good": True}), return_exceptions=True
        )
    assert isinstance(neighbour, headwater.Receipt), neighbour
    assert isinstance(used, StoreDamaged), used


async def attempt(act: Callable[[], Awaitable[object]]) -> None:
    """Whatever is refused is refused with an error of ours; any other goes through."""
    with contextlib.suppress(headwater.HeadwaterError):
        await act()


async def use_everything(path: Path) -> None:
    """Every way into the file, whatever state it is in."""
    hw = open_at(path, lock_wait_seconds=1)
    try:
        await hw.start()
    except headwater.HeadwaterError:
        return
    orders = hw.queue("orders")
    for act in (
        hw.queues,
        hw.groups,
        orders.dead_letters,
        orders.requeue,
        lambda: orders.pop(group="billing", batch=50),
        lambda: pop_everything(hw, "orders"),
        lambda: orders.push({"new": 1}, partition="p1", transaction_id="id-1"),
        lambda: orders.configure(retry_limit=2),
        lambda: orders.seek("beginning", group="billing"),
        hw.store.examine,
        lambda: run_chore(hw.store, "checkpointer"),
        lambda: orders.delete(),
    ):
        await attempt(act)
    await attempt(hw.close)


@pytest.mark.seeds(few=4, many=200)
def test_flipped_bits_anywhere_yield_our_errors_and_no_others(seed: int, folder: Path, stocked: Path) -> None:
    chance = random.Random(seed)
    size = stocked.stat().st_size
    for number in range(10):
        path = folder / f"{number}.db"
        shutil.copy(stocked, path)
        flips = [(chance.randrange(size), chance.randrange(8)) for _ in range(chance.choice((1, 1, 5, 60)))]
        for byte, bit in flips:
            flip(path, byte, bit)
        try:
            asyncio.run(use_everything(path))
        except Exception as error:
            raise AssertionError(f"seed {seed}, file {number}, flips {flips[:5]}: {error!r}") from error


# ── locked away: as root no file is, so this is tried as somebody else ──

OPEN_AS_SOMEBODY = """
import asyncio, os, sys, headwater
from tests.stores.chores import run_chore
if os.getuid() == 0:
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
async def main():
    try:
        async with headwater.open(sys.argv[1], housekeeping=False, wakeup="data_version") as hw:
            await hw.queue("orders").push(1)
        print("opened")
    except headwater.StoreError as error:
        print(error.code, error)
    except Exception as error:
        print("untyped", repr(error))
asyncio.run(main())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that somebody else may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="headwater-faults-") as name:
        Path(name).chmod(0o755)
        (Path(name) / "store").mkdir()
        yield Path(name) / "store"
        (Path(name) / "store").chmod(0o755)


def open_as_somebody(path: Path) -> str:
    program = OPEN_AS_SOMEBODY.format(nobody=NOBODY)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def give_away(folder: Path) -> None:
    if os.getuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"),
    [(0o000, 0o755), (0o444, 0o755), (0o444, 0o555), (0o644, 0o555)],
    ids=["unreadable file", "read-only file", "read-only file and folder", "read-only folder"],
)
def test_a_locked_file_is_told_and_left_alone(
    open_folder: Path, stocked: Path, file_mode: int, folder_mode: int
) -> None:
    path = open_folder / "store.db"
    shutil.copy(stocked, path)
    give_away(open_folder)
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    before = fingerprint(open_folder)
    told = open_as_somebody(path)
    assert told.startswith(StoreFailed.code), told
    after = fingerprint(open_folder)
    assert {name: after[name] for name in before} == before
    assert stat.S_IMODE(path.stat().st_mode) == file_mode


def test_a_store_cannot_be_made_in_a_locked_folder(open_folder: Path) -> None:
    give_away(open_folder)
    open_folder.chmod(0o555)
    told = open_as_somebody(open_folder / "store.db")
    assert told.startswith(StoreFailed.code), told
    assert list(open_folder.iterdir()) == []
