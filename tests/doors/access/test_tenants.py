"""Nobody reaches what is another's: over all routes, with every name of theirs that could be known or guessed.

Two borders are tried: between tenants, and between the queues of one tenant that a token names and those it does not.
At both, what is another's must answer like what does not exist, and must be afterwards as it was before.
"""

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import msgspec
import pytest

from headwater.app import Headwater, open_door
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import load_access
from headwater.doors.all_routes import ROUTES
from headwater.doors.routes import Route
from headwater.doors.wire import Handler, Request, Response
from headwater.log.job_operations import NewJob
from headwater.log.operations import Trace
from headwater.model.job import JobState
from headwater.model.names import Lsn
from headwater.model.principal import Scope
from headwater.stores.questions import ListDeadLetters, ListGroups, ListQueues, ListTraces, Segment
from tests.contracts.clock import FakeClock
from tests.doors.access.visits import bearer, fitting, opened

SCOPES = [scope.value for scope in Scope]
NAMES_OF_NOTHING = {
    "queue": "nowhere",
    "partition": "no-lane",
    "group": "no-group",
    "transaction": "no-transaction",
    "partition_id": "987654321",
    "lease": "987654321.1.no-group",
    "message": "987654321-0000000000000000",
    "job": "no-job",
    "schedule": "no-schedule",
}


class Victim:
    """Somebody with a queue: a message that is leased, one that waits, a dead letter, a trace. And all its names."""

    def __init__(self, hw: Headwater, database: str, queue: str) -> None:
        self.hw = hw
        self.database = database
        self.queue = queue
        self.names: dict[str, str] = {}
        self.secret = f"what-only-{database}-may-read-of-{queue}"

    async def settle(self) -> None:
        queue = self.hw.database(self.database).queue(self.queue)
        about = {"partition": "lane", "transaction_id": f"{self.queue}-transaction"}
        receipt = await queue.push({"secret": self.secret}, **about)  # type: ignore[arg-type]
        await queue.push({"secret": self.secret, "more": 1}, partition="lane")
        await queue.configure(retry_limit=0, namespace=f"{self.queue}-space")
        failing = await queue.pop(group="failing", lease_seconds=100_000)
        await queue.fail(failing, error=self.secret)
        (message,) = await queue.pop(group="working", lease_seconds=100_000)
        assert receipt.partition_id is not None
        await self.hw.committer.submit(
            Trace(
                database=self.database,
                partition_id=receipt.partition_id,
                transaction_id=about["transaction_id"],
                data=msgspec.Raw(msgspec.json.encode(self.secret)),
            )
        )
        number = receipt.partition_id
        self.names = {
            "queue": self.queue,
            "partition": "lane",
            "group": "working",
            "transaction": about["transaction_id"],
            "partition_id": str(number),
            "lease": f"{number}.{message.batch.token}.working",
            "message": f"{number}-0000000000000000",
            "job": f"{self.queue}.job",
            "schedule": f"{self.queue}.nightly",
        }

    async def add_jobs(self) -> None:
        """Also a job and a schedule."""
        jobs = self.hw.database(self.database).jobs
        job = NewJob(type="app:work", queue=self.queue, batch=self.secret)
        await jobs.add(msgspec.structs.replace(job, id=self.names["job"]))
        await jobs.schedule(self.names["schedule"], job, every=3_600)

    async def state(self) -> Any:
        """Everything that is theirs and could be changed."""
        store, database = self.hw.store, self.database
        segments: list[Segment] = await store.read(Lsn(0), Lsn(2**62), 1_000, (database, self.queue))
        records = [segment.records for segment in segments]
        groups = [group for group in await store.ask(ListGroups(database)) if group.queue == self.queue]
        queues = [queue for queue in await store.ask(ListQueues(database)) if queue.queue == self.queue]
        letters = await store.ask(ListDeadLetters(database, self.queue, 100))
        traces = await store.ask(ListTraces(database, segments[0].partition_id, self.names["transaction"]))
        jobs = self.hw.database(database).jobs
        schedules = [one for one in await jobs.schedules() if one.job.queue == self.queue]
        work = (await jobs.list(queue=self.queue), schedules, await jobs.limits())
        return msgspec.json.decode(msgspec.json.encode((records, queues, groups, letters, traces, work)))


