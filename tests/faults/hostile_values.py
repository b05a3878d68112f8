"""Values that no caller should hand in, for every argument of the public calls: name of the case → the call.

Each must be refused with an error of ours. `HOSTILE` is the whole table; it grows by one line for each new argument.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from math import inf, nan
from typing import Any, NamedTuple

import headwater
from headwater import Outgoing, Raw


class Scene(NamedTuple):
    """An open store with a queue that has records, a leased batch and a dead letter."""

    hw: headwater.Headwater
    orders: headwater.Queue
    messages: list[headwater.Message]


Call = Callable[[Scene], Awaitable[object]]
Table = dict[str, Call]

LONE = "\ud800"
LONG = "n" * 257
NAMES: tuple[Any, ...] = (
    "",
    None,
    7,
    True,
    b"q",
    [],
    ("a",),
    LONG,
    "a\0b",
    "a b",
    "ä",
    "a\n",
    LONE,
    "'; DROP TABLE x; --",
)
# Where none need be said, None says none; an empty one is a variable that nobody filled.
OPTIONAL_NAMES = tuple(name for name in NAMES if name is not None)
TEXTS: tuple[Any, ...] = (None, 7, b"t", ["t"], LONG, LONE)
KEYS: tuple[Any, ...] = (None, 7, b"k", ["k"], LONG, LONE)
COUNTS: tuple[Any, ...] = (0, -1, 1_001, 2**70, True, 1.5, "3", None, [])
SECONDS: tuple[Any, ...] = (0, -1, nan, inf, "5", True, 10**10, [])


class Hostile:
    """Is like nothing, and can be made into nothing."""


def show(value: object) -> str:
    """A value as part of a case's name."""
    return ascii(value)[:24]


def table(name: str, values: Iterable[Any], call: Callable[[Scene, Any], Awaitable[object]]) -> Table:
    """One case for each value."""
    return {f"{name}={show(value)}": (lambda scene, value=value: call(scene, value)) for value in values}  # type: ignore[misc]


async def use_queue(scene: Scene, name: Any) -> None:
    await scene.hw.queue(name).push(1)


async def use_database(scene: Scene, name: Any) -> None:
    await scene.hw.database(name).queue("orders").push(1)


async def consume_one(scene: Scene, **options: Any) -> None:
    async for _ in scene.orders.consume(**options):
        return


async def transact(scene: Scene, fill: Callable[[headwater.Together], None]) -> None:
    async with scene.hw.transaction() as together:
        fill(together)


async def transact_with_key(scene: Scene, key: Any) -> None:
    async with scene.hw.transaction(idempotency_key=key) as together:
        together.push("orders", 1)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


NAMED: Table = {
    **table("queue", NAMES, use_queue),
    **table("database", NAMES, use_database),
    **table("push partition", OPTIONAL_NAMES, lambda scene, name: scene.orders.push(1, partition=name)),
    **table("push_many partition", OPTIONAL_NAMES, lambda scene, name: scene.orders.push_many([1], partition=name)),
    **table("pop group", NAMES, lambda scene, name: scene.orders.pop(group=name)),
    **table("pop partition", OPTIONAL_NAMES, lambda scene, name: scene.orders.pop(partition=name)),
    **table("pop namespace", OPTIONAL_NAMES, lambda scene, name: scene.hw.pop(namespace=name)),
    **table("pop task", OPTIONAL_NAMES, lambda scene, name: scene.hw.pop(task=name)),
    **table("consume group", NAMES, lambda scene, name: consume_one(scene, group=name)),
    **table("seek group", NAMES, lambda scene, name: scene.orders.seek("end", group=name)),
    **table("seek partition", OPTIONAL_NAMES, lambda scene, name: scene.orders.seek("end", partition=name)),
    **table("namespace", NAMES[2:], lambda scene, name: scene.orders.configure(namespace=name)),
    **table("task", NAMES[2:], lambda scene, name: scene.orders.configure(task=name)),
    **table("queue.delete_group", NAMES, lambda scene, name: scene.orders.delete_group(name)),
    **table("delete_group", NAMES, lambda scene, name: scene.hw.delete_group(name)),
    **table("groups", ([1], ("a",), LONE), lambda scene, name: scene.hw.groups(name)),
    **table("trace names", NAMES, lambda scene, name: scene.orders.trace(scene.messages[0], "seen", names=[name])),
    **table("push_all queue", NAMES, lambda scene, name: scene.hw.push_all([Outgoing(payload=1, queue=name)])),
    **table(
        "push_all partition",
        OPTIONAL_NAMES,
        lambda scene, name: scene.hw.push_all([Outgoing(payload=1, queue="orders", partition=name)]),
    ),
    **table(
        "push_many lane",
        OPTIONAL_NAMES,
        lambda scene, name: scene.orders.push_many([Outgoing(payload=1, partition=name)]),
    ),
    **table("transaction queue", NAMES, lambda scene, name: transact(scene, lambda both: both.push(name, 1))),
    **table(
        "transaction partition",
        OPTIONAL_NAMES,
        lambda scene, name: transact(scene, lambda both: both.push("orders", 1, partition=name)),
    ),
}

