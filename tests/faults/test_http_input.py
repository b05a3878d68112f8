"""Whatever is sent to a route, well-formed or not: an answer below 500, and a server that goes on."""

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headwater
from headwater.app import open_door
from headwater.doors.all_routes import ROUTES
from headwater.doors.routes import Route
from headwater.doors.wire import Request, Response
from headwater.errors import InvalidPayload
from tests.doors.live_door import on_the_edge

JSON = {"content-type": "application/json"}
NAMES = st.sampled_from(
    ["orders", "a/b", "a b", "", "x" * 300, "%00", "%ff", "..", "1.2.g", "@5", "-1", "9" * 40, "é", "'; --", "{queue}"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["orders", "1", "completed", "2020-01-01", "now", "\x00", "\ud800", 10**30, -1, 1e308])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner))
FIELDS = st.sampled_from(
    [
        "items",
        "queue",
        "payload",
        "partition",
        "transactionId",
        "traceId",
        "headers",
        "type",
        "timestamp",
        "durability",
        "ttlSeconds",
        "operations",
        "requiredLeases",
        "acknowledgments",
        "consumerGroup",
        "partitionId",
        "leaseId",
        "status",
        "offset",
        "error",
        "seconds",
        "options",
        "namespace",
        "task",
        "toEnd",
        "subscriptionTimestamp",
        "data",
        "traceNames",
        "eventType",
        "query_id",
        "partition_id",
        "state_ops",
        "push_items",
        "ack",
        "keys",
        "name",
        "source_queue",
        "config_hash",
        "key_prefix",
        "ripe_at_or_before",
        "enabled",
    ]
)
BODIES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=5), max_leaves=12
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "batch",
            "wait",
            "timeout",
            "partitions",
            "consumerGroup",
            "subscriptionFrom",
            "limit",
            "offset",
            "queue",
            "from",
            "to",
            "after",
        ]
    ),
    st.sampled_from(["", "1", "-1", "0", "1e9", "1000000000", "NaN", "inf", "true", "x", "%00", "%ff", "+", "now"]),
    max_size=4,
)


Ask = Callable[[Request], Response]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """All routes over one store, on an event loop that turns while somebody asks."""
    path = tmp_path_factory.mktemp("door") / "headwater.db"
    with asyncio.Runner() as runner:
        opened = AsyncExitStack()
        runner.run(opened.__aenter__())
        hw = runner.run(opened.enter_async_context(headwater.open(str(path), wait_seconds_max=0.01)))
        door = runner.run(opened.enter_async_context(open_door(hw)))

        async def answer(request: Request) -> Response:
            return await door(request)

        def ask(request: Request) -> Response:
            return runner.run(answer(request))

        body = {"items": [{"queue": "orders", "payload": number} for number in range(3)]}
        ask(Request(method="POST", path="/api/v1/push", body=json.dumps(body).encode(), headers=JSON))
        ask(Request(method="GET", path="/api/v1/pop/queue/orders"))
        yield ask
        runner.run(opened.aclose())


def encode(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def expect_no_failure(ask: Ask, request: Request) -> None:
    response = ask(request)
    assert response.status < 500, (request, response.body)
    if response.status >= 400:
        problem = json.loads(response.body)
        assert problem["code"]
        assert problem["error"]
        assert "Traceback" not in problem["detail"]


def path_of(route: Route, names: list[str]) -> str:
    steps = [names.pop() if step.startswith("{") else step for step in route.path.split("/")]
    return "/".join(steps)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15)
@given(body=BODIES, query=QUERIES, names=st.lists(NAMES, min_size=3, max_size=3))
def test_no_input_makes_a_route_fail(
    ask: Ask, route: Route, body: Any, query: dict[str, str], names: list[str]
) -> None:
    expect_no_failure(
        ask,
        Request(
            method=route.method,
            path=path_of(route, names),
            query="&".join(f"{name}={value}" for name, value in query.items()),
            headers=JSON,
            body=encode(body) if route.takes is not None else b"",
        ),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200) | VALUES.map(encode), route=st.sampled_from([one for one in ROUTES if one.takes]))
