"""A store in a bucket: what was answered is there, any SQLite opens it, and one broker holds it at a time."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import headwater
from headwater.app import make_router
from headwater.config import Config
from headwater.doors.wire import Request
from headwater.errors import ConfigError, StoreBusy, StoreDamaged, StoreForeign, StoreFull, StoreMissing, StoreSilent
from headwater.log.operations import Clear
from headwater.model.principal import Principal, Scope
from headwater.stores.bucket.address import Ship, parse_place
from headwater.stores.bucket.chain_keeper import BASE_ENTRIES_MAX
from headwater.stores.bucket.entries import Entry, Header, decode, pack
from headwater.stores.bucket.folder import FolderObjects
from headwater.stores.bucket.label import Kind, Label, labelled, read_label, unlabelled
from headwater.stores.bucket.reading import BucketLogReader
from headwater.stores.bucket.store import BucketStore
from headwater.stores.open import open_reader, open_store
from headwater.stores.questions import FindLastLsn
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges
from tests.contracts.clock import FakeClock
from tests.contracts.factories import in_memory
from tests.contracts.log import Log, push, until_landed
from tests.stores.bucket.witness import Witness, witnessed

BOTH = [Ship.CHAIN, Ship.IMAGE]


@pytest.fixture
def folder() -> Iterator[str]:
    with in_memory() as place:
        yield place


@pytest.fixture
def witness() -> Iterator[Witness]:
    with witnessed() as watching:
        yield watching


def at(folder: str, **settings: object) -> str:
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    return f"file://{folder}/log.sqlite" + (f"?{query}" if query else "")


def opened(address: str, **more: Any) -> headwater.Headwater:
    return headwater.open(address, housekeeping=False, **more)


async def drained(address: str) -> list[Any]:
    async with opened(address) as hw:
        return await drain(hw)


async def drain(hw: headwater.Headwater) -> list[Any]:
    found: list[Any] = []
    while messages := await hw.queue("orders").pop(batch=1_000):
        for message in messages:
            found.append(message.payload)
            await message.ack()
    return found


# ── addresses ──


def test_an_address_says_where_and_how() -> None:
    place = parse_place("s3://bucket/a/b.sqlite?ship=image&lease_seconds=3")
    assert (place.scheme, place.bucket, place.key) == ("s3", "bucket", "a/b.sqlite")
    assert (place.settings.ship, place.settings.lease_seconds) == (Ship.IMAGE, 3.0)
    assert place.shown == "s3://bucket/a/b.sqlite"
    assert parse_place(place.address) == place
    assert parse_place("file:///var/lib/log.sqlite")[:3] == ("file", "/var/lib", "log.sqlite")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3://bucket", "store must be s3://"),
        ("s3://bucket/folder/", "store must be s3://"),
        ("s3:///key.sqlite", "store must be s3://"),
        ("s3://user@bucket/key.sqlite", "store must be s3://"),
        ("file://host/key.sqlite", "store must be s3://"),
        ("s3://bucket/folder/../key.sqlite", "store must be s3://"),
        ("s3://bucket/key.sqlite?gap_ms=1e99", "gap_ms must be 0 to 60,000"),
        ("s3://bucket/key.sqlite?shipp=image", "no such setting of a bucket: shipp"),
        ("s3://bucket/key.sqlite?ship=both", "ship must be chain or image"),
        ("s3://bucket/key.sqlite?lease_seconds=-1", "lease_seconds must be 0 or more"),
        ("s3://bucket/key.sqlite?lease_seconds=soon", "lease_seconds must be a number"),
        ("s3://bucket/key.sqlite?bytes_max=10", "bytes_max must be"),
        ("s3://bucket/key.sqlite?bytes_max=8388607", "8,388,608 to 4,294,967,296, of which 4,194,304 are kept"),
    ],
)
def test_an_address_that_cannot_be_is_told_by_name(address: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_place(address)


# ── what lies in the bucket ──


def test_a_label_comes_back_and_the_file_is_as_it_was() -> None:
    image = b"SQLite format 3\0" + bytes(range(84)) + bytes(PAGE_BYTES - 100)
    label = Label(Kind.CHAIN, 2**36 - 1, 2**35, 2**42 - 1, 2**41)
    data = labelled(image, label)
    assert read_label(data, "a") == label
    assert data[18:20] == b"\x01\x01"
    back = unlabelled(data)
    assert back[18:20] == b"\x02\x02"
    assert back[:18] + back[20:72] + back[92:] == image[:18] + image[20:72] + image[92:]


def test_images_with_other_labels_have_other_bytes() -> None:
    image = b"SQLite format 3\0" + bytes(PAGE_BYTES - 16)
    labels = [Label(Kind.CHAIN, position, 1, put_id, floor) for position, put_id, floor in ((1, 1, 0), (2, 1, 0))]
    labels += [Label(Kind.CHAIN, 1, 1, 2, 0), Label(Kind.CHAIN, 1, 1, 1, 1)]
    assert len({labelled(image, label) for label in labels}) == len(labels)


def test_an_entry_comes_back_and_a_damaged_one_is_refused() -> None:
    changes = PageChanges({2: b"b" * PAGE_BYTES, 7: os.urandom(PAGE_BYTES)}, 9)
    header = Header(5, 3, 17, 18, "https://here", pages=2, page_count=9)
    data = Entry(header, pack(changes)).encode()
    entry = decode(data, "5")
    found = entry.changes()
    assert entry.header == header
    assert found is not None
    assert (found.pages, found.page_count) == (changes.pages, 9)
    for wrong in (data[:-1], data[:40], b"", b"HWE2" + data[4:], data[:-9] + b"x" + data[-8:]):
        with pytest.raises(headwater.HeadwaterError, match="entry"):
            decode(wrong, "an entry").changes()


@pytest.mark.parametrize("ship", BOTH)
async def test_any_sqlite_opens_what_a_store_leaves_in_the_bucket(folder: str, ship: Ship, witness: Witness) -> None:
    """S2-1, S2-12."""
    async with opened(at(folder, ship=ship)) as hw:
        await asyncio.gather(*(hw.queue("orders").push(number) for number in range(50)))
    connection = sqlite3.connect(f"file:{folder}/log.sqlite?mode=ro", uri=True)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT sum(count) FROM hw_segments").fetchone() == (50,)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    connection.close()
    assert await drained(at(folder)) == list(range(50))


@pytest.mark.parametrize("ship", BOTH)
async def test_what_was_answered_survives_a_broker_that_never_closed(folder: str, ship: Ship, witness: Witness) -> None:
    """S2-6."""
    address = at(folder, ship=ship, lease_seconds=0)
    clock = FakeClock()
    left = Log(open_store(address, Config(), clock), clock)
    await left.store.open()
    await left.push(1, 2, 3)
    try:
        assert await drained(address) == [1, 2, 3]
    finally:
        await left.store.close()


@pytest.mark.parametrize("taken", [1, 2, 5, -4, -2])
async def test_an_entry_that_was_taken_away_is_not_taken_for_the_end_of_the_log(folder: str, taken: int) -> None:
    address = at(folder, lease_seconds=0)
    async with left_with_twenty(address):
        names = sorted(os.listdir(f"{folder}/log.sqlite-log"))
        missing = names[taken if taken < 0 else taken - 1]
        os.rename(f"{folder}/log.sqlite-log/{missing}", f"{folder}/{missing}")
        with pytest.raises(StoreDamaged, match=missing):
            await drained(address)
        # Nothing was written in its place, and with it all is there again.
        assert sorted(os.listdir(f"{folder}/log.sqlite-log")) == [name for name in names if name != missing]
        os.rename(f"{folder}/{missing}", f"{folder}/log.sqlite-log/{missing}")
        assert await drained(address) == list(range(20))


@pytest.mark.parametrize("place", [1, 2, 5, 12, -4])
@pytest.mark.parametrize("of", ["another store", "another holder", "a void"])
async def test_an_entry_in_the_place_of_another_is_not_passed_over(folder: str, place: int, of: str) -> None:
    """As when a bucket is put back from copies of two stores, or of two days."""
    address, log = at(folder, lease_seconds=0), Path(folder, "log.sqlite-log")
    async with left_with_twenty(address):
        names = sorted(os.listdir(log))
        swapped = log / names[place if place < 0 else place - 1]
        original = swapped.read_bytes()
        header = decode(original, swapped.name).header
        if of == "another store":
            other = Path(folder, "other")
            other.mkdir()
            async with left_with_twenty(at(str(other), lease_seconds=0)):
                swapped.write_bytes((other / "log.sqlite-log" / swapped.name).read_bytes())
        else:
            epoch = header.position if of == "another holder" else 0
            swapped.write_bytes(Entry(replace(header, epoch=epoch, parent=7, put_id=8)).encode())
        # The first entry of any store is right at its place; the next one is not behind it.
        told = names[1] if of == "another store" and place == 1 else swapped.name
        with pytest.raises(StoreDamaged, match=f"{told}, or what lies before it, is not what was written there"):
            await drained(address)
        with pytest.raises(StoreDamaged, match=told):
            await BucketLogReader(address, Config()).open()
        # Nothing was written behind it, and with the right one all is there again.
        assert sorted(os.listdir(log)) == names
        swapped.write_bytes(original)
        assert await drained(address) == list(range(20))


@asynccontextmanager
async def left_with_twenty(address: str) -> AsyncIterator[None]:
    """A store that got twenty messages, an entry each, and was not closed since."""
    clock = FakeClock()
    left = Log(open_store(address, Config(), clock), clock)
    await left.store.open()
    for number in range(20):
        await left.push(number)
    try:
        yield
    finally:
        await left.store.close()


@pytest.mark.parametrize(("first", "count"), [(1, 20), (5, 9), (5, 12), (10, 20)])
async def test_many_entries_that_were_taken_away_at_once_are_missed_too(folder: str, first: int, count: int) -> None:
    """As a rule of the bucket does that deletes what is old: none is left near the place where the first one was."""
    address, log, aside = at(folder, lease_seconds=0), Path(folder, "log.sqlite-log"), Path(folder, "aside")
    clock = FakeClock()
    left = Log(open_store(address, Config(), clock), clock)
    await left.store.open()
    for number in range(40):
        await left.push(number)
    try:
        aside.mkdir()
        names = sorted(os.listdir(log))
        for name in names[first - 1 : first - 1 + count]:
            (log / name).rename(aside / name)
        rest = sorted(os.listdir(log))
        with pytest.raises(StoreDamaged, match=f"{first:012d} is missing"):
            await drained(address)
        with pytest.raises(StoreDamaged, match=f"{first:012d} is missing"):
            await BucketLogReader(address, Config()).open()
        # Nothing was written in their place, and with them all is there again.
        assert sorted(os.listdir(log)) == rest
        for name in os.listdir(aside):
            (aside / name).rename(log / name)
        assert await drained(address) == list(range(40))
    finally:
        await left.store.close()


@pytest.mark.parametrize("part", [0.3, 0.9])
@pytest.mark.parametrize("ship", ["chain", "image"])
async def test_a_base_that_is_cut_short_is_told_and_nothing_is_written(folder: str, ship: str, part: float) -> None:
    address, base = at(folder, ship=ship, lease_seconds=0), Path(folder, "log.sqlite")
    async with opened(address) as hw:
        await hw.queue("orders").push_many(range(6))
    whole = base.read_bytes()
    base.write_bytes(whole[: int(len(whole) * part)])
    before = {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"log\.sqlite is cut short"):
            await drained(address)
    assert {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()} == before
    base.write_bytes(whole)
    assert await drained(address) == list(range(6))


async def test_entries_that_landed_before_the_one_in_front_of_them_do_not_count_as_damage(folder: str) -> None:
    address = at(folder, lease_seconds=0)
    async with opened(address) as hw:
        await hw.queue("orders").push("kept")
        tip = hw.store.medium._keeper._keeper._chain  # type: ignore[attr-defined]
        # As a holder leaves it that was killed with three entries on their way: the first of them never came.
        for step in (1, 2):
            header = Header(tip.next + step, tip.epoch, 77, 78 + step, landed=tip.next - 1)
            Path(f"{folder}/log.sqlite-log/{tip.next + step:012d}").write_bytes(Entry(header).encode())
        assert await drained(address) == ["kept"]


async def test_bases_keep_the_chain_short_and_what_is_needed_stays(folder: str, witness: Witness) -> None:
    async with opened(at(folder)) as hw:
        for number in range(2 * BASE_ENTRIES_MAX + 40):
            await hw.queue("orders").push(number)
        left = os.listdir(f"{folder}/log.sqlite-log")
        assert len(left) < 2 * BASE_ENTRIES_MAX
        # The entry that began the epoch keeps its place for ever.
        assert "000000000001" in left
    assert len(witness.versions["log.sqlite"]) >= 3
    assert await drained(at(folder)) == list(range(2 * BASE_ENTRIES_MAX + 40))


async def test_a_base_is_what_had_landed_when_its_copy_began(
    folder: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2-d. A piece at a time, while more lands."""
    monkeypatch.setattr("headwater.stores.bucket.label.PIECE_BYTES", PAGE_BYTES)
    monkeypatch.setattr("headwater.stores.bucket.chain_keeper.BASE_ENTRIES_MAX", 4)
    landed = 0

    async def give_way(seconds: float) -> None:
        nonlocal landed
        keeper = hw.store.medium._keeper._keeper  # type: ignore[attr-defined]
        landed = max(landed, len(keeper._later))
        await asyncio.sleep(0.001)

    monkeypatch.setattr("headwater.stores.bucket.label.asyncio", SimpleNamespace(sleep=give_way))
    async with opened(at(folder)) as hw:
        for number in range(80):
            await hw.queue("orders").push(f"{number} {os.urandom(2_000).hex()}")
    # Something landed while a copy was made, and bases are what their entries make: the witness looks.
    assert landed > 0
    assert len(witness.versions["log.sqlite"]) > 1


