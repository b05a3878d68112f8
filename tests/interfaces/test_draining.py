"""Moving what waits in the users' own database: queue by queue, each row once, with true counts, whatever breaks."""

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater import outbox
from headwater.errors import (
    EncryptionKeyMissing,
    InvalidInput,
    InvalidOption,
    JobExists,
    KeyReused,
    Overloaded,
    QueueFull,
    StoreBusy,
    StoreFailed,
    StoreForeign,
    StoreFull,
)
from headwater.log.committer import Committer
from headwater.log.job_operations import NewJob
from headwater.log.operations import Clear, Push
from headwater.model.outbox import Verdicts
from headwater.model.record import Record
from headwater.services import draining
from headwater.services.draining import Fate, Line, Row, first_wave, judge, pause_seconds
from headwater.stores.outbox.table import Table
from tests.cli.program import Program
from tests.interfaces.test_staging import plain_transaction, rows

FOLDER = Path(__file__).parent
PATIENCE_SECONDS = 60


@pytest.fixture
def shop(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(path)) as connection:
        outbox.create_table(connection)
        connection.commit()
    return path


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


def stage(shop: str, queue: str, *payloads: Any, **options: Any) -> None:
    with plain_transaction(shop) as connection:
        for payload in payloads:
            outbox.stage(connection, queue, payload, **options)


async def drain(hw: headwater.Headwater, shop: str) -> outbox.Drained:
    return await outbox.drain(hw, lambda: sqlite3.connect(shop))


async def payloads(hw: headwater.Headwater, queue: str) -> list[Any]:
    """All that a new reader finds, in order."""
    return [message.payload for message in await hw.queue(queue).pop(batch=1_000, auto_ack=True)]


