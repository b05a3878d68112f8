"""Flows by the command line over a file and through a server: the same commands, and the same store after them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.cli import pipeline
from headwater.cli.program import run
from headwater.pipeline import session
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.pipeline.flows.logs import drop_all, fill, oracle
from tests.scenarios.servers import Server

ORDERS = "".join(f'{{"id": {number}, "customer": "c-{number % 3}"}}\n' for number in range(50))


class There(NamedTuple):
    """A store, and the options by which a command reaches it."""

    path: Path
    options: tuple[str, ...]

    def type(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
        """What a command answered: its exit code, and what it said."""
        code = run(["pipeline", "run", *arguments, *self.options, "--json"])
        said = capsys.readouterr()
        return code, said.out, said.err

    def facts(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
        """The summary of a flow that went well."""
        code, out, err = self.type(capsys, *arguments)
        assert code in (0, 6), err
        found: dict[str, object] = json.loads(out)
        return found


@pytest.fixture(params=["file", "server", "server as store"])
def there(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.db"
    fill(path, 60)
    if request.param == "file":
        yield There(path, ("--store", str(path)))
        return
    door = LiveDoor(path, on_the_edge, housekeeping=False)
    door.start()
    yield There(path, ("--server" if request.param == "server" else "--store", door.url))
    door.stop()


def test_files_are_loaded_once_and_bad_rows_set_aside(
    spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("orders.ndjson").write_text(ORDERS + "broken\n")
    command = ("load", "orders.ndjson", "--queue", "new", "--partition-field", "customer", "--id-field", "id")
    first = there.facts(capsys, *command)
    assert (first["rows_in"], first["loaded"], first["quarantined"]) == (51, 50, 1)
    again = there.facts(capsys, *command)
    assert (again["loaded"], again["loaded_before"]) == (0, 50)
    found = oracle(there.path, "new")
    assert {name: [one.payload["id"] for one in records] for name, records in found.items()} == {
        f"c-{lane}": list(range(lane, 50, 3)) for lane in range(3)
    }
    assert {one.transaction_id for records in found.values() for one in records} == set(map(str, range(50)))


def test_a_large_file_is_loaded_in_requests_that_a_server_takes(
    spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "x" * 10_000
    Path("large.ndjson").write_text("".join(f'{{"id": {number}, "text": "{text}"}}\n' for number in range(300)))
    assert there.facts(capsys, "load", "large.ndjson", "--queue", "large")["loaded"] == 300
    assert [one.payload["id"] for one in oracle(there.path, "large")["Default"]] == list(range(300))


def test_an_archive_is_restored_with_order_ids_and_times(
    spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", "archive", "--to", "archive", "--store", str(there.path)]) == 0
    capsys.readouterr()
    restored = there.facts(capsys, "restore", "--from", "archive", "--as", "copy")
    assert (restored["restored"], restored["still_in_the_queue"]) == (60, 0)
    assert there.facts(capsys, "restore", "--from", "archive", "--as", "copy")["restored_before"] == 60
    assert there.facts(capsys, "restore", "--from", "archive")["still_in_the_queue"] == 60
    assert oracle(there.path, "copy") == oracle(there.path, "orders")


def test_what_only_headwater_writes_is_neither_restored_nor_loaded(
    spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A change that is told and was not made would be believed: by live queries, replicas, and members of a room."""
    other = tmp_path / "other.db"
    with headwater.sync.open(str(other)) as hw:
        hw.collection("books").set("b1", {"title": "x"})
        hw.room("r1").send({"text": "x"})
        hw.queue("plain").push({"id": 1})
    run(["pipeline", "run", "archive", "--to", "archive", "--store", str(other)])
    capsys.readouterr()
    facts = there.facts(capsys, "restore", "--from", "archive")
    assert facts["restored"] == 1
    assert str(facts["left_out"]).startswith("headwater/documents/books, rooms/r1: ")
    assert there.facts(capsys, "restore", "--from", "archive", "--dry-run")["left_out"] == facts["left_out"]
    for queue in ("headwater/documents/books", "rooms/r1"):
        refused = there.type(capsys, "restore", "--from", "archive", "--queue", queue)
        assert (refused[0], "invalid_name" in refused[2]) == (2, True)
        named = there.type(capsys, "restore", "--from", "archive", "--queue", "plain", "--as", queue)
        assert (named[0], "invalid_name" in named[2]) == (2, True)
        Path("a.ndjson").write_text("{}\n")
        loaded = there.type(capsys, "load", "a.ndjson", "--queue", queue)
        assert (loaded[0], "invalid_name" in loaded[2]) == (2, True)
        assert oracle(there.path, queue) == {}
    code, _, err = there.type(capsys, "restore", "--from", "archive", "--queue", "rooms/r1", "--as", "r1.copy")
    assert (code, err) == (0, "")
    assert len(oracle(there.path, "r1.copy")) >= 1