async def test_what_a_killed_holder_had_no_time_to_delete_goes_later(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(self: object) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr("headwater.stores.bucket.bases.Bases.collect", forget)
        async with opened(at(folder)) as hw:
            for number in range(30):
                await hw.queue("orders").push(number)
    for number in range(2):
        async with opened(at(folder)) as hw:
            await hw.queue("orders").push(f"more {number}")
    left = {int(name) for name in os.listdir(f"{folder}/log.sqlite-log")}
    assert 1 in left
    assert not left & set(range(2, 30))
    assert len(await drained(at(folder))) == 32


@pytest.mark.parametrize("ship", BOTH)
async def test_a_store_is_opened_as_it_is_kept(folder: str, ship: Ship) -> None:
    async with opened(at(folder, ship=ship)) as hw:
        await hw.queue("orders").push(1)
    assert await drained(at(folder)) == [1]
    other = Ship.IMAGE if ship is Ship.CHAIN else Ship.CHAIN
    with pytest.raises(StoreForeign, match=f"ship={ship}"):
        await drained(at(folder, ship=other))


async def test_a_file_that_is_not_ours_is_left_alone(folder: str) -> None:
    path = Path(folder, "log.sqlite")
    sqlite3.connect(path).execute("CREATE TABLE theirs (a)").connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreForeign, match="not put there by Headwater"):
        await drained(at(folder))
    path.write_bytes(b"something else")
    with pytest.raises(StoreForeign, match="no SQLite file"):
        await drained(at(folder))
    path.write_bytes(before)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM theirs").fetchone() == (0,)