class Town:
    """A guarded server with victims, and somebody at each border who wants in."""

    def __init__(self, hw: Headwater, door: Handler) -> None:
        self.hw = hw
        self.door = door
        self.victims: dict[str, Victim] = {}
        self.tokens: dict[str, str] = {}

    async def build(self) -> None:
        self.victims["of another tenant"] = Victim(self.hw, "globex", "vault")
        self.victims["of other queues"] = Victim(self.hw, "acme", "plans")
        for victim in self.victims.values():
            await victim.settle()
        _, self.tokens["of another tenant"] = await self.hw.access_tokens("acme").create("eve", SCOPES, queues=["*"])
        _, self.tokens["of other queues"] = await self.hw.access_tokens("acme").create(
            "eve", SCOPES, queues=["orders*", "plan", "plans.*", "lans"]
        )

    async def ask(self, who: str, method: str, path: str, query: str = "", body: Any = None) -> Response:
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = {**bearer(self.tokens[who]), **({"content-type": "application/json"} if raw else {})}
        return await self.door(Request(method=method, path=path, query=query, headers=headers, body=raw, id="x"))


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    clock = FakeClock()
    async with opened(tmp_path, clock) as hw, open_door(hw) as door:
        town = Town(hw, guarded(door, load_access({}, auth="token"), hw.store, hw.tail, clock))
        await town.build()
        yield town


BORDERS = ["of another tenant", "of other queues"]


def attempts(names: dict[str, str]) -> dict[str, tuple[str, str, str, Any]]:
    """Requests about things of these names: method, path, query, body."""
    queue, partition, group = names["queue"], names["partition"], names["group"]
    ack = {
        "transactionId": names["transaction"],
        "partitionId": names["partition_id"],
        "consumerGroup": group,
        "status": "completed",
    }
    leased = {**ack, "leaseId": names["lease"]}
    push = {"type": "push", "items": [{"queue": "orders", "payload": 1}]}
    pop = f"consumerGroup={group}"
    return {
        "pop": ("GET", f"/api/v1/pop/queue/{queue}", pop, None),
        "pop and ack": ("GET", f"/api/v1/pop/queue/{queue}", f"{pop}&autoAck=true&batch=9", None),
        "pop of a partition": ("GET", f"/api/v1/pop/queue/{queue}/partition/{partition}", pop, None),
        "pop of a namespace": ("GET", "/api/v1/pop", f"{pop}&namespace={queue}-space", None),
        "ack": ("POST", "/api/v1/ack", "", leased),
        "ack without a lease": ("POST", "/api/v1/ack", "", ack),
        "fail": ("POST", "/api/v1/ack", "", {**leased, "status": "failed"}),
        "bury": ("POST", "/api/v1/ack", "", {**leased, "status": "dlq"}),
        "acks together": (
            "POST",
            "/api/v1/ack/batch",
            "",
            {"acknowledgments": [leased, leased], "consumerGroup": group},
        ),
        "extend": ("POST", f"/api/v1/lease/{quote(names['lease'], safe='')}/extend", "", {"seconds": 60}),
        "ack in a transaction": ("POST", "/api/v1/transaction", "", {"operations": [push, {"type": "ack", **leased}]}),
        "transaction on a lease": (
            "POST",
            "/api/v1/transaction",
            "",
            {"operations": [push], "requiredLeases": [names["lease"]]},
        ),
    }


def anonymous(response: Response, names: dict[str, str]) -> tuple[int, str]:
    """An answer without the names that were asked about."""
    text = response.body.decode()
    for kind, name in sorted(names.items(), key=lambda item: -len(item[1])):
        # A number that stands for itself, as in "index":1, is no name.
        text = re.sub(rf"(?<![\d:]){re.escape(name)}(?!\d)", f"<{kind}>", text)
    return response.status, text


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("attempt", attempts(NAMES_OF_NOTHING))
async def test_what_is_anothers_answers_like_what_is_not_there(town: Town, border: str, attempt: str) -> None:
    victim = town.victims[border]
    before = await victim.state()
    # A pattern is judged by the name, so what is outside of it stands for what is not there.
    theirs = await town.ask(border, *attempts(victim.names)[attempt])
    nothing = await town.ask(border, *attempts(NAMES_OF_NOTHING)[attempt])
    assert anonymous(theirs, victim.names) == anonymous(nothing, NAMES_OF_NOTHING)
    assert victim.secret not in theirs.body.decode()
    assert await victim.state() == before


