"""What a job may not say is refused with a clear error before anything is stored, whichever way it comes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater import NewJob, outbox
from headwater.doors.all_routes import make_door
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError, InvalidOption, InvalidPayload
from headwater.jobs import JobApp, Retry, Snooze
from headwater.model.principal import Principal, Scope
from tests.cli.queuectl import Queuectl

TYPE = "tasks:send"
OWNER = Principal(scopes=frozenset({Scope.ADMIN, Scope.SUBMIT_JOBS}))

# What is said, and a word that the error must have.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a text for a list of jobs": ({"depends_on": "abc"}, "depends_on"),
    "a number for a list of jobs": ({"depends_on": 5}, "depends_on"),
    "a bad name among them": ({"depends_on": ["a b"]}, "job"),
    "a bad queue": ({"queue": "bad q"}, "queue"),
    "a bad type": ({"type": "bad type"}, "type"),
    "an empty type": ({"type": ""}, "type"),
    "a bad id": ({"id": "a b"}, "job"),
    "seconds without a key": ({"unique_seconds": 60}, "unique_key"),
    "a mode without a key": ({"unique_mode": "replace"}, "unique_key"),
    "a limit without a key": ({"concurrency_limit": 2}, "concurrency_key"),
    "two keys": ({"limit_key": "a", "concurrency_key": "b"}, "limit_key"),
    "a delay and a time": ({"delay": 5, "run_at": "2030-01-01T00:00:00Z"}, "delay"),
    "a delay below zero": ({"delay": -1}, "delay"),
    "a delay beyond all bounds": ({"delay": 1e300}, "delay"),
    "a time-out beyond all bounds": ({"timeout": 1e300}, "timeout"),
    "retries below zero": ({"retries": -1}, "retries"),
    "a text for a number": ({"retries": "5"}, "retries"),
    "a mode that there is not": ({"unique_key": "a", "unique_mode": "never"}, "unique_mode"),
    "a time that is none": ({"run_at": "tomorrow"}, "run_at"),
    "a function with a command": ({"command": "true"}, ""),
    "args that are no list": ({"args": "abc"}, "args"),
    "kwargs that are none": ({"kwargs": [1]}, "kwargs"),
    "an option that there is not": ({"retrys": 5}, "retrys"),
}
# JSON cannot say these.
NUMBERS: dict[str, Any] = {
    "NaN": {"args": [float("nan")]},
    "Infinity": {"kwargs": {"x": [1, {"y": float("inf")}]}},
    "an object": {"args": [object()]},
    "a lambda": {"kwargs": {"x": len}},
}


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as opened:
        yield opened


async def http(hw: headwater.Headwater, path: str, body: object, method: str = "POST") -> tuple[int, str]:
    site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "1")
    headers = {"content-type": "application/json"}
    sent = json.dumps(body).encode()
    request = Request(method=method, path=path, query="", headers=headers, body=sent, id="r", principal=OWNER)
    response = await make_door(site)(request)
    return int(response.status), response.body.decode()


@pytest.mark.parametrize(("said", "word"), REFUSED.values(), ids=REFUSED)
async def test_what_a_job_may_not_say_is_refused_whichever_way_it_comes(
    hw: headwater.Headwater, tmp_path: Path, said: dict[str, Any], word: str
) -> None:
    job = {"type": TYPE, **said}
    with pytest.raises(HeadwaterError) as refused:
        await hw.jobs.add(**job)
    assert word in str(refused.value)
    with pytest.raises((HeadwaterError, TypeError)):
        await hw.jobs.add_many([NewJob(type=TYPE), NewJob(**job)])
    with pytest.raises((HeadwaterError, TypeError)):
        await hw.jobs.add_batch([NewJob(**job)], batch="night")
    with pytest.raises(HeadwaterError):
        await hw.jobs.schedule("nightly", cron="@daily", **job)
    status, told = await http(hw, "/api/v1/jobs", {"jobs": [{"type": TYPE}, job]})
    assert status in (400, 403, 413, 422), told
    assert (await http(hw, "/v1/operations/enqueue", {"jobs": [job]}))[0] in (400, 403, 413, 422)
    ended = await asyncio.to_thread(Queuectl(tmp_path).run, "enqueue", json.dumps({"type": TYPE}), json.dumps(job))
    assert (ended.code, ended.out) == (2, "")
    assert word in ended.err
    assert await hw.jobs.list() == []
    assert await hw.jobs.schedules() == []


@pytest.mark.parametrize("field", ["id", "queue", "batch", "unique_key", "concurrency_key", "limit_key"])
async def test_a_field_that_is_there_and_empty_is_refused_over_http_as_on_the_command_line(
    hw: headwater.Headwater, tmp_path: Path, field: str
) -> None:
    """As by a variable that is not set: it was meant to say something."""
    job = {"type": TYPE, field: ""}
    status, told = await http(hw, "/api/v1/jobs", {"jobs": [{"type": TYPE}, job]})
    assert (status, field in told) == (400, True), told
    status, told = await http(hw, "/api/v1/job-schedules/nightly", {"cron": "@daily", "job": job}, "PUT")
    assert (status, field in told) == (400, True), told
    ended = await asyncio.to_thread(Queuectl(tmp_path).run, "enqueue", json.dumps(job))
    assert (ended.code, field in ended.err) == (2, True)
    assert await hw.jobs.list() == []
    assert await hw.jobs.schedules() == []


@pytest.mark.parametrize("said", NUMBERS.values(), ids=NUMBERS)
async def test_arguments_that_json_cannot_keep_are_refused_and_not_kept_as_something_else(
    hw: headwater.Headwater, said: dict[str, Any]
) -> None:
    app = JobApp()
    app.use(hw.jobs)
    send = app.job(name=TYPE)(_anything)
    args, kwargs = said.get("args", ()), said.get("kwargs", {})
    with pytest.raises(InvalidPayload, match="must be JSON values"):
        await hw.jobs.add(type=TYPE, **said)
    with pytest.raises(InvalidPayload):
        await send.enqueue(*args, **kwargs)
    with pytest.raises(InvalidPayload):
        send.job(*args, **kwargs)
    assert await hw.jobs.list() == []
    await send.enqueue(None, 1.5, [None], x=None)
    assert len(await hw.jobs.list()) == 1


def _anything(*args: Any, **kwargs: Any) -> None:
    """Takes what it gets."""


@pytest.mark.parametrize(
    "options",
    [
        {"name": "bad name"},
        {"name": "shell"},
        {"name": "command:backup"},
        {"queue": "bad q"},
        {"retries": -1},
        {"timeout": float("nan")},
        {"priority": 10**9},
        {"delay": 1e300},
        {"depends_on": "abc"},
        {"unique_mode": "never"},
        {"concurrency_limit": 0, "concurrency_key": "a"},
    ],
    ids=str,
)
def test_a_function_is_not_declared_with_what_none_of_its_calls_could_have(options: dict[str, Any]) -> None:
    app = JobApp()
    with pytest.raises(HeadwaterError):
        app.job(**options)(_anything)
    assert app.functions == {}
    if "name" not in options:
        with pytest.raises(HeadwaterError):
            app.job(_anything).using(**options)


@pytest.mark.parametrize("after", [1e300, float("nan"), float("inf"), -1, "60", True])
@pytest.mark.parametrize("kind", [Retry, Snooze])
def test_a_delay_that_cannot_be_is_refused_where_it_is_written(kind: Any, after: Any) -> None:
    with pytest.raises(InvalidOption, match="after"):
        kind(after)


async def test_a_job_of_an_outbox_is_checked_too(hw: headwater.Headwater, tmp_path: Path) -> None:
    import apsw

    connection = apsw.Connection(str(tmp_path / "headwater.db"))
    with pytest.raises(HeadwaterError), connection:
        outbox.enqueue(connection, NewJob(type=TYPE, unique_seconds=60))
    connection.close()
    assert await hw.jobs.list() == []


# ── the command line ──


def test_nothing_to_enqueue_is_an_error(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    for text in ("", "\n\n"):
        (tmp_path / "empty").write_text(text)
        ended = queuectl.expect(2, "enqueue", "--file", "empty")
        assert "no job to enqueue" in ended.err


def test_an_attempt_that_there_was_not_is_said(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", '{"id": "a", "command": "echo hi"}')
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain")
    assert queuectl.expect(0, "logs", "a", "--attempt", "1").out == "hi\n"
    ended = queuectl.expect(4, "logs", "a", "--attempt", "7")
    assert "a has had 1 attempt: there is no attempt 7" in ended.err


def test_a_queue_that_cannot_be_is_wrong_usage_and_one_that_is_not_there_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queuectl = Queuectl(tmp_path)
    for name in ("bad q", "", "ä"):
        ended = queuectl.expect(2, "worker", "start", "--count", "1", "--drain", "--queue", name)
        assert "--queue" in ended.err
    assert not (tmp_path / "headwater.db").exists()
    queuectl.expect(0, "enqueue", '{"id": "a", "command": "true", "queue": "mail"}')
    queuectl.expect(0, "worker", "start", "--count", "1", "--drain", "--queue", "mial")
    assert "there is no job queue mial so far" in caplog.text
    assert queuectl.expect(0, "show", "a", "--json").document()["state"] == "pending"
