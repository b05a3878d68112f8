"""Queues under `headwater/` are Headwater's own: over all routes, patterns do not reach them, and nobody writes there.

What they tell belongs to somebody: the changes of all jobs to who administers the database, the changes of documents to
who may read these. Whoever is refused at the door for jobs or documents is refused here, whatever their patterns say.
"""

import itertools
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.app import Headwater, open_door
from headwater.config import Durability
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import load_access
from headwater.doors.all_routes import ROUTES
from headwater.doors.jobs.events import _Place, follow
from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.log.job_operations import NewJob
from headwater.log.operations import Push
from headwater.model.names import Lsn
from headwater.model.principal import Principal, Scope
from headwater.model.record import Record
from headwater.services.own_records import Passed
from tests.contracts.clock import FakeClock
from tests.doors.access.test_tenants import QUERY, Town, Victim, everything, is_native, paths_of
from tests.doors.access.visits import fitting, opened

ALL = [scope.value for scope in Scope]
QUEUES = ("headwater/jobs", "headwater/documents/salaries")
# Who may not read these queues: what they may do, and to which queues.
STRANGERS: dict[str, tuple[list[str], list[str]]] = {
    "all scopes, for a pattern that fits by its letters": (ALL, ["h*"]),
    "all scopes, for the names themselves": (ALL, ["headwater/*", *QUEUES]),
    "all of queues, without patterns": (["publish", "consume", "subscribe", "metrics"], ["*"]),
    "documents of others": (["consume", "publish", "metrics", "documents:read"], ["h*", "documents/other", "jobs"]),
}
SECRET = "what-only-the-bank-may-read"


class OwnVictim(Victim):
    """A queue of Headwater's own, as a consumer group of the operator's works through it."""

    async def tell(self) -> None:
        """Something that is told there."""
        database = self.hw.database(self.database)
        await database.jobs.add(NewJob(id=SECRET, type="bank:pay", queue="bank"))
        await database.collection("salaries").set("ada", {"salary": SECRET})
        await database.collection("salaries").set("bob", {"salary": SECRET})
        await database.jobs.add(NewJob(id=f"{SECRET}-2", type="bank:pay", queue="bank"))

    async def settle(self) -> None:
        self.secret = SECRET
        queue = self.hw.database(self.database).queue(self.queue)
        await queue.configure(retry_limit=0)
        await queue.fail(await queue.pop(group="failing", batch=1), error=SECRET)
        (message,) = await queue.pop(group="working", batch=1, lease_seconds=100_000)
        await queue.trace(message, "seen", {"by": SECRET}, names=["own"])
        number = message.partition_id
        self.names = {
            "queue": self.queue,
            "partition": message.partition,
            "group": "working",
            "transaction": message.transaction_id or f"@{message.offset}",
            "partition_id": str(number),
            "lease": f"{number}.{message.batch.token}.working",
            "message": f"{number}-{message.offset:016d}",
            "job": "payout",
            "schedule": "nightly",
        }


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    clock = FakeClock()
    async with opened(tmp_path, clock) as hw, open_door(hw) as door:
        town = Town(hw, guarded(door, load_access({}, auth="token"), hw.store, hw.tail, clock))
        victims = {queue: OwnVictim(hw, "acme", queue) for queue in QUEUES}
        await victims[QUEUES[0]].tell()
        for queue, victim in victims.items():
            await victim.settle()
            town.victims[queue] = victim
        yield town


async def token(town: Town, who: str, scopes: list[str], queues: list[str] | None = None) -> str:
    _, town.tokens[who] = await town.hw.access_tokens("acme").create("one", scopes, queues=queues or ["*"])
    return who