def test_an_export_adds_what_is_new(spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("export", "--queue", "orders", "--to", "out", "--schema", "id BIGINT, name STRING")
    assert there.facts(capsys, *command)["rows_out"] == 60
    fill(there.path, 10, first=60)
    assert there.facts(capsys, *command)["rows_out"] == 10
    lines = [json.loads(line) for path in Path("out").glob("*.ndjson") for line in path.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == list(range(70))
    drop_all(there.path)
    fill(there.path, 3, first=70)
    after = there.facts(capsys, *command)
    assert (after["rows_out"], after["lost_to_retention_before"]) == (3, 0)


def test_a_flow_of_ones_own_goes_on_where_it_was(
    spark: SparkSession, there: There, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("served_flow.py").write_text(
        "from headwater.pipeline import flow\n\n\n"
        "@flow(reads='orders', writes='doubled', schema='id BIGINT')\n"
        "def double(orders):\n"
        "    return orders.selectExpr('partition', 'value.id * 2 AS id')\n"
    )
    command = ("served_flow:double", "--checkpoint", "checkpoint")
    assert there.facts(capsys, *command)["messages_out"] == 60
    fill(there.path, 6, first=60)
    assert there.facts(capsys, *command)["messages_out"] == 6
    found = [one.payload["id"] for records in oracle(there.path, "doubled").values() for one in records]
    assert sorted(found) == [number * 2 for number in range(66)]


# ── what a server does not do, and who may ──


@pytest.mark.parametrize("option", ["--server", "--store"])
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("archive", "--to", "archive"), "archive works on the store's file, not through a server"),
        (("rollup",), "rollup works on the store's file, not through a server"),
        (("examples.revenue:hourly_revenue",), "needs --checkpoint FOLDER"),
    ],
)
def test_what_goes_through_no_server_says_so_in_one_sentence(
    arguments: tuple[str, ...], why: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Spark, and without asking the server: nothing is there at this address."""
    code = run(["pipeline", "run", *arguments, option, "http://127.0.0.1:1"])
    said = capsys.readouterr()
    assert code != 0
    assert why in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "address",
    ["postgresql://app:canary@127.0.0.1:1/shop", "s3://bucket/log.sqlite", "file:///folder/log", "sqlite:///log.db"],
)
def test_a_flow_over_a_store_with_no_folder_beside_it_asks_for_its_checkpoint(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was kept under the current folder, by the address with its password: from another folder it began anew."""
    monkeypatch.chdir(tmp_path)
    code = run(["pipeline", "run", "examples.revenue:hourly_revenue", "--store", address])
    said = capsys.readouterr()
    assert code == 2
    assert "needs --checkpoint FOLDER" in said.err
    assert "canary" not in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("load", "orders.ndjson", "--queue", "new"), ("export", "--queue", "orders", "--to", "out")]
)
def test_a_server_that_is_not_there_is_told_before_spark_starts(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*arguments: object, **options: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start_session", start)
    monkeypatch.setattr(pipeline, "RETRY_SECONDS", 0.1)
    code = run(["pipeline", "run", *arguments, "--server", "http://127.0.0.1:1"])
    said = capsys.readouterr()
    assert code != 0
    assert said.err.startswith("error[server_unreachable]: 127.0.0.1:1")
    assert len(said.err.splitlines()) == 1


def test_a_token_is_taken_from_the_file_that_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "log.db", 5)
    with headwater.sync.open(str(tmp_path / "log.db"), housekeeping=False) as hw:
        tokens = hw._inner.access_tokens()
        _, secret = hw._bridge.run(tokens.create("flows", ("publish", "subscribe"), queues=("orders", "new")))
        _, narrow = hw._bridge.run(tokens.create("loads", ("publish",), queues=("new",)))
    Path("token").write_text(secret)
    Path("narrow").write_text(narrow)
    Path("orders.ndjson").write_text(ORDERS)
    server = Server(tmp_path / "log.db", "--auth", "token")
    try:
        command = ["pipeline", "run", "load", "orders.ndjson", "--server", server.url]
        assert run([*command, "--queue", "new", "--token-file", "narrow"]) == 0
        assert run([*command, "--queue", "orders", "--token-file", "narrow"]) != 0
        assert "'orders'" in capsys.readouterr().err
        export = ["pipeline", "run", "export", "--queue", "new", "--to", "out", "--server", server.url]
        assert run(export) != 0
        assert "asks for a token" in capsys.readouterr().err
        assert run([*export, "--token-file", "token"]) == 0
    finally:
        server.stop()
    assert len(oracle(tmp_path / "log.db", "new")["Default"]) == 50
    assert len(oracle(tmp_path / "log.db", "orders")) == 3