PAYLOADS: dict[str, Any] = {
    "an object": Hostile(),
    "a class": Hostile,
    "a complex number": 1 + 2j,
    "half a character": LONE,
    "half a character as a name": {LONE: 1},
    "half a character inside": {"a": [LONE]},
    "a tuple as a name": {(1, 2): 3},
    "an endless list": endless(),
    "a deep list": nested(100_000),
    "a long text": "x" * 300_000,
    "many texts": ["x" * 1_000] * 300,
    "an iterator": iter([1]),
}
RAW_PAYLOADS = (
    Raw(b""),
    Raw(b"{"),
    Raw(b"nothing"),
    Raw(b"1 2"),
    Raw(b'1},{"data":2'),
    Raw(b'"\xff"'),
    Raw(b"[" * 100_000 + b"]" * 100_000),
)


def _push_raw(payload: Raw) -> Call:
    return lambda scene: scene.orders.push(payload)


def _transact_payload(scene: Scene, payload: Any) -> Awaitable[object]:
    return transact(scene, lambda both: both.push("orders", payload))


def _trace_data(scene: Scene, data: Any) -> Awaitable[object]:
    return scene.orders.trace(scene.messages[0], "seen", data)


def of_payload(call: Callable[[Scene, Any], Awaitable[object]], *names: str) -> Table:
    """One case for each payload, by its name: some cannot be shown."""
    return {f"payload: {name}": (lambda scene, name=name: call(scene, PAYLOADS[name])) for name in names or PAYLOADS}  # type: ignore[misc]


PUSHED: Table = {
    **of_payload(lambda scene, payload: scene.orders.push(payload)),
    **{f"raw {bytes(value)[:20]!r}": _push_raw(value) for value in RAW_PAYLOADS},
    **table("transaction_id", TEXTS, lambda scene, text: scene.orders.push(1, transaction_id=text)),
    **table("trace_id", TEXTS, lambda scene, text: scene.orders.push(1, trace_id=text)),
    **table("type", TEXTS, lambda scene, text: scene.orders.push(1, type=text)),
    **table(
        "headers",
        ([1], "a", {"a": 1}, {1: "a"}, {"a": "x" * 5_000}, {f"h{n}": "" for n in range(65)}, {"a": LONE}, {LONE: "a"}),
        lambda scene, headers: scene.orders.push(1, headers=headers),
    ),
    **table("timestamp", (-1, 2**63, "now", 1.5, True), lambda scene, at: scene.orders.push(1, timestamp=at)),
    **table("durability", ("fast", "", 7, []), lambda scene, level: scene.orders.push(1, durability=level)),
    **table("push key", KEYS, lambda scene, key: scene.orders.push(1, idempotency_key=key)),
    **table("push_many key", KEYS, lambda scene, key: scene.orders.push_many([1], idempotency_key=key)),
    **table("ttl", SECONDS, lambda scene, seconds: scene.orders.push(1, ttl_seconds=seconds)),
    **table("push_many", (None, 7, [Hostile()], [1] * 1_001), lambda scene, all_: scene.orders.push_many(all_)),
    **table("push_all", (None, 7, [1], [Outgoing(payload=1)]), lambda scene, all_: scene.hw.push_all(all_)),
    **table("transaction key", KEYS, transact_with_key),
    **{f"transaction {name}": call for name, call in of_payload(_transact_payload, "an object", "a class").items()},
}

POPPED: Table = {
    **table("batch", COUNTS, lambda scene, count: scene.orders.pop(batch=count)),
    **table("partitions", COUNTS[1:], lambda scene, count: scene.orders.pop(partitions=count)),
    **table("consume batch", COUNTS, lambda scene, count: consume_one(scene, batch=count)),
    **table("wait", (-1, 61, nan, inf, "5", None, []), lambda scene, seconds: scene.orders.pop(wait=seconds)),
    **table("lease", SECONDS, lambda scene, seconds: scene.orders.pop(lease_seconds=seconds)),
    **table("subscribe", ("some", None, 7, []), lambda scene, how: scene.orders.pop(subscribe=how)),
    **table(
        "since",
        ("yesterday", datetime(2026, 1, 1), -5, 1.5, True, []),
        lambda scene, since: scene.orders.pop(group="fresh", since=since),
    ),
    **table("auto_ack", ("no", 7, [], None), lambda scene, how: scene.orders.pop(auto_ack=how)),
    **table("pop key", KEYS, lambda scene, key: scene.orders.pop(idempotency_key=key)),
    **table("idle", (-1, nan, inf, "5", True, []), lambda scene, it: consume_one(scene, idle_seconds=it)),
}