def test_no_bytes_make_a_route_fail(ask: Ask, body: bytes, route: Route) -> None:
    path = path_of(route, ["orders", "orders", "orders"])
    expect_no_failure(ask, Request(method="POST", path=path, headers=JSON, body=body))


HUGE = [
    b"[" * 500_000,
    b'{"items":' * 50_000,
    b'{"items": [' + b'{"queue":"q","payload":1},' * 30_000 + b"{}]}",
    b'{"a":1,' * 1_000,
    b'"' + b"\\u0000" * 100_000 + b'"',
    b"1" * 500_000,
    b'{"items":[{"queue":"orders","payload":' + b"9" * 5_000 + b"}]}",
    b'{"items":[{"queue":"orders","payload":1e999}]}',
    b'{"items":[{"queue":"orders","payload":1,"payload":2}]}',
    b'{"items":[{"queue":"orders","payload":1}],"items":[]}',
    "\ufeff{}".encode(),
    "{}".encode("utf-16"),
    b"\xc0\x80",
    b"NaN",
    b"-",
]


@pytest.mark.parametrize("body", HUGE, ids=range(len(HUGE)))
def test_huge_deep_and_broken_bodies_are_answered(ask: Ask, body: bytes) -> None:
    for route in ROUTES:
        if route.takes is not None:
            path = path_of(route, ["orders", "orders", "orders"])
            expect_no_failure(ask, Request(method=route.method, path=path, headers=JSON, body=body))


NUMBERS = ["1e999", "-1e400", "9" * 5_000, "9" * 400 + ".5", "1e-999", "123456789012345678901234567890", "0.1"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
async def test_a_number_that_no_float_holds_is_read_as_it_was_pushed(tmp_path: Path, number: str) -> None:
    """By both wires, by the library as ready JSON, and by the client; the bytes stay what they were."""
    text = f'{{"before": 1.5, "it": {number}, "after": [2]}}'
    async with headwater.open(str(tmp_path / "a.db")) as hw, on_the_edge(hw) as url, open_door(hw) as door:
        queen = f'{{"items":[{{"queue":"orders","payload":{text}}}]}}'.encode()
        native = f'{{"pushes":[{{"queue":"orders","records":[{{"data":{text}}}]}}]}}'.encode()
        for path, body in (("/api/v1/push", queen), ("/v1/push", native)):
            answer = await door(Request(method="POST", path=path, headers=JSON, body=body))
            assert answer.status == 201, answer.body
        await hw.queue("orders").push(headwater.Raw(text.encode()))
        async with headwater.connect(url) as client:
            await client.queue("orders").push(headwater.Raw(text.encode()))
            for reader in (hw, client):
                messages = await reader.queue("orders").pop(group=type(reader).__name__, batch=10)
                assert len(messages) == 4
                for message in messages:
                    assert bytes(message.record.data) == text.encode()
                    assert message.payload["it"] == expected(number)
                    assert (message.payload["before"], message.payload["after"]) == (1.5, [2])


def expected(number: str) -> int | float | Decimal:
    """The number as it was written, as nearly as Python's own kinds go."""
    exact = Decimal(number)
    if number.lstrip("-").isdigit():
        return int(number) if len(number) <= 4_300 else exact
    return float(number) if math.isfinite(float(number)) else exact


@pytest.mark.parametrize("text", [b"[1e999, oops]", b"[1e999", b"[1e999]]", b'[1e999, "\xff"]', b"1e999 2"])
async def test_what_stands_behind_such_a_number_must_be_json_too(tmp_path: Path, text: bytes) -> None:
    async with headwater.open(str(tmp_path / "a.db")) as hw:
        with pytest.raises(InvalidPayload):
            await hw.queue("orders").push(headwater.Raw(text))
        assert await hw.queues() == []
