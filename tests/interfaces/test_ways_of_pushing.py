"""Every way of pushing a message × everything that can be said of one message: what another client sees of it.

A way that does not take an option is in `LACKING`, and its signature is asked whether that is still so.
"""

import asyncio
import inspect
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

import headwater
import headwater.sync
from headwater import outbox
from headwater.errors import InvalidOption
from headwater.services.transaction import Together
from tests.cli.program import Program
from tests.doors.live_door import LiveDoor, on_the_edge

MADE_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DUE = 3_600

_names = (f"orders-{number}" for number in itertools.count())


class Scene:
    """A store in a file, a server over it, a database of the user's own, and somebody who looks from the side."""

    def __init__(self, folder: Path, url: str, observer: headwater.sync.Headwater) -> None:
        self.folder = folder
        self.path = str(folder / "headwater.db")
        self.shop = str(folder / "shop.db")
        self.url = url
        self.observer = observer
        self.client = headwater.sync.connect(url)
        self.program = Program(folder)
        with sqlite3.connect(self.shop) as connection:
            outbox.create_table(connection)

    def column(self, statement: str, queue: str) -> list[Any]:
        """What the file holds of a queue."""
        connection = apsw.Connection(self.path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return [value for (value,) in connection.execute(statement, (queue,))]
        finally:
            connection.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("ways")
    door = LiveDoor(folder / "headwater.db", on_the_edge)
    door.start()
    with headwater.sync.open(str(folder / "headwater.db")) as observer:
        made = Scene(folder, door.url, observer)
        yield made
        made.client.close()
    door.stop()


# ── the ways ──


def push(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    scene.observer.queue(queue).push(payload, **about)


def push_outgoing(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    ttl = {"ttl_seconds": about.pop("ttl_seconds")} if "ttl_seconds" in about else {}
    scene.observer.queue(queue).push(headwater.Outgoing(payload=payload, **about), **ttl)


def push_many(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    scene.observer.queue(queue).push_many([payload], **about)


def push_many_outgoing(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    ttl = {"ttl_seconds": about.pop("ttl_seconds")} if "ttl_seconds" in about else {}
    other = headwater.Outgoing(payload="beside it", queue=queue, partition="elsewhere", delay=10 * DUE)
    scene.observer.queue(queue).push_many([headwater.Outgoing(payload=payload, **about), other], **ttl)


def push_all(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    scene.observer.push_all([headwater.Outgoing(queue=queue, payload=payload, **about)])


def transact(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    with scene.observer.transaction() as together:
        together.push(queue, payload, **about)


def transact_outgoing(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    ttl = {"ttl_seconds": about.pop("ttl_seconds")} if "ttl_seconds" in about else {}
    with scene.observer.transaction() as together:
        together.push(queue, headwater.Outgoing(payload=payload, **about), **ttl)


def push_async(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    async def run() -> None:
        async with headwater.open(scene.path) as hw:
            await hw.queue(queue).push(payload, **about)

    asyncio.run(run())


def client_push(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    scene.client.queue(queue).push(payload, **about)


def client_push_many_outgoing(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    ttl = {"ttl_seconds": about.pop("ttl_seconds")} if "ttl_seconds" in about else {}
    scene.client.queue(queue).push_many([headwater.Outgoing(payload=payload, **about)], **ttl)


def client_push_all(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    scene.client.push_all([headwater.Outgoing(queue=queue, payload=payload, **about)])


def client_transact(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    with scene.client.transaction() as together:
        together.push(queue, payload, **about)


def native_lane(queue: str, payload: Any, **about: Any) -> dict[str, Any]:
    """The message as our own wire has it: the push of its partition."""
    said = {"transaction_id": "transactionId", "trace_id": "traceId", "type": "type", "headers": "headers"}
    record = {"data": payload} | {said[name]: about[name] for name in said if name in about}
    if "timestamp" in about:
        record["timestamp"] = int(about["timestamp"].timestamp() * 1_000_000)
    lane = {"queue": queue, "records": [record]}
    lane |= {name: about[name] for name in ("partition", "priority", "ttl_seconds") if name in about}
    if "delay" in about:
        lane["delay_seconds"] = about["delay"]
    return lane


def native_push(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    lane = native_lane(queue, payload, **about)
    httpx.post(f"{scene.url}/v1/push", json={"pushes": [lane]}).raise_for_status()


def native_transact(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    step = {"kind": "push", **native_lane(queue, payload, **about)}
    httpx.post(f"{scene.url}/v1/transaction", json={"operations": [step]}).raise_for_status()


def native_commit(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    lane = native_lane(queue, payload, **about)
    httpx.post(f"{scene.url}/v1/log/commit", json={"pushes": [lane]}).raise_for_status()


def command(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in about.items()]
    ended = scene.program.run("push", queue, f'"{payload}"', *options)
    assert ended.code == 0, ended.err


def outbox_push(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    connection = apsw.Connection(scene.path)
    connection.set_busy_timeout(10_000)
    try:
        connection.execute("BEGIN IMMEDIATE")
        outbox.push(connection, queue, payload, **about)
        connection.execute("COMMIT")
    finally:
        connection.close()


def outbox_stage(scene: Scene, queue: str, payload: Any, **about: Any) -> None:
    with sqlite3.connect(scene.shop) as connection:
        outbox.stage(connection, queue, payload, **about)
    connection.close()

    async def drain() -> None:
        async with headwater.open(scene.path) as hw:
            assert await outbox.drain(hw, lambda: sqlite3.connect(scene.shop)) == outbox.Drained(moved=1)

    asyncio.run(drain())


WAYS: list[Callable[..., None]] = [
    push,
    push_outgoing,
    push_many,
    push_many_outgoing,
    push_all,
    transact,
    transact_outgoing,
    push_async,
    client_push,
    client_push_many_outgoing,
    client_push_all,
    client_transact,
    native_push,
    native_transact,
    native_commit,
    command,
    outbox_push,
    outbox_stage,
]

# Plain payloads of push_many have nothing of their own to say: that is what `Outgoing` is for.
_OF_ONE = {"transaction_id", "trace_id", "type", "headers", "timestamp"}
LACKING: dict[Callable[..., None], set[str]] = {
    push_many: _OF_ONE,
    push_all: {"ttl_seconds"},
    client_push_all: {"ttl_seconds"},
    native_commit: {"ttl_seconds"},
    command: {"trace_id", "headers", "timestamp", "ttl_seconds"},
}

# ── what can be said, and what is seen of it ──


def seen(scene: Scene, queue: str) -> headwater.Message:
    [message] = [one for one in scene.observer.queue(queue).pop(batch=10) if one.payload == "it"]
    return message


def expect_partition(scene: Scene, queue: str, value: Any) -> None:
    assert seen(scene, queue).partition == value


def expect_transaction_id(scene: Scene, queue: str, value: Any) -> None:
    message = seen(scene, queue)
    assert message.transaction_id == value
    again = scene.observer.queue(queue).push("it", transaction_id=value, partition=message.partition)
    assert again.duplicate
    assert again.offset == message.offset


def expect_trace_id(scene: Scene, queue: str, value: Any) -> None:
    assert seen(scene, queue).record.trace_id == value


def expect_type(scene: Scene, queue: str, value: Any) -> None:
    assert seen(scene, queue).type == value


def expect_headers(scene: Scene, queue: str, value: Any) -> None:
    assert seen(scene, queue).headers == value


def expect_timestamp(scene: Scene, queue: str, value: Any) -> None:
    assert seen(scene, queue).created_at == value


def expect_ttl(scene: Scene, queue: str, value: Any) -> None:
    kept = """SELECT s.expires_at - s.written_at FROM hw_segments s JOIN hw_partitions p ON p.id = s.partition_id
              JOIN hw_queues q ON q.id = p.queue_id WHERE q.name = ?"""
    assert scene.column(kept, queue) == [value * 1_000_000]


def expect_delay(scene: Scene, queue: str, value: Any) -> None:
    kept = """SELECT d.due_at - d.pushed_at FROM hw_delayed d JOIN hw_partitions p ON p.id = d.partition_id
              JOIN hw_queues q ON q.id = p.queue_id WHERE q.name = ? AND p.name <> 'elsewhere'"""
    assert scene.column(kept, queue) == [value * 1_000_000]
    assert scene.observer.queue(queue).pop(batch=10) == []
    status = scene.observer.queue(queue).status()
    assert status is not None
    assert status.delayed >= 1


def expect_priority(scene: Scene, queue: str, value: Any) -> None:
    first = scene.observer.queue(queue).pop()[0]
    assert (first.payload, first.priority) == ("it", value)


OPTIONS: dict[str, tuple[Any, Callable[[Scene, str, Any], None]]] = {
    "partition": ("customer-1", expect_partition),
    "transaction_id": ("order-7", expect_transaction_id),
    "trace_id": ("trace-7", expect_trace_id),
    "type": ("order.made", expect_type),
    "headers": ({"shop": "eu"}, expect_headers),
    "timestamp": (MADE_AT, expect_timestamp),
    "ttl_seconds": (77, expect_ttl),
    "delay": (DUE, expect_delay),
    "priority": (8, expect_priority),
}


TAKEN = [(way, option) for way in WAYS for option in OPTIONS if option not in LACKING.get(way, ())]


@pytest.mark.parametrize(("way", "option"), TAKEN, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_said_of_a_message_has_its_effect_however_it_is_pushed(
    scene: Scene, way: Callable[..., None], option: str
) -> None:
    queue = next(_names)
    value, expect = OPTIONS[option]
    if option == "priority":
        scene.observer.queue(queue).push_many(["before"] * 20)
    way(scene, queue, "it", **{option: value})
    expect(scene, queue, value)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_delay_and_a_priority_go_together(scene: Scene, way: Callable[..., None]) -> None:
    queue = next(_names)
    way(scene, queue, "it", delay=DUE, priority=3)
    lanes = """SELECT p.name FROM hw_delayed d JOIN hw_partitions p ON p.id = d.partition_id
               JOIN hw_queues q ON q.id = p.queue_id WHERE q.name = ? AND p.name <> 'elsewhere'"""
    [lane] = scene.column(lanes, queue)
    assert lane.startswith("Default/priority-3")


REFUSED = [
    ({"priority": 1, "partition": "p"}, "keep their order"),
    ({"priority": 10}, "0 to 9"),
    ({"priority": -1}, "0 to 9"),
    ({"priority": True}, "0 to 9"),
    ({"priority": "high"}, "0 to 9"),
    ({"priority": 1.0}, "0 to 9"),
    ({"delay": -1}, "delay must be"),
    ({"delay": float("nan")}, "delay must be"),
    ({"delay": "soon"}, "delay must be"),
    ({"delay": timedelta(days=4_000)}, "delay must be"),
]
IN_PYTHON = [way for way in WAYS if way not in (native_push, native_transact, native_commit, command, outbox_stage)]


@pytest.mark.parametrize(("about", "words"), REFUSED, ids=str)
@pytest.mark.parametrize("way", IN_PYTHON, ids=lambda way: way.__name__)
def test_what_makes_no_sense_is_refused_and_nothing_is_pushed(
    scene: Scene, way: Callable[..., None], about: dict[str, Any], words: str
) -> None:
    queue = next(_names)
    with pytest.raises(InvalidOption, match=words):
        way(scene, queue, "it", **about)
    assert scene.column("SELECT 1 FROM hw_queues WHERE name = ?", queue) == []


@pytest.mark.parametrize("about", [{"priority": 1, "partition": "p"}, {"priority": 10}, {"priority": 1.5}], ids=str)
@pytest.mark.parametrize("way", [native_push, native_transact, native_commit], ids=lambda way: way.__name__)
def test_the_wire_refuses_the_same(scene: Scene, way: Callable[..., None], about: dict[str, Any]) -> None:
    queue = next(_names)
    with pytest.raises(httpx.HTTPStatusError) as refused:
        way(scene, queue, "it", **about)
    assert refused.value.response.status_code == 400
    assert scene.column("SELECT 1 FROM hw_queues WHERE name = ?", queue) == []


@pytest.mark.parametrize("options", [["--priority=1", "--partition=p"], ["--priority=10"], ["--priority=high"]])
def test_the_command_line_refuses_the_same_as_misuse(scene: Scene, options: list[str]) -> None:
    queue = next(_names)
    ended = scene.program.run("push", queue, "1", *options)
    assert ended.code == 2
    assert "priority" in ended.err
    assert scene.column("SELECT 1 FROM hw_queues WHERE name = ?", queue) == []


def test_what_a_message_says_of_itself_comes_before_what_the_call_says(scene: Scene) -> None:
    queue = scene.observer.queue(next(_names))
    Outgoing = headwater.Outgoing
    messages = ["call", Outgoing(payload="own", priority=9), Outgoing(payload="none", priority=0)]
    receipts = queue.push_many(messages, priority=5)
    assert [one.partition.split("/")[-1] for one in receipts] == ["priority-5", "priority-9", "Default"]
    assert [message.payload for message in queue.pop(batch=3)] == ["own", "call", "none"]
    [now, later] = queue.push_many([Outgoing(payload=1, delay=0), 2], delay=timedelta(seconds=DUE))
    assert (now.due_at, later.offset) == (None, None)


def test_every_option_of_one_message_is_in_the_table() -> None:
    """A new argument of `push` comes with a line of its own here, and is taken by every way or named as lacking."""
    whole = {"self", "payload", "durability", "idempotency_key"}
    options = set(inspect.signature(headwater.Queue.push).parameters) - whole
    assert options == set(OPTIONS)
    assert set(headwater.Outgoing.__struct_fields__) - {"payload", "queue"} == options - {"ttl_seconds"}
    transacted = set(inspect.signature(Together.push).parameters) - {"self", "queue", "payload"}
    assert transacted == options
    for call in (outbox.push, outbox.stage):
        assert set(inspect.signature(call).parameters) - {"connection", "queue", "payload", "database"} == options
    assert options - set(inspect.signature(headwater.Queue.push_many).parameters) == _OF_ONE
