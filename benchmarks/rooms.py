"""How fast are rooms: from one server to another, to many at once, at rest, and with everybody's cursor moving?"""

import asyncio
import json
import shutil
import subprocess
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import headwater
from benchmarks.goals import AtMost, Goal, Reaches, Within
from benchmarks.helper import helper, receive
from benchmarks.http_workloads import Server, serving
from benchmarks.peers import Context
from benchmarks.room_clients import PATH, LeanClient, connect
from benchmarks.servers import stop, wait_until_listening
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, percentile_ms, summarise
from headwater.cli.bench_room_targets import MESSAGES, state_megabytes
from headwater.cli.bench_room_targets import ROOMS as STATE_ROOMS
from tests.ports import free_port

PEER = "headwater"
ROUNDS = 1
SPARE_SECONDS = 240.0
USERS, ROOMS = 500, 10
MEMBERS = 10_000
CONNECTING_AT_ONCE = 200
SPEAKING_SECONDS = 0.02
CURSOR_USERS, CURSOR_MOVES = 100, 30
UPDATE_SECONDS = 5.0
WRITERS = 64
PATIENCE_SECONDS = 120.0
POLLERS = 8
# All clients of a measure come from one address, which a server bounds.
MANY = {"realtime_connections_per_address_max": "100000", "realtime_connections_per_token_max": "100000"}
NODE_SCRIPT = Path(__file__).parent / "node_rooms.js"
NODE_PATHS = {"ws": "/", "socket.io": "/socket.io/?EIO=4&transport=websocket"}
QUIETLY: dict[str, Any] = {"room": "canvas-{}", "quiet": True}
DATA = {"id": "o1", "type": "rect", "x": 10, "y": 20}

