"""The OpenAPI document: it names every route, it is well formed, and a live server keeps to it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
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

from headwater.doors.house import ROUTES
from headwater.doors.openapi import make_document
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


CASES = [
    *((label, GenerationMode.POSITIVE) for label in OPERATIONS),
    *((label, GenerationMode.NEGATIVE) for label in OPERATIONS if takes_something(label)),
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveDoor]:
    """A server that keeps nobody waiting, with something in it."""
    running = LiveDoor(tmp_path_factory.mktemp("openapi") / "headwater.db", on_the_edge, wait_seconds_max=0.01)
    running.start()
    with running.client() as client:
        client.post("/api/v1/push", json={"items": [{"queue": "0", "payload": 1}]}).raise_for_status()
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


def test_a_number_that_no_store_can_hold_is_refused(client: httpx.Client) -> None:
    answer = client.get("/api/v1/resources/partitions", params={"after": 10**30})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_every_operation_is_tried() -> None:
    assert len(OPERATIONS) == len(ROUTES)


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
