"""Jobs over HTTP: functions in, their fate out; commands only by name, and none by default."""

import json
from collections.abc import Iterator

import httpx
import pytest

import headwater
from headwater.doors.all_routes import make_door
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.log.job_operations import Claim, Heartbeat, JobReport, NewJob, Settle, WorkerAbout
from headwater.log.operations import Clear
from headwater.model.command_template import read_templates
from headwater.model.job import HIDDEN, JOBS_QUEUE, JobOutcome
from headwater.model.principal import Principal, Scope
from tests.doors.live_door import LiveDoor

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SUBMITTER = Principal(scopes=frozenset({Scope.SUBMIT_JOBS}), queues=("mail", "default"))
ADMIN = Principal(scopes=frozenset({Scope.ADMIN, Scope.SUBMIT_JOBS}))
CALL = {"id": "a", "type": "tasks:send", "kwargs": {"to": "ada"}}


class Visitor:
    """Asks the routes themselves, as whoever it is."""

    def __init__(self, hw: headwater.Headwater) -> None:
        self.site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "1")
        self._door = make_door(self.site)

    async def ask(self, method: str, path: str, body: object = None, *, as_: Principal = ADMIN) -> tuple[int, object]:
        response = await self.response(method, path, body, as_=as_)
        return response.status, json.loads(response.body)

    async def response(
        self, method: str, path: str, body: object = None, *, as_: Principal = ADMIN, seen: str = ""
    ) -> Response:
        path, _, query = path.partition("?")
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | ({"last-event-id": seen} if seen else {})
        request = Request(
            method=method, path=f"/api/v1{path}", query=query, headers=headers, body=sent, id="r1", principal=as_
        )
        return await self._door(request)


@pytest.fixture
async def hw(address: str) -> "object":
    async with headwater.open(address, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def visitor(hw: headwater.Headwater) -> Visitor:
    return Visitor(hw)


async def run_next(hw: headwater.Headwater, result: str = '"sent"') -> None:
    """Complete the next job, as a worker would."""
    (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    report = JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED, result=result)
    await hw.jobs_service.run(Settle(worker="w", reports=[report]))


async def test_a_function_is_added_and_its_fate_is_told(hw: headwater.Headwater, visitor: Visitor) -> None:
    added = await visitor.ask("POST", "/jobs", {"jobs": [CALL]}, as_=SUBMITTER)
    assert added == (201, [{"id": "a", "duplicate": False}])
    status, shown = await visitor.ask("GET", "/jobs/a", as_=SUBMITTER)
    assert status == 200
    assert isinstance(shown, dict)
    assert (shown["state"], shown["arguments"]) == ("pending", [[], {"to": "ada"}])
    await run_next(hw)
    status, shown = await visitor.ask("GET", "/jobs/a/wait?seconds=5", as_=SUBMITTER)
    assert isinstance(shown, dict)
    assert (shown["state"], shown["result"]) == ("completed", "sent")


@pytest.mark.parametrize(
    "job",
    [
        {"command": "rm -rf /"},
        {"argv": ["reboot"]},
        {"type": "shell", "command": "true"},
        {"type": "tasks:send", "env": {"LD_PRELOAD": "x"}},
        {"type": "tasks:send", "cwd": "/"},
        {"type": "command:true"},
    ],
)
async def test_a_command_is_refused_whoever_asks(visitor: Visitor, job: dict[str, object]) -> None:
    status, _ = await visitor.ask("POST", "/jobs", {"jobs": [CALL, job]})
    assert status == 403
    status, _ = await visitor.ask("PUT", "/job-schedules/nightly", {"job": job, "cron": "@daily"})
    assert status == 403
    assert await visitor.ask("GET", "/jobs") == (200, [])


COMMANDS = read_templates(
    b"""{"resize": {"argv": ["/usr/bin/resize", "--width={width}", "{file}"], "queue": "mail", "timeout": 60,
        "env": {"MODE": "quick"},
        "parameters": {"width": {"type": "integer", "minimum": 1, "maximum": 4000}, "file": {}}}}"""
)
RESIZE = {"id": "r", "type": "command:resize", "kwargs": {"width": 80, "file": "a b; reboot"}}


async def test_a_command_that_the_operator_allows_by_name_is_filled_and_added(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    visitor.site.commands = COMMANDS
    assert (await visitor.ask("POST", "/jobs", {"jobs": [RESIZE]}, as_=SUBMITTER))[0] == 201
    job = await hw.jobs.show(SUBMITTER.own_name("r"))
    assert (job.type, job.queue) == ("command:resize", "mail")
    assert job.work.argv == ("/usr/bin/resize", "--width=80", "a b; reboot")
    assert (job.work.command, job.work.env, job.work.timeout_seconds) == ("", {"MODE": HIDDEN}, 60)
    schedule = {"job": {name: said for name, said in RESIZE.items() if name != "id"}, "cron": "@daily"}
    assert (await visitor.ask("PUT", "/job-schedules/nightly", schedule))[0] == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"type": "command:reboot"}, 403),
        ({"argv": ["reboot"]}, 403),
        ({"env": {"LD_PRELOAD": "x"}}, 403),
        ({"kwargs": {"width": 80, "file": "--config=/etc/shadow"}}, 400),
        ({"kwargs": {"width": 8_000, "file": "a"}}, 400),
        ({"kwargs": {"width": "80", "file": "a"}}, 400),
        ({"kwargs": {"width": 80}}, 400),
        ({"kwargs": {"width": 80, "file": "a", "more": 1}}, 400),
        ({"args": [80, "a"]}, 400),
        ({"queue": "default"}, 201),
        ({"queue": "other"}, 400),
        ({"timeout": 61.0}, 400),
        ({"timeout": 5.0}, 201),
    ],
)
async def test_an_allowed_command_takes_nothing_but_its_parameters(
    hw: headwater.Headwater, visitor: Visitor, change: dict[str, object], status: int
) -> None:
    visitor.site.commands = COMMANDS
    answer = await visitor.ask("POST", "/jobs", {"jobs": [{**RESIZE, **change}]}, as_=SUBMITTER)
    assert answer[0] == status
    assert len(await hw.jobs.list()) == (status == 201)


