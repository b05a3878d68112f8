"""The OpenAPI document: it names every route, it is well formed, and a live server keeps to it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import headwater
from headwater.doors import openapi
from headwater.doors.all_routes import ROUTES
from headwater.doors.openapi import make_document
from headwater.doors.routes import Route
from headwater.doors.wire import Request, Response
from headwater.log.job_operations import Claim, Heartbeat, JobReport, Settle, WorkerAbout
from headwater.model.document_rules import DocumentRule
from headwater.model.job import JobOutcome
from headwater.model.job_policy import JobPolicy
from tests.doors.live_door import LiveDoor, on_the_edge

DOCUMENT = make_document(ROUTES, "0")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES, EXAMPLES_IN_A_CAMPAIGN = 3, 200


def takes_something(label: str) -> bool:
    """Whether an operation can be asked wrongly at all."""
    method, path = label.split()
    operation = DOCUMENT["paths"][path][method.lower()]
    asks = any(parameter["in"] == "query" for parameter in operation.get("parameters", ()))
    return asks or "requestBody" in operation


# An answer without an end is no case for this.
STREAMS = {
    f"{route.method} {route.path}"
    for route in ROUTES
    if "text/event-stream" in route.content_types or route.status == HTTPStatus.SWITCHING_PROTOCOLS
}
CASES = [
    *((label, GenerationMode.POSITIVE) for label in OPERATIONS if label not in STREAMS),
    *((label, GenerationMode.NEGATIVE) for label in OPERATIONS if label not in STREAMS and takes_something(label)),
]


def fill(client: httpx.Client) -> None:
    """Something of everything, so that no answer is empty: what is not there cannot break its promise."""

    def post(path: str, **body: Any) -> Any:
        return client.post(path, json=body).raise_for_status().json()

    post("/api/v1/configure", queue="0", namespace="shop", task="billing", options={"retryLimit": 0})
    post(
        "/api/v1/push", items=[{"queue": "0", "payload": number, "transactionId": f"t{number}"} for number in range(4)]
    )
    popped = client.get("/api/v1/pop/queue/0", params={"batch": 2, "consumerGroup": "0"}).json()["messages"]
    for message, status in zip(popped, ("failed", "completed"), strict=True):
        about = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
        post("/api/v1/ack", **about, status=status, error="broken", consumerGroup="0")
    client.get("/api/v1/pop/queue/0", params={"consumerGroup": "holds", "leaseSeconds": 3_600}).raise_for_status()
    event = {"transactionId": "t0", "partitionId": popped[0]["partitionId"], "data": {"at": 1}}
    post("/api/v1/traces", **event, traceNames=["0"], consumerGroup="0")


async def add_jobs(hw: headwater.Headwater) -> None:
    """A function that failed once, one that gave a result, a command that waits for it, a schedule and a worker."""
    await hw.collection("things").create({"n": 1}, id="0")
    await hw.collection("things").index("n")
    await hw.set_document_rules([DocumentRule(pattern="others", read="owner == auth.sub")])
    await hw.jobs.register({"shop:mail": JobPolicy(retries=3)})
    await hw.jobs.add(id="0", type="shop:mail", retries=3)
    await hw.jobs.add(id="later", command="true", depends_on=("0",))
    await hw.jobs.limit("shop:other", rate=5.0)
    await hw.jobs.configure("max-retries", 9)
    await hw.jobs.schedule("0", headwater.NewJob(command="true", priority=3), every=60)
    about = WorkerAbout(host="here", pid=1, queues=("default",))
    await hw.jobs_service.run(Heartbeat(worker="w", about=about))
    for outcome in (JobOutcome.FAILED, JobOutcome.COMPLETED):
        (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
        result = '{"sent":true}' if outcome is JobOutcome.COMPLETED else None
        report = JobReport(
            number=job.number, token=job.token, outcome=outcome, error="broken", output="out", result=result
        )
        await hw.jobs_service.run(Settle(worker="w", reports=[report]))
        if outcome is JobOutcome.FAILED:
            await hw.jobs.add(id="done", type="shop:mail")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDoor]:
    """A server that keeps nobody waiting, with something in it."""
    running = LiveDoor(tmp_path_factory.mktemp("openapi") / "headwater.db", on_the_edge, wait_seconds_max=0.01)
    running.start()
    with running.client() as client:
        fill(client)
    asyncio.run_coroutine_threadsafe(add_jobs(running.hw), running.loop).result(20)
    yield running
    running.stop()


@pytest.fixture
def client(door: LiveDoor) -> Iterator[httpx.Client]:
    with door.client() as client:
        yield client


def test_the_document_is_served_and_names_every_route(client: httpx.Client) -> None:
    served = client.get("/openapi.json").raise_for_status().json()
    named = {(method.upper(), path) for path, methods in served["paths"].items() for method in methods}
    assert named == {(route.method, route.path) for route in ROUTES}
    assert served["info"]["version"] == client.get("/version").json()["version"]


def test_the_document_is_made_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is large, and always the same: made anew for each request, it kept a server from everything else."""
    made: list[str] = []

    def count(routes: Sequence[Route], version: str) -> dict[str, Any]:
        made.append(version)
        return make_document(routes, version)

    monkeypatch.setattr(openapi, "make_document", count)
    (route,) = [route for route in openapi.with_openapi(ROUTES[:3]) if route.path == openapi.PATH]
    site = SimpleNamespace(version="1")

    async def ask() -> list[Response]:
        return [await route.handler(site, Request(method="GET", path=route.path)) for _ in range(50)]

    answers = asyncio.run(ask())
    assert made == ["1"]
    assert {id(answer.body) for answer in answers} == {id(answers[0].body)}


