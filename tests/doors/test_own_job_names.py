"""Ids of jobs and names of schedules that tokens for some queues choose: a walk over all routes about jobs with tokens
that share queues and use the same ids, and an owner who uses them too."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headwater
from headwater.doors.all_routes import ROUTES, make_door
from headwater.doors.native import jobs
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.job import JobOutcome
from headwater.model.principal import Principal, Scope
from headwater.services.wire_forms import operation_path, question_path

SCOPES = frozenset({Scope.ADMIN, Scope.SUBMIT_JOBS})
OWNER = Principal(scopes=SCOPES)
# Two tokens that may both use the queue mail, and one that may not.
WIDE = Principal(scopes=SCOPES, queues=("mail", "post"))
NARROW = Principal(scopes=SCOPES, queues=("mail",))
APART = Principal(scopes=SCOPES, queues=("print",))
QUEUES = {OWNER: "mail", WIDE: "mail", NARROW: "mail", APART: "print"}
MARKS = [principal.own_name("x")[:-1] for principal in (WIDE, NARROW, APART)]


class Visitor:
    """Asks the routes themselves, as whoever it is."""

    def __init__(self, hw: headwater.Headwater) -> None:
        self._door = make_door(Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "1"))

    async def response(self, who: Principal, method: str, path: str, body: object = None) -> Response:
        sent = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        headers = {"content-type": "application/json", "last-event-id": "1"}
        return await self._door(
            Request(method=method, path=path, query=query, headers=headers, body=sent, id="r", principal=who)
        )

    async def ask(self, who: Principal, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """An answer, which has nobody's mark in it when it is for one who may use some queues."""
        response = await self.response(who, method, path, body)
        text = response.body.decode()
        if response.chunks is not None:
            text += await first_events(response)
        if not who.may_use_all():
            assert [mark for mark in MARKS if mark in text] == [], (method, path, text)
        return response.status, text if response.chunks is not None else json.loads(text or "null")


async def first_events(response: Response) -> str:
    """What a stream of events says before it waits for more."""
    assert response.chunks is not None
    told = ""
    async with asyncio.timeout(60):
        while "last" not in told:
            told += (await anext(response.chunks)).decode()
    await response.chunks.aclose()
    return told


@pytest.fixture
async def hw(address: str) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(address, housekeeping=False) as opened:
        yield opened


def job(who: Principal, id: str, **more: object) -> dict[str, object]:
    return {"type": "tasks:send", "queue": QUEUES[who], "id": id, **more}


def nameless(who: Principal, **more: object) -> dict[str, object]:
    return {"type": "tasks:send", "queue": QUEUES[who], **more}


async def populate(hw: headwater.Headwater, visitor: Visitor) -> None:
    """Everybody has jobs and schedules of the same names; all but the last have failed, and say their ids."""
    for who in (OWNER, WIDE, NARROW, APART):
        jobs = [
            job(who, "order-17", retries=0, unique_key="key", concurrency_key="one at a time"),
            job(who, "order-18", retries=0),
        ]
        assert (await visitor.ask(who, "POST", "/api/v1/jobs", {"jobs": jobs}))[0] == 201
        schedule = {"job": nameless(who, unique_key="nightly", concurrency_key="nightly"), "cron": "@daily"}
        assert (await visitor.ask(who, "PUT", "/api/v1/job-schedules/nightly", schedule))[0] == 200
    await fail_all(hw)
    for who in (OWNER, WIDE, NARROW, APART):
        jobs = [job(who, "last", depends_on=["order-17"], depends_when="finished"), job(who, "very-last")]
        assert (await visitor.ask(who, "POST", "/v1/operations/enqueue", {"jobs": jobs}))[0] == 201


