"""Mounted in FastAPI and in Django, as their own documentation says, behind a server of theirs in its own process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import headwater
import headwater.sync
from headwater.doors.asgi import AsgiApp
from headwater.errors import ConfigError
from tests.doors.hosts import PREFIX
from tests.doors.live_edge import request
from tests.doors.test_asgi import Conversation, Event, scope
from tests.doors.test_queues import pop, push
from tests.waiting import expect_soon

# Who opens the store: the host says so, the server tells the app itself, or nobody does and the first request has to.
HOSTS = {
    "fastapi, told": ("fastapi_told", "on"),
    "fastapi, untold": ("fastapi_untold", "on"),
    "django, told": ("django_project", "on"),
    "django, untold": ("django_project", "off"),
}
PATIENCE_SECONDS = 20.0


class Host:
    """A host app in a process of its own."""

    def __init__(self, module: str, lifespan: str, store: Path, *options: str) -> None:
        self.store = store
        self.is_told = module == "fastapi_told" or (module, lifespan) == ("django_project", "on")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.set_inheritable(True)
            self.port = listener.getsockname()[1]
            listener.listen()
            command = [sys.executable, "-m", "uvicorn", f"tests.doors.hosts.{module}:app", "--log-level", "warning"]
            self._process = subprocess.Popen(
                [*command, "--lifespan", lifespan, "--fd", str(listener.fileno()), *options],
                env={**os.environ, "HOSTED_STORE": str(store)},
                pass_fds=[listener.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> tuple[int, str]:
        """End it in good order: how it ended, and what it complained of."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            _, complaints = self._process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            self._process.kill()
        return self._process.returncode, complaints


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    module, lifespan = HOSTS[request.param]
    running = Host(module, lifespan, tmp_path / "shop.db")
    yield running
    running.stop()


def test_a_mounted_queue_works_beside_the_hosts_own_pages_and_ends_with_it(host: Host) -> None:
    with httpx.Client(base_url=host.url, timeout=PATIENCE_SECONDS) as own:
        assert own.get("/own").json() == {"who": "the host"}
        assert own.get("/health").status_code == 404
        assert own.get(f"{PREFIX}x/health").status_code == 404
    with httpx.Client(base_url=f"{host.url}{PREFIX}", timeout=PATIENCE_SECONDS) as client:
        assert push(client, {"id": 7}, queue="shop/orders")[0]["status"] == "queued"
        answer = client.get("/api/v1/pop/queue/shop%2Forders", params={"consumerGroup": "billing"})
        (message,) = answer.json()["messages"]
        assert message["data"] == {"id": 7}
        report = {"transactionId": message["transactionId"], "partitionId": message["partitionId"]}
        acked = client.post("/api/v1/ack", json={**report, "leaseId": message["leaseId"], "consumerGroup": "billing"})
        assert acked.json()[0]["success"]
        assert client.get("/").status_code == 200
        assert client.get("/nothing/here").json()["code"] == "not_found"
    code, complaints = host.stop()
    assert (code in (0, -signal.SIGTERM), complaints) == (True, "")
    # Where nobody is told of the end, the log stays beside the file, as after a kill; the next to open it goes on.
    assert Path(f"{host.store}-wal").exists() is not host.is_told
    with headwater.sync.open(str(host.store)) as hw:
        assert hw.queue("shop/orders").pop(group="other")[0].payload == {"id": 7}


