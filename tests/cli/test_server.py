"""Commands on a server: the same output and the same exit codes as on a store."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Ended, Program, end
from tests.cli.queuectl import Queuectl
from tests.cli.test_serve import serving
from tests.doors.live_door import LiveDoor, on_the_edge

# A moment, or how long something has waited.
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\b[\d.]+ m?s\b *")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    running = LiveDoor(tmp_path / "served.db", on_the_edge)
    running.start()
    yield running
    running.stop()


def alike(ended: Ended) -> tuple[int, str, str]:
    """What a command said, but for the time."""
    return ended.code, TIME.sub("TIME", ended.out), TIME.sub("TIME", ended.err)


# Each is run on a store and on a server, in this order.
COMMANDS = [
    ["push", "orders", '{"id": 7}', "8", "--partition", "ada", "--type", "made"],
    ["push", "orders", "9", "--transaction-id", "t", "--json"],
    ["push", "orders", "9", "--transaction-id", "t"],
    ["push", "orders", "{no json"],
    ["push", "no such name", "1"],
    ["queues"],
    ["queues", "--json"],
    ["queues", "configure", "orders", "retry_limit=0", "namespace=shop"],
    ["queues", "configure", "orders", "no_such_option=1", "--json"],
    ["queues", "show", "orders"],
    ["queues", "show", "missing"],
    ["tail", "orders", "--from", "beginning", "--no-follow"],
    ["tail", "orders", "--from", "2", "--no-follow", "--json"],
    ["tail", "missing", "--no-follow"],
    ["pop", "orders", "--batch", "2", "--group", "billing"],
    ["pop", "orders", "--group", "billing", "--json", "--partition", "Default"],
    ["pop", "orders", "--group", "billing", "--wait", "0.01"],
    ["groups"],
    ["groups", "--json", "--queue", "orders"],
    ["groups", "list", "--queue", "missing"],
    ["seek", "orders", "--group", "billing", "--to", "beginning"],
    ["seek", "orders", "--group", "billing", "--to", "1", "--partition", "ada", "--json"],
    ["seek", "missing", "--group", "billing", "--to", "end"],
    ["dlq", "list", "orders"],
    ["dlq", "list", "missing", "--json"],
    ["dlq", "requeue", "orders"],
    ["dlq", "purge", "orders", "--yes"],
    ["groups", "delete", "billing", "--queue", "orders", "--yes"],
    ["groups", "delete", "billing", "--yes"],
    ["queues", "delete", "orders", "--yes"],
    ["queues", "delete", "orders", "--yes", "--json"],
]


def test_every_command_says_the_same_on_a_server_as_on_a_store(program: Program, door: LiveDoor) -> None:
    for command in COMMANDS:
        on_a_store = alike(program.run(*command))
        on_a_server = alike(program.run(*command, "--server", door.url))
        assert on_a_server == on_a_store, command


# Jobs over HTTP are functions, and who submits them says so with a token.
JOB_COMMANDS = [
    ["enqueue", '{"id": "a", "type": "shop:mail", "kwargs": {"to": "ada"}}', '{"id": "b", "type": "shop:mail"}'],
    ["enqueue", '{"id": "c", "type": "shop:mail", "unique_key": "k"}', "--json"],
    ["enqueue", '{"id": "a", "type": "shop:mail"}'],
    ["enqueue", '{"no": "job"}'],
    ["status"],
    ["status", "--json"],
    ["list"],
    ["list", "--state", "pending", "--json"],
    ["show", "a"],
    ["show", "a", "--json"],
    ["show", "missing"],
    ["wait", "a", "--timeout", "0.01s"],
    ["logs", "a"],
    ["cancel", "a"],
    ["cancel", "missing"],
    ["wait", "a"],
    ["retry", "a", "--json"],
    ["pause", "default"],
    ["resume", "default"],
    ["limit", "shop:mail", "--concurrency", "3"],
    ["config", "set", "max-retries", "5"],
    ["config", "get", "max-retries"],
    ["config", "list", "--json"],
    ["schedule", "list"],
    ["dlq", "list"],
    ["dlq", "retry", "--all"],
    ["stats", "--json"],
    ["worker", "list"],
    ["worker", "stop"],
    ["cleanup", "--older-than", "0s", "--state", "cancelled"],
]


def test_every_command_of_jobs_says_the_same_on_a_server_as_on_a_store(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    with serving(Program(tmp_path), "--store", "served.db", "--auth", "token") as (process, url):
        made = Program(tmp_path).run(
            "token", "create", "ada", "--scope", "admin", "--scope", "jobs:submit", "--store", "served.db", "--json"
        )
        (tmp_path / "token").write_text(made.document()["token"])
        for command in JOB_COMMANDS:
            on_a_store = alike(queuectl.run(*command))
            on_a_server = alike(queuectl.run(*command, "--server", url, "--token-file", "token"))
            assert on_a_server == on_a_store, command
        refused = queuectl.run("enqueue", '{"command": "true"}', "--server", url, "--token-file", "token", "--json")
        assert refused.error()["code"] == "not_allowed"
        assert queuectl.run("worker", "start", "--server", url).code == 2
        assert end(process, signal.SIGTERM).code == 0


def test_dead_letters_are_shown_and_put_back(program: Program, door: LiveDoor) -> None:
    program.run("push", "orders", "1", HEADWATER_SERVER=door.url)

    async def fail() -> None:
        queue = door.hw.queue("orders")
        await queue.fail(await queue.pop(), error="broken", retry=False)

    asyncio.run_coroutine_threadsafe(fail(), door.loop).result(10)
    assert "broken" in program.run("dlq", "show", "orders", "1", HEADWATER_SERVER=door.url).out
    assert program.run("dlq", "requeue", "orders", HEADWATER_SERVER=door.url).code == 0
    assert program.run("pop", "orders", "--json", HEADWATER_SERVER=door.url).document()["payload"] == 1


def test_lines_are_pushed_in_bites_that_a_server_takes(program: Program, door: LiveDoor, tmp_path: Path) -> None:
    lines = tmp_path / "lines.ndjson"
    lines.write_text("".join(f'"{"x" * 100_000}"\n' for _ in range(30)))
    ended = program.run("push", "orders", "--file", str(lines), "--server", door.url, "--json")
    assert ended.document()["messages"] == 30


def test_a_tail_follows_a_server(program: Program, door: LiveDoor) -> None:
    program.run("push", "orders", "1", "2", HEADWATER_SERVER=door.url)
    ended = program.run("tail", "orders", "--from", "beginning", "--limit", "2", "--json", HEADWATER_SERVER=door.url)
    assert [document["payload"] for document in ended.documents()] == [1, 2]


def test_a_server_that_is_away_is_told_like_a_store_that_cannot_be_opened(program: Program) -> None:
    ended = program.run("queues", "--server", "http://127.0.0.1:1", "--json")
    assert ended.code == 3
    assert ended.error()["code"] == "server_unreachable"


def test_the_token_comes_from_a_file_or_a_variable_and_is_not_shown(program: Program, door: LiveDoor) -> None:
    (program.folder / "token").write_text("hw_secret\n")
    assert program.run("queues", "--server", door.url, "--token-file", "token").code == 0
    assert program.run("queues", "--server", door.url, HEADWATER_TOKEN="hw_secret").code == 0
    wrong = program.run("queues", "--server", door.url, HEADWATER_TOKEN="hw secret")
    assert (wrong.code, "secret" in wrong.err) == (2, False)
    assert program.run("queues", "--server", door.url, "--token-file", "missing").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--server", "http://127.0.0.1:1", "queues", "--store", "x.db"],
        ["queues", "--server", "http://127.0.0.1:1", "--database", "tenant"],
        ["doctor", "--server", "http://127.0.0.1:1"],
        ["--server", "http://127.0.0.1:1", "doctor"],
    ],
)
def test_what_makes_no_sense_on_a_server_is_refused(program: Program, arguments: list[str]) -> None:
    assert program.run(*arguments).code == 2


def test_a_store_that_is_named_goes_before_a_server_of_the_surroundings(program: Program) -> None:
    program.run("push", "orders", "1", "--store", "own.db")
    ended = program.run("queues", "--store", "own.db", "--json", HEADWATER_SERVER="http://127.0.0.1:1")
    assert ended.document()["queue"] == "orders"


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "worker", "start", "--drain"),
        ("token", "list"),
        ("token", "create", "reader", "--scope", "consume"),
        ("store", "identity"),
    ],
)
def test_what_needs_a_store_takes_none_by_default_where_a_server_is_named(
    program: Program, words: tuple[str, ...]
) -> None:
    """An empty store of the default name would look as if there were nothing to do."""
    refused = program.run(*words, HEADWATER_SERVER="http://127.0.0.1:1", HEADWATER_STORE="")
    assert refused.code == 2, refused.err
    assert "name the store" in refused.err
    assert not list(program.folder.glob("headwater.db*"))


def test_rules_are_set_and_listed_on_a_server(program: Program, door: LiveDoor) -> None:
    rule = {"pattern": "notes", "read": "true"}
    (program.folder / "rules.json").write_text(json.dumps([rule]))
    ended = program.run("rules", "set", str(program.folder / "rules.json"), HEADWATER_SERVER=door.url)
    assert ended.code == 0, ended.err
    assert [
        (one.pattern, one.read)
        for one in asyncio.run_coroutine_threadsafe(door.hw.document_rules(), door.loop).result(10)
    ] == [("notes", "true")]
    assert program.run("rules", "list", "--json", HEADWATER_SERVER=door.url).document()["pattern"] == "notes"
