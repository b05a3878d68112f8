"""How fast are live queries: trying a filter, finding whom a change concerns?"""

import asyncio
import random
import sqlite3
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

import headwater
from benchmarks.goals import Goal, Reaches, Times, Within
from benchmarks.http_workloads import serving
from benchmarks.peers import Context
from benchmarks.rooms import MANY, join_all, until
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, repeat, summarise
from headwater import filters
from headwater.app import open_door
from headwater.doors.wire import Request
from headwater.services.matching import Matcher

PEER = "headwater"
Document = dict[str, Any]

BATCH = 1_000  # evaluations, or changes, between two looks at the clock
FILTER = 'state == "open" && size > 10 && owner == "ada"'
DOCUMENT: Document = {"id": "m1", "state": "open", "size": 11, "owner": "ada", "at": 1_700_000_000_000}
EVALUATIONS_PER_SECOND = 1 / 0.3e-6
SUBSCRIBERS_PER_ROOM = 12
# As many as one process may have open; each with so many live queries.
CONNECTIONS, SUBSCRIPTIONS_EACH = 10_000, 10
CHANGES_PER_SECOND, CHANGES_AT_ONCE = 1_000, 10
ROUNDS = 1
# Above the time of a measure: a hundred thousand subscribe one by one, and a million filters are filed.
SPARE_SECONDS = 240.0
WRITERS = 256
DOCUMENTS, QUICK_DOCUMENTS = 1_000_000, 50_000
PULLED = 100_000
PULLS_AT_ONCE = 1_000
GROUP = 10  # documents that a query by an indexed field finds
FIELDS: Document = {"text": "hello world " * 8, "n": 1, "done": False}

