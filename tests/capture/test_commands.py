"""`headwater capture` and what the metrics say of it."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.app import make_router
from headwater.clock import SystemClock
from headwater.doors.wire import Request
from headwater.log.operations import Reach
from headwater.model.capture import CaptureState, encode_state
from headwater.model.principal import Principal, Scope
from tests.cli.program import Program
from tests.contracts.clock import FakeClock
from tests.postgres_server import USER, Server

NAME = "capture_commands"


def test_changes_are_captured_listed_and_given_up(server: Server, tmp_path: Path) -> None:
    program = Program(tmp_path)
    address = f"postgresql://{USER}@/postgres?host={server.folder}"
    about = (address, "--table", "public.orders", "--name", NAME)
    with server.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1), (2)")
        done = program.run("capture", "run", *about, "--queue", "changes", "--once", "--alarm-bytes", "1")
        assert done.lines() == ["pushed 2 changes to changes"]
        messages = program.run("tail", "changes", "--from", "beginning", "--no-follow", "--json").documents()
        assert [message["payload"]["key"]["id"] for message in messages] == [1, 2]
        [listed] = program.run("capture", "list", "--json").documents()
        assert (listed["name"], listed["queue"], listed["changes"]) == (NAME, "changes", 2)
        assert "the alarm is at 1" in listed["alarm"]
        assert NAME in program.run("capture", "list").out
        dropped = program.run("capture", "drop", *about, "--json")
        assert [document["was_captured"] for document in dropped.documents()] == [True]
        slot = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'headwater_capture_commands'"
        assert connection.execute(slot.encode()).fetchall() == []
        publication = "SELECT pubname FROM pg_publication WHERE pubname = 'headwater_capture_commands'"
        assert connection.execute(publication.encode()).fetchall() == []
    # Nobody is told of it any more, so that no alarm goes off for it.
    assert "nothing is captured" in program.run("capture", "list").err
    lost = program.run("capture", "run", *about, "--queue", "changes", "--once", "--json")
    assert lost.code == 1
    assert lost.error()["code"] == "resync-required"
    with server.connect() as connection:
        connection.execute("DROP TABLE orders")


NOTHING = "ALTER TABLE odd REPLICA IDENTITY NOTHING"
INDEX_GONE = (
    "ALTER TABLE odd ADD other int NOT NULL; CREATE UNIQUE INDEX other ON odd (other); "
    "ALTER TABLE odd REPLICA IDENTITY USING INDEX other; DROP INDEX other"
)


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        ("ALTER TABLE odd SET UNLOGGED", "unlogged"),
        (NOTHING, "has REPLICA IDENTITY NOTHING"),
        (INDEX_GONE, "an index that is gone"),
        ("ALTER TABLE odd DROP CONSTRAINT odd_pkey", "has no primary key"),
    ],
)
def test_a_capture_that_is_refused_says_why_leaves_nothing_and_can_begin_later(
    server: Server, tmp_path: Path, alter: str, why: str
) -> None:
    program = Program(tmp_path)
    about = (f"postgresql://{USER}@/postgres?host={server.folder}", "--table", "public.odd", "--name", NAME)
    kept = "SELECT slot_name::text FROM pg_replication_slots UNION ALL SELECT pubname FROM pg_publication"
    with server.connect() as connection:
        connection.execute("CREATE TABLE odd (id int PRIMARY KEY)")
        try:
            connection.execute(alter.encode())
            refused = program.run("capture", "run", *about, "--queue", "changes", "--once", "--json")
            assert refused.error()["code"] == "source_unfit"
            assert why in refused.error()["message"]
            assert "nothing is captured" in program.run("capture", "list").err
            assert ("headwater_" + NAME,) not in connection.execute(kept.encode()).fetchall()
            [dropped] = program.run("capture", "drop", *about, "--json").documents()
            assert dropped["was_captured"] is False
            connection.execute("DROP TABLE odd")
            connection.execute("CREATE TABLE odd (id int PRIMARY KEY)")
            connection.execute("INSERT INTO odd VALUES (1)")
            done = program.run("capture", "run", *about, "--queue", "changes", "--once")
            # Consumers are not told that they missed something.
            assert done.lines() == ["pushed 1 change to changes"]
        finally:
            program.run("capture", "drop", *about)
            connection.execute("DROP TABLE odd")


def test_a_capture_that_can_never_be_is_not_listed(server: Server, tmp_path: Path) -> None:
    program = Program(tmp_path)
    address = f"postgresql://{USER}@/postgres?host={server.folder}"
    for _ in range(2):
        missing = program.run("capture", "run", address, "--table", "public.mistyped", "--queue", "changes", "--once")
        assert "source_unfit" in missing.err
    assert "nothing is captured" in program.run("capture", "list").err
    # Nor are consumers told that they missed something.
    assert program.run("queues", "--json").documents() == []


def test_a_capture_is_given_up_where_there_is_no_log(server: Server, tmp_path: Path) -> None:
    address = f"postgresql://{USER}@/postgres?host={server.folder}"
    ended = Program(tmp_path).run("capture", "drop", address, "--table", "public.orders")
    assert ended.code == 0
    assert "was not captured into this store" in ended.out
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("source", ["mysql://localhost/shop", "orders", ""])
def test_a_source_of_another_kind_is_refused(source: str, tmp_path: Path) -> None:
    ended = Program(tmp_path).run("capture", "run", source, "--table", "a.b", "--queue", "q", "--once")
    assert ended.code == 2
    assert "postgresql://" in ended.err


def test_nothing_is_listed_where_nothing_was_captured(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.run("push", "other", "1")
    assert "nothing is captured" in program.run("capture", "list").err


async def test_figures_of_a_capture_that_is_not_seen_any_more_are_told_as_those_of_then(tmp_path: Path) -> None:
    note = encode_state(CaptureState(queue="changes", lag_bytes=0, kept_bytes=9))
    for name, clock in (("running", SystemClock()), ("stopped", FakeClock())):
        async with headwater.open(str(tmp_path / "headwater.db"), clock=clock) as hw:
            await hw.queues_service.run(Reach(database=hw.name, name=f"capture/{name}", number=1, note=note))
    listed = await asyncio.to_thread(Program(tmp_path).run, "capture", "list")
    [running] = [line for line in listed.lines() if line.startswith("running")]
    [stopped] = [line for line in listed.lines() if line.startswith("stopped")]
    assert "0 bytes" in running
    assert "when seen" not in running
    assert "0 bytes when seen" in stopped
    assert "9 bytes when seen" in stopped


async def test_the_metrics_tell_what_a_source_keeps_to_those_who_may_use_the_queue(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        for name, queue in (("shop", "orders.changes"), ("bank", "accounts.changes")):
            state = CaptureState(queue=queue, changes=7, lag_bytes=5, kept_bytes=9, alarm="too much")
            step = Reach(database=hw.name, name=f"capture/{name}", number=1, note=encode_state(state))
            await hw.queues_service.run(step)
        given_up = CaptureState(queue="orders.changes", dropped=True)
        await hw.queues_service.run(Reach(database=hw.name, name="capture/old", number=1, note=encode_state(given_up)))
        found = {}
        for patterns in (("*",), ("orders.*",)):
            principal = Principal(database=hw.name, scopes=frozenset({Scope.METRICS}), queues=patterns)
            request = Request(
                method="GET", path="/metrics", query="", headers={}, body=b"", id="r1", principal=principal
            )
            text = (await make_router(hw)(request)).body.decode()
            found[patterns] = {
                (sample.name, sample.labels["capture"]): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name.startswith("headwater_capture")
            }
    assert found["*",]["headwater_capture_kept_bytes", "bank"] == 9
    assert found["*",]["headwater_capture_alarm", "shop"] == 1
    assert ("headwater_capture_kept_bytes_max", "shop") not in found["*",]
    assert {capture for _, capture in found["*",]} == {"shop", "bank"}
    assert {capture for _, capture in found["orders.*",]} == {"shop"}