NOTES = (
    "Servers are processes of their own on one file; all clients of a measure are in one process beside them, a lean "
    "WebSocket client of ours (benchmarks/room_clients.py), so the client's share of a time is in it.",
    f"Crossing: {USERS} members in {ROOMS} rooms, half of them on each server; a message of durability `written` goes "
    "in at one, and is timed when a member on the other has it: one message in each room after the other. Those who "
    "only listen are in a process of their own: a browser does not wait until another has read.",
    f"Room of {MEMBERS:,}: p50 and p95 are from sending one message until the last member has it. node ws and "
    "Socket.IO: a server in node that tells everybody what one says, with their packages from npm. Bursts: 50 messages "
    "at once, again and again; the rate is of deliveries.",
    f"Cursors: {CURSOR_USERS} users in {ROOMS} rooms, {CURSOR_MOVES} moves a second each, and an update every "
    f"{UPDATE_SECONDS:g} s. The rate is of segments that the store wrote, the goal 70 a second at most; CPU is the "
    "server's in a second.",
    "At rest: memory is what the server grew by; 100,000 take ten times as much, over as many processes.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` has a tenth of the members."""
    members = MEMBERS // 10 if quick else MEMBERS
    return (crossing(), wide(members), resting(members), cursors(), own())


def crossing() -> Question:
    ours = "A to B, 500 users"
    goals: tuple[Goal, ...] = (Within(ours, "p50_ms", 2), Within(ours, "p95_ms", 10))
    return Question("crossing", "From server A to a member on server B", ours, (Contestant(ours, PEER, cross),), goals)


def wide(members: int) -> Question:
    one, burst = f"one message to {members:,}", f"bursts to {members:,}"
    contestants = (
        Contestant(one, PEER, partial(tell_all, members, 1)),
        Contestant("node ws", PEER, partial(tell_all_by_node, "ws", members)),
        Contestant("Socket.IO", PEER, partial(tell_all_by_node, "socket.io", members)),
        Contestant(burst, PEER, partial(tell_all, members, 50)),
    )
    goals: tuple[Goal, ...] = (
        Within(one, "p95_ms", 200),
        AtMost(one, "cpu_us", 1, "node ws"),
        AtMost(one, "cpu_us", 1, "Socket.IO"),
        Reaches(burst, 300_000),
    )
    return Question("wide", "Everybody in one room", one, contestants, goals)


def resting(members: int) -> Question:
    ours = f"{members:,} at rest"
    # 0.6 GiB for 100,000.
    limit = 0.6 * 1_024 * members / 100_000
    goals: tuple[Goal, ...] = (Within(ours, "memory_mb", limit),)
    return Question(
        "resting", "Connections that only wait", ours, (Contestant(ours, PEER, partial(rest, members)),), goals
    )


def cursors() -> Question:
    ours = "100 users, 30 moves a second"
    goals: tuple[Goal, ...] = (Within(ours, "cpu_us", 150_000),)
    return Question("cursors", "Everybody's cursor", ours, (Contestant(ours, PEER, move),), goals)


def own() -> Question:
    """The targets of S0-58 to S0-61, tenfold where they are about speed; those between servers are in `crossing`."""
    writes, reads, state = "writes", "polls", "state of 50 rooms"
    contestants = (Contestant(writes, PEER, write), Contestant(reads, PEER, poll), Contestant(state, PEER, hold))
    goals: tuple[Goal, ...] = (
        Reaches(writes, 10_000),
        Reaches(reads, 10_000),
        Within(reads, "p95_ms", 0.5),
        Within(state, "memory_mb", 10),
    )
    return Question("own", "Writing and reading rooms in one process", writes, contestants, goals)


# ── between two servers, and to many ──


async def join_all(
    address: str, count: int, told: Callable[[bytes], None] | None, path: str = PATH, **about: Any
) -> list[LeanClient]:
    """So many members, some at a time."""
    host, port = address.split(":")
    gate = asyncio.Semaphore(CONNECTING_AT_ONCE)

    async def join(number: int) -> LeanClient:
        async with gate:
            client = await connect(host, int(port), told, path)
            if about:
                client.say("join", {**about, "room": about["room"].format(number % ROOMS)})
            return client

    clients = await asyncio.gather(*map(join, range(count)))
    if about:
        await until(lambda: all(client.count for client in clients))
    return clients


async def until(holds: Callable[[], bool], pause: float = 0.01) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110  (what is waited for is counted in many places, and time is not what counts)
            await asyncio.sleep(pause)


async def cross(label: str, context: Context) -> Sample:
    latencies = array("Q")
    arrived = asyncio.Event()

    def told(text: bytes) -> None:
        at = now_ns()
        if b'"room-message"' in text:
            latencies.append(at - json.loads(text)["payload"]["data"]["sent_ns"])
            arrived.set()

    with (
        serving(context.folder) as there,
        serving(context.folder) as here,
        helper(be_there, [here.address, there.address], USERS // 2 - ROOMS) as others,
    ):
        await asyncio.to_thread(receive, others)
        speakers = await join_all(here.address, ROOMS, None, **QUIETLY)
        await join_all(there.address, ROOMS, told, **QUIETLY)
        begun, finish = now_ns(), now_ns() + int(context.seconds * 1e9)
        place = 0
        while now_ns() < finish:
            arrived.clear()
            data = {"sent_ns": now_ns(), **DATA}
            speakers[place].say("send", {"room": f"canvas-{place}", "type": "object-update", "data": data})
            await asyncio.wait_for(arrived.wait(), PATIENCE_SECONDS)
            place = (place + 1) % ROOMS
            await asyncio.sleep(SPEAKING_SECONDS)
        found = summarise(latencies, len(latencies), now_ns() - begun)
        others.send("over")
        return Sample(
            rate=found.rate, p50_ms=found.p50_ms, p95_ms=percentile_ms(sorted(latencies), 95), p99_ms=found.p99_ms
        )


def be_there(pipe: "Connection[Any, Any]", addresses: Sequence[str], count: int) -> None:
    """So many members of the rooms on each of these servers, who hear everything, until they are told to go."""

    async def listen() -> None:
        for address in addresses:
            await join_all(address, count, None, **QUIETLY)
        pipe.send("there")
        await asyncio.to_thread(pipe.recv)

    asyncio.run(listen())


async def tell_all(members: int, burst: int, label: str, context: Context) -> Sample:
    with serving(context.folder, **MANY) as server:
        clients = await join_all(server.address, members, None, room="wide", quiet=True)
        [speaker] = await join_all(server.address, 1, None)
        message = {"room": "wide", "type": "object-update", "data": DATA}
        return await timed(server, clients, burst, lambda: speaker.say("send", message), context.seconds)


async def timed(
    server: Server, clients: Sequence[LeanClient], burst: int, say: Callable[[], None], seconds: float
) -> Sample:
    """Say something, so many times at once, when everybody has heard what was said before."""
    await asyncio.sleep(1.0)
    last = array("Q")
    expected = sum(client.count for client in clients)
    before, begun, deliveries = server.cpu_seconds(), now_ns(), 0
    finish = begun + int(seconds * 1e9)
    while now_ns() < finish or not last:
        sent = now_ns()
        for _ in range(burst):
            say()
        expected += len(clients) * burst
        await until(lambda expected=expected: sum([one.count for one in clients]) >= expected, 0.002)  # type: ignore[misc]
        last.append(now_ns() - sent)
        deliveries += len(clients) * burst
    cpu_us = (server.cpu_seconds() - before) / deliveries * 1e6
    ordered = sorted(last)
    return Sample(
        rate=deliveries / (now_ns() - begun) * 1e9,
        p50_ms=percentile_ms(ordered, 50),
        p95_ms=percentile_ms(ordered, 95),
        cpu_us=cpu_us,
        note=f"{len(last)} times, {cpu_us:.1f} µs CPU a delivery",
    )


async def tell_all_by_node(kind: str, members: int, label: str, context: Context) -> Sample:
    """The same by a server in node, whose package comes from npm."""
    if not (shutil.which("node") and shutil.which("npm")):
        return Sample(error="needs node and npm")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", kind]
    await asyncio.to_thread(subprocess.run, install, cwd=context.folder, check=True, capture_output=True)
    script = context.folder / NODE_SCRIPT.name
    shutil.copy(NODE_SCRIPT, script)
    port = free_port()
    process = subprocess.Popen(["node", str(script), kind, str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_until_listening(process, port)
        server = Server(process, f"127.0.0.1:{port}")
        clients = await join_all(server.address, members, None, path=NODE_PATHS[kind])
        if kind == "socket.io":
            for client in clients:
                client.say_raw("40")
            await until(lambda: all(client.count >= 2 for client in clients))
        message = json.dumps(DATA) if kind == "ws" else "42" + json.dumps(["say", DATA])
        return await timed(server, clients, 1, lambda: clients[0].say_raw(message), context.seconds)
    finally:
        stop(process)


async def rest(members: int, label: str, context: Context) -> Sample:
    with serving(context.folder, **MANY) as server:
        [first] = await join_all(server.address, 1, None)
        before, begun = server.memory_kb("VmRSS"), now_ns()
        clients = await join_all(server.address, members, None)
        took = (now_ns() - begun) / 1e9
        await asyncio.sleep(1.0)
        grown = (server.memory_kb("VmRSS") - before) / 1_024
        first.cut()
        for client in clients:
            client.cut()
        return Sample(
            rate=members / took,
            memory_mb=grown,
            note=f"connected in {took:.1f} s, {grown / members * 1024:.2f} KiB each",
        )


# ── cursors ──


async def move(label: str, context: Context) -> Sample:
    with serving(context.folder) as server:
        clients = await join_all(server.address, CURSOR_USERS, None, room="canvas-{}", profile={"name": "ann"})
        await asyncio.sleep(1.0)
        async with headwater.connect(f"http://{server.address}") as hw:
            seconds = max(context.seconds, 5.0)
            lsn, spent, begun = await hw.queues_service.last_lsn(), server.cpu_seconds(), now_ns()
            await asyncio.gather(*(_wander(number, client, seconds) for number, client in enumerate(clients)))
            took = (now_ns() - begun) / 1e9
            written = await hw.queues_service.last_lsn() - lsn
            cpu = server.cpu_seconds() - spent
        return Sample(rate=written / took, cpu_us=cpu / took * 1e6, note=f"{cpu / took * 100:.0f} % of a core")


async def _wander(number: int, client: LeanClient, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time() + number / CURSOR_USERS / CURSOR_MOVES
    room, updates = f"canvas-{number % ROOMS}", 0
    for step in range(round(seconds * CURSOR_MOVES)):
        await asyncio.sleep(max(0.0, begun + step / CURSOR_MOVES - loop.time()))
        client.say("send", {"room": room, "type": "cursor", "data": {"x": step, "y": number}})
        if step / CURSOR_MOVES >= updates * UPDATE_SECONDS + number / CURSOR_USERS * UPDATE_SECONDS:
            updates += 1
            client.say("send", {"room": room, "type": "object-update", "data": DATA})


# ── in one process ──


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(folder / "headwater.db"), housekeeping=False) as hw:
        yield hw


async def write(label: str, context: Context) -> Sample:
    latencies = array("Q")
    async with opened(context.folder) as hw:
        finish = now_ns() + int(context.seconds * 1e9)

        async def speak(number: int) -> None:
            room = hw.room(f"canvas-{number % ROOMS}")
            while (begun := now_ns()) < finish:
                await room.send(DATA, type="object-update")
                latencies.append(now_ns() - begun)

        begun = now_ns()
        await asyncio.gather(*map(speak, range(WRITERS)))
        return _with_p95(latencies, now_ns() - begun)


async def poll(label: str, context: Context) -> Sample:
    latencies = array("Q")
    async with opened(context.folder) as hw:
        rooms = hw.rooms_service
        for number in range(ROOMS * 20):
            await hw.room(f"canvas-{number % ROOMS}").send(DATA)
        outlines = [await rooms.kept.outline("main", f"canvas-{number}") for number in range(ROOMS)]
        begun, finish = now_ns(), now_ns() + int(context.seconds * 1e9)

        async def ask(number: int) -> None:
            while (before := now_ns()) < finish:
                await rooms.kept.history(outlines[number], f"canvas-{number}", 9, 100)
                latencies.append(now_ns() - before)

        await asyncio.gather(*map(ask, range(POLLERS)))
        return _with_p95(latencies, now_ns() - begun)


async def hold(label: str, context: Context) -> Sample:
    async with opened(context.folder) as hw:
        begun = now_ns()
        held = await state_megabytes(hw)
        return Sample(
            rate=STATE_ROOMS * MESSAGES / (now_ns() - begun) * 1e9, memory_mb=held, note="traced, in one process"
        )


def _with_p95(latencies: "array[int]", elapsed_ns: int) -> Sample:
    found = summarise(latencies, len(latencies), elapsed_ns)
    ordered = sorted(latencies)
    return Sample(
        rate=found.rate,
        p50_ms=found.p50_ms,
        p95_ms=percentile_ms(ordered, 95) if ordered else None,
        p99_ms=found.p99_ms,
        memory_mb=found.memory_mb,
        error=found.error,
    )
