"""Every option of a job through every way in: library, JSON, both wires of HTTP, the command line, a decorator whose
type somebody else names, one call of a function, a schedule. What counts is what stands in the store.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import headwater
from headwater import NewJob, outbox
from headwater.app import make_router
from headwater.clock import SECOND, Timestamp
from headwater.doors.routes import Router
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError, InvalidOption
from headwater.jobs import JobApp
from headwater.log.job_operations import FireSchedules
from headwater.model.job_policy import POLICY_FIELDS
from headwater.model.principal import Principal, Scope
from headwater.services.job_documents import decode_job
from headwater.services.job_options import OLDER_NAMES, JobOptions
from tests.cli.queuectl import Queuectl
from tests.contracts.clock import FakeClock

TYPE = "tasks:send"
ADMIN = Principal(scopes=frozenset(Scope))


class Option(NamedTuple):
    """An option, a value for it, how the command line says that, and what the store has then."""

    name: str
    value: Any
    typed: tuple[str, ...]
    kept: dict[str, Any]


OPTIONS = (
    Option("queue", "mail", ("--queue", "mail"), {"queue": "mail"}),
    Option("priority", 7, ("--priority", "7"), {"priority": 7}),
    Option("delay", 90.0, ("--delay", "90s"), {"state": "scheduled", "waits_seconds": 90}),
    Option("timeout", 45.0, ("--timeout", "45s"), {"timeout": 45}),
    Option("retries", 9, ("--retries", "9"), {"retries": 9}),
    Option("backoff_base", 3.0, ("--backoff-base", "3"), {"backoff_base": 3}),
    Option("backoff_max", 600.0, ("--backoff-max", "10m"), {"backoff_max": 600}),
    Option("backoff_jitter", 0.5, ("--backoff-jitter", "0.5"), {"backoff_jitter": 0.5}),
    Option("result_ttl", 60.0, ("--result-ttl", "1m"), {"result_ttl": 60}),
    Option("unique_key", "import", ("--unique-key", "import"), {"unique_key": "import"}),
    Option("concurrency_key", "ada", ("--concurrency-key", "ada"), {"lane_key": "ada", "lane_concurrency": 1}),
    Option("limit_key", "ada", ("--limit-key", "ada"), {"lane_key": "ada", "lane_concurrency": 0}),
)
PAIRS = (
    Option("unique_seconds", 60.0, ("--unique-seconds", "1m"), {"unique_for_seconds": 60}),
    Option("concurrency_limit", 3, ("--concurrency-limit", "3"), {"lane_concurrency": 3}),
)
WITH = {"unique_seconds": {"unique_key": "import"}, "concurrency_limit": {"concurrency_key": "ada"}}
WITH_TYPED = {"unique_seconds": ("--unique-key", "import"), "concurrency_limit": ("--concurrency-key", "ada")}


class Ways:
    """A store, and every way in."""

    def __init__(self, hw: headwater.Headwater, path: Path, clock: FakeClock) -> None:
        self.hw, self.path, self.clock = hw, path, clock
        self.router: Router = make_router(hw)

    async def keyword(self, option: Option, given: dict[str, Any]) -> None:
        await self.hw.jobs.add(type=TYPE, **given)

    async def new_job(self, option: Option, given: dict[str, Any]) -> None:
        await self.hw.jobs.add_many([NewJob(type=TYPE, **given)])

    async def document(self, option: Option, given: dict[str, Any]) -> None:
        await self.hw.jobs.add(decode_job(json.dumps({"type": TYPE, **given})))

    async def http(self, option: Option, given: dict[str, Any]) -> None:
        status, told = await self.ask("POST", "/api/v1/jobs", {"jobs": [{"type": TYPE, **given}]})
        assert status == 201, told

    async def own_wire(self, option: Option, given: dict[str, Any]) -> None:
        status, told = await self.ask("POST", "/v1/operations/enqueue", {"jobs": [{"type": TYPE, **given}]})
        assert status == 201, told

    async def own_transaction(self, option: Option, given: dict[str, Any]) -> None:
        asked = {"operations": [{"kind": "jobs", "jobs": [{"type": TYPE, **given}]}]}
        status, told = await self.ask("POST", "/v1/transaction", asked)
        assert status == 200, told

    async def decorator(self, option: Option, given: dict[str, Any]) -> None:
        """Declared with it, registered, and named by its type alone."""
        app = JobApp()
        app.job(name=TYPE, **given)(send)
        await self.hw.jobs.register(app.policies())
        await self.hw.jobs.add(type=TYPE)

    async def decorator_over_http(self, option: Option, given: dict[str, Any]) -> None:
        app = JobApp()
        app.job(name=TYPE, **given)(send)
        status, _ = await self.ask("POST", "/v1/operations/register-types", {"types": {TYPE: given}})
        assert status == 200
        assert (await self.ask("POST", "/api/v1/jobs", {"jobs": [{"type": TYPE}]}))[0] == 201

    async def call(self, option: Option, given: dict[str, Any]) -> None:
        app = JobApp()
        app.use(self.hw.jobs)
        await app.job(name=TYPE)(send).using(**given).enqueue()

    async def schedule(self, option: Option, given: dict[str, Any]) -> None:
        await self.hw.jobs.schedule("often", type=TYPE, every=60, **given)
        await self.fire()

    async def schedule_over_http(self, option: Option, given: dict[str, Any]) -> None:
        asked = {"job": {"type": TYPE, **given}, "every": 60}
        assert (await self.ask("PUT", "/api/v1/job-schedules/often", asked))[0] == 200
        await self.fire()

    async def declared_schedule(self, option: Option, given: dict[str, Any]) -> None:
        """A schedule that says nothing, of a type whose function is declared with it."""
        await self.hw.jobs.schedule("often", type=TYPE, every=60)
        app = JobApp()
        app.job(name=TYPE, **given)(send)
        await self.hw.jobs.register(app.policies())
        await self.fire()

    async def outbox(self, option: Option, given: dict[str, Any]) -> None:
        connection = apsw.Connection(str(self.path))
        with connection:
            outbox.enqueue(connection, NewJob(type=TYPE, **given))
        connection.close()

    async def fire(self) -> None:
        self.clock.advance(60)
        await self.hw.jobs_service.run(FireSchedules())

    async def ask(self, method: str, path: str, body: object) -> tuple[int, Any]:
        headers = {"content-type": "application/json"}
        request = Request(
            method=method,
            path=path,
            query="",
            headers=headers,
            body=json.dumps(body).encode(),
            id="r1",
            principal=ADMIN,
        )
        response = await self.router(request)
        return response.status, json.loads(response.body)


def send() -> None:
    """What the jobs of this module would do."""


WAYS: dict[str, Callable[[Ways, Option, dict[str, Any]], Awaitable[None]]] = {
    name: way for name, way in vars(Ways).items() if not name.startswith("_") and name not in ("fire", "ask")
}


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[Ways]:
    clock = FakeClock()
    path = tmp_path / "headwater.db"
    async with headwater.open(str(path), clock=clock, housekeeping=False) as hw:
        yield Ways(hw, path, clock)


def kept(path: Path) -> dict[str, Any]:
    """How the only job of a store is to be run, as the tables have it."""
    connection = apsw.Connection(str(path))
    connection.pragma("query_only", True)
    rows: list[Any] = connection.execute(
        """SELECT q.name, j.state, j.priority, j.attempts_max - 1, j.work, j.run_at - j.created_at, j.unique_key, l.key,
                  l.concurrency, u.until - j.created_at, j.type, j.batch
           FROM hw_jobs j JOIN hw_job_queues q ON q.id = j.queue_id LEFT JOIN hw_job_lanes l ON l.id = j.lane
           LEFT JOIN hw_job_unique u ON u.job = j.number"""
    ).fetchall()
    connection.close()
    ((queue, state, priority, retries, work, waits, unique_key, lane, concurrency, unique_for, kind, batch),) = rows
    done = json.loads(work)
    backoff = done.get("backoff", {})
    return {
        "queue": queue,
        "state": state,
        "priority": priority,
        "retries": retries,
        "timeout": done.get("timeout_seconds"),
        "result_ttl": done.get("result_seconds"),
        "backoff_base": backoff.get("base", 2.0),
        "backoff_max": backoff.get("max_seconds", 3_600.0),
        "backoff_jitter": backoff.get("jitter", 0.1),
        "waits_seconds": waits // SECOND,
        "unique_key": unique_key,
        "unique_for_seconds": None if unique_for is None else unique_for // SECOND,
        "lane_key": lane,
        "lane_concurrency": concurrency,
        "type": kind,
        "batch": batch,
    }


PLAIN = {"queue": "default", "state": "pending", "priority": 0, "retries": 3, "timeout": 3_600, "lane_key": None}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", OPTIONS + PAIRS, ids=lambda option: option.name)
async def test_an_option_means_the_same_wherever_it_is_said(ways: Ways, way: str, option: Option) -> None:
    await WAYS[way](ways, option, {**WITH.get(option.name, {}), option.name: option.value})
    found = kept(ways.path)
    assert option.kept.items() <= found.items()
    other = {name: value for name, value in PLAIN.items() if name not in option.kept}
    if option.name not in WITH:
        assert other.items() <= found.items(), "nothing else may change"


@pytest.mark.parametrize("option", OPTIONS + PAIRS, ids=lambda option: option.name)
def test_an_option_of_the_command_line_means_the_same(tmp_path: Path, option: Option) -> None:
    queuectl = Queuectl(tmp_path)
    queuectl.expect(0, "enqueue", "--type", TYPE, *WITH_TYPED.get(option.name, ()), *option.typed)
    assert option.kept.items() <= kept(tmp_path / "headwater.db").items()


def test_no_option_is_left_out_of_the_table() -> None:
    assert {option.name for option in OPTIONS + PAIRS} | {"unique_mode"} == set(POLICY_FIELDS)


@pytest.mark.parametrize("older", OLDER_NAMES)
@pytest.mark.parametrize("way", ["keyword", "document", "http", "own_wire", "call"])
async def test_an_older_name_is_still_read(ways: Ways, way: str, older: str) -> None:
    (option,) = [one for one in OPTIONS if one.name == OLDER_NAMES[older]]
    await WAYS[way](ways, option, {older: option.value})
    assert option.kept.items() <= kept(ways.path).items()


async def test_an_older_name_beside_the_newer_is_refused(ways: Ways) -> None:
    with pytest.raises(InvalidOption, match="older name"):
        await ways.hw.jobs.add(command="true", max_retries=3, retries=4)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["delay", "timeout", "backoff_max", "result_ttl"])
@pytest.mark.parametrize("way", ["keyword", "new_job", "decorator", "call", "schedule"])
async def test_a_timedelta_is_taken_where_seconds_are(ways: Ways, way: str, name: str) -> None:
    (option,) = [one for one in OPTIONS if one.name == name]
    await WAYS[way](ways, option, {name: timedelta(seconds=option.value)})
    assert option.kept.items() <= kept(ways.path).items()


# ── what wins ──


async def test_what_a_job_says_wins_over_its_function_and_that_over_its_queue(ways: Ways) -> None:
    jobs = ways.hw.jobs
    await jobs.configure("max-retries", 1, queue="mail")
    await jobs.configure("timeout", 11, queue="mail")
    app = JobApp()
    app.job(name=TYPE, queue="mail", retries=5, priority=8)(send)
    await jobs.register(app.policies())
    await jobs.add(type=TYPE, priority=0, id="said")
    job = await jobs.show("said")
    assert (job.queue, job.priority, job.attempts_max, job.work.timeout_seconds) == ("mail", 0, 6, 11.0)
    await jobs.add(type=TYPE, queue="default", id="elsewhere")
    assert (await jobs.show("elsewhere")).queue == "default"


async def test_a_function_that_is_declared_anew_holds_from_then_on(ways: Ways) -> None:
    for retries in (5, 7):
        app = JobApp()
        app.job(name=TYPE, retries=retries)(send)
        assert await ways.hw.jobs.register(app.policies()) == [TYPE]
        assert await ways.hw.jobs.register(app.policies()) == []
        await ways.hw.jobs.add(type=TYPE, id=f"r{retries}")
        assert (await ways.hw.jobs.show(f"r{retries}")).attempts_max == retries + 1


async def test_a_token_for_some_queues_cannot_reach_others_through_a_declared_queue(ways: Ways) -> None:
    app = JobApp()
    app.job(name=TYPE, queue="payroll")(send)
    await ways.hw.jobs.register(app.policies())
    theirs = Principal(scopes=frozenset({Scope.SUBMIT_JOBS}), queues=("default",))
    for path, body in (
        ("/api/v1/jobs", {"jobs": [{"type": TYPE}]}),
        ("/v1/operations/enqueue", {"jobs": [{"type": TYPE}]}),
    ):
        headers = {"content-type": "application/json"}
        sent = json.dumps(body).encode()
        request = Request(method="POST", path=path, query="", headers=headers, body=sent, id="r1", principal=theirs)
        assert (await ways.router(request)).status in (403, 404)
    assert await ways.hw.jobs.list() == []


# ── what contradicts itself is refused, everywhere and with the same words ──

CONTRADICTIONS = [
    ({"type": TYPE, "command": "true"}, "type of a function"),
    ({"type": TYPE, "argv": ["true"]}, "type of a function"),
    ({"type": TYPE, "cwd": "/"}, "for commands"),
    ({"type": TYPE, "env": {"A": "b"}}, "for commands"),
    ({"command": "true", "args": [1]}, "for functions"),
    ({"command": "true", "kwargs": {"a": 1}}, "for functions"),
    ({"command": "true", "argv": ["true"]}, "not both"),
    ({"command": "true", "delay": 5, "run_at": "2030-01-01T00:00:00Z"}, "not both"),
    ({"type": TYPE, "delay": 5, "run_at": "2030-01-01T00:00:00Z"}, "not both"),
    ({"type": TYPE, "limit_key": "a", "concurrency_key": "b"}, "not both"),
    ({"type": "command:backup"}, "needs a command"),
    ({"type": TYPE, "max_retries": 1, "retries": 2}, "older name"),
]


@pytest.mark.parametrize(("job", "reason"), CONTRADICTIONS)
async def test_a_contradiction_is_refused_on_every_way(ways: Ways, job: dict[str, Any], reason: str) -> None:
    with pytest.raises(HeadwaterError, match=reason):
        await ways.hw.jobs.add(**job)
    with pytest.raises(HeadwaterError, match=reason):
        await ways.hw.jobs.schedule("often", every=60, **job)
    with pytest.raises(HeadwaterError, match=reason):
        await ways.hw.jobs.add(decode_job(json.dumps(job)))
    assert await ways.hw.jobs.list() == []
    assert await ways.hw.jobs.schedules() == []


@pytest.mark.parametrize(("job", "reason"), CONTRADICTIONS)
async def test_both_wires_refuse_a_job_in_the_same_way(ways: Ways, job: dict[str, Any], reason: str) -> None:
    answers = []
    own = {name: value for name, value in job.items() if name not in ("args", "kwargs")}
    if "run_at" in own:
        own["run_at"] = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    if "args" in job or "kwargs" in job:
        own["arguments"] = [job.get("args", []), job.get("kwargs", {})]
    for path, sent in (("/api/v1/jobs", job), ("/v1/operations/enqueue", own)):
        status, told = await ways.ask("POST", path, {"jobs": [sent]})
        answers.append((status, told["code"], told["detail"]))
    assert answers[0] == answers[1]
    assert answers[0][0] in (400, 403)


def test_a_contradiction_is_refused_on_the_command_line(tmp_path: Path) -> None:
    queuectl = Queuectl(tmp_path)
    for typed, reason in (
        (("--type", TYPE, "--command", "true"), "type of a function"),
        (("--command", "true", "--delay", "5s", "--run-at", "2030-01-01T00:00:00Z"), "not both"),
        (("--command", "true", "--args", "[1]"), "for functions"),
        (("--type", TYPE, "--kwargs", "[1]"), "--kwargs"),
        (("--command", "true", '{"command": "true"}'), "one of these"),
    ):
        assert reason in queuectl.run("enqueue", *typed).err
    assert queuectl.run("list", "--json").out == ""


# ── the rest of what a job can say ──


async def test_a_command_can_have_a_type_of_its_own_to_be_listed_and_limited_by(ways: Ways) -> None:
    jobs = ways.hw.jobs
    await jobs.add(id="a", type="command:backup", command="true")
    await jobs.add(id="b", command="true")
    assert [job.id for job in await jobs.list(type="command:backup")] == ["a"]
    assert await jobs.limit("command:backup", concurrency=1) == 1


async def test_one_call_can_wait_for_others_and_belong_to_a_batch(ways: Ways) -> None:
    await ways.hw.jobs.add(id="first", type=TYPE)
    app = JobApp()
    app.use(ways.hw.jobs)
    call = app.job(name=TYPE)(send).using(id="second", depends_on=["first"], depends_when="finished", batch="all")
    await call.enqueue()
    assert (await ways.hw.jobs.show("second")).state == "waiting"
    assert [job.id for job in await ways.hw.jobs.list(batch="all")] == ["second"]


@pytest.mark.parametrize("at", [datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00Z", 1_893_456_000 * SECOND])
async def test_a_time_is_given_as_it_comes(ways: Ways, at: Any) -> None:
    await ways.hw.jobs.add(id="a", type=TYPE, run_at=at)
    assert (await ways.hw.jobs.show("a")).run_at == Timestamp(1_893_456_000 * SECOND)


async def test_a_newer_job_replaces_the_older_of_its_unique_key(ways: Ways) -> None:
    app = JobApp()
    app.use(ways.hw.jobs)
    function = app.job(name=TYPE, unique_key="import", unique_mode="replace")(send)
    await ways.hw.jobs.register(app.policies())
    await function.using(id="old").enqueue()
    status, _ = await ways.ask("POST", "/api/v1/jobs", {"jobs": [{"type": TYPE, "id": "new"}]})
    assert status == 201
    assert (await ways.hw.jobs.show("old")).state == "cancelled"


async def mistyped(owner: Any, call: str) -> None:
    if call == "job":
        owner.job(name="other", retires=5)(send)
    elif call == "using":
        owner.using(retires=5)
    elif call == "schedule":
        await owner.schedule("often", every=5, retires=5)
    else:
        await owner.add(retires=5)


@pytest.mark.parametrize("call", ["add", "schedule", "job", "using"])
async def test_options_are_keywords_with_names_and_a_mistyped_one_is_refused(ways: Ways, call: str) -> None:
    import inspect

    app = JobApp()
    owner: Any = {"job": app, "using": app.job(name=TYPE)(send)}.get(call, ways.hw.jobs)
    shown = inspect.signature(getattr(owner, call)).parameters
    assert set(POLICY_FIELDS) <= set(shown)
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())
    with pytest.raises(InvalidOption, match="retires"):
        await mistyped(owner, call)
    assert set(POLICY_FIELDS) <= set(JobOptions.__annotations__)


async def test_a_schedule_that_cannot_add_its_job_harms_no_other(ways: Ways) -> None:
    """One that a version before this took, with a job that is not there to depend on."""
    await ways.hw.jobs.schedule("wrong", type=TYPE, every=60)
    await ways.hw.jobs.schedule("right", command="true", every=60)
    connection = apsw.Connection(str(ways.path))
    connection.execute(
        "UPDATE hw_job_schedules SET job = json_set(job, '$.depends_on', json('[\"nobody\"]')) WHERE name = 'wrong'"
    )
    connection.close()
    await ways.fire()
    assert [job.type for job in await ways.hw.jobs.list()] == ["shell"]
    for option in ({"depends_on": ["a"]}, {"run_at": "2030-01-01T00:00:00Z"}, {"id": "a"}):
        with pytest.raises(InvalidOption, match="leave out"):
            await ways.hw.jobs.schedule("more", command="true", every=60, **option)