async def fail_all(hw: headwater.Headwater) -> None:
    while True:
        claimed = await hw.jobs_service.run(Claim(worker="w", limit=1))
        if not claimed.jobs:
            return
        [one] = claimed.jobs
        said = JobReport(
            number=one.number,
            token=one.token,
            outcome=JobOutcome.FAILED,
            error=f"job {one.id} failed",
            output=f"I am {one.id}",
        )
        await hw.jobs_service.run(Settle(worker="w", reports=[said]))


def questions(who: Principal) -> list[tuple[str, str, object]]:
    """Something to ask of every route about jobs, with an error of each kind; what destroys most comes last."""
    again = {"jobs": [job(who, "order-17")]}
    schedule = {"name": "nightly", "job": job(who, ""), "cron": "@daily"}
    return [
        ("GET", "/api/v1/jobs", None),
        ("GET", "/api/v1/jobs/order-17", None),
        ("GET", "/api/v1/jobs/last", None),
        ("GET", "/api/v1/jobs/no-such", None),
        ("GET", "/api/v1/jobs/order-17/wait?seconds=0", None),
        ("GET", "/api/v1/job-queues", None),
        ("GET", "/api/v1/job-stats", None),
        ("GET", "/api/v1/job-events", None),
        ("GET", "/api/v1/job-events?id=last", None),
        ("GET", "/api/v1/job-config", None),
        ("GET", "/api/v1/job-schedules", None),
        ("GET", "/api/v1/workers", None),
        ("GET", "/api/v1/job-limits", None),
        ("POST", "/v1/questions/list-jobs", {}),
        ("POST", "/v1/questions/list-jobs", {"chosen": {"state": "dead"}}),
        ("POST", "/v1/questions/find-job", {"id": "order-17"}),
        ("GET", "/v1/jobs/wait?id=order-17&seconds=0", None),
        ("POST", "/v1/questions/list-job-attempts", {"id": "order-17"}),
        ("POST", "/v1/questions/list-job-dependencies", {"id": "last"}),
        ("POST", "/v1/questions/list-job-queues", {}),
        ("POST", "/v1/questions/list-job-minutes", {}),
        ("POST", "/v1/questions/list-job-limits", {}),
        ("POST", "/v1/questions/list-job-config", {}),
        ("POST", "/v1/questions/list-schedules", {}),
        ("POST", "/v1/questions/list-job-types", {}),
        ("POST", "/v1/questions/list-workers", {}),
        ("POST", "/api/v1/jobs", again),
        ("POST", "/api/v1/jobs", {"jobs": [job(who, "x" * 250)]}),
        ("POST", "/api/v1/jobs", {"jobs": [job(who, "b", depends_on=["no-such"])]}),
        ("POST", "/v1/operations/enqueue", again),
        ("POST", "/v1/transaction", {"operations": [{"kind": "jobs", "jobs": [job(who, "in a", retries=0)]}]}),
        ("POST", "/v1/transaction", {"operations": [{"kind": "jobs", "jobs": [job(who, "in-one")]}]}),
        ("POST", "/v1/transaction", {"operations": [{"kind": "jobs", "jobs": [job(who, "order-17")]}]}),
        ("POST", "/api/v1/jobs/cancel", {"ids": ["last"]}),
        ("POST", "/api/v1/jobs/cancel", {"ids": ["last"]}),
        ("POST", "/v1/operations/cancel-jobs", {"ids": ["last"]}),
        ("POST", "/v1/operations/cancel-jobs", {"ids": ["very-last"]}),
        ("POST", "/api/v1/jobs/retry", {"ids": ["last"]}),
        ("POST", "/api/v1/jobs/retry", {"ids": ["last"]}),
        ("POST", "/v1/operations/retry-jobs", {"ids": ["last"]}),
        ("POST", "/v1/operations/retry-jobs", {"ids": ["very-last"]}),
        ("POST", "/api/v1/jobs/drop", {"ids": ["last"]}),
        ("POST", "/v1/operations/drop-jobs", {"ids": ["order-18"]}),
        ("POST", "/api/v1/jobs/drop", {"ids": ["order-18"]}),
        ("POST", "/api/v1/job-schedules/nightly/pause", None),
        ("POST", "/api/v1/job-schedules/nightly/resume", None),
        ("POST", "/api/v1/job-schedules/nightly/run", None),
        ("POST", "/api/v1/job-schedules/nightly/run", None),
        ("POST", "/api/v1/job-schedules/no-such/run", None),
        ("PUT", "/api/v1/job-schedules/nightly", {"job": job(who, ""), "every": -1}),
        ("PUT", f"/api/v1/job-schedules/{'x' * 250}", {"job": job(who, ""), "cron": "@daily"}),
        ("POST", "/v1/operations/put-schedule", schedule),
        ("POST", "/v1/operations/change-schedule", {"name": "nightly", "paused": True}),
        ("POST", "/v1/operations/change-schedule", {"name": "nightly", "run": True}),
        ("DELETE", "/api/v1/job-schedules/nightly", None),
        ("POST", f"/api/v1/job-queues/{QUEUES[who]}/pause", None),
        ("POST", f"/api/v1/job-queues/{QUEUES[who]}/resume", None),
        ("POST", "/v1/operations/pause-jobs", {"queue": QUEUES[who], "paused": False}),
        ("POST", "/api/v1/job-limits", {"type": "tasks:send", "queue": QUEUES[who], "concurrency": 1}),
        ("DELETE", f"/api/v1/job-limits?type=tasks:send&queue={QUEUES[who]}", None),
        ("POST", "/v1/operations/set-job-limit", {"type": "tasks:send", "queue": QUEUES[who], "concurrency": 1}),
        ("PUT", "/api/v1/job-config/retries", {"value": 3}),
        ("POST", "/v1/operations/set-job-config", {"name": "retries", "value": 3}),
        ("POST", "/v1/operations/register-types", {"types": {}}),
        ("POST", "/v1/operations/stop-workers", {"workers": ["w"]}),
        ("POST", "/api/v1/workers/stop", {"ids": ["w"]}),
        ("POST", "/v1/operations/cancel-jobs", {"state": "pending", "queue": QUEUES[who]}),
        ("POST", "/v1/operations/retry-jobs", {"state": "dead", "queue": QUEUES[who]}),
        ("POST", "/api/v1/jobs/cleanup", {"older_than": 0, "queue": QUEUES[who]}),
    ]


