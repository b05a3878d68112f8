"""The environment of jobs goes in and never comes out: a canary is put wherever one fits, and looked for everywhere."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater import NewJob
from headwater.app import make_router
from headwater.doors.routes import Router
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.command_template import read_templates
from headwater.model.job import HIDDEN, JobOutcome, JobState
from headwater.model.names import Lsn
from headwater.model.principal import Principal, Scope
from headwater.stores.questions import FindLastLsn

CANARY = "c4n4ry"
ENV = {"DATABASE_PASSWORD": CANARY}
OPERATOR = Principal(scopes=frozenset(Scope))
TEMPLATES = read_templates(b'{"backup": {"argv": ["backup"], "env": {"DATABASE_PASSWORD": "%s"}}}' % CANARY.encode())


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    """A store whose jobs have canaries in their environments: one in every state, schedules, an allowed command."""
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as opened:
        jobs = opened.jobs
        await jobs.add(id="dead", command="true", env=ENV, retries=0)
        (claimed,) = (await opened.jobs_service.run(Claim(worker="w", limit=1))).jobs
        assert claimed.work.env == ENV, "who runs a job must get what it was given"
        report = JobReport(
            number=claimed.number, token=claimed.token, outcome=JobOutcome.FAILED, error="no", output="no\n"
        )
        await opened.jobs_service.run(Settle(worker="w", reports=[report]))
        await jobs.add(id="running", command="true", env=ENV)
        await opened.jobs_service.run(Claim(worker="w", limit=1))
        await jobs.add(id="pending", argv=("true",), env=ENV)
        await jobs.add(id="later", command="true", env=ENV, delay=60.0)
        await jobs.add(id="waiting", command="true", env=ENV, depends_on=("pending",))
        await jobs.add(id="cancelled", command="true", env=ENV)
        await jobs.cancel("cancelled")
        await jobs.schedule("nightly", command="true", env=ENV, cron="@daily")
        yield opened


@pytest.fixture
def router(hw: headwater.Headwater) -> Router:
    made = make_router(hw)
    made.site.commands = TEMPLATES
    return made


async def ask(router: Router, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
    path, _, query = path.partition("?")
    headers = {"content-type": "application/json"}
    request = Request(method=method, path=path, query=query, headers=headers, body=body, id="r1", principal=OPERATOR)
    response = await router(request)
    shown = response.body.decode(errors="replace")
    if response.chunks is not None:
        shown += (await anext(response.chunks)).decode() + (await anext(response.chunks)).decode()
        await response.chunks.aclose()
    return response.status, shown


async def test_no_route_that_looks_at_anything_tells_the_environment_of_a_job(
    hw: headwater.Headwater, router: Router
) -> None:
    answered = 0
    for route in router.routes:
        if route.path.startswith("/v1/questions/"):
            for name in ("dead", "running", "pending", "later", "waiting", "cancelled", "nightly"):
                status, shown = await ask(router, "POST", route.path, b'{"id": "%s"}' % name.encode())
                if status != 200:
                    status, shown = await ask(router, "POST", route.path, b"{}")
                assert CANARY not in shown, f"{route.path} tells it"
                answered += status == 200
        if route.method != "GET":
            continue
        for name in ("dead", "running", "pending", "later", "waiting", "cancelled", "nightly"):
            path = route.path.replace("{id}", name).replace("{name}", name).replace("{queue}", "default")
            if "{" in path or "events" in path:
                continue
            status, shown = await ask(router, "GET", f"{path}?id={name}&state=dead&wait=false&seconds=0")
            assert CANARY not in shown, f"GET {path} tells it"
            answered += status == 200
    assert answered > 100


async def test_an_allowed_command_is_scheduled_over_http_and_its_environment_is_not_answered(
    hw: headwater.Headwater, router: Router
) -> None:
    body = b'{"job": {"type": "command:backup"}, "cron": "@daily"}'
    for method, path in (
        ("PUT", "/api/v1/job-schedules/backup"),
        ("POST", "/api/v1/job-schedules/backup/pause"),
        ("POST", "/api/v1/job-schedules/backup/resume"),
        ("GET", "/api/v1/job-schedules"),
        ("POST", "/v1/questions/list-schedules"),
    ):
        status, shown = await ask(router, method, path, body if method == "PUT" else b"")
        assert status == 200, shown
        assert CANARY not in shown, f"{method} {path} tells it"
        assert "DATABASE_PASSWORD" in shown, "the names may be known"
    stored = hw.store.traits.location
    assert CANARY in _template(stored), "the worker must get it"


def _template(path: str) -> str:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        (job,) = connection.execute("SELECT job FROM hw_job_schedules WHERE name = 'backup'").fetchone()
    connection.close()
    return str(job)


async def test_no_answer_of_the_library_tells_it(hw: headwater.Headwater) -> None:
    found = await hw.jobs.list(limit=1_000)
    assert {job.state for job in found} >= set(JobState) - {JobState.COMPLETED, JobState.FAILED}
    told: list[object] = [found, await hw.jobs.schedules(), await hw.jobs.workers(), await hw.jobs.queues()]
    for job in found:
        told += [await hw.jobs.show(job.id), await hw.jobs.attempts(job.id), await hw.jobs.dependencies(job.id)]
        assert job.work.env == {"DATABASE_PASSWORD": HIDDEN}
    assert CANARY not in repr(told)


async def test_the_log_that_is_followed_archived_and_read_by_spark_does_not_have_it(hw: headwater.Headwater) -> None:
    segments = await hw.store.read(Lsn(0), await hw.store.ask(FindLastLsn()), 1_000, ("main", "headwater/jobs"))
    records = [bytes(record.data) for segment in segments for record in segment.records]
    assert len(records) > 5
    assert not any(CANARY.encode() in data for data in records)


async def test_the_view_that_other_tools_read_does_not_have_it(hw: headwater.Headwater) -> None:
    with sqlite3.connect(f"file:{hw.store.traits.location}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT * FROM jobs").fetchall()
    connection.close()
    assert len(rows) == 6
    assert CANARY not in repr(rows)


@pytest.mark.parametrize(
    "env",
    [
        {f"NAME_{number}": CANARY for number in range(2_000)},
        {"A=B": CANARY},
        {"": CANARY},
        {"A": f"{CANARY}\x00"},
        [CANARY],
        CANARY,
    ],
)
async def test_an_environment_that_is_refused_is_not_quoted(hw: headwater.Headwater, env: object) -> None:
    for call in (
        hw.jobs.add(NewJob(command="true", env=env)),  # type: ignore[arg-type]
        hw.jobs.schedule("s", NewJob(command="true", env=env), cron="@daily"),  # type: ignore[arg-type]
        hw.jobs.add({"command": "true", "env": env}),  # type: ignore[arg-type]
    ):
        with pytest.raises((HeadwaterError, TypeError)) as refused:
            await call
        assert CANARY not in str(refused.value)


async def test_what_an_answer_hid_is_not_taken_for_a_value(hw: headwater.Headwater) -> None:
    (schedule,) = await hw.jobs.schedules()
    with pytest.raises(HeadwaterError, match="give it anew"):
        await hw.jobs.schedule("copy", schedule.job, cron="@daily")