async def test_who_may_not_use_the_queue_of_a_command_may_not_run_it(visitor: Visitor) -> None:
    visitor.site.commands = COMMANDS
    other = Principal(scopes=frozenset({Scope.SUBMIT_JOBS}), queues=("default",))
    assert (await visitor.ask("POST", "/jobs", {"jobs": [RESIZE]}, as_=other))[0] == 404


async def test_without_the_scope_nothing_is_added_or_seen(visitor: Visitor) -> None:
    await visitor.ask("POST", "/jobs", {"jobs": [CALL]})
    owner = Principal(scopes=frozenset({Scope.ADMIN}))
    assert (await visitor.ask("POST", "/jobs", {"jobs": [CALL]}, as_=owner))[0] == 403
    publisher = Principal(scopes=frozenset({Scope.PUBLISH, Scope.CONSUME}))
    for path in ("/jobs", "/jobs/a", "/workers", "/job-queues", "/job-events", "/job-config"):
        assert (await visitor.ask("GET", path, as_=publisher))[0] == 403
    assert (await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]}, as_=SUBMITTER))[0] == 403


async def test_a_job_of_another_queue_or_database_is_not_there(visitor: Visitor) -> None:
    await visitor.ask("POST", "/jobs", {"jobs": [{**CALL, "queue": "secret"}]})
    missing = await visitor.ask("GET", "/jobs/nobody", as_=SUBMITTER)
    hidden = await visitor.ask("GET", "/jobs/a", as_=SUBMITTER)
    assert missing[0] == hidden[0] == 404
    foreign = Principal(database="tenant", scopes=frozenset({Scope.ADMIN}))
    assert (await visitor.ask("GET", "/jobs/a", as_=foreign))[0] == 404
    assert await visitor.ask("GET", "/jobs", as_=foreign) == (200, [])
    assert (await visitor.ask("POST", "/jobs", {"jobs": [{**CALL, "id": "b", "queue": "secret"}]}, as_=SUBMITTER))[
        0
    ] == 404


