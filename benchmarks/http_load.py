"""Load over HTTP from a process of its own, by wrk where it is installed, else by connections of ours; parked polls.

Every connection sends a request, waits for its answer and sends the next. An answer that is no success ends a measure.
"""

import asyncio
import re
import shutil
import subprocess
from array import array
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, cast

import httptools
import msgspec
import uvloop

from benchmarks.helper import helper, receive
from benchmarks.timing import now_ns, percentile_ms

PARTITIONS = 16
PAYLOAD = b'{"hello":"' + b"x" * 188 + b'"}'
WRK_SCRIPT = Path(__file__).with_name("http_push.lua")
SETTLE_SECONDS = 0.2
NOTHING_LEFT = 204
PUSHERS_MAX = 50
ANSWERED_SECONDS_MAX = 60

Requests = Callable[[], bytes]


class Load(msgspec.Struct, frozen=True):
    """What a load came to: requests in all and a second, and how long each took."""

    count: int
    rate: float
    p50_ms: float
    p99_ms: float
    tool: str


def push(address: str, batch: int, connections: int, seconds: float) -> Load:
    """Pushes of `batch` messages from so many connections."""
    if shutil.which("wrk"):
        return _wrk(address, batch, connections, seconds)
    with helper(_push, address, batch, connections, seconds) as process:
        found: Load = receive(process)
        return found


def pop(address: str, groups: int, seconds: float) -> Load:
    """Pops of 100, acknowledged on the way, one connection a group."""
    with helper(_pop, address, groups, seconds) as process:
        found: Load = receive(process)
        return found


def _wrk(address: str, batch: int, connections: int, seconds: float) -> Load:
    command = f"wrk -t1 -c{connections} -d{max(round(seconds), 1)}s --latency -s".split()
    ended = subprocess.run(
        [*command, str(WRK_SCRIPT), f"http://{address}"],
        env={"BATCH": str(batch), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    if "Non-2xx" in ended.stdout or "Socket errors" in ended.stdout:
        raise RuntimeError(
            next(line.strip() for line in ended.stdout.splitlines() if "Non-2xx" in line or "Soc" in line)
        )
    count = re.search(r"(\d+) requests in", ended.stdout)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", ended.stdout)
    assert count is not None
    assert rate is not None
    return Load(int(count[1]), float(rate[1]), _wrk_ms(ended.stdout, 50), _wrk_ms(ended.stdout, 99), "wrk")


def _wrk_ms(text: str, percent: int) -> float:
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]]


# ── connections of ours ──