NOTES = (
    f"Delivery: {CONNECTIONS:,} connections with {SUBSCRIPTIONS_EACH} live queries each to one server process, "
    f"{SUBSCRIBERS_PER_ROOM} of them in each room; {CHANGES_PER_SECOND:,} documents a second are written by another "
    f"process, {CHANGES_AT_ONCE} to a commit (`written`). A latency is from before the write until a client has it, "
    "with all clients in one process, whose share is in it.",
    f"A filter of three comparisons: {FILTER}. By hand: the same as a Python lambda, with no care for kinds.",
    f"Matching: each filter is watched by one subscriber of {SUBSCRIBERS_PER_ROOM} in a room, and adds a size of its "
    "own. A change concerns a document of one room, as it was and as it is; it is matched, not delivered.",
    "Ranges: each filter is an interval of its own; a change lies in about ten of them.",
    f"Writes: a document of {len(str(FIELDS))} bytes as a message, made durable; one writer, or {WRITERS} at once.",
    f"By index: each query finds {GROUP} documents by a field; beside it SQLite itself, with an index on the "
    "expression, and the same rows, decoded.",
    f"Pull: a replica's first pull of {PULLED:,} documents by {PULLS_AT_ONCE:,}, from the routes, without a network.",
    "Tried one after the other: the same filters and changes, without an index.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` leaves out the million."""
    counts = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    documents = QUICK_DOCUMENTS if quick else DOCUMENTS
    return (delivering(CONNECTIONS // 10 if quick else CONNECTIONS), evaluation(), matching(counts), *kept(documents))


def kept(documents: int) -> tuple[Question, ...]:
    """What is asked of documents themselves."""
    return writing(), by_index(documents), pulling()


def delivering(connections: int) -> Question:
    """From a write to those whom it concerns."""
    ours = f"{connections * SUBSCRIPTIONS_EACH:,} subscriptions"
    contestants = (Contestant(ours, PEER, partial(deliver, connections)),)
    told = "Changes told to 12 of many subscribers"
    return Question("delivery", told, ours, contestants, (Within(ours, "p99_ms", 25),))


def evaluation() -> Question:
    ours, by_hand = "compiled filter", "by hand"
    contestants = (
        Contestant(ours, PEER, partial(evaluate, filters.predicate(filters.parse(FILTER)))),
        Contestant(by_hand, PEER, partial(evaluate, _by_hand)),
    )
    goals = (Reaches(ours, EVALUATIONS_PER_SECOND), Times(ours, 0.5, by_hand))
    return Question("filter", "Evaluations of a filter of three comparisons", ours, contestants, goals)


def _by_hand(document: Document) -> bool:
    return bool(document["state"] == "open" and document["size"] > 10 and document["owner"] == "ada")


def matching(counts: tuple[int, ...]) -> Question:
    contestants = [Contestant(f"{count:,} by value", PEER, partial(match, by_room, count)) for count in counts]
    contestants += [Contestant(f"{count:,} by range", PEER, partial(match, by_range, count)) for count in counts[:3]]
    contestants.append(Contestant("1,000 one after the other", PEER, partial(match_naively, 1_000)))
    goals: list[Goal] = [Reaches("100,000 by value", 50_000), Within("100,000 by value", "p99_ms", 10)]
    if 1_000_000 in counts:
        goals += [Reaches("1,000,000 by value", 10_000), Within("1,000,000 by value", "p99_ms", 10)]
    return Question(
        "matching", "Changes matched with subscriptions", "100,000 by value", tuple(contestants), tuple(goals)
    )


def writing() -> Question:
    """Documents beside our own messages."""
    contestants = (
        Contestant("document", PEER, partial(write, "document", 1)),
        Contestant("message", PEER, partial(write, "message", 1)),
        Contestant(f"document, {WRITERS} writers", PEER, partial(write, "document", WRITERS)),
        Contestant(f"message, {WRITERS} writers", PEER, partial(write, "message", WRITERS)),
    )
    goals = (
        Times("document", 0.8, "message"),
        Times(f"document, {WRITERS} writers", 0.8, f"message, {WRITERS} writers"),
    )
    return Question("writes", "Durable writes of documents", "document", contestants, goals)


def by_index(count: int) -> Question:
    """A query by an indexed field, beside SQLite itself."""
    ours, theirs = f"{count:,} documents", f"{count:,} rows of plain SQLite"
    contestants = (
        Contestant(ours, PEER, partial(query, count)),
        Contestant(theirs, PEER, partial(query_sqlite, count)),
    )
    return Question("by-index", "Queries by an indexed field", ours, contestants, (Times(ours, 0.7, theirs),))


def pulling() -> Question:
    """What a new replica reads."""
    ours = f"{PULLED:,} documents"
    contestants = (Contestant(ours, PEER, pull),)
    return Question("pull", "Documents of a first pull", ours, contestants, (Reaches(ours, 50_000),))


# ── workloads ──


async def deliver(connections: int, peer: str, context: Context) -> Sample:
    """How long a change takes to those who follow it, while so many come every second."""
    rooms = connections * SUBSCRIPTIONS_EACH // SUBSCRIBERS_PER_ROOM
    count = rooms * SUBSCRIBERS_PER_ROOM
    latencies = array("Q")
    begun_count = 0

    def told(text: bytes) -> None:
        nonlocal begun_count
        at = text.find(b'"sent_ns":')
        if at >= 0 and b'"type":"event"' in text[:20]:
            latencies.append(now_ns() - int(text[at + 10 :].partition(b",")[0]))
        elif b'"subscribe_ack"' in text[:40]:
            begun_count += 1

    with serving(context.folder, **MANY) as server:
        clients = await join_all(server.address, connections, told)
        for place in range(count):
            query = {"collection": "messages", "filter": f'room == "r{place % rooms}"'}
            clients[place // SUBSCRIPTIONS_EACH].say("subscribe", {"query": query}, f"s{place}")
        # Not what clients are told of else: while so many subscribe, heartbeats come as well.
        await until(lambda: begun_count >= count)
        before = server.cpu_seconds()
        async with headwater.open(str(context.folder / "headwater.db"), durability="written", housekeeping=False) as hw:
            begun = now_ns()
            written = await write_steadily(hw, rooms, context.seconds)
        expected = written * SUBSCRIBERS_PER_ROOM
        await until(lambda: len(latencies) >= expected)
        cpu_us = (server.cpu_seconds() - before) / expected * 1e6
        sample = summarise(latencies, written, now_ns() - begun)
        return msgspec.structs.replace(sample, cpu_us=cpu_us, note=f"{cpu_us:.1f} µs CPU of the server a delivery")


async def write_steadily(hw: headwater.Headwater, rooms: int, seconds: float) -> int:
    """So many documents a second, each in a room of which twelve follow it."""
    loop, chance, written = asyncio.get_running_loop(), random.Random(7), 0
    begun = loop.time()
    while loop.time() - begun < seconds:
        async with hw.transaction() as together:
            for _ in range(CHANGES_AT_ONCE):
                room = f"r{chance.randrange(rooms)}"
                together.collection("messages").create({"room": room, "sent_ns": now_ns(), "text": "hello"})
        written += CHANGES_AT_ONCE
        await asyncio.sleep(max(0.0, begun + written / CHANGES_PER_SECOND - loop.time()))
    return written


async def write(kind: str, writers: int, peer: str, context: Context) -> Sample:
    """How many durable writes a second."""
    async with headwater.open(str(context.folder / "live.db")) as hw:
        notes, messages = hw.collection("notes"), hw.queue("notes")

        async def one() -> None:
            await (notes.create(FIELDS) if kind == "document" else messages.push(FIELDS))

        async def act() -> int:
            if writers == 1:
                await one()
            else:
                await asyncio.gather(*(one() for _ in range(writers)))
            return writers

        return await repeat(act, context.seconds)


async def fill(hw: headwater.Headwater, count: int) -> None:
    """So many documents, in groups, with an index on the group."""
    notes = hw.collection("notes")
    await notes.index("g")
    for start in range(0, count, BATCH):
        async with hw.transaction() as together:
            for number in range(start, min(start + BATCH, count)):
                together.collection("notes").create({**FIELDS, "g": number // GROUP}, id=f"{number:08}")


async def query(count: int, peer: str, context: Context) -> Sample:
    """Queries a second by an indexed field, each of which finds a group."""
    async with headwater.open(str(context.folder / "live.db"), durability="written", housekeeping=False) as hw:
        await fill(hw, count)
        notes, chance = hw.collection("notes"), random.Random(7)

        async def act() -> int:
            page = await notes.query(filters=[("g", "==", chance.randrange(count // GROUP))])
            assert len(page) == GROUP
            return 1

        return await repeat(act, context.seconds)


async def query_sqlite(count: int, peer: str, context: Context) -> Sample:
    """The same rows in a table of SQLite, with an index on the expression."""
    connection = sqlite3.connect(context.folder / "plain.db")
    connection.execute("CREATE TABLE documents (id TEXT PRIMARY KEY, body TEXT NOT NULL)")
    connection.execute("CREATE INDEX by_group ON documents (json_extract(body, '$.g'))")
    rows = (
        (f"{n:08}", msgspec.json.encode({"id": f"{n:08}", **FIELDS, "g": n // GROUP}).decode()) for n in range(count)
    )
    with connection:
        connection.executemany("INSERT INTO documents VALUES (?, ?)", rows)
    chance, statement = (
        random.Random(7),
        "SELECT id, body FROM documents WHERE json_extract(body, '$.g') = ? ORDER BY id",
    )

    async def act() -> int:
        found = connection.execute(statement, (chance.randrange(count // GROUP),)).fetchall()
        assert len([msgspec.json.decode(body) for _, body in found]) == GROUP
        return 1

    try:
        return await repeat(act, context.seconds)
    finally:
        connection.close()


async def pull(peer: str, context: Context) -> Sample:
    """Documents a second that a new replica gets from the routes of a server."""
    async with headwater.open(str(context.folder / "live.db"), durability="written", housekeeping=False) as hw:
        await fill(hw, PULLED)
        async with open_door(hw) as door:
            place: list[object] = [None]

            async def act() -> int:
                body = {"collection": "notes", "limit": PULLS_AT_ONCE, "checkpoint": place[0]}
                headers = {"content-type": "application/json", "host": "localhost"}
                asked = Request(
                    method="POST", path="/replication/v1/pull", headers=headers, body=msgspec.json.encode(body)
                )
                answer = msgspec.json.decode((await door(asked)).body, type=Pulled)
                place[0] = answer.checkpoint if len(answer.documents) == PULLS_AT_ONCE else None
                return len(answer.documents)

            return await repeat(act, context.seconds)


class Pulled(msgspec.Struct):
    """An answer, as far as it is looked at."""

    documents: list[msgspec.Raw]
    checkpoint: object


async def evaluate(predicate: Callable[[Document], bool], peer: str, context: Context) -> Sample:
    """How often a second a filter is tried on a document that it holds for."""

    def batch() -> int:
        for _ in range(BATCH):
            predicate(DOCUMENT)
        return BATCH

    return timed(batch, context.seconds)


def by_room(number: int) -> str:
    """Twelve to a room, each with a size of its own to look at."""
    return f'room == "r{number // SUBSCRIBERS_PER_ROOM}" && size > {number % SUBSCRIBERS_PER_ROOM}'


def by_range(number: int) -> str:
    """Ten around each point."""
    return f"size >= {number} && size < {number + 10}"


async def match(text: Callable[[int], str], count: int, peer: str, context: Context) -> Sample:
    """How many changes a second are matched with so many filters; a latency is that of one change."""
    matcher = Matcher()
    for number in range(count):
        matcher.add(filters.parse(text(number)), number)
    changes = make_changes(count)
    latencies = array("Q")
    started = before = now_ns()
    finish = started + int(context.seconds * 1e9)
    told = 0
    while before < finish:
        for was, now in changes:
            told += len(matcher.match(was, now))
            after = now_ns()
            latencies.append(after - before)
            before = after
    sample = summarise(latencies, len(latencies), before - started)
    assert told, "changes that concern nobody measure nothing"
    return sample


async def match_naively(count: int, peer: str, context: Context) -> Sample:
    """The same by trying every filter on both images."""
    tried = [filters.predicate(filters.parse(by_room(number))) for number in range(count)]
    changes = make_changes(count)[:50]

    def batch() -> int:
        for was, now in changes:
            for one in tried:
                one(was), one(now)
        return len(changes)

    return timed(batch, context.seconds)


def make_changes(count: int) -> list[tuple[Document, Document]]:
    """Documents as they were and as they are: of one room, larger by one."""
    chance = random.Random(7)
    changes = []
    for _ in range(BATCH):
        size = chance.randrange(max(count - 20, 1))
        was: Document = {
            **DOCUMENT,
            "room": f"r{chance.randrange(max(count // SUBSCRIBERS_PER_ROOM, 1))}",
            "size": size,
        }
        changes.append((was, {**was, "size": size + 1}))
    return changes


def timed(batch: Callable[[], int], seconds: float) -> Sample:
    """Batches until the time is over."""
    batch()
    latencies = array("Q")
    moved = 0
    started = before = now_ns()
    while before < started + int(seconds * 1e9):
        moved += batch()
        after = now_ns()
        latencies.append(after - before)
        before = after
    return summarise(latencies, moved, before - started)