def steps(path: str) -> list[str]:
    return path.partition("?")[0].split("/")


def is_asked(method: str, path: str) -> bool:
    """Whether a route is among those that the walk asks."""
    wanted = steps(path)
    return any(
        method == asked
        and len(steps(given)) == len(wanted)
        and all(
            theirs in (ours, "") or theirs.startswith("{") for ours, theirs in zip(steps(given), wanted, strict=True)
        )
        for asked, given, _ in questions(WIDE)
    )


def test_the_walk_goes_over_every_route_about_jobs() -> None:
    own = {operation_path(kind) for kind in jobs.OPERATIONS} | {question_path(kind) for kind in jobs.QUESTIONS}
    about = [route for route in ROUTES if "job" in route.path or "/workers" in route.path or route.path in own]
    assert len(about) > 40
    assert [(route.method, route.path) for route in about if not is_asked(route.method, route.path)] == []


@pytest.mark.parametrize("who", [WIDE, NARROW, APART], ids=["wide", "narrow", "apart"])
async def test_nobodys_mark_is_in_any_answer_and_every_id_names_one_job(
    hw: headwater.Headwater, who: Principal
) -> None:
    visitor = Visitor(hw)
    await populate(hw, visitor)
    statuses: dict[int, int] = {}
    for method, path, body in questions(who):
        status, answer = await visitor.ask(who, method, path, body)
        statuses[status] = statuses.get(status, 0) + 1
        if isinstance(answer, list) and answer and isinstance(answer[0], dict):
            ids = [one["id"] for one in answer if "id" in one] + [one["name"] for one in answer if "name" in one]
            assert len(ids) == len(set(ids)), (path, ids)
    assert {200, 201, 400, 403, 404, 409} == set(statuses)


