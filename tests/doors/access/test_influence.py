"""What a principal may not read does not influence an answer.

Two servers over two stores get the same requests of the same callers in the same order. One of them also has another
tenant, and other queues of the same tenant, with everything that can be there: messages, leases, dead letters, traces,
jobs, schedules, idempotency keys, maintenance, waiting pops. Every route there is must answer the same on both: status,
headers and body, but for times and for the numbers by which partitions and segments are known. An LSN that is told must
be that of a segment which the caller may read, or the place before one: as such both sides must tell the same.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from headwater.app import Headwater, make_router
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import load_access
from headwater.doors.all_routes import ROUTES
from headwater.doors.routes import Route
from headwater.doors.wire import Handler, Request, Response
from headwater.log.job_operations import NewJob
from headwater.log.operations import SetSwitch, Trace
from headwater.model.names import Lsn
from headwater.model.principal import Principal, Scope
from headwater.services.log_requests import CONTENT_TYPE, SegmentsDecoder
from headwater.stores.questions import FindLastLsn
from tests.contracts.clock import FakeClock
from tests.doors.access.visits import bearer, fitting, opened
from tests.waiting import expect_soon_async

# Who watches over the whole server sees what all do together; everybody else is held to what is theirs.
SCOPES = [scope.value for scope in Scope if scope is not Scope.OPERATOR]
CALLERS: dict[str, tuple[str, ...]] = {"all of a tenant": ("*",), "some queues of a tenant": ("orders.*",)}
OURS = "orders.eu"


async def settle(hw: Headwater, database: str, queue: str) -> None:
    """Everything that can be there, in one queue."""
    there = hw.database(database)
    handle = there.queue(queue)
    await handle.configure(retry_limit=0, namespace="space", task="work")
    for number in range(3):
        key = f"{queue}.{number}"
        await handle.push({"number": number}, partition="lane", transaction_id=f"t{number}", idempotency_key=key)
    failing = await handle.pop(group="failing", lease_seconds=100_000)
    await handle.fail(failing, error="broken")
    (message,) = await handle.pop(group="working", lease_seconds=100_000)
    trace = Trace(
        database=database, partition_id=message.partition_id, transaction_id="t0", names=("checkout", f"of-{queue}")
    )
    await hw.committer.submit(trace)
    await there.jobs.add(NewJob(id=f"{queue}.job", type="app:work", queue=queue))
    await there.jobs.schedule(f"{queue}.nightly", NewJob(type="app:work", queue=queue), every=3_600)


class Side:
    """One of the two servers."""

    def __init__(self, hw: Headwater, door: Handler) -> None:
        self.hw = hw
        self.door = door
        self.tokens: dict[str, str] = {}

    async def ask(self, who: str, method: str, path: str, query: str, body: Any) -> Response:
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = {
            **bearer(self.tokens[who]),
            "accept": "text/html",
            **({"content-type": "application/json"} if raw else {}),
        }
        request = Request(method=method, path=path, query=query, headers=headers, body=raw, id="x", client="192.0.2.1")
        return await self.door(request)


@asynccontextmanager
async def a_side(folder: Path, *, crowded: bool) -> AsyncIterator[Side]:
    folder.mkdir()
    clock = FakeClock()
    async with opened(folder, clock) as hw:
        side = Side(hw, guarded(make_router(hw), load_access({}, auth="token"), hw.store, hw.tail, clock))
        waiting: list[asyncio.Task[Any]] = []
        for who, queues in CALLERS.items():
            _, side.tokens[who] = await hw.access_tokens("acme").create("one", SCOPES, queues=queues)
        await settle(hw, "acme", OURS)
        if crowded:
            await settle(hw, "globex", OURS)
            await settle(hw, "globex", "vault")
            await hw.committer.submit(SetSwitch(database="globex", name="hold pushes", is_on=True))
            waiting.append(asyncio.ensure_future(hw.database("globex").queue("idle").pop(wait=50)))

            async def waits() -> bool:
                return hw.queues_service.intentions.count == 1

            await expect_soon_async(waits)
        try:
            yield side
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


async def crowd_the_tenant(side: Side) -> None:
    """Other queues of the same tenant, outside of the patterns; and somebody who works with them over HTTP."""
    await settle(side.hw, "acme", "plans")
    _, side.tokens["neighbour"] = await side.hw.access_tokens("acme").create("neighbour", SCOPES, queues=["plans"])
    item = {"queue": "plans", "payload": 1, "traceId": "t"}
    await side.ask("neighbour", "POST", "/api/v1/push", "", {"items": [item] * 7, "idempotencyKey": "shared"})
    await side.ask("neighbour", "GET", "/api/v1/pop/queue/plans", "batch=3&consumerGroup=g&autoAck=true", None)


NAMES = {
    "queue": OURS,
    "partition": "lane",
    "group": "working",
    "name": "checkout",
    "id": f"{OURS}.job",
    "message": "t0",
    "lease": "1.1.working",
}
_times = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")
_lsns = re.compile(r'("(?:lsn|after|through|oldest|newest|reached)":)"?(\d+)"?')
_lists, _each = re.compile(r'("lsns":)(\[[\d,]*\])'), re.compile(r"\d+")
_numbers = re.compile(
    r'("(?:number|partition_?[iI]d|id|at|now|identity|time|created_at|run_at'
    r'|next_run_at|next_at|[a-z_]+_at|queryId|query_id|origin|secondsBehind|leaseId|retry_after|mark)":)("[^"]*"|[\d.]+|null)'
)


def anonymous(response: Response, body: bytes, places: "Places") -> tuple[int, Any, str]:
    """An answer without times, and without the numbers of partitions: those are given out in one row to all. A number
    is taken out where its name says what it is, and nowhere else. LSNs are told as the caller may know them."""
    if response.content_type == CONTENT_TYPE:
        decoder = SegmentsDecoder()
        packed = decoder.decode(body)
        told = [
            {"lsn": one.lsn, "lane": one.lane, "first": one.first_offset, "count": one.count} for one in packed.bodies
        ]
        body = msgspec.json.encode(
            {"reached": packed.reached, "bodies": told, "records": [str(one.records) for one in packed.bodies]}
        )
    text = _times.sub("<time>", body.decode())
    text = _lsns.sub(lambda found: found[1] + places.name(int(found[2])), text)
    text = _lists.sub(lambda found: found[1] + _each.sub(lambda one: places.name(int(one[0])), found[2]), text)
    text = _numbers.sub(r"\1<number>", text)
    text = re.sub(r"\b\d+(?:-[0-9a-f]{16}|\.\d+\.working)\b", "<name>", text)
    return response.status, response.headers, text


class Places:
    """The places of the log that a caller may know: of the segments that it may read, the first, the second, …"""

    def __init__(self, side: Side, who: str) -> None:
        self._store = side.hw.store
        scopes = frozenset(Scope(scope) for scope in SCOPES)
        self._principal = Principal(database="acme", scopes=scopes, queues=CALLERS[who])
        self._known: list[int] = []
        self._through = Lsn(0)
        self._asked: list[str] = []

    async def look(self, *asked: Any) -> None:
        """Before an answer to this is told. What was dropped since stays known."""
        self._asked = re.findall(r"\d+", str(asked))
        for touch in await self._store.touched(self._through, 100_000):
            self._through = touch.lsn
            if touch.lane.database == "acme" and self._principal.may_use(touch.lane.queue):
                self._known.append(touch.lsn)

    def name(self, lsn: int) -> str:
        """What an LSN is to the caller. One that is nothing to it, and that it has not said itself, is strange."""
        if lsn == 0 or str(lsn) in self._asked:
            return f"<asked {lsn}>"
        if lsn in self._known:
            return f"<segment {self._known.index(lsn)}>"
        return f"<before segment {self._known.index(lsn + 1)}>" if lsn + 1 in self._known else f"<strange {lsn}>"


async def whole(response: Response) -> bytes:
    body = response.body
    if response.chunks is not None:
        async for chunk in response.chunks:
            body += chunk
            if response.content_type == "text/event-stream":
                break
        await response.chunks.aclose()
    return body


def requests_for(route: Route) -> list[tuple[str, str, Any]]:
    """What is asked of a route: with the names of ours in its path, with and without a query, with a body that fits
    many routes."""
    places = re.findall(r"\{(\w+)\}", route.path)
    path = route.path
    for place in places:
        path = path.replace(f"{{{place}}}", quote(NAMES.get(place, OURS), safe=""), 1)
    # Nothing is waited for.
    queries = [
        "seconds=0" if route.path.endswith("/wait") else "",
        f"queue={OURS}&limit=2&seconds=0&name=checkout&id={OURS}.job&transaction_id=t0&partition_id=1&time=0&through=0",
    ]
    body = {
        "items": [{"queue": OURS, "payload": 1}],
        "pushes": [{"queue": OURS, "records": [{"data": 1}], "partition": "lane"}],
        "queue": OURS,
        "queues": [OURS],
        "group": "working",
        "key": "shared",
        "idempotencyKey": "shared",
        "operations": [],
        "jobs": [{"type": "app:work", "queue": OURS}],
        "name": f"{OURS}.nightly",
        "ids": [f"{OURS}.job"],
    }
    bodies: list[Any] = [None] if route.method == "GET" else [None, body]
    if route.path.startswith("/v1/") and route.takes is not None:
        # Our own wire takes no field that it does not know: what fits each type is sent, too.
        about = {**NAMES, "transaction": "t0", "partition_id": "1", "job": f"{OURS}.job"}
        bodies.append(fitting(route, {**about, "schedule": f"{OURS}.nightly"}))
    return [(path, query, sent) for query, sent in itertools.product(queries, bodies)]


@pytest.mark.parametrize("who", CALLERS)
async def test_what_is_anothers_does_not_influence_an_answer(tmp_path: Path, who: str) -> None:
    """What changes something comes last, on both sides alike."""
    async with AsyncExitStack() as stack:
        alone = await stack.enter_async_context(a_side(tmp_path / "alone", crowded=False))
        crowded = await stack.enter_async_context(a_side(tmp_path / "crowded", crowded=True))
        if who != "all of a tenant":
            await crowd_the_tenant(crowded)
        influenced = []
        places = {side: Places(side, who) for side in (alone, crowded)}
        for route in sorted(ROUTES, key=lambda route: (route.method == "DELETE", route.method != "GET", route.changes)):
            for path, query, body in requests_for(route):
                said = []
                for side in (alone, crowded):
                    response = await side.ask(who, route.method, path, query, body)
                    assert response.status < 500, (path, response)
                    answer = await whole(response)
                    await places[side].look(query, body)
                    said.append(anonymous(response, answer, places[side]))
                if said[0] != said[1] or "<strange" in said[1][2]:
                    influenced.append((route.method, path, query, body is not None, *said))
        assert influenced == []


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_who_shows_no_credential_is_not_told_of_what_is_there(tmp_path: Path, path: str) -> None:
    bodies = []
    for crowded in (False, True):
        async with a_side(tmp_path / str(crowded), crowded=crowded) as side:
            bodies.append((await side.door(Request(method="GET", path=path))).body)
    assert bodies[0] == bodies[1]
    assert b"lsn" not in bodies[0]


async def test_the_operator_of_a_server_sees_what_it_does_for_all(tmp_path: Path) -> None:
    """Otherwise the test above could hide everything from everybody."""
    async with a_side(tmp_path / "a", crowded=True) as side:
        _, side.tokens["operator"] = await side.hw.access_tokens("main").create("op", ["metrics", "operator"])
        lsn = await side.hw.store.ask(FindLastLsn())
        metrics = (await side.ask("operator", "GET", "/metrics", "", None)).body.decode()
        assert f"headwater_lsn {float(lsn)}" in metrics
        assert 'headwater_waiting_pops{process="0"} 1.0' in metrics
        page = (await side.ask("operator", "GET", "/", "", None)).body.decode()
        assert f"LSN {lsn:,}" in page
        assert "1 pops wait" in page


async def test_rates_do_not_depend_on_who_asked_before(tmp_path: Path) -> None:
    async with a_side(tmp_path / "a", crowded=False) as side:
        item = {"items": [{"queue": OURS, "payload": 1}] * 20}
        assert (await side.ask("all of a tenant", "POST", "/api/v1/push", "", item)).status == 201
        asked = [await side.ask("all of a tenant", "GET", "/api/v1/status", "", None) for _ in range(3)]
        rates = [msgspec.json.decode(response.body)["rates"]["pushed_records"] for response in asked]
        # With the three that are there before.
        assert rates == [2.3] * 3
