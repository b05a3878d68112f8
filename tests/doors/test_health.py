"""What a server says of itself, asked without a transport."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from headwater.clock import SystemClock
from headwater.doors.all_routes import make_door
from headwater.doors.hosts import for_this_machine, host_name, is_loopback
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.errors import StoreFailed
from headwater.log.committer import Committer
from headwater.log.tail import Tail
from headwater.services.jobs import JobService
from headwater.services.log_reading import LogReading
from headwater.services.queues import Queues
from headwater.stores.contract import Traits


class OneNumber:
    """As much of the services as a question about their health needs."""

    traits = Traits("sqlite", "place", "SQLite", False, "sync")
    clock = SystemClock()

    def __init__(self, lsn: int | None) -> None:
        self.lsn = lsn
        self.intentions = SimpleNamespace(gate=None, draining=False)
        self.followers = SimpleNamespace(on_clock_set=[])
        self.before_close: list[object] = []

    async def ask(self, question: object) -> int:
        if self.lsn is None:
            raise StoreFailed("opening /secret/place: broken")
        return self.lsn


async def ask(path: str, method: str = "GET", lsn: int | None = 12, **headers: str) -> tuple[int, str]:
    site = Site(
        cast(Queues, OneNumber(lsn)),
        cast(JobService, None),
        cast(LogReading, None),
        cast(Tail, None),
        cast(Committer, SimpleNamespace(on_held=[])),
        "1.2.3",
    )
    door = for_this_machine(make_door(site))
    response = await door(Request(method=method, path=path, headers=headers))
    return response.status, response.body.decode()


async def test_a_healthy_server_says_version_store_and_lsn() -> None:
    status, body = await ask("/health")
    assert status == 200
    assert json.loads(body) == {"status": "ok", "version": "1.2.3", "store": "sqlite", "lsn": 12}


async def test_a_store_that_does_not_answer_makes_the_server_unavailable() -> None:
    status, body = await ask("/health", lsn=None)
    assert (status, json.loads(body)["code"]) == (503, "store_failed")
    assert "secret" not in body


async def test_the_version_and_the_first_page_are_shown() -> None:
    assert await ask("/version") == (200, '{"version":"1.2.3"}')
    status, body = await ask("/")
    assert status == 200
    assert "Headwater 1.2.3" in body


@pytest.mark.parametrize("path", ["/nothing", "/health/", "//health", "/../health", "", "*"])
async def test_every_other_path_is_not_found(path: str) -> None:
    status, body = await ask(path)
    assert (status, json.loads(body)["code"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_a_path_that_is_only_read_takes_no_writes(method: str) -> None:
    status, body = await ask("/health", method)
    assert (status, json.loads(body)["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:6632", "127.0.0.1:6632", "127.9.9.9", "[::1]:6632", "LOCALHOST"]
)
async def test_a_request_to_this_machine_is_answered(host: str) -> None:
    assert (await ask("/health", host=host))[0] == 200


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:6632", "127.0.0.1.example.org", "10.0.0.1", "", "[::2]:1"]
)
async def test_a_request_that_was_sent_to_another_name_is_refused(host: str) -> None:
    status, body = await ask("/health", host=host)
    assert (status, json.loads(body)["code"]) == (403, "host_not_allowed")


def test_loopback_is_this_machine_and_nothing_else() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "[::1]")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.1", "example.org", "")] == [False] * 5
    assert host_name("[::1]:80") == "[::1]"