async def test_the_attempts_succeed_for_whom_they_belong_to(town: Town) -> None:
    """Otherwise the test above would show nothing."""
    victim = town.victims["of another tenant"]
    _, town.tokens["owner"] = await town.hw.access_tokens("globex").create("owner", SCOPES)
    asked = attempts(victim.names)
    for attempt in ("extend", "ack"):
        response = await town.ask("owner", *asked[attempt])
        assert response.status == 200
        assert '"success":true' in response.body.decode(), attempt
    popped = await town.ask("owner", "GET", f"/api/v1/pop/queue/{victim.queue}", "consumerGroup=fresh")
    assert victim.secret in popped.body.decode()


# ── every route there is ──


def paths_of(route: Route, names: dict[str, str]) -> list[str]:
    """The route's path with each of the names in each of its places."""
    places = re.findall(r"\{\w+\}", route.path)
    chosen = itertools.product([quote(name, safe="") for name in names.values()], repeat=len(places))
    return [_filled(route.path, places, values) for values in chosen]


def _filled(path: str, places: list[str], values: tuple[str, ...]) -> str:
    for place, value in zip(places, values, strict=True):
        path = path.replace(place, value, 1)
    return path


def everything(names: dict[str, str]) -> dict[str, Any]:
    """A body that names all that is theirs, wherever a route might look for it."""
    one = {
        "transactionId": names["transaction"],
        "partitionId": names["partition_id"],
        "partition_id": names["partition_id"],
        "leaseId": names["lease"],
        "consumerGroup": names["group"],
        "consumer_group": names["group"],
        "status": "completed",
    }
    return {
        **one,
        "acknowledgments": [one],
        "operations": [{"type": "ack", **one}],
        "requiredLeases": [names["lease"]],
        "keys": [names["transaction"]],
        "names": [names["transaction"]],
        "traceNames": [names["transaction"]],
        "namespace": f"{names['queue']}-space",
        "seconds": 1,
        "toEnd": True,
    }


QUERY = "&".join(
    (
        "queue={queue}",
        "partition={partition}",
        "partitionId={partition_id}",
        "consumerGroup={group}",
        "transactionId={transaction}",
        "namespace={queue}-space",
        "limit=100",
    )
)


def is_native(route: Route) -> bool:
    """Whether a route is one of our own wire, which takes no field that it does not know."""
    return route.path.startswith("/v1/") and route.takes is not None


NATIVE = [route for route in ROUTES if is_native(route)]


@pytest.mark.parametrize("route", NATIVE, ids=[route.path for route in NATIVE])
async def test_what_the_walk_sends_to_our_own_wire_is_taken_from_whom_it_belongs_to(town: Town, route: Route) -> None:
    """Otherwise the walk below would be refused for its words alone, type by type."""
    victim = town.victims["of other queues"]
    await victim.add_jobs()
    _, town.tokens["owner"] = await town.hw.access_tokens("acme").create("owner", SCOPES)
    response = await town.ask("owner", "POST", route.path, "", fitting(route, victim.names))
    assert response.status in (200, 201, 404, 409), response.body


