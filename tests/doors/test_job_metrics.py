"""Jobs in `/metrics`: states, what was done lately, workers; each principal's own queues, and never endlessly many."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.app import make_router
from headwater.doors import job_metrics
from headwater.doors.routes import Router
from headwater.doors.wire import Request
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.job import JobOutcome
from headwater.model.principal import Principal, Scope

OPERATOR = Principal(scopes=frozenset(Scope))
SCRAPER = Principal(scopes=frozenset({Scope.METRICS}), queues=("mail",))

LABELS = ("queue", "state", "outcome")
Samples = dict[tuple[str, ...], float]


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as opened:
        for queue in ("mail", "post", "press"):
            await opened.jobs.add(command="true", queue=queue)
        await opened.jobs.add(command="true", queue="mail", delay=60)
        (job,) = (await opened.jobs_service.run(Claim(worker="w", queues=("mail",)))).jobs
        report = JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED, duration_seconds=1.5)
        await opened.jobs_service.run(Settle(worker="w", reports=[report]))
        await opened.jobs.pause("post")
        yield opened


async def scraped(router: Router, principal: Principal) -> Samples:
    request = Request(method="GET", path="/metrics", query="", headers={}, body=b"", id="r1", principal=principal)
    response = await router(request)
    assert response.status == 200
    families = text_string_to_metric_families(response.body.decode())
    return {
        (sample.name, *(sample.labels[name] for name in LABELS if name in sample.labels)): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("headwater_job")
    }


async def test_jobs_are_counted_by_queue_and_state_with_what_was_done_lately(hw: headwater.Headwater) -> None:
    found = await scraped(make_router(hw), OPERATOR)
    assert found["headwater_jobs", "mail", "completed"] == 1
    assert found["headwater_jobs", "mail", "scheduled"] == 1
    assert found["headwater_jobs", "post", "pending"] == 1
    assert found["headwater_job_queues_paused", "post"] == 1
    assert found["headwater_job_queues_paused", "mail"] == 0
    assert found["headwater_jobs_lately", "mail", "completed"] == 1
    assert found["headwater_jobs_lately", "mail", "enqueued"] == 2
    assert found["headwater_job_run_seconds_lately", "mail"] == 1.5
    assert found["headwater_job_workers",] == 1


async def test_a_scraper_for_one_queue_sees_that_queue_alone(hw: headwater.Headwater) -> None:
    found = await scraped(make_router(hw), SCRAPER)
    assert {name[1] for name in found if len(name) > 1} == {"mail"}
    assert ("headwater_job_workers",) not in found


async def test_queues_beyond_a_number_are_added_up(hw: headwater.Headwater, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "LABELLED_MAX", 1)
    found = await scraped(make_router(hw), OPERATOR)
    assert {name[1] for name in found if len(name) > 1} == {"mail", "*"}
    assert found["headwater_jobs", "*", "pending"] == 2
    assert found["headwater_jobs_lately", "*", "enqueued"] == 2