async def until(holds: Callable[[], bool]) -> None:
    """Another process's file and a log tell nobody when they change."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def waiting(shop: str) -> list[int]:
    """The payloads that still wait."""
    return [msgspec.json.decode(row[2])["records"][0]["data"] for row in rows(shop, "headwater_outbox")]


# ── a queue that refuses ──


async def test_a_full_queue_holds_up_nobody_and_is_left_in_order(hw: headwater.Headwater, shop: str) -> None:
    await hw.queue("full").configure(size_max=2)
    with plain_transaction(shop) as connection:
        for number in range(450):
            outbox.stage(connection, "full", number, partition="p")
            outbox.stage(connection, "open", number, partition="p")
    done = await drain(hw, shop)
    reason = "queue_full: queue 'full' holds 2 waiting records of at most 2"
    assert done == outbox.Drained(moved=452, left=(outbox.Left("main", "full", 448, reason),))
    assert waiting(shop) == list(range(2, 450))
    assert await payloads(hw, "open") == list(range(450))
    for first in (0, 2):
        assert await payloads(hw, "full") == [first, first + 1]
        await hw.committer.submit(Clear(queue="full"))
        assert (await drain(hw, shop)).moved == 2
    await hw.queue("full").configure(size_max=0)
    assert await drain(hw, shop) == outbox.Drained(moved=444)
    assert await payloads(hw, "full") == list(range(4, 450))


async def test_a_partition_too_many_holds_up_no_other_partition(hw: headwater.Headwater, shop: str) -> None:
    await hw.queue("orders").configure(lanes=1, partitions_max=1)
    stage(shop, "orders", 1, partition="a")
    stage(shop, "orders", 2, partition="b")
    stage(shop, "orders", 3, partition="a")
    done = await drain(hw, shop)
    assert (done.moved, [(left.queue, left.count) for left in done.left]) == (2, [("orders", 1)])
    assert await payloads(hw, "orders") == [1, 3]
    assert waiting(shop) == [2]


async def test_a_missing_encryption_key_holds_up_its_own_queue_only(tmp_path: Path, shop: str) -> None:
    store = str(tmp_path / "headwater.db")
    async with headwater.open(store, encryption_key="00" * 32) as hw:
        await hw.queue("secret").configure(encrypted=True)
    stage(shop, "secret", 1, partition="p")
    stage(shop, "open", 2, partition="p")
    async with headwater.open(store) as hw:
        done = await drain(hw, shop)
        assert (done.moved, [left.queue for left in done.left]) == (1, ["secret"])
    async with headwater.open(store, encryption_key="00" * 32) as hw:
        assert (await drain(hw, shop)).moved == 1
        assert await payloads(hw, "secret") == [1]


async def test_a_drain_that_goes_on_tries_a_full_queue_again(
    hw: headwater.Headwater, shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    await hw.queue("full").configure(size_max=1)
    stage(shop, "full", *range(3), partition="p")
    with caplog.at_level(logging.INFO, "headwater.services.draining"):
        task = asyncio.create_task(outbox.drain(hw, lambda: sqlite3.connect(shop), every_seconds=0.001))
        found = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            for number in range(3):
                stage(shop, "open", number, partition="p")
                [message] = await hw.queue("open").pop(wait=30, auto_ack=True)
                [other] = await hw.queue("full").pop(wait=30, auto_ack=True)
                found.append((message.payload, other.payload))
                await hw.committer.submit(Clear(queue="full"))
            await until(lambda: any("again" in record.getMessage() for record in caplog.records))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert found == [(0, 0), (1, 1), (2, 2)]
    # Told when it begins and when it is over, however often it was tried.
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("what waits in the outbox for queue 'full' is refused for now: queue_full")
    assert told[-1] == "queue 'full' takes what waits in the outbox again"
    assert len(told) <= 6


def test_pauses_become_longer_up_to_half_a_minute_and_never_shorter_than_asked_for() -> None:
    assert [pause_seconds(tries, 1) for tries in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert pause_seconds(10_000, 0.5) == 30
    assert [pause_seconds(tries, 60) for tries in range(3)] == [60, 60, 60]


@pytest.mark.parametrize(
    ("outcome", "fate"),
    [
        (object(), Fate.TAKEN),
        (InvalidInput("x"), Fate.REFUSED),
        (KeyReused("x"), Fate.REFUSED),
        (JobExists("x"), Fate.REFUSED),
        (QueueFull("x"), Fate.HELD),
        (EncryptionKeyMissing("x"), Fate.HELD),
        (StoreFull("x"), Fate.TROUBLE),
        (StoreBusy("x"), Fate.TROUBLE),
        (StoreFailed("x"), Fate.TROUBLE),
        (Overloaded("x"), Fate.TROUBLE),
        (ZeroDivisionError(), Fate.TROUBLE),
    ],
)
def test_what_an_outcome_means_for_its_row(outcome: object, fate: Fate) -> None:
    assert judge(outcome) is fate


# ── order ──


def row(number: int, partition: str, ttl_seconds: float | None = None) -> Row:
    push = Push(queue="q", partition=partition, records=[], ttl_seconds=ttl_seconds)
    return Row(number, Line("main", "q", partition), push)


def test_a_wave_takes_no_row_whose_forerunner_it_leaves() -> None:
    wave, later = first_wave([row(1, "a"), row(2, "a", 5), row(3, "b", 5), row(4, "a"), row(5, "b", 5)])
    assert [row.number for row in wave] == [1, 3, 5]
    assert [row.number for row in later] == [2, 4]


async def test_times_to_live_do_not_change_the_order(hw: headwater.Headwater, shop: str) -> None:
    for number in range(12):
        stage(shop, "orders", number, partition="p", ttl_seconds=(None, 600, 900)[number % 3])
    assert (await drain(hw, shop)).moved == 12
    assert await payloads(hw, "orders") == list(range(12))


async def test_what_is_handed_in_together_is_in_one_commit_however_much_waits_before(
    hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.backlog.COMMIT_OPERATIONS_MAX", 10)
    await hw.queue("orders").push(0, partition="p")
    before = hw.committer.commits
    pushes = [Push(queue="orders", partition=f"p{n}", records=[Record(msgspec.Raw(b"1"))]) for n in range(8)]
    first, second = hw.committer.submit_all(pushes), hw.committer.submit_all(pushes)
    answers = await asyncio.gather(*first, *second)
    assert hw.committer.commits == before + 2
    moments = [answer.result.written_at for answer in answers]
    assert len(set(moments[:8])) == 1
    assert len(set(moments[8:])) == 1


# ── rows that can never be taken ──


def forged(**changes: Any) -> str:
    """The body of a row as `stage` would write it, apart from what is changed."""
    record = {"data": 1, "transactionId": "", **changes.pop("record", {})}
    body = {"database": "main", "key": "outbox/1", "queue": "orders", "partition": "p", "records": [record], **changes}
    return msgspec.json.encode(body).decode()


FORGED: dict[str, tuple[str, str, str]] = {
    "kind": ("shrug", "{}", "no such kind"),
    "no JSON": ("push", "{", "it cannot be read"),
    "type": ("push", forged(queue=7), "it cannot be read"),
    "no key": ("push", forged(key=""), "it has no key"),
    "queue": ("push", forged(queue="a b"), "invalid_name"),
    "own queue": ("push", forged(queue="headwater/jobs"), "invalid_name"),
    "database": ("push", forged(database=""), "invalid_name"),
    "partition": ("push", forged(partition="a b"), "invalid_name"),
    "no record": ("push", forged(records=[]), "too_large"),
    "too large": ("push", forged(record={"data": "x" * 300_000}), "too_large"),
    "too deep": ("push", forged(record={"data": msgspec.Raw(b"[" * 200 + b"]" * 200)}), "invalid_payload"),
    "far too deep": ("push", forged(record={"data": msgspec.Raw(b"[" * 2_000 + b"]" * 2_000)}), "it cannot be read"),
    "long id": ("push", forged(record={"transactionId": "x" * 10_000}), "invalid_option"),
    "delay": ("push", forged(delay_seconds=-1.0), "invalid_option"),
    "priority": ("push", forged(priority=3), "invalid_option"),
    "no job": ("enqueue", '{"key": "k", "jobs": []}', "too_large"),
    "bad job": ("enqueue", '{"key": "k", "jobs": [{"command": ""}]}', "invalid_option"),
}


async def test_a_row_that_can_never_be_taken_is_set_aside_seen_and_tried_again_when_asked(
    hw: headwater.Headwater, shop: str
) -> None:
    with plain_transaction(shop) as connection:
        for kind, body, _ in FORGED.values():
            connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES (?, ?)", (kind, body))
        outbox.stage(connection, "orders", "good")
    assert await drain(hw, shop) == outbox.Drained(moved=1, set_aside=len(FORGED))
    assert await payloads(hw, "orders") == ["good"]
    with closing(sqlite3.connect(shop)) as connection:
        found = outbox.list_set_aside(connection)
        told = {name: row.error for name, row in zip(FORGED, found, strict=True)}
        assert {name: error for name, error in told.items() if FORGED[name][2] not in error} == {}
        assert {row.queue for row in found} == {"", "orders", "a b", "headwater/jobs"}
        connection.rollback()
        # One was mended by hand.
        connection.execute("UPDATE headwater_outbox SET body = ? WHERE number = 4", (forged(),))
        assert outbox.requeue(connection, 4, 5, 999) == 2
        with pytest.raises(InvalidOption):
            outbox.requeue(connection, -1)
        connection.commit()
        assert await drain(hw, shop) == outbox.Drained(moved=1, set_aside=1)
        assert outbox.requeue(connection) == len(FORGED) - 1
        connection.rollback()
        assert len(outbox.list_set_aside(connection)) == len(FORGED) - 1
    assert await payloads(hw, "orders") == [1]


async def test_a_row_that_is_too_large_for_this_drain_goes_with_another_one(tmp_path: Path, shop: str) -> None:
    stage(shop, "orders", "x" * 2_000)
    store = str(tmp_path / "headwater.db")
    async with headwater.open(store, record_bytes_max=1_024) as hw:
        assert await drain(hw, shop) == outbox.Drained(set_aside=1)
    with plain_transaction(shop) as connection:
        assert outbox.requeue(connection) == 1
    async with headwater.open(store) as hw:
        assert await drain(hw, shop) == outbox.Drained(moved=1)


# ── true counts ──


async def test_of_two_drains_at_once_each_counts_its_own(hw: headwater.Headwater, shop: str) -> None:
    stage(shop, "orders", *range(1_000), partition="p")
    with plain_transaction(shop) as connection:
        connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES ('shrug', '{}')")

    def patient() -> sqlite3.Connection:
        return sqlite3.connect(shop, timeout=PATIENCE_SECONDS)

    both = await asyncio.gather(outbox.drain(hw, patient), outbox.drain(hw, patient))
    assert sum(done.moved for done in both) == 1_000
    assert sum(done.set_aside for done in both) == 1
    assert await payloads(hw, "orders") == list(range(1_000))


async def test_a_row_that_another_drain_dropped_is_not_counted(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(shop, "orders", 1, 2)
    settle = Table.settle

    def late(table: Table, verdicts: Verdicts) -> Verdicts:
        with plain_transaction(shop) as other:
            other.execute("DELETE FROM headwater_outbox WHERE number = 1")
        return settle(table, verdicts)

    monkeypatch.setattr(Table, "settle", late)
    assert await drain(hw, shop) == outbox.Drained(moved=1)


async def test_transaction_ids_and_unique_keys_that_are_known_are_told_as_duplicates(
    hw: headwater.Headwater, shop: str
) -> None:
    await hw.queue("orders").push(1, partition="p", transaction_id="t")
    stage(shop, "orders", 2, partition="p", transaction_id="t")
    stage(shop, "orders", 3, partition="p", transaction_id="u")
    stage(shop, "orders", 4, partition="p", transaction_id="u")
    stage(shop, "orders", 5, delay=60, transaction_id="v")
    stage(shop, "orders", 6, delay=60, transaction_id="v")
    with plain_transaction(shop) as connection:
        outbox.stage_jobs(connection, NewJob(command="true", unique_key="k"))
        outbox.stage_jobs(connection, NewJob(command="true", unique_key="k"))
    assert await drain(hw, shop) == outbox.Drained(moved=7, duplicates=4)
    assert await payloads(hw, "orders") == [1, 3]


async def test_a_row_that_is_moved_once_more_is_no_duplicate(hw: headwater.Headwater, shop: str) -> None:
    """It is its own message: the answer of the first time stands."""
    stage(shop, "orders", 1, transaction_id="t")
    [copy] = rows(shop, "headwater_outbox")
    assert await drain(hw, shop) == outbox.Drained(moved=1)
    with plain_transaction(shop) as connection:
        connection.execute("INSERT INTO headwater_outbox VALUES (?, ?, ?, ?)", copy)
    assert await drain(hw, shop) == outbox.Drained(moved=1)
    assert await payloads(hw, "orders") == [1]


# ── trouble, cancels and kills ──


async def test_what_was_taken_before_trouble_is_dropped_from_the_table(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "BITE", 2)
    stage(shop, "orders", *range(6), partition="p")
    submit_all = Committer.submit_all
    calls = 0

    def full_at_last(committer: Committer, operations: Any, *rest: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Overloaded("too much")
        return submit_all(committer, operations, *rest)

    monkeypatch.setattr(Committer, "submit_all", full_at_last)
    with pytest.raises(Overloaded):
        await drain(hw, shop)
    assert waiting(shop) == [4, 5]
    assert await drain(hw, shop) == outbox.Drained(moved=2)
    assert await payloads(hw, "orders") == list(range(6))


async def test_a_drain_that_goes_on_waits_for_trouble_to_pass_and_never_moves_twice_what_it_could_not_drop(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(shop, "orders", *range(3), partition="p")
    settle, submit_all = Table.settle, Committer.submit_all
    settled: list[int] = []
    submitted: list[int] = []

    def locked_at_first(table: Table, verdicts: Verdicts) -> Verdicts:
        settled.append(len(verdicts.taken))
        if len(settled) < 4:
            raise StoreBusy("locked")
        return settle(table, verdicts)

    def counted(committer: Committer, operations: Any, *rest: Any) -> Any:
        submitted.append(len(operations))
        return submit_all(committer, operations, *rest)

    monkeypatch.setattr(Table, "settle", locked_at_first)
    monkeypatch.setattr(Committer, "submit_all", counted)
    task = asyncio.create_task(outbox.drain(hw, lambda: sqlite3.connect(shop), every_seconds=0.001))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: not waiting(shop))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert settled == [3, 3, 3, 3]
    assert submitted.count(3) == 1


async def test_a_drain_that_goes_on_waits_for_a_table_that_is_made_anew(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    after, looks = Table.after, [0]

    def counted(table: Table, number: int, limit: int) -> Any:
        looks[0] += 1
        return after(table, number, limit)

    monkeypatch.setattr(Table, "after", counted)
    stage(shop, "orders", "before", partition="p")
    task = asyncio.create_task(outbox.drain(hw, lambda: sqlite3.connect(shop), every_seconds=0.001))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: not waiting(shop))
        for round in ("first", "second"):
            with plain_transaction(shop) as connection:
                connection.execute("DROP TABLE headwater_outbox")
            begun = looks[0]
            await until(lambda begun=begun: looks[0] > begun + 3)  # type: ignore[misc]
            with plain_transaction(shop) as connection:
                outbox.create_table(connection)
                outbox.stage(connection, "orders", round, partition="p")
            await until(lambda: not waiting(shop))
            await until(lambda: caplog.messages[-1].endswith("is back"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await payloads(hw, "orders") == ["before", "first", "second"]
    assert ["is away" in message for message in caplog.messages] == [True, False] * 2


async def test_a_drain_that_goes_on_follows_a_file_that_another_takes_the_place_of(
    hw: headwater.Headwater, shop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A migration may write a new file and rename it: the old one stays open here, and nobody else writes to it."""
    stage(shop, "orders", "before", partition="p")
    task = asyncio.create_task(outbox.drain(hw, lambda: sqlite3.connect(shop), every_seconds=0.001))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: not waiting(shop))
        fresh = str(tmp_path / "fresh.db")
        with plain_transaction(fresh) as connection:
            outbox.create_table(connection)
            outbox.stage(connection, "orders", "after", partition="p")
        Path(shop).rename(tmp_path / "old.db")
        await until(lambda: any("is away" in record.message for record in caplog.records))
        Path(fresh).rename(shop)
        await until(lambda: not waiting(shop))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await payloads(hw, "orders") == ["before", "after"]