async def test_dead_letters_go_to_no_queue_of_others(town: Town) -> None:
    await town.hw.database("acme").queue("orders").configure()
    asked = {"queue": "orders", "to": "plans"}
    assert (await town.ask("of other queues", "POST", "/v1/operations/requeue", "", asked)).status == 404
    assert (await town.ask("of another tenant", "POST", "/v1/operations/requeue", "", asked)).status == 200


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.method} {route.path}" for route in ROUTES])
async def test_no_route_shows_or_changes_what_is_anothers(town: Town, border: str, route: Route) -> None:
    victim = town.victims[border]
    await victim.add_jobs()
    before = await victim.state()
    bodies: list[Any] = [None] if route.method == "GET" else [None, everything(victim.names)]
    if is_native(route):
        bodies.append(fitting(route, victim.names))
    for path, query, body in itertools.product(
        paths_of(route, victim.names), ("", QUERY.format(**victim.names)), bodies
    ):
        response = await town.ask(border, route.method, path, query, body)
        assert response.status < 500, (path, response)
        assert victim.secret not in response.body.decode(), path
    assert await victim.state() == before


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.scope], ids=lambda route: f"{route.method} {route.path}"
)
async def test_a_route_asks_for_its_scope_and_takes_no_other(town: Town, route: Route) -> None:
    path = paths_of(route, NAMES_OF_NOTHING)[0]
    for scope in Scope:
        _, town.tokens[scope] = await town.hw.access_tokens("acme").create("one", [scope])
        response = await town.ask(scope, route.method, path)
        asked = {route.scope, *route.or_scopes}
        brings = scope in asked or (scope is Scope.CONSUME and Scope.SUBSCRIBE in asked)
        brings = brings or (scope is Scope.ADMIN and route.scope not in (Scope.SUBMIT_JOBS, Scope.OPERATOR))
        # Where two are needed, neither does alone.
        brings = brings and route.and_scope is None
        assert (response.status == 403) is not brings, (scope, response)
    if route.scope is not None and route.and_scope is not None:
        scopes = [route.scope, route.and_scope]
        _, town.tokens["both"] = await town.hw.access_tokens("acme").create("both", scopes)
        assert (await town.ask("both", route.method, path)).status != 403
    bare = await town.door(Request(method=route.method, path=path))
    assert bare.status == 401


async def test_a_consumer_sees_the_queues_and_groups_that_it_may_read_and_no_others(town: Town) -> None:
    for queue in ("orders.eu", "orders.us", "payroll"):
        await town.hw.database("acme").queue(queue).push(1)
        await town.hw.database("acme").queue(queue).pop(group="billing")
    _, town.tokens["consumer"] = await town.hw.access_tokens("acme").create("c", [Scope.CONSUME], queues=["orders.*"])
    _, town.tokens["publisher"] = await town.hw.access_tokens("acme").create("p", [Scope.PUBLISH], queues=["orders.*"])
    for path in ("/v1/questions/list-queues", "/v1/questions/list-groups"):
        response = await town.ask("consumer", "POST", path)
        assert [one["queue"] for one in msgspec.json.decode(response.body)] == ["orders.eu", "orders.us"]
        assert (await town.ask("publisher", "POST", path)).status == 403
    response = await town.ask("consumer", "GET", "/api/v1/resources/queues")
    assert [one["name"] for one in msgspec.json.decode(response.body)["queues"]] == ["orders.eu", "orders.us"]
    of_another = {"queue": "payroll"}
    assert (await town.ask("consumer", "POST", "/v1/questions/list-groups", "", of_another)).status == 404
    assert (await town.ask("consumer", "GET", "/api/v1/resources/queues/payroll")).status == 404
    assert (await town.ask("consumer", "GET", "/metrics")).status == 403


def test_what_needs_no_scope_changes_nothing() -> None:
    open_to_all = [route for route in ROUTES if route.scope is None]
    assert [route.path for route in open_to_all if route.method != "GET"] == []


async def test_the_tenant_comes_from_the_token_and_from_nowhere_else(town: Town) -> None:
    for query in ("database=globex", "tenant=globex"):
        response = await town.ask("of another tenant", "GET", "/api/v1/pop/queue/vault", query)
        assert response.status == 204
    body = {"items": [{"queue": "vault", "payload": 1, "database": "globex"}], "database": "globex"}
    assert (await town.ask("of another tenant", "POST", "/api/v1/push", "", body)).status == 201
    victim = town.victims["of another tenant"]
    assert [len(batch) for batch in (await victim.state())[0]] == [1, 1]
    assert [queue.queue for queue in await town.hw.store.ask(ListQueues("acme"))] == ["plans", "vault"]


async def test_who_pushed_is_told_by_the_token_and_not_by_the_producer(town: Town) -> None:
    item = {"queue": "orders", "payload": 1, "producerSub": "somebody else"}
    await town.ask("of another tenant", "POST", "/api/v1/push", "", {"items": [item], "producerSub": "somebody else"})
    response = await town.ask("of another tenant", "GET", "/api/v1/pop/queue/orders")
    (message,) = msgspec.json.decode(response.body)["messages"]
    assert message["producerSub"] == "eve"


