"""What somebody sees who looks at the SQLite file itself."""

import asyncio
import json
import os
import re
import stat
from pathlib import Path

import apsw
import msgspec
import pytest
from msgspec import structs

import headwater
from headwater import NewJob
from headwater.config import Config
from headwater.errors import StoreNewer
from headwater.log.job_operations import CancelJobs, RetryJobs
from headwater.model.queue import LANES_DEFAULT
from headwater.stores.questions import FindIdentity
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.sqlite.migrate import migrations
from headwater.stores.sqlite.store import open_file
from headwater.stores.statements import load_statements
from headwater.stores.tables.connection import Text
from tests.stores.fresh_tables import definitions, tables_by_migrations


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "headwater.db")


def names(connection: apsw.Connection, kind: str) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = ?", (kind,))
    return {str(row[0]) for row in rows}


async def test_every_file_belongs_to_its_owner_alone(path: str) -> None:
    async with headwater.open(path) as hw:
        await hw.queue("orders").push(1)
        for suffix in ("", "-wal", "-shm", "-turn"):
            assert stat.S_IMODE(os.stat(path + suffix).st_mode) == 0o600, suffix


async def test_every_statement_can_be_prepared(path: str) -> None:
    async with headwater.open(path):
        pass
    connection = apsw.Connection(path)
    sql = load_statements("headwater.stores.sqlite")
    for name in sql.names():
        text = getattr(sql, name)
        numbered = [int(found) for found in re.findall(r"\?(\d+)", text)]
        values = [None] * (max(numbered) if numbered else text.count("?"))
        explained = text if text.startswith("EXPLAIN ") else f"EXPLAIN {text}"
        assert connection.execute(explained, values).fetchall(), name
    connection.close()


async def test_a_row_that_cannot_be_read_keeps_nobody_from_going_on_after_others(path: str) -> None:
    async with headwater.open(path) as hw:
        await hw.queue("orders").push(1)
    ours, others = SqliteConnection(path), SqliteConnection(path)
    others.run("UPDATE hw_queues SET name = CAST(x'c328' AS TEXT)")
    with pytest.raises(UnicodeDecodeError):
        ours.rows(ours.sql.queue_names, ("main",), Text)
    others.run("UPDATE hw_queues SET name = 'orders'")
    ours.execute("BEGIN IMMEDIATE")
    assert ours.rows(ours.sql.queue_names, ("main",), Text) == [("orders",)]
    ours.close()
    others.close()