async def test_jobs_are_listed_cancelled_armed_again_and_dropped(visitor: Visitor) -> None:
    await visitor.ask("POST", "/jobs", {"jobs": [CALL, {**CALL, "id": "b", "queue": "mail"}]})
    _, listed = await visitor.ask("GET", "/jobs?queue=mail")
    assert isinstance(listed, list)
    assert [job["id"] for job in listed] == ["b"]
    assert await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]}) == (200, {"ids": ["a"]})
    assert (await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]}))[0] == 409
    assert await visitor.ask("POST", "/jobs/retry", {"ids": ["a"]}) == (200, {"ids": ["a"]})
    assert (await visitor.ask("POST", "/jobs/drop", {"ids": ["a"]}))[0] == 409
    await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]})
    assert await visitor.ask("POST", "/jobs/drop", {"ids": ["a"]}) == (200, {"ids": ["a"]})
    assert await visitor.ask("POST", "/jobs/cleanup", {"older_than": 0}) == (200, {"dropped": 0})


async def test_jobs_that_others_depend_on_are_kept_and_orphans_are_not_armed_again(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    later = {**CALL, "id": "child", "depends_on": ["a"], "depends_when": "finished", "delay": 60}
    await visitor.ask("POST", "/jobs", {"jobs": [CALL, later]})
    await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]})
    status, refused = await visitor.ask("POST", "/jobs/drop", {"ids": ["a"]})
    assert (status, "job child depends on it and may still run" in str(refused)) == (409, True)
    old = {"older_than": 0, "state": "cancelled"}
    assert await visitor.ask("POST", "/jobs/cleanup", old) == (200, {"dropped": 0, "kept": 1})
    assert (await hw.jobs.show("a")).state == "cancelled"
    await visitor.ask("POST", "/jobs/cancel", {"ids": ["child"]})
    assert await visitor.ask("POST", "/jobs/drop", {"ids": ["a"]}) == (200, {"ids": ["a"]})
    status, refused = await visitor.ask("POST", "/jobs/retry", {"ids": ["child"]})
    assert (status, "a job that it depends on was dropped" in str(refused)) == (409, True)
    assert (await hw.jobs.show("child")).state == "cancelled"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs/cleanup", {"older_than": 0, "state": "cancelled", "queue": ""}),
        ("POST", "/jobs/cleanup", {"older_than": 0, "state": ""}),
        ("POST", "/jobs/cancel", {"ids": []}),
        ("POST", "/jobs/retry", {"ids": []}),
        ("POST", "/jobs/drop", {"ids": []}),
        ("POST", "/workers/stop", {"ids": []}),
        ("PUT", "/job-config/max-retries", {"value": 1, "queue": ""}),
        ("POST", "/job-limits", {"type": "tasks:send", "queue": "", "rate": 1}),
        ("POST", "/job-limits", {"type": "", "rate": 1}),
        ("DELETE", "/job-limits?type=tasks:send&queue=", None),
        ("GET", "/job-events?id=", None),
        *(("GET", f"/jobs?{name}=", None) for name in ("queue", "state", "type", "batch", "error")),
    ],
)
async def test_what_is_said_and_empty_never_means_all(
    hw: headwater.Headwater, visitor: Visitor, method: str, path: str, body: object
) -> None:
    """A variable that nobody filled: nothing is done, and nothing is listed."""
    await visitor.ask("POST", "/jobs", {"jobs": [CALL, {**CALL, "id": "b"}]})
    await visitor.ask("POST", "/jobs/cancel", {"ids": ["a"]})
    await hw.jobs_service.run(Heartbeat(worker="w", about=WorkerAbout()))
    status, refused = await visitor.ask(method, path, body)
    assert status in (400, 422), refused
    assert [(job.id, job.state) for job in await hw.jobs.list()] == [("b", "pending"), ("a", "cancelled")]
    assert [worker.stopping for worker in await hw.jobs.workers()] == [False]
    assert await hw.jobs.config() == await hw.jobs.config("default")