async def test_a_store_that_must_be_there_is_not_made(folder: str) -> None:
    with pytest.raises(StoreMissing):
        await open_store(at(folder), Config(), FakeClock(), create=False).open()
    with pytest.raises(StoreMissing):
        await open_reader(at(folder), Config()).open()
    assert os.listdir(folder) == []


# ── one holder ──


async def test_who_waits_for_the_store_does_not_read_all_of_it_again_and_again(folder: str) -> None:
    async with opened(at(folder, lease_seconds=60)) as hw:
        await hw.queue("orders").push(os.urandom(100_000).hex())
    async with opened(at(folder, lease_seconds=60)):
        waiting = BucketStore(at(folder, wait_seconds=0.1), Config())
        with pytest.raises(StoreBusy):
            await waiting.open()
        # Once, when it was opened: looks at whether the holder is still heard of need the label alone.
        assert waiting.numbers()["bucket_read_bytes_total"] < 2 * os.path.getsize(f"{folder}/log.sqlite")


@pytest.mark.parametrize("ship", BOTH)
async def test_whoever_finds_the_store_held_is_told_by_whom(folder: str, ship: Ship) -> None:
    held = at(folder, ship=ship, lease_seconds=60, advertise="https://broker-1.example")
    async with opened(held) as hw:
        await hw.queue("orders").push(1)
        with pytest.raises(StoreBusy, match="broker-1"):
            await drained(at(folder, wait_seconds=0))
        await hw.queue("orders").push(2)
    assert await drained(at(folder, wait_seconds=0)) == [1, 2]