def requests(route: Route, names: dict[str, str]) -> list[tuple[str, str, Any]]:
    """Everything that a route may be asked about these names: path, query, body."""
    known = {kind: name for kind, name in names.items() if kind in ("queue", "group", "partition_id", "message")}
    if "{partition}" in route.path and "{queue}" in route.path:
        known["partition"] = names["partition"]
    bodies: list[Any] = [None] if route.method == "GET" else [everything(names)]
    if is_native(route):
        bodies = [{}, fitting(route, names)]
        if route.path.endswith("/requeue"):
            bodies.append({"queue": "hotel", "to": names["queue"]})
    query = QUERY.format(**names)
    return list(itertools.product(paths_of(route, known), ("", query), bodies))


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("queue", QUEUES)
async def test_no_route_shows_or_changes_a_queue_of_headwaters_own(town: Town, queue: str, stranger: str) -> None:
    scopes, patterns = STRANGERS[stranger]
    who = await token(town, stranger, scopes, patterns)
    await town.hw.database("acme").queue("hotel").configure()
    victim = town.victims[queue]
    before = await victim.state()
    for route in ROUTES:
        for path, query, body in requests(route, victim.names):
            response = await town.ask(who, route.method, path, query, body)
            assert response.status < 500, (path, response)
            text = response.body.decode(errors="replace")
            assert SECRET not in text, (route.method, path, query, body)
            if not query and queue not in f"{path.replace('%2F', '/')} {body}":
                assert queue not in text, (route.method, path, body)
        assert await victim.state() == before, (route.method, route.path)


# ── those who may ──

READERS = {
    "headwater/jobs": (["admin"], ["*"]),
    "headwater/documents/salaries": (["consume", "metrics", "documents:read"], ["h*", "documents/sal*"]),
}


@pytest.mark.parametrize("queue", QUEUES)
async def test_who_may_read_it_elsewhere_reads_and_consumes_it(town: Town, queue: str) -> None:
    """Otherwise the walk above would show nothing."""
    who = await token(town, "reader", *READERS[queue])
    for path, query in (
        ("/api/v1/messages", f"queue={queue}"),
        (f"/api/v1/status/queues/{queue.replace('/', '%2F')}/messages", ""),
        ("/api/v1/dlq", f"queue={queue}"),
        ("/v1/segments", f"queue={queue}"),
        (f"/api/v1/pop/queue/{queue.replace('/', '%2F')}", "consumerGroup=fresh"),
    ):
        response = await town.ask(who, "GET", path, query)
        assert SECRET in response.body.decode(), (path, response)
    assert SECRET in (await town.ask(who, "GET", "/api/v1/traces/by-name/own")).body.decode()
    body = {"queue": queue, "group": "own-wire", "wait_seconds": 0}
    popped = json.loads((await town.ask(who, "POST", "/v1/pop", "", body)).body)["batches"][0]
    ack = {"partition_id": popped["partition_id"], "group": "own-wire", "token": popped["token"]}
    assert (await town.ask(who, "POST", "/v1/report", "", {"reports": [ack]})).status == 200
    for path in ("/v1/questions/list-queues", "/v1/questions/list-groups", "/v1/questions/list-leases"):
        found = json.loads((await town.ask(who, "POST", path, "", {})).body)
        own = {one["queue"] for one in found if one["queue"].startswith("headwater/")}
        assert own == ({*QUEUES} if queue == "headwater/jobs" else {queue}), path
    assert f'queue="{queue}"' in (await town.ask(who, "GET", "/metrics")).body.decode()
    assert queue in json.loads((await town.ask(who, "GET", "/v1/log")).body)["queues"]