@pytest.mark.parametrize("border", BORDERS)
async def test_an_idempotency_key_of_another_brings_nothing_of_theirs(town: Town, border: str) -> None:
    victim = town.victims[border]
    _, town.tokens["owner"] = await town.hw.access_tokens(victim.database).create("owner", SCOPES)
    keyed = "consumerGroup=fresh&idempotencyKey=once"
    owned = await town.ask("owner", "GET", f"/api/v1/pop/queue/{victim.queue}", keyed)
    assert victim.secret in owned.body.decode()
    response = await town.ask(border, "GET", "/api/v1/pop/queue/orders", keyed)
    assert victim.secret not in response.body.decode()


@pytest.mark.parametrize("border", BORDERS)
async def test_nobody_gives_back_what_another_has_popped_with_a_key(town: Town, border: str) -> None:
    victim = town.victims[border]
    _, town.tokens["owner"] = await town.hw.access_tokens(victim.database).create("owner", SCOPES)
    popping = {"queue": victim.queue, "group": "fresh", "key": "once", "lease_seconds": 1_000.0}
    owned = msgspec.json.decode((await town.ask("owner", "POST", "/v1/pop", body=popping)).body)
    leases = [{name: batch[name] for name in ("partition_id", "group", "token")} for batch in owned["batches"]]
    giving_back = {"pop_key": "once", "leases": leases}
    for who, count in ((border, 0), ("owner", 1)):
        response = await town.ask(who, "POST", "/v1/operations/give-back", body=giving_back)
        assert (response.status, msgspec.json.decode(response.body)) == (200, {"leases": count})
    _, town.tokens["sender"] = await town.hw.access_tokens("acme").create("sender", ["publish"])
    assert (await town.ask("sender", "POST", "/v1/operations/give-back", body=giving_back)).status == 403
    many = {"pop_key": "once", "leases": leases * 2_000}
    assert (await town.ask("owner", "POST", "/v1/operations/give-back", body=many)).status in (400, 413)


# ── idempotency keys ──

KEYED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a push on the queen wire": ("/api/v1/push", "idempotencyKey", {"items": [{"queue": "orders", "payload": 1}]}),
    "a transaction on the queen wire": (
        "/api/v1/transaction",
        "idempotencyKey",
        {"operations": [{"type": "push", "items": [{"queue": "orders", "payload": 1}]}]},
    ),
    "a push on our wire": ("/v1/push", "key", {"pushes": [{"queue": "orders", "records": [{"data": 1}]}]}),
    "a transaction on our wire": (
        "/v1/transaction",
        "key",
        {"operations": [{"kind": "push", "queue": "orders", "records": [{"data": 1}]}]},
    ),
}


@pytest.mark.parametrize("case", KEYED)
async def test_tokens_of_one_tenant_do_not_meet_in_their_keys(town: Town, case: str) -> None:
    """Both push, and both are answered the same again: one never learns that the other used the key."""
    path, name, body = KEYED[case]
    for who, queues in (("red", ["orders", "red.*"]), ("blue", ["orders", "blue.*"])):
        _, town.tokens[who] = await town.hw.access_tokens("acme").create("one-name", SCOPES, queues=queues)
    answers = {who: await town.ask(who, "POST", path, "", {**body, name: "k"}) for who in ("red", "blue")}
    assert {answer.status < 300 for answer in answers.values()} == {True}
    (queue,) = [queue for queue in await town.hw.store.ask(ListQueues("acme")) if queue.queue == "orders"]
    assert queue.records == 2
    for who, answer in answers.items():
        again = await town.ask(who, "POST", path, "", {**body, name: "k"})
        assert (again.status, again.body) == (answer.status, answer.body)
    refused = await town.ask("red", "POST", path, "", _with_payload(body, 2) | {name: "k"})
    assert refused.status == 409
    assert msgspec.json.decode(refused.body)["code"] == "idempotency_key_reused"
    (queue,) = [queue for queue in await town.hw.store.ask(ListQueues("acme")) if queue.queue == "orders"]
    assert queue.records == 2


@pytest.fixture
async def red(town: Town) -> Town:
    """A tenant with an owner of all its queues, and somebody who may use some of them."""
    _, town.tokens["owner"] = await town.hw.access_tokens("acme").create("owner", SCOPES)
    _, town.tokens["red"] = await town.hw.access_tokens("acme").create("red", SCOPES, queues=["red.*"])
    return town


async def told(town: Town, who: str, method: str, path: str, body: Any) -> tuple[int, Any]:
    answer = await town.ask(who, method, path, "", body)
    return answer.status, msgspec.json.decode(answer.body or b"null")