async def test_a_drain_that_ends_does_not_wait_for_a_table_that_is_away(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = Table.after

    def dropped_meanwhile(table: Table, number: int, limit: int) -> Any:
        with plain_transaction(shop) as connection:
            connection.execute("DROP TABLE headwater_outbox")
        return after(table, number, limit)

    monkeypatch.setattr(Table, "after", dropped_meanwhile)
    with pytest.raises(StoreForeign, match="no outbox table"):
        await drain(hw, shop)


async def test_rows_of_a_table_that_was_made_anew_are_not_taken_for_those_of_the_old_one(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin with the same numbers: what was to be dropped from the old one must not be dropped from the new."""
    stage(shop, "orders", "old", partition="p")
    settle, calls = Table.settle, [0]

    def made_anew_meanwhile(table: Table, verdicts: Verdicts) -> Verdicts:
        calls[0] += 1
        if calls[0] == 1:
            with plain_transaction(shop) as connection:
                connection.execute("DROP TABLE headwater_outbox")
            try:
                return settle(table, verdicts)
            finally:
                with plain_transaction(shop) as connection:
                    outbox.create_table(connection)
                    outbox.stage(connection, "orders", "new", partition="p")
        return settle(table, verdicts)

    monkeypatch.setattr(Table, "settle", made_anew_meanwhile)
    task = asyncio.create_task(outbox.drain(hw, lambda: sqlite3.connect(shop), every_seconds=0.001))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: calls[0] > 1 and not waiting(shop))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await payloads(hw, "orders") == ["old", "new"]


async def test_a_cancelled_drain_drops_what_it_has_moved(
    hw: headwater.Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(shop, "orders", *range(3), partition="p")
    submit_all = Committer.submit_all

    def cancel_meanwhile(committer: Committer, operations: Any, *rest: Any) -> Any:
        answers = submit_all(committer, operations, *rest)
        if len(operations) == 3:
            task.cancel()
        return answers

    monkeypatch.setattr(Committer, "submit_all", cancel_meanwhile)
    task = asyncio.create_task(drain(hw, shop))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waiting(shop) == []
    assert await payloads(hw, "orders") == [0, 1, 2]


async def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each drain dies one step later than the one before, on a shop of its own, until one comes to its end."""
    for last in range(1, 200):
        folder = tmp_path / str(last)
        folder.mkdir()
        shop, store = str(folder / "shop.db"), str(folder / "headwater.db")
        with plain_transaction(shop) as connection:
            outbox.create_table(connection)
            for number in range(3):
                outbox.stage(connection, "orders", number, partition="p")
        command = [sys.executable, str(FOLDER / "dying_drain.py"), shop, store, str(last)]
        ended = await asyncio.to_thread(subprocess.run, command, cwd=FOLDER.parent.parent, capture_output=True)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        async with headwater.open(store) as hw:
            left = len(waiting(shop))
            assert (await drain(hw, shop)).moved == left
            assert await payloads(hw, "orders") == [0, 1, 2]
            assert waiting(shop) == []
        if ended.returncode == 0:
            break
    assert ended.stdout == b"3\n"
    assert last > 8


# ── files that are no outbox ──


def not_a_database(path: Path) -> None:
    path.write_text("root:x:0:0:root:/root:/bin/bash\n" * 100)


def empty(path: Path) -> None:
    path.touch()


def no_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")


def folder(path: Path) -> None:
    path.mkdir()


def read_only(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        outbox.create_table(connection)
        connection.commit()
    path.chmod(0o400)


def a_view(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE VIEW headwater_outbox AS SELECT 1 AS number, 2 AS kind, 3 AS body, 4 AS error")


def another_shape(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE headwater_outbox (id INTEGER)")


UNFIT: list[tuple[Callable[[Path], None], int, str]] = [
    (not_a_database, 3, "no SQLite database"),
    (empty, 3, "no outbox table"),
    (no_table, 3, "no outbox table"),
    (folder, 2, "is no file"),
    (a_view, 3, "cannot be used"),
    (another_shape, 3, "cannot be used"),
]


@pytest.mark.parametrize(("make", "code", "said"), UNFIT, ids=[make.__name__ for make, _, _ in UNFIT])
@pytest.mark.parametrize("command", ["drain", "list", "requeue"])
def test_a_file_that_is_no_outbox_is_told_by_name(
    tmp_path: Path, make: Callable[[Path], None], code: int, said: str, command: str
) -> None:
    make(tmp_path / "some file?.db")
    ended = Program(tmp_path).expect(code, "outbox", command, "some file?.db")
    assert "some file?.db" in ended.err
    assert said in ended.err
    assert "internal" not in ended.err
    assert not (tmp_path / "headwater.db").exists()


def test_a_file_that_may_only_be_read_is_refused_before_anything_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(tmp_path / "shop.db")
    # Who may do everything is refused nothing by the system.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "shop.db may not be read and written" in Program(tmp_path).expect(3, "outbox", "drain", "shop.db").err


async def test_a_connection_that_may_only_read_is_refused_before_anything_is_moved(
    hw: headwater.Headwater, shop: str
) -> None:
    stage(shop, "orders", 1)
    with pytest.raises(StoreFailed, match="readonly"):
        await outbox.drain(hw, lambda: sqlite3.connect(f"file:{shop}?mode=ro", uri=True))
    assert await hw.queues() == []


async def test_a_connection_to_no_outbox_is_refused(hw: headwater.Headwater, tmp_path: Path) -> None:
    with pytest.raises(StoreForeign, match=r"outbox\.create_table"):
        await outbox.drain(hw, lambda: sqlite3.connect(":memory:"))
    with pytest.raises(StoreFailed, match="unable to open"):
        await outbox.drain(hw, lambda: sqlite3.connect(tmp_path / "no" / "shop.db"))
    with pytest.raises(InvalidOption, match="every_seconds"):
        await outbox.drain(hw, lambda: sqlite3.connect(":memory:"), every_seconds=0)


# ── the command ──


def test_the_command_says_what_it_left_and_what_it_set_aside(tmp_path: Path, shop: str) -> None:
    program = Program(tmp_path)
    program.expect(0, "push", "other", "1")
    program.expect(0, "queues", "configure", "full", "size_max=1")
    stage(shop, "full", 1, 2, 3)
    stage(shop, "open", 1)
    ended = program.expect(1, "outbox", "drain", "shop.db")
    assert ended.out == "moved 2 rows to the log\n"
    assert "left 2 rows for full: queue_full" in ended.err
    document = program.expect(1, "outbox", "drain", "shop.db", "--json").document()
    assert [left["count"] for left in document["left"]] == [2]
    program.expect(0, "queues", "configure", "full", "size_max=9")
    with plain_transaction(shop) as connection:
        connection.execute("INSERT INTO headwater_outbox (kind, body) VALUES ('shrug', '{}')")
    ended = program.expect(6, "outbox", "drain", "shop.db")
    assert (ended.out, "set 1 row aside" in ended.err) == ("moved 2 rows to the log\n", True)
    [row] = program.expect(0, "outbox", "list", "shop.db", "--json").documents()
    assert (row["kind"], row["error"]) == ("shrug", "no such kind: 'shrug'")
    assert "no such kind" in program.expect(0, "outbox", "list", "shop.db").out
    assert program.expect(4, "outbox", "requeue", "shop.db", "77").out == ""
    assert program.expect(0, "outbox", "requeue", "shop.db", str(row["number"])).out == "requeued 1 row\n"
    assert "nothing is set aside" in program.expect(0, "outbox", "list", "shop.db").err
    program.expect(6, "outbox", "drain", "shop.db")
    assert program.expect(0, "outbox", "requeue", "shop.db", "--json").document() == {"requeued": 1}


def test_the_command_tells_of_what_was_known_already(tmp_path: Path, shop: str) -> None:
    program = Program(tmp_path)
    program.expect(0, "push", "other", "1")
    stage(shop, "orders", 1, 2, transaction_id="t")
    assert program.expect(0, "outbox", "drain", "shop.db").out == ("moved 2 rows to the log, 1 of them known already\n")


def test_a_command_that_goes_on_ends_in_good_order_when_it_is_told_to(tmp_path: Path, shop: str) -> None:
    program = Program(tmp_path)
    program.expect(0, "push", "other", "1")
    stage(shop, "orders", 1)
    with program.start("outbox", "drain", "shop.db", "--every", "0.01") as process:
        while waiting(shop):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert program.expect(0, "pop", "orders", "--json").document()["payload"] == 1
