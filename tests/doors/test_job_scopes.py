"""What a token may do with jobs: running code needs `jobs:submit` whichever way it is asked for, and what is not theirs
changes no answer, not even that a name is taken."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.doors.all_routes import make_door
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.model.principal import Principal, Scope

CALL = {"type": "tasks:send", "kwargs": {"to": "ada"}, "queue": "mail"}
OWNER = Principal(scopes=frozenset({Scope.ADMIN, Scope.SUBMIT_JOBS}))
ADMIN = Principal(scopes=frozenset({Scope.ADMIN}))
MAIL = Principal(scopes=frozenset({Scope.ADMIN, Scope.SUBMIT_JOBS}), queues=("mail", "mail.*"))
NATIVE_CALL = {"type": "tasks:send", "queue": "mail"}
NATIVE = {"name": "nightly", "job": NATIVE_CALL, "cron": "@hourly"}


class Visitor:
    """Asks the routes themselves, as whoever it is."""

    def __init__(self, hw: headwater.Headwater) -> None:
        site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "1")
        self._door = make_door(site)

    async def ask(self, who: Principal, method: str, path: str, body: object = None) -> tuple[int, Any]:
        sent = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        headers = {"content-type": "application/json"}
        request = Request(method=method, path=path, query=query, headers=headers, body=sent, id="r", principal=who)
        response = await self._door(request)
        return response.status, json.loads(response.body or b"null")


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as opened:
        yield opened


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "other.db"), housekeeping=False) as opened:
        yield opened


WAYS_TO_RUN = [
    ("POST", "/api/v1/jobs", {"jobs": [CALL]}),
    ("PUT", "/api/v1/job-schedules/new", {"job": CALL, "cron": "@daily"}),
    ("PUT", "/api/v1/job-schedules/nightly", {"job": CALL, "cron": "@hourly"}),
    ("POST", "/api/v1/job-schedules/nightly/run", None),
    ("POST", "/api/v1/job-schedules/nightly/resume", None),
    ("POST", "/v1/operations/enqueue", {"jobs": [NATIVE_CALL]}),
    ("POST", "/v1/operations/put-schedule", NATIVE),
    ("POST", "/v1/operations/change-schedule", {"name": "nightly", "run": True}),
    ("POST", "/v1/operations/change-schedule", {"name": "nightly", "paused": False}),
]


@pytest.mark.parametrize(("method", "path", "body"), WAYS_TO_RUN)
async def test_running_code_needs_the_scope_for_it_whichever_way_it_is_asked_for(
    hw: headwater.Headwater, method: str, path: str, body: object
) -> None:
    visitor = Visitor(hw)
    await hw.jobs.schedule("nightly", type="tasks:send", queue="mail", cron="@daily")
    await hw.jobs.pause_schedule("nightly")
    before = await hw.jobs.schedules()
    status, _ = await visitor.ask(ADMIN, method, path, body)
    assert status == 403
    assert await hw.jobs.list() == []
    assert await hw.jobs.schedules() == before
    submitter = Principal(scopes=frozenset({Scope.SUBMIT_JOBS}))
    if "schedule" in path:
        assert (await visitor.ask(submitter, method, path, body))[0] == 403, "a schedule may be another's"
        assert await hw.jobs.schedules() == before
    status, answer = await visitor.ask(OWNER, method, path, body)
    assert status in (200, 201), answer
    assert await hw.jobs.list() or await hw.jobs.schedules() != before


QUESTIONS: list[tuple[str, str, object]] = [
    ("POST", "/api/v1/jobs", {"jobs": [{**CALL, "id": "taken"}]}),
    ("POST", "/api/v1/jobs", {"jobs": [{**CALL, "id": "taken"}]}),
    ("POST", "/api/v1/jobs", {"jobs": [{**CALL, "id": "b", "depends_on": ["taken"]}]}),
    ("POST", "/api/v1/jobs", {"jobs": [{**CALL, "id": "c", "unique_key": "key"}]}),
    ("POST", "/api/v1/jobs", {"jobs": [{**CALL, "id": "d", "depends_on": ["done"]}]}),
    ("POST", "/v1/operations/enqueue", {"jobs": [{**NATIVE_CALL, "id": "done"}]}),
    ("GET", "/api/v1/jobs/taken", None),
    ("GET", "/api/v1/jobs/elsewhere", None),
    ("GET", "/api/v1/jobs/b", None),
    ("POST", "/v1/questions/find-job", {"id": "taken"}),
    ("POST", "/v1/questions/list-job-dependencies", {"id": "b"}),
    ("GET", "/api/v1/jobs", None),
    ("POST", "/v1/questions/list-jobs", {}),
    ("POST", "/api/v1/jobs/cancel", {"ids": ["taken"]}),
    ("POST", "/api/v1/jobs/cancel", {"ids": ["elsewhere"]}),
    ("POST", "/api/v1/jobs/retry", {"ids": ["done"]}),
    ("POST", "/v1/operations/cancel-jobs", {"ids": ["done"]}),
    ("POST", "/v1/operations/drop-jobs", {"ids": ["elsewhere"]}),
    ("PUT", "/api/v1/job-schedules/nightly", {"job": CALL, "cron": "@daily"}),
    ("GET", "/api/v1/job-schedules", None),
    ("POST", "/api/v1/job-schedules/nightly/pause", None),
    ("POST", "/v1/operations/change-schedule", {"name": "hourly", "paused": True}),
    ("DELETE", "/api/v1/job-schedules/nightly", None),
    ("DELETE", "/api/v1/job-schedules/hourly", None),
    ("GET", "/api/v1/job-queues", None),
]


def timeless(answer: Any) -> Any:
    """An answer without times and generated ids, which differ anyway."""
    if isinstance(answer, dict):
        return {
            name: timeless(value) for name, value in answer.items() if not name.endswith("_at") and name != "number"
        }
    return [timeless(one) for one in answer] if isinstance(answer, list) else answer


async def test_what_others_have_changes_no_answer(hw: headwater.Headwater, other: headwater.Headwater) -> None:
    """The same questions to a store where others have jobs, keys and schedules of the same names, and to one that has
    none: the answers are alike."""
    await hw.jobs.add(type="tasks:send", id="taken", queue="secret")
    await hw.jobs.add(type="tasks:send", id="elsewhere", queue="secret", unique_key="key", concurrency_key="key")
    await hw.jobs.add(type="tasks:send", id="done", queue="secret")
    await hw.jobs.cancel("done")
    await hw.jobs.schedule("nightly", type="tasks:send", queue="secret", cron="@daily")
    await hw.jobs.schedule("hourly", type="tasks:send", queue="secret", cron="@hourly")
    visitors = (Visitor(hw), Visitor(other))
    statuses = set()
    for method, path, body in QUESTIONS:
        first, second = [await visitor.ask(MAIL, method, path, body) for visitor in visitors]
        assert (first[0], timeless(first[1])) == (second[0], timeless(second[1])), (method, path)
        statuses.add(first[0])
    assert statuses == {200, 201, 404, 409}, "something of everything was asked"
    assert {one.name for one in await hw.jobs.schedules()} == {"nightly", "hourly"}, "others' are untouched"


async def test_who_may_use_some_queues_knows_their_jobs_by_the_ids_they_chose(hw: headwater.Headwater) -> None:
    visitor = Visitor(hw)
    jobs = [{**CALL, "id": "first"}, {**CALL, "id": "second", "depends_on": ["first"]}]
    status, added = await visitor.ask(MAIL, "POST", "/api/v1/jobs", {"jobs": jobs})
    assert (status, [one["id"] for one in added]) == (201, ["first", "second"])
    status, shown = await visitor.ask(MAIL, "GET", "/api/v1/jobs/second")
    assert (shown["id"], [one["id"] for one in shown["depends_on"]]) == ("second", ["first"])
    status, again = await visitor.ask(MAIL, "POST", "/api/v1/jobs", {"jobs": jobs[:1]})
    assert (status, again["code"]) == (409, "job_exists")
    whole = {job.id for job in await hw.jobs.list()}
    assert all(id.endswith((":first", ":second")) for id in whole), "those who see all queues see whose they are"
    assert (await visitor.ask(MAIL, "GET", f"/api/v1/jobs/{next(iter(whole))}"))[0] == 200
    status, changed = await visitor.ask(MAIL, "POST", "/api/v1/jobs/cancel", {"ids": ["second"]})
    assert (status, changed["ids"]) == (200, ["second"])