async def test_who_may_use_some_queues_meets_no_stream_of_others(red: Town) -> None:
    stream = {"name": "pay", "source_queue": "secret", "config_hash": "h1"}
    _, mine = await told(red, "owner", "POST", "/streams/v1/queries", stream)
    for reset in (False, True):
        about = {"name": "pay", "source_queue": "red.one", "config_hash": "other", "reset": reset}
        status, found = await told(red, "red", "POST", "/streams/v1/queries", about)
        assert (status, found["query_id"] == mine["query_id"]) == (200, False)
    status, again = await told(red, "owner", "POST", "/streams/v1/queries", stream)
    assert (status, again["query_id"], again["fresh"]) == (200, mine["query_id"], False)


async def test_who_may_use_some_queues_takes_no_step_of_others(red: Town) -> None:
    def commit(number: int, queue: str) -> dict[str, Any]:
        pushes = [{"queue": queue, "records": [{"data": number}]}]
        return {"step": {"name": "spark/x", "number": number, "note": "theirs"}, "pushes": pushes}

    assert (await told(red, "owner", "POST", "/v1/log/commit", commit(6, "secret")))[1]["records"] == 1
    _, taken = await told(red, "red", "POST", "/v1/log/commit", commit(5, "red.one"))
    assert taken["records"] == 1
    await told(red, "red", "POST", "/v1/log/commit", commit(1_000, "red.one"))
    assert (await told(red, "owner", "POST", "/v1/log/commit", commit(7, "secret")))[1]["records"] == 1


@pytest.mark.parametrize("path", ["/api/v1/system/maintenance", "/api/v1/system/maintenance/pop"])
async def test_who_may_use_some_queues_holds_nothing_off_for_all(red: Town, path: str) -> None:
    assert (await told(red, "red", "POST", path, {"enabled": True}))[0] == 403
    push = {"items": [{"queue": "secret", "payload": 1}]}
    assert (await told(red, "owner", "POST", "/api/v1/push", push))[0] == 201
    assert (await told(red, "owner", "POST", path, {"enabled": False}))[0] == 200


async def test_who_may_use_some_queues_touches_no_job_of_others_by_key_or_dependency(red: Town) -> None:
    jobs = red.hw.database("acme").jobs
    await jobs.add(id="theirs", command="true", queue="secret", unique_key="uk")
    thief = {"type": "shop:mail", "queue": "red.one"}
    replacing = {**thief, "unique_key": "uk", "unique_mode": "replace"}
    status, added = await told(red, "red", "POST", "/api/v1/jobs", {"jobs": [replacing]})
    assert (status, added[0]["duplicate"]) == (201, False)
    assert (await jobs.show("theirs")).state is JobState.PENDING
    for name in ("theirs", "nobody"):
        waiting = {**thief, "depends_on": [name]}
        status, refused = await told(red, "red", "POST", "/api/v1/jobs", {"jobs": [waiting]})
        assert (status, refused["code"]) == (404, "not_found")


@pytest.mark.parametrize("length", [1, 240])
async def test_the_unique_key_of_whoever_has_many_patterns_may_be_long(red: Town, length: int) -> None:
    patterns = [f"{'red' * 40}.{number}.*" for number in range(8)]
    _, red.tokens["many"] = await red.hw.access_tokens("acme").create(
        "many", ["jobs:submit"], queues=["red.*", *patterns]
    )
    job = {"type": "shop:mail", "queue": "red.one", "unique_key": "k" * length}
    for path in ("/api/v1/jobs", "/v1/operations/enqueue"):
        first, again = [(await told(red, "many", "POST", path, {"jobs": [job]})) for _ in range(2)]
        assert (first[0], again[0]) == (201, 201), first
    assert len(await red.hw.database("acme").jobs.list(queue="red.one")) == 1


@pytest.mark.parametrize("key", ["k" * 257, "\x00", "\x00" + "a" * 32 + "\x00theirs"])
async def test_a_unique_key_that_is_none_is_refused_and_nobody_writes_another_s(red: Town, key: str) -> None:
    for who in ("red", "owner"):
        job = {"type": "shop:mail", "queue": "red.one", "unique_key": key}
        assert (await told(red, who, "POST", "/api/v1/jobs", {"jobs": [job]}))[0] == 400