@pytest.mark.parametrize("ship", BOTH)
async def test_a_silent_holder_is_followed_after_its_lease_and_answers_nobody(folder: str, ship: Ship) -> None:
    """S2-8."""
    address = at(folder, ship=ship, lease_seconds=0.2)
    async with opened(address) as one:
        await one.queue("orders").push("first")
        # As if its process slept: it sends nothing more, and does not know.
        keeper = one.store.medium._keeper._keeper  # type: ignore[attr-defined]
        keeper._beating.cancel()
        async with opened(address) as other:
            await other.queue("orders").push("second")
            asking = asyncio.ensure_future(one.store.ask(FindLastLsn()))
            await asyncio.sleep(0.5)
            assert not asking.done()
        # The other has left: the store is one's again, with what the other wrote.
        assert await asking == 2
        await one.queue("orders").push("third")
    assert await drained(address) == ["first", "second", "third"]


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("ship", BOTH)
async def test_who_waits_for_a_store_that_is_let_go_of_is_told_and_takes_nothing_over(
    folder: str, ship: Ship, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the way to the bucket ends with the store, as a folder's does, or not, as that to S3."""
    if not closes:
        monkeypatch.setattr(FolderObjects, "close", lambda objects: None)
    address = at(folder, ship=ship, lease_seconds=0.2)
    async with opened(address) as one:
        assert isinstance(one.store, BucketStore)
        # As if its process slept: it sends nothing more, and does not know.
        one.store._keeper._keeper._beating.cancel()  # type: ignore[union-attr]
        other = await opened(address).__aenter__()
        await other.queue("orders").push(1)
        asking = [asyncio.ensure_future(one.store.ask(FindLastLsn())) for _ in range(3)]
        while one.store.held_by() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await one.store.close()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreBusy] * 3
        with pytest.raises(StoreBusy):
            await one.store.ask(FindLastLsn())
        await other.close()
        # It had said that it leaves, so whoever waited would have come before us.
        assert await drained(at(folder, wait_seconds=0)) == [1]
    assert not os.path.exists(one.store.medium._folder)  # type: ignore[attr-defined]