@pytest.mark.parametrize("queue", QUEUES)
async def test_nobody_writes_there_by_any_route(town: Town, queue: str) -> None:
    who = await token(town, "owner", ALL)
    victim = town.victims[queue]
    hotel = town.hw.database("acme").queue("hotel")
    await hotel.configure(retry_limit=0)
    await hotel.push({"id": "payout", "state": "completed"}, partition="Default")
    await hotel.fail(await hotel.pop(), error="no")
    records = (await victim.state())[0]
    message = victim.names["partition_id"], "@0"
    push = {"queue": queue, "records": [{"data": 1}]}
    item = {"type": "push", "items": [{"queue": queue, "payload": 1}]}
    path = queue.replace("/", "%2F")
    writes: list[tuple[str, str, Any]] = [
        ("POST", "/api/v1/push", {"items": [{"queue": queue, "payload": 1}]}),
        ("POST", "/api/v1/transaction", {"operations": [item]}),
        ("POST", "/v1/push", {"pushes": [push]}),
        ("POST", "/v1/transaction", {"operations": [{"kind": "push", **push}]}),
        ("POST", "/v1/log/commit", {"pushes": [{**push, "partition": "Default"}]}),
        ("POST", "/v1/log/stage", {"upload": "0" * 32, "part": 0, "pushes": [{**push, "partition": "Default"}]}),
        ("POST", "/v1/operations/load", {**push, "source": "s", "covers": [[0, 1]], "positions": [0]}),
        ("POST", "/v1/operations/requeue", {"queue": "hotel", "to": queue}),
        ("POST", "/v1/operations/requeue", {"queue": queue}),
        ("POST", "/v1/operations/requeue", {"queue": queue, "all_groups": True}),
        ("POST", "/v1/operations/delete-queue", {"queue": queue}),
        ("POST", f"/api/v1/messages/{message[0]}/{message[1]}/retry", None),
        ("DELETE", f"/api/v1/resources/queues/{path}", None),
        ("DELETE", f"/api/v1/queues/{path}/clear", None),
    ]
    for method, where, body in writes:
        response = await town.ask(who, method, where, "", body)
        assert response.status == 400, (method, where, body, response)
        assert "Headwater's own" in response.body.decode(), (method, where, response)
        assert (await victim.state())[0] == records, (method, where)
    assert await hotel.requeue(to="elsewhere") == 1


# ── records that cannot be read ──


async def write(hw: Headwater, queue: str, *payloads: bytes) -> None:
    """What no interface takes, put into the log itself."""
    for payload in payloads:
        push = Push(database="main", queue=queue, partition="Default", records=[Record(msgspec.Raw(payload))])
        await hw.committer.submit(push, Durability.WRITTEN)


NOT_READABLE = (b"5", b'{"id":7,"queue":[]}', b'"text"', b'{"op":"set","id":"x","version":1,"after":5}')


async def test_a_record_that_cannot_be_read_ends_no_stream_of_job_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, FakeClock()) as hw:
        site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "1")
        await hw.jobs.add(NewJob(id="before", type="bank:pay"))
        await write(hw, "headwater/jobs", *NOT_READABLE[:3])
        await hw.jobs.add(NewJob(id="after", type="bank:pay"))
        seen: list[str] = []
        count = Passed.count
        principal = Principal(scopes=frozenset({Scope.ADMIN}))
        with caplog.at_level(logging.WARNING, "headwater.services.own_records"):
            events = follow(site, principal, "", _Place(Lsn(0)), seen=True)
            async for chunk in events:
                lines = [line for line in chunk.decode().splitlines() if line.startswith("data:")]
                seen += [json.loads(line[6:]).get("id") for line in lines]
                if "after" in seen:
                    break
            await events.aclose()
        assert [name for name in seen if name] == ["before", "after"]
        assert Passed.count == count + 3
        assert len(caplog.records) == 3


async def test_a_record_that_cannot_be_read_ends_no_follower_of_documents(tmp_path: Path) -> None:
    async with opened(tmp_path, FakeClock()) as hw:
        notes = hw.collection("notes")
        changes = notes.follow()
        assert (await anext(changes)).op == "snapshot"
        await notes.set("a", {"n": 1})
        count = Passed.count
        await write(hw, "headwater/documents/notes", *NOT_READABLE)
        await notes.set("b", {"n": 2})
        told = [(await anext(changes)).document for _ in range(2)]
        assert [one.id for one in told if one is not None] == ["a", "b"]
        assert Passed.count == count + 4
        await changes.aclose()