async def test_dropping_says_how_many_jobs_waited_for_what_is_dropped(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    for name in ("a", "b"):
        child = {**CALL, "id": f"child-{name}", "depends_on": [name]}
        await visitor.ask("POST", "/jobs", {"jobs": [{**CALL, "id": name, "retries": 0}, child]})
        (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1, functions=frozenset({"tasks:send"})))).jobs
        report = JobReport(number=job.number, token=job.token, outcome=JobOutcome.FAILED)
        await hw.jobs_service.run(Settle(worker="w", reports=[report]))
    assert await visitor.ask("POST", "/jobs/drop", {"ids": ["a"]}) == (200, {"ids": ["a"], "cancelled": 1})
    dead = {"older_than": 0, "state": "dead"}
    assert await visitor.ask("POST", "/jobs/cleanup", dead) == (200, {"dropped": 1, "cancelled": 1})
    assert {job.state for job in await hw.jobs.list()} == {"cancelled"}


async def test_queues_settings_limits_schedules_and_workers(hw: headwater.Headwater, visitor: Visitor) -> None:
    await visitor.ask("POST", "/jobs", {"jobs": [CALL]})
    assert (await visitor.ask("POST", "/job-queues/default/pause"))[0] == 200
    _, queues = await visitor.ask("GET", "/job-queues")
    assert isinstance(queues, list)
    assert (queues[0]["paused"], queues[0]["pending"]) == (True, 1)
    await visitor.ask("POST", "/job-queues/default/resume")
    assert await visitor.ask("PUT", "/job-config/max-retries", {"value": 7}) == (
        200,
        {"name": "max-retries", "value": 7},
    )
    assert (await visitor.ask("PUT", "/job-config/max-retries", {"value": "x"}))[0] == 400
    assert await visitor.ask("POST", "/job-limits", {"type": "tasks:send", "rate": 1}) == (200, {"jobs": 1})
    await run_next(hw)
    _, workers = await visitor.ask("GET", "/workers")
    assert isinstance(workers, list)
    assert [worker["id"] for worker in workers] == ["w"]
    assert await visitor.ask("POST", "/workers/stop", {}) == (200, {"ids": ["w"]})
    _, schedule = await visitor.ask("PUT", "/job-schedules/nightly", {"job": {"type": "tasks:send"}, "cron": "@daily"})
    assert isinstance(schedule, dict)
    assert schedule["cron"] == "@daily"
    await visitor.ask("POST", "/job-schedules/nightly/pause")
    _, schedule = await visitor.ask("PUT", "/job-schedules/nightly", {"job": {"type": "tasks:send"}, "cron": "@daily"})
    assert isinstance(schedule, dict)
    assert (schedule["paused"], schedule.get("next_at")) == (True, None)
    await visitor.ask("POST", "/job-schedules/nightly/resume")
    assert (await visitor.ask("DELETE", "/job-schedules/nightly"))[0] == 200
    assert (await visitor.ask("DELETE", "/job-schedules/nightly"))[0] == 404
    _, minutes = await visitor.ask("GET", "/job-stats")
    assert isinstance(minutes, list)
    assert sum(minute["completed"] for minute in minutes) == 1