def test_a_poll_waits_in_a_mounted_queue_and_leaves_no_lease_when_its_client_goes(host: Host) -> None:
    with httpx.Client(base_url=f"{host.url}{PREFIX}", timeout=PATIENCE_SECONDS) as client:
        assert client.get("/health").status_code == 200

        def waiting() -> int:
            metrics = client.get("/metrics").text
            (line,) = (line for line in metrics.splitlines() if line.startswith("headwater_waiting_pops{"))
            return int(float(line.rpartition(" ")[2]))

        polls = [socket.create_connection(("127.0.0.1", host.port), PATIENCE_SECONDS) for _ in range(2)]
        for poll in polls:
            poll.sendall(request(f"{PREFIX}/api/v1/pop/queue/orders?wait=true&timeout=60000"))
        expect_soon(lambda: waiting() == 2)
        polls[0].close()
        expect_soon(lambda: waiting() == 1)
        push(client, "for the one who stayed")
        with polls[1] as stayed:
            answer = b""
            while b"for the one who stayed" not in answer:
                received = stayed.recv(65_536)
                assert received, f"the connection was closed after {answer!r}"
                answer += received
        assert pop(client) == []


def ask(app: Any, path: str, method: str = "GET", root: str = "", **about: Any) -> httpx.Response:
    """Ask an app on an event loop that is made for this request and ends with it, as test clients do."""

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **about)

    return asyncio.run(asked())


def mounted(app: AsgiApp) -> FastAPI:
    host = FastAPI()
    host.mount(PREFIX, app)
    return host


@pytest.mark.parametrize("path", [f"{PREFIX}/health", f"/shop{PREFIX}/health"])
def test_a_proxy_may_take_its_own_prefix_off_the_path_or_leave_it(tmp_path: Path, path: str) -> None:
    app = mounted(headwater.asgi(str(tmp_path / "shop.db")))
    assert ask(app, path, root="/shop").json()["status"] == "ok"


def test_an_event_loop_for_each_request_finds_the_store_each_time(tmp_path: Path) -> None:
    app = mounted(headwater.asgi(str(tmp_path / "shop.db")))
    body = {"items": [{"queue": "orders", "payload": 7}]}
    assert ask(app, f"{PREFIX}/api/v1/push", "POST", json=body).status_code == 201
    assert ask(app, f"{PREFIX}/api/v1/pop/queue/orders").json()["messages"][0]["data"] == 7


async def test_a_second_event_loop_at_the_same_time_is_told_so(tmp_path: Path) -> None:
    app = headwater.asgi(str(tmp_path / "shop.db"))
    async with app:
        answer = await asyncio.to_thread(ask, app, "/health")
        assert (answer.status_code, answer.json()["code"]) == (500, "wrong_loop")
    assert (await asyncio.to_thread(ask, app, "/health")).status_code == 200


def test_a_store_that_cannot_be_opened_is_told_with_each_request(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_bytes(b"this is no database" * 100)
    answer = ask(mounted(headwater.asgi(str(tmp_path / "shop.db"))), f"{PREFIX}/health")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_damaged")
    assert str(tmp_path) not in answer.text


@pytest.mark.parametrize("at", ["", "/", "queues", "/queues/"])
def test_a_place_that_is_no_path_is_refused(at: str) -> None:
    with pytest.raises(ConfigError, match="such as /queues"):
        headwater.asgi("shop.db").in_front_of(FastAPI(), at=at)


@pytest.mark.parametrize(
    ("about", "served"),
    [
        ({"path": "/queues"}, True),
        ({"path": "/queues/health"}, True),
        ({"path": "/queuesand"}, False),
        ({"path": "/"}, False),
        ({"path": "/shop/queues/health", "root_path": "/shop"}, True),
        ({"path": "/queues/health", "root_path": "/shop"}, True),
    ],
)
async def test_what_is_below_the_place_is_served_and_all_else_is_the_hosts(
    tmp_path: Path, about: Event, served: bool
) -> None:
    asked: list[str] = []

    async def other(scope: Event, receive: object, send: object) -> None:
        asked.append(scope["path"])

    inner = headwater.asgi(str(tmp_path / "shop.db"))
    talk = Conversation({"type": "http.request"})
    async with inner:
        await inner.in_front_of(other, at=PREFIX)(scope(**about), talk.receive, talk.send)
    assert bool(asked) is not served
    assert [event["status"] for event in talk.sent if "status" in event] == ([200] if served else [])
