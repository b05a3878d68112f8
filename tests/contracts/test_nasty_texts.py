"""Texts that a database may choke on, in every text of every request, over every store: an answer below 500, always.

PostgreSQL has no zero character, and reads JSON more strictly than those who wrote it: `\\u0000` and half a surrogate
pair are fine in JSON, and no text there. SQLite ends a text at a zero character here and there. What is taken comes
back as it was, and what was taken stands in nobody's way later.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.app import make_router
from headwater.config import load_config
from headwater.doors.all_routes import ROUTES
from headwater.doors.routes import Route
from headwater.doors.wire import Handler, Request, Response
from headwater.errors import InvalidInput
from headwater.log.job_operations import NewJob
from headwater.model.principal import Principal, Scope
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.factories import FACTORIES
from tests.doors.access.visits import fitting

NASTY = (
    "a\0b",
    "\0",
    "\ud800",
    "\udc00\ud800",
    "\\u0000",
    "\\",
    '"',
    "']",
    "[1",
    '{"a": "\\ud800"}',
    "%_*?[",
    "\u2028\x7f\x1b",
    "𝄞é\u0301",
    "",
)
# As it stands in a payload.
RAW = (rb'"\u0000"', rb'{"\u0000": 1}', rb'{"\u0000": "\\\u0000"}', rb'"\\u0000"', rb'"\u2028\u007f"')
HALVES = (rb'"\ud800"', rb'{"\udc00": 1}', rb'["\ud800\u0041"]')
NAMES = {
    "queue": "orders",
    "partition": "lane",
    "group": "workers",
    "schedule": "nightly",
    "transaction": "t0",
    "partition_id": "1",
    "job": "job-1",
}
EVERYTHING = Principal(scopes=frozenset(Scope))


class Server:
    """All routes over a store, for somebody who may do everything."""

    def __init__(self, hw: headwater.Headwater, door: Handler) -> None:
        self.hw = hw
        self._door = door

    async def ask(self, method: str, path: str, body: Any = None, query: str = "") -> Response:
        raw = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = Request(method=method, path=path, query=query, headers=headers, body=raw, principal=EVERYTHING)
        return await self._door(request)


@pytest.fixture(params=("sqlite", "postgres", "memory bucket"))
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Each engine, and one of the stores that stand on another."""
    async with FACTORIES[request.param](tmp_path) as found:
        yield found


@pytest.fixture
async def server(address: str, clock: FakeClock) -> AsyncIterator[Server]:
    config = load_config({}, housekeeping=False, wait_seconds_max=0.01)
    store = open_store(address, config, clock)
    async with headwater.Headwater(store, config, clock, "main") as hw:
        await hw.queue("orders").push(1, partition="lane", transaction_id="t0")
        yield Server(hw, make_router(hw))


def spoilt(value: Any, text: str) -> Iterator[Any]:
    """A body with one of its texts, or one of its names, put in another's place; each of them once."""
    if isinstance(value, str):
        yield text
    elif isinstance(value, list):
        for place, one in enumerate(value):
            for other in spoilt(one, text):
                yield [*value[:place], other, *value[place + 1 :]]
    elif isinstance(value, dict):
        for name, one in value.items():
            for other in spoilt(one, text):
                yield {**value, name: other}


def kind_of(route: Route) -> bool:
    return route.takes is not None and route.path.startswith("/v1/") and "{" not in route.path


@pytest.mark.parametrize("text", NASTY, ids=ascii)
async def test_no_text_makes_a_route_of_our_wire_fail(server: Server, text: str) -> None:
    failed = []
    for route in filter(kind_of, ROUTES):
        body = fitting(route, NAMES)
        # Those that a type may have and our body leaves out.
        texts = {field.encode_name: "x" for field in msgspec.structs.fields(route.takes) if field.type is str}
        for sent in (body, *spoilt({**texts, **body}, text)):
            response = await server.ask(route.method, route.path, sent)
            if response.status >= 500:
                failed.append((route.path, sent, response.body[:300]))
    assert failed == []
    # And nobody is in the way of others.
    await server.hw.queue("orders").push(2)
    assert await server.hw.queue("orders").pop(group="afterwards")


@pytest.mark.parametrize("raw", RAW, ids=ascii)
async def test_what_is_taken_comes_back_as_it_was_and_stands_in_nobodys_way(
    server: Server, clock: FakeClock, raw: bytes
) -> None:
    """Payloads, arguments, results and documents are kept as they came, also where a clock that is set back, a list or
    a filter has to read them."""
    hw = server.hw
    data = msgspec.Raw(raw)
    await hw.queue("raw").push(data)
    (message,) = await hw.queue("raw").pop()
    assert json.loads(bytes(message.batch.records[0].data)) == json.loads(raw)
    await hw.jobs.add(NewJob(id="now", type="app:work", arguments=data))
    await hw.jobs.add(NewJob(id="later", type="app:work", arguments=data, delay=600))
    await hw.jobs.schedule("often", NewJob(type="app:work", arguments=data), every=600)
    clock.set_by(-7_200)
    await hw.queue("raw").push(1)
    assert [job.id for job in await hw.jobs.list()] in (["later", "now"], ["now", "later"])
    assert json.loads(bytes((await hw.jobs.show("later")).work.arguments)) == json.loads(raw)
    clock.advance(601)
    for path in ("/api/v1/jobs", "/api/v1/job-schedules", "/metrics", "/api/v1/messages", "/"):
        response = await server.ask("GET", path, query="queue=raw" if path.endswith("messages") else "")
        assert response.status < 500, (path, response.body)
    stored = await server.ask("POST", "/api/v1/databases/main/documents/things", {"id": "d1", "data": json.loads(raw)})
    assert stored.status < 500, stored.body
    for filter in ('n == "x"', 'data != "x"', "data > 1"):
        found = await server.ask("POST", "/api/v1/databases/main/query", {"collection": "things", "filter": filter})
        assert found.status < 500, (filter, found.body)


@pytest.mark.parametrize("raw", HALVES, ids=ascii)
async def test_half_a_character_is_refused_wherever_it_comes(server: Server, raw: bytes) -> None:
    """It is no text, and nobody could read it again."""
    data = msgspec.Raw(raw)
    with pytest.raises(InvalidInput):
        await server.hw.queue("raw").push(data)
    with pytest.raises(InvalidInput):
        await server.hw.jobs.add(NewJob(type="app:work", arguments=data))
    for path, body in (
        ("/v1/push", {"pushes": [{"queue": "raw", "records": [{"data": json.loads(raw)}]}]}),
        ("/api/v1/push", {"items": [{"queue": "raw", "payload": json.loads(raw)}]}),
        ("/api/v1/jobs", {"type": "app:work", "args": [json.loads(raw)]}),
    ):
        assert (await server.ask("POST", path, body)).status == 400, path
    assert await server.hw.queues() == [status for status in await server.hw.queues() if status.queue == "orders"]