def test_a_number_that_no_store_can_hold_is_refused(client: httpx.Client) -> None:
    answer = client.get("/api/v1/resources/partitions", params={"after": 10**30})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_every_operation_is_tried() -> None:
    assert {label for label, _ in CASES} | STREAMS == {f"{route.method} {route.path}" for route in ROUTES}


def test_every_route_says_what_it_answers() -> None:
    """A schema that allows everything would let a live server keep to it whatever it says."""
    open_ended = []
    for route in ROUTES:
        content = DOCUMENT["paths"][route.path][route.method.lower()]["responses"][str(route.status)]["content"]
        schema = content.get("application/json", {"schema": {"type": "text"}})["schema"]
        if not schema or schema == {"type": "object"}:
            open_ended.append(f"{route.method} {route.path}")
    assert open_ended == ["GET /openapi.json"]


PLACES = {
    "database": "main",
    "path": "things/0",
    "queue": "0",
    "room": "0",
    "group": "0",
    "name": "0",
    "id": "0",
    "partition": "1",
    "message": "t0",
}
READ = [route for route in ROUTES if route.method == "GET" and route.gives is not None and not route.changes]
# What they must be asked with.
ASKED = {
    "/v1/segments": "?queue=0",
    "/v1/jobs/wait": "?id=later",
    "/api/v1/dlq": "?queue=0",
    "/api/v1/messages": "?queue=0",
    "/api/v1/consumer-groups/lagging": "?minLagSeconds=0",
    "/api/v1/jobs/{id}/wait": "?seconds=0",
}


@pytest.mark.parametrize("route", READ, ids=[route.path for route in READ])
def test_what_is_there_is_shown_as_the_document_says(client: httpx.Client, route: Route) -> None:
    """Field by field: nothing that the type does not name, and nothing of another type."""
    answer = client.get(route.path.format(**PLACES) + ASKED.get(route.path, "")).raise_for_status()
    decoded = msgspec.json.decode(answer.content, type=route.gives)
    assert decoded
    said = msgspec.json.decode(msgspec.json.encode(decoded))
    assert said == answer.json()


ASKING = [route for route in ROUTES if route.path.startswith("/v1/questions/")]
ASKED_ABOUT: dict[str, dict[str, object]] = {
    "list-dead-letters": {"queue": "0"},
    "list-partitions": {"queue": "0"},
    "list-traces": {"partition_id": 1, "transaction_id": "t0"},
    "find-job": {"id": "later"},
    "list-job-dependencies": {"id": "later"},
    "list-job-attempts": {"id": "0"},
    "find-document": {"collection": "things", "id": "0"},
    "query-documents": {"query": {"collection": "things"}},
    "list-documents-after": {"collection": "things"},
}


@pytest.mark.parametrize("route", ASKING, ids=[route.path for route in ASKING])
def test_what_a_question_is_answered_is_as_the_document_says(client: httpx.Client, route: Route) -> None:
    """Field by field, as above."""
    answer = client.post(route.path, json=ASKED_ABOUT.get(route.path.rpartition("/")[2], {})).raise_for_status()
    decoded = msgspec.json.decode(answer.content, type=route.gives)
    assert decoded
    said = msgspec.json.decode(msgspec.json.encode(decoded))
    assert said == answer.json()


def test_the_document_is_well_formed() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_operation_says_what_it_is_for_and_what_it_needs() -> None:
    for route in ROUTES:
        operation: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
        assert operation["summary"]
        assert ("security" in operation) == (route.scope is not None)
        assert ("requestBody" in operation) == (route.takes is not None)
        assert "application/problem+json" in operation["responses"]["default"]["content"]
        assert str(route.status) in operation["responses"]
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.fixture
def served(client: httpx.Client) -> None:
    """A case before this one may have turned maintenance on, which answers with 503 as it should."""
    for switch in ("maintenance", "maintenance/pop"):
        client.post(f"/api/v1/system/{switch}", json={"enabled": False}).raise_for_status()


@pytest.mark.usefixtures("served")
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("label", "mode"), CASES, ids=[f"{mode.value} {label}" for label, mode in CASES])
def test_a_live_server_keeps_to_the_document(
    request: pytest.FixtureRequest, door: LiveDoor, label: str, mode: GenerationMode
) -> None:
    """Whatever is sent, right or wrong: no error of the server's own, and nothing but what the document says."""
    count = EXAMPLES_IN_A_CAMPAIGN if request.config.getoption("--campaign") else EXAMPLES
    seen: list[int] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        response = case.call_and_validate(base_url=door.url, checks=CHECKS, timeout=10)
        seen.append(response.status_code)

    # What cannot be made wrong in some way that the generator chose ends its search, not ours.
    with suppress(InvalidSchema):
        ask()
    assert seen
    assert all(status < 500 for status in seen)