@pytest.mark.parametrize("ship", BOTH)
async def test_of_brokers_that_take_the_store_from_each_other_nothing_is_lost_and_nothing_twice(
    folder: str, ship: Ship, witness: Witness
) -> None:
    """S2-7, T2-c."""
    address = at(folder, ship=ship, lease_seconds=0)

    async def work(name: str) -> None:
        async with opened(address) as hw:
            for number in range(12):
                await hw.queue("orders").push(f"{name}-{number}")

    await asyncio.gather(*(work(name) for name in ("one", "two", "three")))
    found = await drained(address)
    assert sorted(found) == sorted(f"{name}-{number}" for name in ("one", "two", "three") for number in range(12))


async def test_whoever_cannot_take_over_because_the_folder_is_locked_knows_that_it_is_silent(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.stores.bucket.folder.LOCK_SECONDS", 0.01)
    async with opened(at(folder, ship=Ship.IMAGE)) as hw:
        await hw.queue("orders").push(1)
    hw = opened(at(folder))
    with open(f"{folder}/.lock", "w") as lock:
        # As a broker does that is stopped while it writes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        opening = asyncio.ensure_future(drain_and_close(hw))
        assert isinstance(hw.store, BucketStore)
        while hw.store._keeper.trouble(silent_seconds=0.05) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert isinstance(hw.store._keeper.trouble(silent_seconds=0.05), StoreSilent)
        assert not opening.done()
    assert await opening == [1]
    assert hw.store.trouble() is None


async def drain_and_close(hw: headwater.Headwater) -> list[Any]:
    async with hw:
        return await drain(hw)


# ── bounds ──


async def push_many(log: Log, payload: str) -> None:
    for _ in range(200):
        await log.push(payload)


async def test_a_store_at_its_cap_refuses_what_grows_and_takes_what_drops(folder: str) -> None:
    clock = FakeClock()
    store = open_store(at(folder, bytes_max=16 * 1_048_576), Config(), clock)
    await store.open()
    log = Log(store, clock)
    block = os.urandom(100_000).hex()
    with pytest.raises(StoreFull):
        await push_many(log, block)
    assert not await store.has_room()
    assert int(str((await store.examine()).named("bucket_live_bytes"))) <= 16 * 1_048_576
    await log.run(Clear(queue="orders"))
    assert await store.has_room()
    await log.push("again")
    await store.close()
    # Most of it holds nothing by now: the base was made small before it was put away.
    assert os.path.getsize(f"{folder}/log.sqlite") < 2 * 1_048_576


async def test_a_base_is_made_small_before_it_is_sent(
    folder: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S2-9, T2-e."""
    clock = FakeClock()
    store = BucketStore(at(folder), Config(), clock=clock)
    await store.open()
    log, path = Log(store, clock), Path(folder, "log.sqlite")
    for _ in range(16):
        await log.push(os.urandom(100_000).hex())
    await log.run(Clear(queue="orders"))
    assert store.numbers()["bucket_unused_bytes"] > 1_000_000
    monkeypatch.setattr("headwater.stores.bucket.chain_keeper.BASE_ENTRIES_MAX", 8)
    for number in range(24):
        await log.push(number)
    # Nobody has closed it, and no chore has run.
    for _ in range(1_000):
        if path.exists():
            break
        await asyncio.sleep(0.02)
    assert path.stat().st_size < 1_000_000
    assert store.numbers()["bucket_unused_bytes"] < 300_000
    await store.close()
    assert await drained(at(folder)) == list(range(24))


async def test_the_doctor_is_told_what_the_bucket_was_asked(folder: str) -> None:
    store = BucketStore(at(folder, put_price=1_000_000), Config())
    await store.open()
    await store.apply([push("one")], FakeClock().now())
    await until_landed(store)
    findings = await store.examine()
    puts = findings.named("bucket_puts_total")
    assert isinstance(puts, int)
    assert puts >= 2
    assert float(str(findings.named("bucket_cost_total"))) >= puts
    assert findings.named("bucket_ship") == "chain"
    assert findings.named("bucket_live_bytes") == int(str(findings.named("pages"))) * PAGE_BYTES
    await store.close()


async def test_the_metrics_tell_what_the_bucket_was_asked(folder: str) -> None:
    """S2-11."""
    async with opened(at(folder)) as hw:
        await hw.queue("orders").push(1)
        principal = Principal(scopes=frozenset(Scope))
        request = Request(method="GET", path="/metrics", query="", headers={}, body=b"", id="r", principal=principal)
        text = (await make_router(hw)(request)).body.decode()
    told = {
        line.split("{")[0]: float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("headwater_bucket_")
    }
    assert told["headwater_bucket_puts_total"] >= 2
    assert told["headwater_bucket_sent_bytes_total"] > 1_000
    assert 0 < told["headwater_bucket_write_amplification"] < 1
    assert told["headwater_bucket_live_bytes"] > 100_000
    assert told["headwater_bucket_cost_total"] > 0


async def test_nothing_is_left_on_this_machine(folder: str) -> None:
    """S2-2, S2-8."""
    async with opened(at(folder)) as hw:
        await hw.queue("orders").push(1)
        scratch = Path(str((await hw.store.examine()).named("scratch_file"))).parent
        assert scratch.is_dir()
    reader = BucketLogReader(at(folder), Config())
    await reader.open()
    copies = Path(reader._path).parent
    assert copies.is_dir()
    await reader.close()
    assert not scratch.exists()
    assert not copies.exists()