async def test_each_sees_and_changes_its_own_job_of_an_id(hw: headwater.Headwater) -> None:
    visitor = Visitor(hw)
    for who in (OWNER, WIDE, NARROW):
        made = job(who, "order-17", kwargs={"by": who.queues}, delay=3_600)
        assert (await visitor.ask(who, "POST", "/api/v1/jobs", {"jobs": [made]}))[0] == 201
    for who in (WIDE, NARROW):
        _, [listed] = await visitor.ask(who, "GET", "/api/v1/jobs")
        _, shown = await visitor.ask(who, "GET", "/api/v1/jobs/order-17")
        assert listed["arguments"] == shown["arguments"] == [[], {"by": list(who.queues)}]
    assert await visitor.ask(WIDE, "POST", "/api/v1/jobs/cancel", {"ids": ["order-17"]}) == (200, {"ids": ["order-17"]})
    states = {one.id: one.state.value for one in await hw.jobs.list()}
    assert states == {
        "order-17": "scheduled",
        WIDE.own_name("order-17"): "cancelled",
        NARROW.own_name("order-17"): "scheduled",
    }
    # A job that the owner put into their queue is seen as long as they have none of its id.
    await hw.jobs.add(type="tasks:send", queue="mail", id="owners")
    for who in (WIDE, NARROW):
        _, listed = await visitor.ask(who, "POST", "/v1/questions/list-jobs", {})
        assert sorted(one["id"] for one in listed) == ["order-17", "owners"]
    # What another token for the same queue chose is not theirs to name.
    stolen = WIDE.own_name("order-17")
    assert (await visitor.response(NARROW, "GET", f"/api/v1/jobs/{stolen}")).status == 404


async def test_what_is_not_theirs_takes_no_place_in_a_list(hw: headwater.Headwater) -> None:
    visitor = Visitor(hw)
    for number in range(20):
        await hw.jobs.add(type="tasks:send", queue="secret", id=f"other-{number}")
    for who in (WIDE, NARROW, APART):
        await visitor.ask(who, "POST", "/api/v1/jobs", {"jobs": [job(who, "mine")]})
    asked: list[tuple[str, str, object]] = [
        ("GET", "/api/v1/jobs?limit=5", None),
        ("POST", "/v1/questions/list-jobs", {"chosen": {"limit": 5}}),
    ]
    for method, path, body in asked:
        for who in (WIDE, NARROW, APART):
            _, listed = await visitor.ask(who, method, path, body)
            assert [one["id"] for one in listed] == ["mine"]
        assert (await visitor.ask(Principal(scopes=SCOPES, queues=("none",)), method, path, body)) == (200, [])
    nonsense = {"chosen": {"state": "nonsense"}}
    assert (await visitor.ask(WIDE, "POST", "/v1/questions/list-jobs", nonsense))[0] == 400


async def test_events_tell_of_ones_own_jobs_under_ones_own_ids(hw: headwater.Headwater) -> None:
    visitor = Visitor(hw)
    await populate(hw, visitor)
    for who in (WIDE, NARROW):
        _, told = await visitor.ask(who, "GET", "/api/v1/job-events")
        changes = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ") and len(line) > 8]
        assert {change["id"] for change in changes} == {"order-17", "order-18", "last", "very-last"}
        begun = [change["id"] for change in changes if change["state"] == "pending"]
        assert sorted(begun) == ["last", "order-17", "order-18", "very-last"]


def test_a_name_that_is_too_long_with_its_mark_is_refused_with_the_bound() -> None:
    with pytest.raises(headwater.errors.InvalidName, match="with this token a job may have 247 characters; got 248"):
        WIDE.check_own_name("job", "x" * 248)
    assert WIDE.check_own_name("job", "x" * 247).endswith("x")
    assert OWNER.check_own_name("job", "x" * 256) == "x" * 256