async def test_every_migration_counts_up_by_one() -> None:
    assert [number for number, _, _ in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_fresh_file_has_what_all_migrations_come_to(path: str) -> None:
    async with headwater.open(path):
        pass
    fresh, migrated = apsw.Connection(path), tables_by_migrations()
    assert dict(definitions(fresh)) == dict(definitions(migrated))
    known = "SELECT key, length(value) FROM hw_meta ORDER BY key"
    assert fresh.execute(known).fetchall() == migrated.execute(known).fetchall()
    fresh.close()
    migrated.close()


def open_older(path: str, before: str) -> apsw.Connection:
    """A file as it was before the migration of this name."""
    connection = apsw.Connection(path)
    for number, name, text in migrations():
        if name == before:
            break
        connection.execute(text)
        connection.execute("INSERT OR REPLACE INTO hw_meta (key, value) VALUES ('schema_version', ?)", (number,))
    return connection


async def test_queues_of_an_older_file_keep_their_order_and_their_options(path: str) -> None:
    connection = open_older(path, "keep_old_queues_in_one_lane")
    add = "INSERT INTO hw_queues (database, name, options, created_at) VALUES ('main', ?, ?, 1)"
    connection.execute(add, ("orders", "{}"))
    connection.execute(add, ("bills", '{"retry_limit":7}'))
    connection.close()
    async with headwater.open(path, adopt=True) as hw:
        for number in range(3):
            receipt = await hw.queue("orders").push(number)
            assert (receipt.partition, receipt.offset) == ("Default", number)
        options = {status.queue: (status.options.lanes, status.options.retry_limit) for status in await hw.queues()}
        assert options == {"orders": (1, 3), "bills": (1, 7)}
        assert (await hw.queue("new").configure()).options.lanes == LANES_DEFAULT


async def test_a_schedule_of_an_older_file_keeps_what_it_said_under_the_names_of_today(path: str) -> None:
    """Older versions wrote every option of a job, under other names, with its default where nothing had been said."""
    connection = open_older(path, "keep_policies_of_job_types")
    options = {"type": "shop:mail", "arguments": [[1], {}], "queue": "default", "priority": 0, "unique_mode": "ignore"}
    older = {"delay_seconds": 0.0, "timeout_seconds": 5.0, "max_retries": 7, "backoff_max_seconds": None}
    job = json.dumps({**options, **older, "result_seconds": 9.5, "unique_seconds": 0.0, "concurrency_limit": 1})
    values = "'main', 'often', '', 60, 'UTC', ?, 0, 1, 2, NULL, NULL"
    connection.execute(f"INSERT INTO hw_job_schedules VALUES ({values})", (job,))
    connection.close()
    async with headwater.open(path, adopt=True, housekeeping=False) as hw:
        (schedule,) = await hw.jobs.schedules()
    kept = NewJob(type="shop:mail", arguments=headwater.Raw(b"[[1],{}]"), timeout=5.0, retries=7, result_ttl=9.5)
    assert schedule.job == structs.replace(kept, queue="default")


async def test_a_newer_file_is_refused_naming_both_versions(path: str) -> None:
    async with headwater.open(path):
        pass
    connection = apsw.Connection(path)
    connection.execute("UPDATE hw_meta SET value = 99 WHERE key = 'schema_version'")
    connection.close()
    with pytest.raises(StoreNewer, match=f"version 99.*up to {len(migrations())}"):
        await open_file(path, Config()).open()


async def test_rooms_are_shown_as_the_tables_people_know(path: str) -> None:
    """S0-1, S0-5: the documents' own queries run in any SQLite tool."""
    async with headwater.open(path) as hw:
        canvases = hw.queue("canvases")
        await canvases.configure(namespace="rooms", compress_bytes_min=0)
        for number in (1, 2):
            await canvases.push({"x": number}, partition="canvas-1", type="cursor", ttl_seconds=60)
        await canvases.push({"type": "object-create"}, partition="canvas-2", ttl_seconds=60)
        await hw.queue("elsewhere").push({"x": 9}, type="cursor")
        await canvases.ack(await canvases.pop(group="server-a", partition="canvas-1", batch=2))
    connection = apsw.Connection(path)
    assert {"message_queue", "canvas_watermarks"} <= names(connection, "view")
    query = "SELECT id, message_type, payload FROM message_queue WHERE canvas_id = ? AND id > ? ORDER BY id LIMIT 100"
    found = connection.execute(query, ("canvas-1", 0)).fetchall()
    assert [row[1:] for row in found] == [("cursor", '{"x":1}'), ("cursor", '{"x":2}')]
    assert connection.execute(query, ("canvas-1", found[0][0])).fetchall() == found[1:]
    assert [row[1] for row in connection.execute(query, ("canvas-2", 0))] == ["object-create"]
    times = connection.execute("SELECT created_at < expires_at FROM message_queue").fetchall()
    assert times == [(1,)] * 3
    marks = "SELECT last_processed_id FROM canvas_watermarks WHERE canvas_id = ? AND server_instance_id = ?"
    assert connection.execute(marks, ("canvas-1", "server-a")).fetchall() == [(2,)]
    connection.close()


async def test_what_is_said_in_a_room_is_shown_and_compares_with_the_watermarks_of_servers(path: str) -> None:
    """S0-1, S0-5, S0-18: `id > last_processed_id` is what a server has not delivered."""
    query = "SELECT message_type, payload FROM message_queue WHERE canvas_id = ? AND id > ? ORDER BY id LIMIT 100"
    async with headwater.open(path, rooms={"server_instance_id": "server-a"}) as hw:
        room, rooms = hw.room("canvas-1"), hw.rooms_service
        live = await rooms.enter("main", "canvas-1")
        delivered = asyncio.Event()
        live.listeners.append(lambda events: delivered.set())
        await room.send({"x": 1}, type="object-create")
        await delivered.wait()
        # The segment counts as delivered when those who listen have heard of it.
        await asyncio.sleep(0)
        rooms.say_who_is_here()
        await room.send({"x": 2}, type="object-update")
        assert [mark.instance for mark in await room.watermarks()] == ["server-a"]
        rooms.leave(live)
    connection = apsw.Connection(path)
    assert connection.execute(query, ("canvas-1", 0)).fetchall() == [
        ("object-create", '{"x":1}'),
        ("object-update", '{"x":2}'),
    ]
    [(instance, position)] = connection.execute(
        "SELECT server_instance_id, last_processed_id FROM canvas_watermarks WHERE canvas_id = 'canvas-1'"
    )
    assert instance == "server-a"
    assert connection.execute(query, ("canvas-1", position)).fetchall() == [("object-update", '{"x":2}')]
    connection.close()


async def test_views_leave_out_what_is_compressed_or_encrypted(path: str) -> None:
    async with headwater.open(path, encryption_key="ab" * 32) as hw:
        secret = hw.queue("secret")
        await secret.configure(namespace="rooms", encrypted=True)
        await secret.push({"card": "4000 1234"}, partition="canvas-1")
        packed = hw.queue("packed")
        await packed.configure(namespace="rooms", compress_bytes_min=1)
        await packed.push("x" * 1_000, partition="canvas-2")
    connection = apsw.Connection(path)
    assert connection.execute("SELECT * FROM message_queue").fetchall() == []
    connection.close()
    assert b"4000 1234" not in Path(path).read_bytes()


async def test_a_plain_segment_can_be_read_by_any_tool(path: str) -> None:
    async with headwater.open(path) as hw:
        await hw.queue("orders").push_many([{"id": 1}, {"id": 2}])
    connection = apsw.Connection(path)
    query = (
        "SELECT r.value ->> '$.data.id' FROM hw_segments s, json_each(CAST(s.records AS TEXT)) r ORDER BY s.lsn, r.key"
    )
    assert [row[0] for row in connection.execute(query)] == [1, 2]
    connection.close()


async def test_a_file_shared_with_an_application_keeps_its_tables(path: str) -> None:
    connection = apsw.Connection(path)
    connection.execute("CREATE TABLE message_queue (mine TEXT)")
    connection.execute("INSERT INTO message_queue VALUES ('kept')")
    connection.close()
    async with headwater.open(path, adopt=True) as hw:
        await hw.queue("orders").push(1)
    connection = apsw.Connection(path)
    assert connection.execute("SELECT mine FROM message_queue").fetchall() == [("kept",)]
    assert connection.execute("PRAGMA application_id").fetchall() == [(0,)]
    connection.close()


async def test_an_older_file_gets_one_identity_however_many_open_it_first(path: str) -> None:
    open_older(path, "give_the_store_an_identity").close()

    async def identity() -> str:
        async with headwater.open(path) as hw:
            return await hw.store.ask(FindIdentity())

    assert len({*await asyncio.gather(*(identity() for _ in range(3))), await identity()}) == 1


async def test_a_key_of_a_pop_keeps_where_the_records_are_and_not_the_records(path: str) -> None:
    async with headwater.open(path) as hw:
        await hw.queue("orders").push_many([{"secret": "x" * 100}] * 500, partition="p")
        found = await hw.queue("orders").pop(batch=500, idempotency_key="k")
        assert len(found) == 500
        ((kept,),) = apsw.Connection(path).execute("SELECT result FROM hw_applied WHERE key = 'k'").fetchall()
        assert isinstance(kept, str)
        assert len(kept) < 300
        assert "secret" not in kept
        again = await hw.queue("orders").pop(batch=500, idempotency_key="k")
        assert [(one.offset, one.token, one.payload) for one in again] == [
            (one.offset, one.token, one.payload) for one in found
        ]


async def test_the_whole_answers_that_an_older_version_kept_for_pops_are_given_again(path: str) -> None:
    async with headwater.open(path) as hw:
        await hw.queue("orders").push("old", partition="p")
        (message,) = await hw.queue("orders").pop(idempotency_key="k")
        whole = json.dumps({"batches": [json.loads(msgspec.json.encode(message.batch))], "ready_at": None})
        with apsw.Connection(path) as shop:
            shop.execute("UPDATE hw_applied SET result = ? WHERE key = 'k'", (whole,))
        (again,) = await hw.queue("orders").pop(idempotency_key="k")
        assert (again.payload, again.token) == ("old", message.token)


async def test_a_key_of_before_an_operation_was_renamed_still_stands_for_it(path: str) -> None:
    cancelling, again = CancelJobs(ids=("a",), key="one"), RetryJobs(ids=("a",), key="two")
    async with headwater.open(path) as hw:
        await hw.jobs.add(NewJob(type="shop:mail"), id="a")
        first = [(await hw.committer.submit(operation)).result for operation in (cancelling, again)]
        connection = apsw.Connection(path)
        kept = connection.execute("SELECT operation FROM hw_applied ORDER BY key").fetchall()
        connection.close()
        assert kept == [("Cancel()",), ("Rearm()",)], "what files of earlier versions hold"
        assert [(await hw.committer.submit(operation)).result for operation in (cancelling, again)] == first


@pytest.mark.parametrize("is_there", [True, False], ids=["a store", "nothing yet"])
async def test_a_store_is_reached_through_a_link_to_its_file(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    real, link = folder / "real.db", tmp_path / "current.db"
    link.symlink_to(real)
    if is_there:
        async with headwater.open(str(real)) as hw:
            await hw.queue("orders").push("by its name", partition="p")
    async with headwater.open(str(link)) as hw:
        await hw.queue("orders").push("by the link", partition="p")
    async with headwater.open(str(real)) as hw:
        expected = ["by its name", "by the link"] if is_there else ["by the link"]
        assert [message.payload for message in await hw.queue("orders").pop(batch=10)] == expected
    assert [file.name for file in tmp_path.iterdir() if file != folder] == ["current.db"], (
        "nothing lies beside the link"
    )


async def test_nothing_of_an_encrypted_queue_is_readable_in_the_file_not_even_ids_for_later(path: str) -> None:
    async with headwater.open(path, encryption_key="ab" * 32) as hw:
        secret = hw.queue("secret")
        await secret.configure(encrypted=True)
        about = {"transaction_id": "readable-id", "headers": {"readable-header": "readable-value"}}
        await secret.push("readable-payload", **about)  # type: ignore[arg-type]
        await secret.push("readable-later", delay=3_600, transaction_id="readable-id-for-later")
        async with hw.transaction() as together:
            together.push("secret", "readable", delay=3_600, transaction_id="readable-id-together")
        again = await secret.push("readable-later", delay=3_600, transaction_id="readable-id-for-later")
        assert again.duplicate
        messages = await secret.pop()
        await secret.trace(messages[0], "readable-event", {"readable": "readable-data"}, names=["checkout"])
        await secret.fail(messages, error="readable-error", retry=False)
    kept = b"".join(file.read_bytes() for file in Path(path).parent.iterdir())
    assert b"readable" not in kept
