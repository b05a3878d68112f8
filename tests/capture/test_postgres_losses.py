"""What a capture of a real PostgreSQL server does when something is lost, kept too long, or dies."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import headwater
from headwater import capture
from headwater.capture.follower import Follower
from headwater.capture.replication import Arrived, ReplicationLink
from headwater.errors import InvalidOption, ResyncRequired, SourceBusy, SourceUnfit, SourceUnreachable, TooLarge
from headwater.stores.contract import WritesBackups
from tests.capture.shop import QUEUE, Shop, changes, follow, has_changes, lag_of, short, state
from tests.postgres_server import USER, Server
from tests.postgres_server import server as server_of_this_process
from tests.waiting import expect_soon, expect_soon_async

# ── what is lost is told ──


async def test_a_slot_that_was_dropped_is_told_and_begun_anew_when_asked_for(
    hw: headwater.Headwater, shop: Shop
) -> None:
    shop.insert(1)
    await follow(hw, shop)
    await shop.source().forget()
    assert shop.slots == []
    shop.insert(2)
    with pytest.raises(ResyncRequired, match=r"is gone from the server.*--resync"):
        await follow(hw, shop)
    assert short(await changes(hw)) == [("read", 1)]
    await follow(hw, shop, resync=True)
    shop.insert(3)
    await follow(hw, shop)
    found = await changes(hw)
    assert short(found) == [("resync-required", None), ("read", 1), ("read", 2), ("insert", 3)]
    assert "gone" in found[0]["reason"]


# ── a table that is not the one that was followed ──


def replace_by_renaming(shop: Shop) -> None:
    shop.run(f"ALTER TABLE {shop.table} RENAME TO {shop.name}_old")
    shop.run(f"CREATE TABLE {shop.table} (id int PRIMARY KEY, note text, price numeric)")


def replace_by_dropping(shop: Shop) -> None:
    shop.run(f"DROP TABLE {shop.table}")
    shop.run(f"CREATE TABLE {shop.table} (id int PRIMARY KEY, note text, price numeric)")


@pytest.mark.parametrize("replace", [replace_by_renaming, replace_by_dropping])
async def test_another_table_of_the_same_name_is_told_and_copied_when_asked_for(
    hw: headwater.Headwater, shop: Shop, replace: Callable[[Shop], None]
) -> None:
    """What was written to it before it was published is not in the stream."""
    shop.insert(1)
    await follow(hw, shop)
    replace(shop)
    shop.insert(2)
    with pytest.raises(ResyncRequired, match=r"dropped or renamed.*--resync"):
        await follow(hw, shop)
    await follow(hw, shop, resync=True)
    shop.insert(3)
    await follow(hw, shop)
    assert short(await changes(hw)) == [("read", 1), ("resync-required", None), ("read", 2), ("insert", 3)]


async def test_a_table_that_is_replaced_while_it_is_followed_is_told(hw: headwater.Headwater, shop: Shop) -> None:
    shop.insert(1)
    following = asyncio.ensure_future(Follower(hw, shop.source(), QUEUE, status_seconds=0.1).run())
    await expect_soon_async(partial(has_changes, hw, 1))
    await asyncio.to_thread(replace_by_dropping, shop)
    shop.insert(2)
    with pytest.raises(ResyncRequired, match=r"dropped or renamed.*--resync"):
        await asyncio.wait_for(following, 60)
    following = asyncio.ensure_future(Follower(hw, shop.source(), QUEUE, resync=True, status_seconds=0.1).run())
    await expect_soon_async(partial(has_changes, hw, 3))
    await asyncio.to_thread(replace_by_dropping, shop)
    shop.insert(3)
    await expect_soon_async(partial(has_changes, hw, 5))
    following.cancel()
    await asyncio.wait([following])
    told = [("read", 1), ("resync-required", None), ("read", 2), ("resync-required", None), ("read", 3)]
    assert short(await changes(hw)) == told


async def test_a_position_of_before_does_not_say_which_table_it_was(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    found = await state(hw)
    position = msgspec.json.decode(found.position)
    assert list(position.pop("tables")) == [shop.table]
    assert position.pop("publication")
    shop.insert(1)
    source, taken = shop.source(), None
    assert msgspec.json.decode(await source.open(msgspec.json.encode(position).decode()))["tables"]
    while taken is None or not taken.changes:
        taken = await source.read(1)
    await source.close()
    assert [change.key for change in taken.changes] == [{"id": 1}]


async def test_a_publication_that_was_dropped_and_made_again_is_told(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.run(f"DROP PUBLICATION headwater_{shop.name}")
    shop.insert(1)
    shop.run(f"CREATE PUBLICATION headwater_{shop.name} FOR TABLE {shop.table}")
    shop.insert(2)
    with pytest.raises(ResyncRequired, match=r"was dropped.*--resync"):
        await follow(hw, shop)
    await follow(hw, shop, resync=True)
    assert short(await changes(hw)) == [("resync-required", None), ("read", 1), ("read", 2)]


# ── two of one name ──


async def test_a_capture_of_the_same_name_into_another_queue_is_refused(hw: headwater.Headwater, shop: Shop) -> None:
    """By default a capture has the name of its table, whatever the schema."""
    await follow(hw, shop)
    shop.insert(1)
    with pytest.raises(InvalidOption, match=r"pushes to the queue changes.*--name"):
        await capture.follow(hw, shop.source(), "elsewhere", once=True)
    await follow(hw, shop)
    assert short(await changes(hw)) == [("insert", 1)]


async def test_a_capture_that_was_given_up_begins_in_a_queue_that_is_new(hw: headwater.Headwater, shop: Shop) -> None:
    """That is what whoever wants another queue is told to do. In one that has something, changes may be missing."""
    shop.insert(1)
    await follow(hw, shop)
    await capture.drop(hw, shop.source())
    shop.insert(2)
    await hw.queue("elsewhere").configure(size_max=100)
    assert (await capture.follow(hw, shop.source(), "elsewhere", once=True)).changes == 2
    shop.insert(3)
    await capture.follow(hw, shop.source(), "elsewhere", once=True)
    told = [message.payload for message in await hw.queue("elsewhere").pop(batch=10)]
    assert short(told) == [("read", 1), ("read", 2), ("insert", 3)]
    assert (await state(hw)).changes == 3
    await capture.drop(hw, shop.source())
    with pytest.raises(ResyncRequired, match="missing from changes"):
        await follow(hw, shop)
    await follow(hw, shop, resync=True)
    assert short(await changes(hw))[:2] == [("read", 1), ("resync-required", None)]


async def test_a_capture_of_the_same_name_of_another_table_is_refused(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    shop.run(f"CREATE TABLE {shop.name}.bills (id int PRIMARY KEY)")
    another = capture.PostgresTables(shop.address, [f"{shop.name}.bills"], name=shop.name)
    with pytest.raises(InvalidOption, match=r"follows \S+orders; give this one a name of its own"):
        await capture.follow(hw, another, QUEUE, once=True)
    shop.insert(1)
    await follow(hw, shop)
    assert short(await changes(hw)) == [("insert", 1)]


async def test_of_two_that_begin_at_once_one_goes_on(hw: headwater.Headwater, shop: Shop) -> None:
    """Neither takes what the other makes for what somebody left behind."""
    shop.insert(*range(20))
    both = [asyncio.ensure_future(Follower(hw, shop.source(), QUEUE).run()) for _ in range(2)]
    await expect_soon_async(partial(has_changes, hw, 20))
    await asyncio.to_thread(shop.insert, 20)
    await expect_soon_async(partial(has_changes, hw, 21))
    assert not any(one.done() for one in both), "the other one waits for its turn"
    for one in both:
        one.cancel()
    await asyncio.wait(both)
    assert short(await changes(hw)) == [*(("read", number) for number in range(20)), ("insert", 20)]


async def test_a_log_that_was_put_back_from_a_copy_is_told(shop: Shop, tmp_path: Path) -> None:
    """A capture that went on from the older position would leave out what the copy does not have."""
    old = tmp_path / "old.db"
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        await follow(hw, shop)
        assert isinstance(hw.store, WritesBackups)
        await hw.store.backup(str(old))
        shop.insert(1)
        await follow(hw, shop)
    shop.insert(2)
    async with headwater.open(str(old)) as hw:
        with pytest.raises(ResyncRequired, match="older copy"):
            await follow(hw, shop)


async def test_a_slot_that_the_server_gave_up_is_told(hw: headwater.Headwater, shop: Shop) -> None:
    """max_slot_wal_keep_size saves the server's disk; what it costs is said."""
    await follow(hw, shop)

    def is_lost() -> bool:
        shop.run("SELECT pg_logical_emit_message(false, 'x', repeat('x', 16000000))")
        shop.run("SELECT pg_switch_wal()")
        shop.run("CHECKPOINT")
        return shop.slots == [("lost",)]

    await asyncio.to_thread(expect_soon, is_lost)
    with pytest.raises(ResyncRequired, match="given up"):
        await follow(hw, shop)