async def test_who_may_only_add_jobs_changes_no_schedule(red: Town) -> None:
    _, red.tokens["adds"] = await red.hw.access_tokens("acme").create("adds", ["jobs:submit"])
    jobs = red.hw.database("acme").jobs
    await jobs.schedule("nightly", NewJob(command="true"), every=3_600)
    job = {"type": "shop:mail"}
    assert (await told(red, "adds", "PUT", "/api/v1/job-schedules/nightly", {"job": job, "every": 1}))[0] == 403
    native = {"name": "nightly", "job": job, "every_seconds": 1}
    assert (await told(red, "adds", "POST", "/v1/operations/put-schedule", native))[0] == 403
    [schedule] = await jobs.schedules()
    assert schedule.job.command == "true"


def _with_payload(body: dict[str, Any], payload: int) -> dict[str, Any]:
    text = msgspec.json.encode(body).decode()
    changed: dict[str, Any] = msgspec.json.decode(re.sub(r'("payload"|"data"):1', rf"\1:{payload}", text))
    return changed


async def test_a_key_from_before_keys_had_a_scope_still_counts(town: Town, tmp_path: Path) -> None:
    path, name, body = KEYED["a push on our wire"]
    _, town.tokens["red"] = await town.hw.access_tokens("acme").create("red", SCOPES)
    first = await town.hw.database("acme").queue("orders").push(1, idempotency_key="k")
    connection = apsw.Connection(str(tmp_path / "log.db"))
    connection.execute("UPDATE hw_applied SET fingerprint = NULL")
    connection.close()
    (again,) = msgspec.json.decode((await town.ask("red", "POST", path, "", {**body, name: "k"})).body)
    assert (again["pushed"]["partition_id"], again["pushed"]["first_offset"]) == (first.partition_id, first.offset)


async def test_a_key_of_the_owner_is_nothing_to_a_token(town: Town) -> None:
    path, name, body = KEYED["a push on our wire"]
    _, town.tokens["red"] = await town.hw.access_tokens("acme").create("red", SCOPES)
    await town.hw.database("acme").queue("orders").push("the owner's", idempotency_key="k")
    assert (await town.ask("red", "POST", path, "", {**body, name: "k"})).status == 201


# ── the read-only role ──


@pytest.mark.parametrize(
    ("path", "query", "shown"),
    [
        ("/v1/segments", "queue=plans", "secret"),
        ("/api/v1/messages", "queue=plans", "secret"),
        ("/api/v1/messages/{partition_id}/{transaction}", "", "secret"),
        ("/api/v1/status/queues/plans/messages", "", "secret"),
        ("/api/v1/dlq", "queue=plans", "secret"),
        ("/api/v1/traces/{partition_id}/{transaction}", "", "secret"),
        ("/api/v1/resources/queues", "", "plans"),
        ("/api/v1/resources/partitions", "queue=plans", "lane"),
        ("/api/v1/consumer-groups", "", "working"),
    ],
)
async def test_who_may_only_look_sees_what_is_there_and_changes_nothing(
    town: Town, path: str, query: str, shown: str
) -> None:
    victim = town.victims["of other queues"]
    _, town.tokens["reader"] = await town.hw.access_tokens("acme").create("reader", ["subscribe"])
    before = await victim.state()
    response = await town.ask("reader", "GET", path.format(**victim.names), query.format(**victim.names))
    assert response.status == 200
    assert (victim.secret if shown == "secret" else shown) in response.body.decode()
    assert await victim.state() == before
    assert (await town.ask("reader", "GET", "/api/v1/pop/queue/plans")).status == 403


@pytest.mark.parametrize(
    ("question", "shown"),
    [("list-dead-letters", "secret"), ("list-traces", "secret"), ("list-queues", "plans"), ("list-groups", "working")],
)
async def test_who_may_only_look_may_ask_our_own_wire(town: Town, question: str, shown: str) -> None:
    victim = town.victims["of other queues"]
    _, town.tokens["reader"] = await town.hw.access_tokens("acme").create("reader", ["subscribe"])
    before = await victim.state()
    (route,) = [route for route in ROUTES if route.path == f"/v1/questions/{question}"]
    response = await town.ask("reader", "POST", route.path, "", fitting(route, victim.names))
    assert response.status == 200
    assert (victim.secret if shown == "secret" else shown) in response.body.decode()
    assert await victim.state() == before