async def test_changes_are_followed_as_events_and_picked_up_where_they_were_left(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    response = await visitor.response("GET", "/job-events?id=a")
    assert response.content_type == "text/event-stream"
    assert response.chunks is not None
    assert await anext(response.chunks) == b": jobs\n\n"
    await hw.jobs.add(id="other", command="true", priority=-1)
    await hw.jobs.add(id="a", command="true")
    await run_next(hw, "1")
    states: list[str] = []
    while "completed" not in states:
        lines = (await anext(response.chunks)).decode().splitlines()
        states += [json.loads(line[6:])["state"] for line in lines if line.startswith("data: ")]
    assert states == ["pending", "processing", "completed"]
    await response.chunks.aclose()


async def test_whoever_is_cut_inside_a_commit_gets_the_rest_of_it(hw: headwater.Headwater, visitor: Visitor) -> None:
    await hw.jobs.add(id="first", command="true")
    await hw.jobs.add_many([NewJob(id=f"job{number}", command="true") for number in range(5)])
    await hw.jobs.add(id="last", command="true")
    seen, ids = "1", list[str]()
    while not ids or ids[-1] != "last":
        response = await visitor.response("GET", "/job-events", seen=seen)
        assert response.chunks is not None
        text = b""
        while b"data: " not in text:
            text = await anext(response.chunks)
        await response.chunks.aclose()
        # The connection is cut behind its first event.
        lines = text.decode().splitlines()
        assert lines[1] == "event: job"
        seen, ids = lines[0].removeprefix("id: "), [*ids, json.loads(lines[2].removeprefix("data: "))["id"]]
    assert ids == ["job0", "job1", "job2", "job3", "job4", "last"]


@pytest.mark.parametrize("seen", ["-1", "abc", "1.", ".1", "1.1.1", "٣", str(2**63), "9" * 40, "1." + "9" * 30])
async def test_what_is_no_id_of_an_event_is_refused(visitor: Visitor, seen: str) -> None:
    response = await visitor.response("GET", "/job-events", seen=seen)
    assert response.status == 400
    assert b"Last-Event-ID must be the id of an event" in response.body


@pytest.mark.parametrize("seen", ["0", "0.1", "00.0"])
async def test_whoever_has_seen_nothing_gets_everything(hw: headwater.Headwater, visitor: Visitor, seen: str) -> None:
    await hw.jobs.add(id="a", command="true")
    told = await first_events(visitor, seen)
    assert (b"event: job" in told, b"resync-required" in told) == (True, False)


async def test_whoever_has_seen_nothing_is_told_that_something_was_dropped(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    await hw.jobs.add(id="a", command="true")
    await hw.committer.submit(Clear(queue=JOBS_QUEUE))
    await hw.jobs.add(id="b", command="true")
    assert b"resync-required" in await first_events(visitor, "0")


async def first_events(visitor: Visitor, seen: str) -> bytes:
    response = await visitor.response("GET", "/job-events", seen=seen)
    assert response.chunks is not None
    assert await anext(response.chunks) == b": jobs\n\n"
    told = await anext(response.chunks)
    await response.chunks.aclose()
    return told


async def test_whoever_comes_back_with_a_place_of_another_store_begins_anew(
    hw: headwater.Headwater, visitor: Visitor
) -> None:
    """As after a restore: the log gives the same LSNs to other commits."""
    await hw.jobs.add(id="a", command="true")
    ours = await hw.queues_service.identity()
    for number in range(3):
        await hw.jobs.add(id=f"b{number}", command="true")
    assert b"resync-required" not in await first_events(visitor, f"1@{ours}")
    end = await hw.queues_service.last_lsn()
    told = await first_events(visitor, "1@00000000-0000-0000-0000-000000000000")
    assert told == f"id: {end}@{ours}\nevent: resync-required\ndata: {{}}\n\n".encode()


@pytest.mark.parametrize(("seen", "said"), [("1", []), ("2", [b"id: 2"]), ("99", [b"id: 3"])])
async def test_whoever_comes_back_to_what_is_not_kept_is_told_to_begin_anew(
    hw: headwater.Headwater, visitor: Visitor, seen: str, said: list[bytes]
) -> None:
    """LSN 1 and 3 are changes of jobs; LSN 2, and what lies behind the end, was never one of theirs."""
    await hw.jobs.add(id="a", command="true")
    await hw.queue("orders").push(1)
    await hw.jobs.add(id="b", command="true")
    response = await visitor.response("GET", "/job-events", seen=seen)
    assert response.chunks is not None
    assert await anext(response.chunks) == b": jobs\n\n"
    told = await anext(response.chunks)
    places = [line.partition(b"@")[0] for line in told.splitlines() if b"resync" in told and line.startswith(b"id")]
    assert places == said
    if seen != "99":
        event = told if not said else await anext(response.chunks)
        assert event.startswith(f"id: 3@{await hw.queues_service.identity()}\nevent: job\n".encode())
    await response.chunks.aclose()


async def test_a_stream_of_events_ends_when_the_server_drains(hw: headwater.Headwater, visitor: Visitor) -> None:
    response = await visitor.response("GET", "/job-events")
    assert response.chunks is not None
    assert await anext(response.chunks) == b": jobs\n\n"
    hw.queues_service.intentions.drain()
    assert [chunk async for chunk in response.chunks] == []


# ── over a real server ──


@pytest.fixture
def client(door: LiveDoor) -> Iterator[httpx.Client]:
    with door.client() as client:
        yield client


def test_this_machines_owner_sees_jobs_but_adds_none_over_http(client: httpx.Client) -> None:
    assert client.get("/api/v1/jobs").json() == []
    refused = client.post("/api/v1/jobs", json={"jobs": [CALL]})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
