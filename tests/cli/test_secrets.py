"""Canaries: a token, the key of the store and the environment of a job, looked for in all that is said and written.

`tests/doors/test_job_secrets.py` looks for environments in the library and on every route, `test_serve_access.py` for
what callers show at a door, `tests/pipeline/test_through_server.py` for tokens in all that Spark writes.
"""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from headwater.doors.all_routes import ROUTES
from headwater.model.access_token import digest_of
from tests.cli.program import Program, end
from tests.cli.test_serve_access import ask, serving

KEY = "c0ffee" * 10 + "beef"
ENVIRONMENT = "c4n4ry-of-a-job"
KEYED: dict[str, Any] = {"HEADWATER_ENCRYPTION_KEY": KEY}

COMMANDS = [
    ["queues"],
    ["queues", "show", "secret"],
    ["groups"],
    ["leases"],
    ["dlq", "list", "secret"],
    ["pop", "secret", "--group", "g"],
    ["tail", "secret", "--from", "beginning", "--no-follow"],
    ["doctor"],
    ["token", "list"],
    ["version"],
    ["jobs", "list"],
    ["jobs", "show", "backup"],
    ["jobs", "logs", "backup"],
    ["jobs", "schedule", "list"],
    ["jobs", "status"],
    ["jobs", "config", "list"],
    ["jobs", "dlq", "list"],
]


@pytest.fixture
def shop(program: Program) -> tuple[Program, str]:
    """A store with a key, a token that may do all, and a job that failed with something in its environment."""
    program.expect(0, "push", "plain", "1", **KEYED)
    program.expect(0, "queues", "configure", "secret", "encrypted=true", "lanes=1", **KEYED)
    program.expect(0, "push", "secret", '{"id": 7}', '{"id": 8}', **KEYED)
    scopes = [f"--scope={scope}" for scope in ("admin", "operator", "publish", "consume", "subscribe", "metrics")]
    token = program.expect(0, "token", "create", "boss", *scopes, **KEYED).out.strip()
    job = {"command": "echo ran; exit 3", "env": {"PASSWORD": ENVIRONMENT}, "max_retries": 0}
    program.expect(0, "jobs", "enqueue", json.dumps({"id": "backup", **job}), **KEYED)
    program.expect(0, "jobs", "schedule", "add", "nightly", json.dumps(job), "--cron", "@daily", **KEYED)
    return program, token


def unsaid(token: str) -> list[str]:
    """What nobody may be told."""
    return [token, token.rpartition("_")[2], digest_of(token), KEY, KEY.upper(), ENVIRONMENT]


def expect_unsaid(secrets: list[str], said: str, where: object) -> None:
    assert [secret for secret in secrets if secret in said] == [], where


def test_no_command_and_no_worker_says_a_secret(shop: tuple[Program, str]) -> None:
    program, token = shop
    worked = program.run_process("jobs", "worker", "start", "--count", "1", "--drain", **KEYED)
    assert worked.code == 0
    expect_unsaid(unsaid(token), worked.out + worked.err, "worker")
    for command in COMMANDS:
        for form in ([], ["--json"]):
            ended = program.run(*command, *form, HEADWATER_TOKEN=token, **KEYED)
            assert ended.code in (0, 4), (command, ended)
            expect_unsaid(unsaid(token), ended.out + ended.err, command)


@pytest.mark.parametrize("wrong", ["c0ffee", "x" * 64, f"{KEY}00", KEY[:-4] + "dead"])
def test_a_key_that_is_wrong_is_not_quoted(shop: tuple[Program, str], wrong: str) -> None:
    program, _ = shop
    for command in (["doctor"], ["pop", "secret"], ["push", "secret", "1"]):
        ended = program.run(*command, HEADWATER_ENCRYPTION_KEY=wrong)
        assert wrong not in ended.out + ended.err, command


def test_no_file_has_a_token_or_the_key(shop: tuple[Program, str]) -> None:
    program, token = shop
    program.expect(0, "store", "backup", "copy.db", **KEYED)
    files = [path for path in program.folder.rglob("*") if path.is_file()]
    assert {"headwater.db", "copy.db"} <= {path.name for path in files}
    for path in files:
        kept = path.read_bytes()
        for secret in (token.encode(), token.rpartition("_")[2].encode(), KEY.encode(), bytes.fromhex(KEY)):
            assert secret not in kept, path
        assert b'"id":7' not in kept.replace(b" ", b""), f"{path}: the queue is encrypted"


def test_no_answer_and_no_log_of_a_server_says_a_secret(shop: tuple[Program, str]) -> None:
    program, token = shop
    statuses = []
    with serving(program, "--auth", "token", "--access-log", **KEYED) as (process, url):
        cmdline = Path(f"/proc/{process.pid}/cmdline").read_text()
        for route in ROUTES:
            if route.method != "GET" or "events" in route.path:
                continue
            path = re.sub(r"\{(id|name)\}", "backup", route.path).replace("{queue}", "secret")
            path = re.sub(r"\{\w+\}", "1", path)
            query = "queue=secret&id=backup&after=0&limit=10&wait=false&seconds=0&wait_seconds=0"
            for asked in (f"{path}?{query}", path) if "wait" not in path else (f"{path}?{query}",):
                status, headers, body = ask(f"{url}{asked}", token)
                statuses.append(status)
                expect_unsaid(unsaid(token), f"{headers}{body.decode(errors='replace')}", asked)
        ended = end(process, signal.SIGTERM)
    assert statuses.count(200) > 20, statuses
    expect_unsaid(unsaid(token), cmdline + ended.out + ended.err, "the log of the server")
