"""Several servers on one database of a PostgreSQL server, as on several machines: one store, and one may be killed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.postgres_server import Server as Database
from tests.postgres_server import server
from tests.scenarios.servers import PATIENCE_SECONDS, Load, Server
from tests.waiting import expect_soon


@pytest.fixture(scope="module")
def database() -> Database:
    """A PostgreSQL server."""
    return server()


@pytest.fixture
def two(database: Database) -> Iterator[tuple[Server, Server]]:
    """Two servers over one empty store."""
    address = database.address(database.new_schema())
    with ExitStack() as stack:
        servers = []
        for _ in range(2):
            servers.append(Server(address))
            stack.callback(servers[-1].stop)
        yield servers[0], servers[1]


def pop(url: str, **query: Any) -> httpx.Response:
    asked = {"timeout": int(PATIENCE_SECONDS * 1_000), **query}
    return httpx.get(f"{url}/api/v1/pop/queue/orders", params=asked, timeout=PATIENCE_SECONDS * 2)


def push(url: str, *payloads: Any) -> None:
    items = [{"queue": "orders", "payload": payload} for payload in payloads]
    assert httpx.post(f"{url}/api/v1/push", json={"items": items}, timeout=PATIENCE_SECONDS).status_code == 201


def is_parked(url: str) -> bool:
    """Whether a pop waits at this server."""
    lines = httpx.get(f"{url}/metrics", timeout=PATIENCE_SECONDS).text.splitlines()
    return any("available_ratio" in line and "waiting_pops" in line and not line.endswith(" 1.0") for line in lines)


def test_a_pop_that_waits_at_one_server_gets_what_is_pushed_at_another(two: tuple[Server, Server]) -> None:
    here, there = two
    with ThreadPoolExecutor(1) as waiting:
        waits = waiting.submit(pop, there.url, wait="true")
        expect_soon(lambda: is_parked(there.url))
        push(here.url, "hello")
        answer = waits.result()
    assert [message["data"] for message in answer.json()["messages"]] == ["hello"]
    # The lease is everybody's: the message is not given out a second time.
    assert pop(here.url).status_code == 204


def test_what_a_killed_server_answered_is_at_the_other(two: tuple[Server, Server]) -> None:
    here, there = two
    push(here.url, *range(10))
    here.kill()
    assert [message["data"] for message in pop(there.url, batch=100).json()["messages"]] == list(range(10))


def test_two_servers_share_a_database_and_one_is_killed(two: tuple[Server, Server]) -> None:
    load = Load([one.url for one in two], seed=1)
    load.start()
    load.wait_for(100)
    two[0].kill()
    load.wait_for(100)
    two[0].start()
    load.wait_for(50)
    load.finish()
    load.verify()