def push_requests(batch: int) -> Iterator[bytes]:
    """Bodies as clients send them: every message has an id of its own, a request goes to one partition."""
    number = 0
    while True:
        items = []
        partition = b"p%d" % (number // batch % PARTITIONS)
        for _ in range(batch):
            number += 1
            identity = b"0190aaaa-bbbb-7ccc-8ddd-%012x" % number
            items.append(
                b'{"queue":"q","partition":"%s","transactionId":"%s","payload":%s}' % (partition, identity, PAYLOAD)
            )
        body = b'{"items":[' + b",".join(items) + b"]}"
        head = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        yield head + b"content-length: %d\r\n\r\n" % len(body) + body


def get(path: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


class Client(asyncio.Protocol):
    """One connection; `on_answer` gets the status and the body of each answer."""

    def __init__(self, on_answer: "Callable[[Client, int, bytes], None]") -> None:
        self._on_answer = on_answer
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self.sent_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        self._on_answer(self, self._parser.get_status_code(), body)

    def send(self, request: bytes) -> None:
        """Sends a request; its answer comes to `on_answer`."""
        self.sent_ns = now_ns()
        self.transport.write(request)


async def connect(address: str, on_answer: "Callable[[Client, int, bytes], None]") -> Client:
    """A connection to the server."""
    host, port = address.split(":")
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(on_answer), host, int(port))
    return client


async def closed_loop(address: str, requests: "list[Callable[[], bytes]]", seconds: float) -> Load:
    """Each connection takes its requests from one of these and sends the next when it has the answer to the last."""
    latencies: array[int] = array("Q")
    refused: list[str] = []
    finish = now_ns() + int(seconds * 1e9)
    over = asyncio.Event()
    sources: dict[Client, Callable[[], bytes]] = {}

    def on_answer(client: Client, status: int, body: bytes) -> None:
        now = now_ns()
        latencies.append(now - client.sent_ns)
        if not 200 <= status < 300:
            refused.append(f"{status} {body[:200].decode(errors='replace')}")
        if refused or now >= finish or status == NOTHING_LEFT:
            over.set()
        else:
            client.send(sources[client]())

    started = now_ns()
    for source in requests:
        client = await connect(address, on_answer)
        sources[client] = source
        client.send(source())
    await over.wait()
    elapsed = now_ns() - started
    for client in sources:
        client.transport.abort()
    if refused:
        raise RuntimeError(refused[0])
    ordered = sorted(latencies)
    rate = len(latencies) / elapsed * 1e9
    return Load(len(latencies), rate, percentile_ms(ordered, 50), percentile_ms(ordered, 99), "own connections")


def _push(pipe: "Pipe[Any, Any]", address: str, batch: int, connections: int, seconds: float) -> None:
    bodies = push_requests(batch)
    pipe.send(uvloop.run(closed_loop(address, [lambda: next(bodies)] * connections, seconds)))


def _pop(pipe: "Pipe[Any, Any]", address: str, groups: int, seconds: float) -> None:
    def source(group: int) -> Callable[[], bytes]:
        request = get(f"/api/v1/pop/queue/q?batch=100&autoAck=true&consumerGroup=group-{group}")
        return lambda: request

    pipe.send(uvloop.run(closed_loop(address, [source(group) for group in range(groups)], seconds)))


# ── parked polls ──


class Release(msgspec.Struct, frozen=True):
    """How long after its push each parked poll had its answer."""

    latencies_ms: list[float]


def park(pipe: "Pipe[Any, Any]", address: str, polls: list[str], pushes: list[bytes], gap_seconds: float) -> None:
    """Parks a poll on each of these paths, says so, and at a word pushes and sees all of them answered."""
    pipe.send(uvloop.run(_park(pipe, address, polls, pushes, gap_seconds)))


async def _park(
    pipe: "Pipe[Any, Any]", address: str, polls: list[str], pushes: list[bytes], gap_seconds: float
) -> Release:
    latencies: list[float] = []
    pushed_ns: dict[int, int] = {}
    problems: list[str] = []
    complete = asyncio.Event()

    def on_poll(client: Client, status: int, body: bytes) -> None:
        if status == 200:
            number = int(msgspec.json.decode(body)["messages"][0]["data"])
            latencies.append((now_ns() - pushed_ns[number]) / 1e6)
        else:
            problems.append(f"a poll was answered {status}")
        if problems or len(latencies) == len(polls):
            complete.set()

    def on_push(client: Client, status: int, body: bytes) -> None:
        if status >= 300:
            problems.append(f"a push was answered {status} {body[:100]!r}")
            complete.set()

    for path in polls:
        (await connect(address, on_poll)).send(get(path))
    pushers = [await connect(address, on_push) for _ in range(min(len(pushes), PUSHERS_MAX))]
    await asyncio.sleep(SETTLE_SECONDS)
    pipe.send("parked")
    await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
    for number, request in enumerate(pushes):
        pushed_ns[number] = now_ns()
        pushers[number % len(pushers)].send(request)
        if gap_seconds:
            await asyncio.sleep(gap_seconds)
    await asyncio.wait_for(complete.wait(), ANSWERED_SECONDS_MAX)
    if problems:
        raise RuntimeError(problems[0])
    return Release(latencies)