RUN: Table = {
    **table("handler", (None, 7, "print"), lambda scene, it: scene.orders.run(it)),
    **table("concurrency", COUNTS, lambda scene, count: scene.orders.run(print, concurrency=count)),
    **table(
        "stop_seconds", (-1, nan, inf, "5", True, None), lambda scene, it: scene.orders.run(print, stop_seconds=it)
    ),
    **table("stop_on_signals", (7, None), lambda scene, it: scene.orders.run(print, stop_on_signals=it)),
    **table("run idle", (-1, nan, "5", True), lambda scene, it: scene.orders.run(print, idle_seconds=it)),
    **table("run group", NAMES, lambda scene, name: scene.orders.run(print, group=name)),
}

REPORTED: Table = {
    **table("message extend", SECONDS, lambda scene, seconds: scene.messages[0].extend(seconds)),
    **table("ack", (None, 7, "abc", [7], [None]), lambda scene, messages: scene.orders.ack(messages)),
    **table("fail", (None, 7, "abc", [7]), lambda scene, messages: scene.orders.fail(messages)),
    **table("release", (None, 7, [7]), lambda scene, messages: scene.orders.release(messages)),
    **table("extend", (None, 7, [7]), lambda scene, messages: scene.orders.extend(messages)),
    **table("extend seconds", SECONDS, lambda scene, seconds: scene.orders.extend(scene.messages, seconds)),
    **table("transaction ack", (None, 7, [7]), lambda scene, them: transact(scene, lambda both: both.ack(them))),
    **table("transaction fail", (None, 7, [7]), lambda scene, them: transact(scene, lambda both: both.fail(them))),
    **table("require", (None, 7, [7]), lambda scene, them: transact(scene, lambda both: both.require(them))),
    **table("trace", (None, 7), lambda scene, message: scene.orders.trace(message, "seen")),
    **table("traces", (None, 7), lambda scene, message: scene.orders.traces(message)),
    **table("event", TEXTS, lambda scene, text: scene.orders.trace(scene.messages[0], text)),
    **{f"trace {name}": call for name, call in of_payload(_trace_data, "an object", "a class").items()},
    **table("all trace names", (7, None), lambda scene, all_: scene.orders.trace(scene.messages[0], "e", None, all_)),
}

KEPT: Table = {
    **table(
        "seek",
        ("middle", "", None, 1.5, True, [], -1, 2**70, datetime(2026, 1, 1), 0),
        lambda scene, to: scene.orders.seek(to),
    ),
    **table("seek offset", (-1, 2**70, True), lambda scene, to: scene.orders.seek(to, partition="Default")),
    **table("seek missing partition", ("nowhere",), lambda scene, name: scene.orders.seek("end", partition=name)),
    **table(
        "lease_seconds",
        ("5", 0, -1, nan, inf, 10**400, None, []),
        lambda scene, it: scene.orders.configure(lease_seconds=it),
    ),
    **table("retry_limit", (1.5, -1, True, 2**70, "3"), lambda scene, it: scene.orders.configure(retry_limit=it)),
    **table("dead_letters", ("yes", 1, None), lambda scene, it: scene.orders.configure(dead_letters=it)),
    **table("size_max", (-1, 2**60, 0.5), lambda scene, it: scene.orders.configure(size_max=it)),
    **table("encrypted", (True,), lambda scene, it: scene.orders.configure(encrypted=it)),
    **table("letters limit", ("x", 2**70, [], None, 1.5), lambda scene, it: scene.orders.dead_letters(limit=it)),
    **table("letters after", ("x", 2**70, [], None, 1.5), lambda scene, it: scene.orders.dead_letters(after=it)),
    **table("requeue ids", (7, ["x"], [LONE], [2**70], [99], [None]), lambda scene, it: scene.orders.requeue(it)),
    **table("requeue limit", ("x", -1, 2**70, []), lambda scene, it: scene.orders.requeue(limit=it)),
    **table("purge ids", (7, ["x"], [LONE], [2**70], [99], [None]), lambda scene, it: scene.orders.purge(it)),
    **table("purge limit", ("x", -1, 2**70, []), lambda scene, it: scene.orders.purge(limit=it)),
}

HOSTILE: Table = {**NAMED, **PUSHED, **POPPED, **RUN, **REPORTED, **KEPT}