async def test_a_first_copy_that_was_interrupted_begins_anew_and_consumers_are_told(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(f"INSERT INTO {shop.table} SELECT n FROM generate_series(1, 2500) n")
    commit = Follower._commit

    async def dying(self: Follower, batch: capture.Taken) -> None:
        await commit(self, batch)
        if batch.changes:
            raise SourceUnreachable("the process ends here")

    monkeypatch.setattr(Follower, "_commit", dying)
    with pytest.raises(SourceUnreachable, match="ends here"):
        await follow(hw, shop)
    monkeypatch.undo()
    assert len(await changes(hw)) == 1_000
    await follow(hw, shop)
    found = []
    while more := await changes(hw):
        found += more
    assert short(found) == [("resync-required", None), *(("read", number) for number in range(1, 2_501))]


async def test_who_dies_before_the_slot_is_known_begins_anew(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.insert(1)
    source = shop.source()
    opening = source.open

    async def dying(position: str) -> None:
        await opening(position)
        raise SourceUnreachable("the process ends here")

    monkeypatch.setattr(source, "open", dying)
    with pytest.raises(SourceUnreachable, match="ends here"):
        await capture.follow(hw, source, QUEUE, once=True)
    assert len(shop.slots) == 1
    await follow(hw, shop)
    assert ("read", 1) in short(await changes(hw))


# ── what the server keeps ──


async def test_the_server_is_let_go_of_what_the_log_has(hw: headwater.Headwater, shop: Shop) -> None:
    """Also of what is written to other tables: an idle table would hold the disk of a busy server."""
    await follow(hw, shop)
    shop.run("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
    before = await lag_of(shop)
    await follow(hw, shop)
    after = await lag_of(shop)
    assert before.bytes is not None
    assert before.bytes > 1_000_000 > (after.bytes or 0)
    assert (await state(hw)).lag_bytes is not None


async def test_too_much_that_is_kept_raises_an_alarm(
    hw: headwater.Headwater, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await follow(hw, shop)
    assert (await state(hw)).alarm == ""
    with caplog.at_level(logging.WARNING):
        await follow(hw, shop, alarm_bytes=1)
    assert "keeps" in (await state(hw)).alarm
    assert "the alarm is at 1" in caplog.text


async def test_nobody_confirms_what_the_log_does_not_have(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await follow(hw, shop)
    shop.insert(1)

    async def failing(self: Follower, batch: capture.Taken) -> None:
        raise SourceUnreachable("the store did not take it")

    monkeypatch.setattr(Follower, "_commit", failing)
    with pytest.raises(SourceUnreachable, match="did not take"):
        await follow(hw, shop)
    monkeypatch.undo()
    await follow(hw, shop)
    assert short(await changes(hw)) == [("insert", 1)]


# ── what would harm others is refused ──


async def test_a_table_without_a_key_is_refused_before_its_updates_would_fail(
    hw: headwater.Headwater, shop: Shop
) -> None:
    shop.run(f"CREATE TABLE {shop.name}.bare (n int)")
    source = capture.PostgresTables(shop.address, [f"{shop.name}.bare"], name=shop.name)
    with pytest.raises(SourceUnfit, match="REPLICA IDENTITY FULL"):
        await capture.follow(hw, source, QUEUE, once=True)
    shop.run(f"INSERT INTO {shop.name}.bare VALUES (1)")
    shop.run(f"UPDATE {shop.name}.bare SET n = 2")
    assert shop.slots == []


async def test_two_that_follow_one_slot_do_not_meet(hw: headwater.Headwater, shop: Shop) -> None:
    await follow(hw, shop)
    following = asyncio.create_task(capture.follow(hw, shop.source(), QUEUE))
    try:
        shop.insert(1)
        await expect_soon_async(lambda: has_changes(hw, 1))
        with pytest.raises(SourceBusy):
            await follow(hw, shop)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert short(await changes(hw)) == [("insert", 1)]


@pytest.mark.parametrize("name", ["public.missing", "no such", "pg_tables"])
async def test_what_is_no_table_is_refused(hw: headwater.Headwater, shop: Shop, name: str) -> None:
    with pytest.raises(SourceUnfit):
        await capture.follow(hw, capture.PostgresTables(shop.address, [name], name=shop.name), QUEUE, once=True)


@pytest.fixture(scope="module")
def plain_server() -> Server:
    """One that was not set up for this."""
    return server_of_this_process()


async def test_a_server_that_keeps_too_little_says_what_to_set(hw: headwater.Headwater, plain_server: Server) -> None:
    address = f"postgresql://{USER}@/postgres?host={plain_server.folder}"
    source = capture.PostgresTables(address, ["pg_class"], name="x")
    with pytest.raises(SourceUnfit, match="wal_level"):
        await capture.follow(hw, source, QUEUE, once=True)


async def test_a_change_that_is_too_large_stops_and_skips_nothing(shop: Shop, tmp_path: Path) -> None:
    place = str(tmp_path / "headwater.db")
    async with headwater.open(place, record_bytes_max=2_000) as hw:
        await follow(hw, shop)
        shop.run(f"INSERT INTO {shop.table} VALUES (1, repeat('x', 5000))")
        shop.insert(2)
        with pytest.raises(TooLarge, match="record_bytes_max"):
            await follow(hw, shop)
    async with headwater.open(place) as hw:
        await follow(hw, shop)
        assert short(await changes(hw)) == [("insert", 1), ("insert", 2)]


@pytest.mark.parametrize(
    ("tables", "name"), [([], ""), ("public.orders", ""), (["a.b"], "Name"), (["a.b"], "x" * 51), (["a.b"], "x-y")]
)
def test_options_that_cannot_be_are_refused(tables: Any, name: str) -> None:
    with pytest.raises(InvalidOption):
        capture.PostgresTables("postgresql://localhost/x", tables, name=name)


# ── processes and servers that die ──


async def test_a_server_that_crashes_is_waited_for(tmp_path: Path) -> None:
    server = Server(wal_level="logical")
    shop = Shop(server)
    try:
        async with headwater.open(str(tmp_path / "headwater.db")) as hw:
            await follow(hw, shop)
            following = asyncio.create_task(capture.follow(hw, shop.source(), QUEUE))

            async def has_come(count: int) -> bool:
                if following.done():
                    await following
                return await has_changes(hw, count)

            try:
                shop.insert(1)
                await expect_soon_async(partial(has_come, 1))
                await asyncio.to_thread(server.crash)
                await asyncio.to_thread(server.start)
                shop.connection.close()
                shop.connection = server.connect()
                shop.insert(2)
                await expect_soon_async(partial(has_come, 2))
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            assert short(await changes(hw)) == [("insert", 1), ("insert", 2)]
    finally:
        shop.connection.close()
        server.stop()


async def test_a_stream_that_was_cut_is_told_whatever_is_done_with_it_next(shop: Shop) -> None:
    """Reading, saying how far the log is, and asking for anything: each finds out first at some time."""

    async def cut_link() -> ReplicationLink:
        link = ReplicationLink(shop.address)
        link.create_slot(name, export=False)
        link.start(name, 0, name)
        shop.run("SELECT pg_terminate_backend(active_pid, 60000) FROM pg_replication_slots WHERE slot_name = %s", name)
        shop.run("SELECT pg_drop_replication_slot(%s)", name)
        return link

    async def confirm(link: ReplicationLink) -> None:
        # The system takes what is written to a connection that was just cut.
        for _ in range(1_000):
            link.confirm(0)

    async def ask(link: ReplicationLink) -> None:
        link.create_slot(name, export=False)

    async def read(link: ReplicationLink) -> None:
        while await link.receive(1.0):
            continue

    name = f"headwater_{shop.name}"
    shop.run(f"CREATE PUBLICATION {name} FOR TABLE {shop.table}")
    for step in (confirm, ask, read):
        link = await cut_link()
        try:
            with pytest.raises(SourceUnreachable):
                await step(link)
        finally:
            link.close()


async def test_nothing_is_said_while_nothing_happens_and_a_cancel_ends_it(
    hw: headwater.Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer to each answer would keep both sides busy for ever, and nobody could cancel what always has news."""
    await follow(hw, shop)
    shop.insert(1)
    heard: list[object] = []
    receive = ReplicationLink.receive

    async def counted(link: ReplicationLink, seconds: float) -> object:
        heard.append(await receive(link, seconds))
        return heard[-1]

    monkeypatch.setattr(ReplicationLink, "receive", counted)
    following = asyncio.create_task(capture.follow(hw, shop.source(), QUEUE))
    await expect_soon_async(lambda: has_changes(hw, 1))
    # Twice it waits for a second in vain; what it asks in between is answered once.
    await expect_soon_async(lambda: are_silent(heard, 2))
    assert len(heard) < 50
    following.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(following, return_exceptions=True)
    assert following.cancelled()


async def are_silent(heard: list[object], count: int) -> bool:
    return heard.count(None) >= count


async def test_a_server_that_asks_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes silence for a lost connection after `wal_sender_timeout`, and asks when half of it is over."""
    server = Server(wal_level="logical", wal_sender_timeout="1s")
    shop = Shop(server)
    try:
        async with headwater.open(str(tmp_path / "headwater.db")) as hw:
            await follow(hw, shop)
            link = ReplicationLink(shop.address)
            try:
                link.start(f"headwater_{shop.name}", 0, f"headwater_{shop.name}")
                asked = await link.receive(60.0)
                while asked is not None and not asked.asks:
                    asked = await link.receive(60.0)
            finally:
                link.close()
        assert asked is not None
        told: list[int] = []

        async def hear(seconds: float) -> Arrived | None:
            return asked

        source = shop.source()
        monkeypatch.setattr(source, "_link", SimpleNamespace(receive=hear, confirm=told.append))
        await source._read(1.0)
        assert told == [0]
    finally:
        shop.connection.close()
        server.stop()


async def test_a_process_that_is_killed_again_and_again_neither_loses_nor_doubles(shop: Shop, tmp_path: Path) -> None:
    place = tmp_path / "headwater.db"
    command = [sys.executable, "-m", "headwater", "capture", "run", shop.address, "--table", shop.table]
    command += ["--queue", QUEUE, "--name", shop.name, "--store", str(place)]
    count = 0
    for _ in range(4):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            async with headwater.open(str(place)) as hw:
                shop.insert(*range(count, count + 50))
                count += 50
                await expect_soon_async(partial(has_changes, hw, count - 25))
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    async with headwater.open(str(place)) as hw:
        expect_soon(lambda: shop.run("SELECT active FROM pg_replication_slots")[0] == (False,))
        await follow(hw, shop)
        found = await changes(hw)
    # Whoever was killed while the first copy was made has begun anew, and said so.
    last = max((place for place, one in enumerate(found) if one["op"] == "resync-required"), default=-1)
    assert [one["key"]["id"] for one in found[last + 1 :]] == list(range(count))
