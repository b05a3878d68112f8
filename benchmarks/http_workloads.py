"""The work of the suite `http`: a server in a process of its own, load from another, and what both came to."""

import asyncio
import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import headwater
from benchmarks import http_load
from benchmarks.helper import helper, receive
from benchmarks.peers import PAYLOAD, Context, load
from benchmarks.servers import stop, wait_until_listening
from benchmarks.timing import Sample, now_ns, summarise
from tests.ports import free_port

IDLE_SECONDS = 2.0
PUSH_MAX = 1_000
PRELOAD_BATCH = 1_000
GAP_SECONDS = 0.002
WAITING = "wait=true&timeout=55000&autoAck=true"
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """`headwater serve` over a store, with what it costs."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self._process = process
        self.address = address

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_kb(self, which: str) -> int:
        """`VmHWM`, the peak, or `VmRSS`, what it has now."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(which))

    def peak_mb(self) -> float:
        return self.memory_kb("VmHWM") / 1024


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Server]:
    """A server for the time of the block."""
    port = free_port()
    command = [sys.executable, "-m", "headwater", "--store", str(folder / "headwater.db"), "serve", "--port", str(port)]
    environment = {**os.environ, **{f"HEADWATER_{name.upper()}": value for name, value in settings.items()}}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_listening(process, port)
        yield Server(process, f"127.0.0.1:{port}")
    finally:
        stop(process)


def sample_of(server: Server, found: http_load.Load, messages: int, cpu_seconds: float) -> Sample:
    """What a load came to that moved so many messages with each request."""
    cpu_us = cpu_seconds / found.count * 1e6
    return Sample(
        rate=found.rate * messages,
        p50_ms=found.p50_ms,
        p99_ms=found.p99_ms,
        cpu_us=cpu_us,
        memory_mb=server.peak_mb(),
        note=f"{cpu_us:.0f} µs CPU a request, load by {found.tool}",
    )


async def answer_requests(name: str, context: Context) -> Sample:
    with serving(context.folder) as server:
        before = server.cpu_seconds()
        request = http_load.get("/version")
        found = await http_load.closed_loop(server.address, [lambda: request] * 50, context.seconds)
        return sample_of(server, found, 1, server.cpu_seconds() - before)


async def push_over_http(batch: int, connections: int, name: str, context: Context) -> Sample:
    with serving(context.folder) as server:
        http_load.push(server.address, batch, min(connections, 8), 1.0)  # so that code and caches are warm
        before = server.cpu_seconds()
        found = http_load.push(server.address, batch, connections, context.seconds)
        return sample_of(server, found, batch, server.cpu_seconds() - before)


async def push_by_client(batch: int, connections: int, name: str, context: Context) -> Sample:
    """The same by a peer's own client, its connections as tasks of this process."""
    latencies: array[int] = array("Q")
    payloads = [PAYLOAD] * batch
    async with load(name).open(context) as queue:
        finish = now_ns() + int(context.seconds * 1e9)

        async def produce() -> None:
            before = now_ns()
            while before < finish:
                await queue.push_many(payloads)
                after = now_ns()
                latencies.append(after - before)
                before = after

        started = now_ns()
        await asyncio.gather(*(produce() for _ in range(connections)))
        return summarise(latencies, len(latencies) * batch, now_ns() - started)


async def deliver_to_groups(groups: int, waiting: int, name: str, context: Context) -> Sample:
    async with headwater.open(str(context.folder / "headwater.db")) as hw:
        for start in range(0, waiting, PRELOAD_BATCH):
            partition = f"p{start // PRELOAD_BATCH % http_load.PARTITIONS}"
            await hw.queue("q").push_many([PAYLOAD] * PRELOAD_BATCH, partition=partition)
    with serving(context.folder) as server:
        before = server.cpu_seconds()
        found = http_load.pop(server.address, groups, context.seconds)
        return sample_of(server, found, 100, server.cpu_seconds() - before)


async def release_parked(polls: int, keys: int, name: str, context: Context) -> Sample:
    """Messages come one after the other, each for a poll of another group."""
    queues = [f"q{number % keys}" for number in range(polls)]
    await _meet(queues[:keys], context)
    paths = [f"/api/v1/pop/queue/{queue}?consumerGroup=g&{WAITING}" for queue in queues]
    pushes = [_push([(queue, number)]) for number, queue in enumerate(queues)]
    return await _release(paths, pushes, GAP_SECONDS, context)


async def release_on_one_queue(polls: int, name: str, context: Context) -> Sample:
    """All at once, in as few requests as may be."""
    await _meet(["q"], context)
    starts = range(0, polls, PUSH_MAX)
    pushes = [_push([("q", start // PUSH_MAX)] * min(PUSH_MAX, polls - start)) for start in starts]
    return await _release([f"/api/v1/pop/queue/q?consumerGroup=g&{WAITING}"] * polls, pushes, 0, context)


async def _meet(queues: list[str], context: Context) -> None:
    """The queues and their group are there and have been used before."""
    async with headwater.open(str(context.folder / "headwater.db"), durability="written") as hw:
        for name in queues:
            await hw.queue(name).push(0)
            await hw.queue(name).pop(group="g", auto_ack=True)


async def _release(paths: list[str], pushes: list[bytes], gap_seconds: float, context: Context) -> Sample:
    """Parks the polls, sees what they cost while nothing happens, then pushes."""
    with serving(context.folder, waiters_max=str(len(paths) + 1)) as server:
        idle_kb = server.memory_kb("VmRSS")
        with helper(http_load.park, server.address, paths, pushes, gap_seconds) as clients:
            receive(clients)
            each_kb = (server.memory_kb("VmRSS") - idle_kb) / len(paths)
            before = server.cpu_seconds()
            await asyncio.sleep(IDLE_SECONDS)
            idle = (server.cpu_seconds() - before) / IDLE_SECONDS
            clients.send("push")
            release: http_load.Release = receive(clients)
        ordered = sorted(release.latencies_ms)
        p95_ms = ordered[len(ordered) * 95 // 100]
        return Sample(
            p50_ms=ordered[len(ordered) // 2],
            p95_ms=p95_ms,
            p99_ms=ordered[len(ordered) * 99 // 100],
            memory_mb=server.peak_mb(),
            note=f"p95 {p95_ms:.1f}, last {ordered[-1]:.0f} ms, {each_kb:.1f} KiB a poll, {idle:.1%} CPU while parked",
        )


def _push(targets: list[tuple[str, int]]) -> bytes:
    """One message for each of these queues, which says by its number in which push it came."""
    items = ",".join(f'{{"queue":"{queue}","payload":{number}}}' for queue, number in targets)
    body = f'{{"items":[{items}]}}'.encode()
    head = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body
