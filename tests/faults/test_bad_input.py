"""Hostile values through the public calls: each gets an error of ours with a stable code, and nothing changes."""

import asyncio
from collections.abc import AsyncIterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headwater
from headwater import Outgoing, errors
from headwater.errors import InvalidInput, InvalidPayload, TooLarge
from tests.faults.hostile_values import HOSTILE, Scene, nested
from tests.faults.tables import dump_file

CODES = {error.code for name, error in vars(errors).items() if name[0].isupper() and name != "ClassVar"}


def open_at(path: Path, **options: Any) -> headwater.Headwater:
    """The store, without anything in the background."""
    return headwater.open(str(path), housekeeping=False, wakeup="data_version", **options)


async def make_scene(hw: headwater.Headwater) -> Scene:
    """A queue with records, a leased batch and a dead letter."""
    orders = hw.queue("orders")
    await orders.push_many([{"number": number} for number in range(6)])
    await orders.fail((await orders.pop(batch=1))[0], error="broken", retry=False)
    return Scene(hw, orders, await orders.pop(batch=2))


@pytest.fixture
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """A fresh one for each case."""
    async with open_at(folder / "store.db") as hw:
        yield await make_scene(hw)


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_hostile_value_is_refused_by_name_and_changes_nothing(scene: Scene, folder: Path, case: str) -> None:
    before = dump_file(str(folder / "store.db"))
    with pytest.raises(headwater.HeadwaterError) as refused:
        await HOSTILE[case](scene)
    assert refused.value.code in CODES
    assert refused.value.code != headwater.HeadwaterError.code
    assert dump_file(str(folder / "store.db")) == before


@pytest.mark.parametrize("case", HOSTILE)
async def test_a_hostile_value_harms_no_neighbour_in_the_same_commit(scene: Scene, case: str) -> None:
    good = asyncio.ensure_future(scene.hw.queue("neighbour").push({"good": True}))
    bad = asyncio.ensure_future(HOSTILE[case](scene))
    answers = await asyncio.gather(good, bad, return_exceptions=True)
    assert isinstance(answers[0], headwater.Receipt), answers
    messages = await scene.hw.queue("neighbour").pop()
    assert [message.payload for message in messages] == [{"good": True}]


def test_there_are_many_hostile_values() -> None:
    assert len(HOSTILE) >= 80


# ── what is taken must come back as it was ──

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(alphabet=st.characters(codec=None, categories=["Cs", "L", "Cc"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


async def push_and_pop(path: Path, payload: Any) -> list[Any]:
    """What comes out for what goes in; None is told apart from a refusal."""
    async with open_at(path) as hw:
        try:
            await hw.queue("orders").push(payload)
        except (InvalidPayload, TooLarge):
            return []
        return [message.payload for message in await hw.queue("orders").pop(auto_ack=True)]


@given(payload=json_values)
@example(payload=2**63)
@example(payload=2**64)
@example(payload=-(2**64))
@example(payload=2**400)
@example(payload=5e-324)
def test_a_payload_comes_back_as_it_was_or_is_refused(tmp_path_factory: pytest.TempPathFactory, payload: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "payloads.db"
    popped = asyncio.run(push_and_pop(path, payload))
    assert popped in ([], [payload])


@pytest.mark.parametrize(
    ("payload", "written"),
    [(nan, None), ([-inf], [None]), (b"bytes", "Ynl0ZXM="), ({1}, [1]), (frozenset("a"), ["a"])],
    ids=ascii,
)
async def test_what_json_has_no_word_for_is_written_as_the_guide_says(folder: Path, payload: Any, written: Any) -> None:
    """docs/queues.md names these; looking for them in every payload would cost each push a tenth of its time."""
    assert await push_and_pop(folder / "store.db", payload) == [written]


@pytest.mark.parametrize("broken", [b"", b"{", b"1 2", b'1},{"data":2', b"[" * 100_000 + b"]" * 100_000], ids=ascii)
async def test_a_broken_raw_payload_does_not_take_its_neighbours_with_it(scene: Scene, broken: bytes) -> None:
    """All three go into one segment: who reads it must get the good ones, and nothing that nobody pushed."""
    queue = scene.hw.queue("raw")
    pushes = [queue.push({"number": 1}), queue.push(headwater.Raw(broken)), queue.push({"number": 2})]
    answers = await asyncio.gather(*pushes, return_exceptions=True)
    assert isinstance(answers[1], headwater.HeadwaterError)
    assert [message.payload for message in await queue.pop(batch=10)] == [{"number": 1}, {"number": 2}]


@pytest.mark.parametrize("depth", [10, 200, 400, 800, 900, 950, 980, 990, 1_000, 5_000])
async def test_a_deep_payload_is_refused_or_can_be_read_from_anywhere(folder: Path, depth: int) -> None:
    """The limit must not depend on how deep the caller's own stack is: who pops may stand deeper than who pushed."""
    async with open_at(folder / "store.db") as hw:
        orders = hw.queue("orders")
        await orders.push({"first": True})
        try:
            await orders.push(nested(depth))
        except InvalidPayload:
            return
        found = await pop_from_below(orders, 60)
    assert found == [{"first": True}, nested(depth)]


async def pop_from_below(queue: headwater.Queue, frames: int) -> list[Any]:
    if frames:
        return await pop_from_below(queue, frames - 1)
    return [message.payload for message in await queue.pop(batch=10)]


names = st.text(max_size=300) | st.text(alphabet="abc./:_-'\";\0 \ud800", max_size=300)


@given(name=names)
@example(name="../../etc/passwd")
@example(name="orders'; DROP TABLE hw_queues; --")
@example(name="a" * 256)
@example(name="headwater/own")
def test_a_name_is_refused_or_is_only_a_name(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "names"
    folder.mkdir(exist_ok=True)

    async def use() -> list[str]:
        async with open_at(folder / "store.db") as hw:
            try:
                await hw.queue(name).push(name, partition=name)
            except InvalidInput:
                return []
            popped = await hw.queue(name).pop(group=name, partition=name, auto_ack=True)
            return [message.queue for message in popped if message.partition == message.group == name]

    assert asyncio.run(use()) in ([], [name])
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"store.db"}


# ── values that are right each by itself ──


async def test_acking_a_message_twice_in_one_call_acks_no_other(scene: Scene) -> None:
    await scene.hw.queue("three").push_many([0, 1, 2])
    first, second, third = await scene.hw.queue("three").pop(batch=3)
    try:
        await scene.hw.queue("three").ack([first, first, third])
    except headwater.HeadwaterError:
        return
    await scene.hw.queue("three").release([second])
    again = await scene.hw.queue("three").pop(batch=3)
    assert [message.payload for message in again] == [1]


async def test_an_error_that_cannot_be_written_as_text_keeps_no_message_from_failing(scene: Scene) -> None:
    """Errors come from anywhere; whoever reports one must not be told off for how it reads."""
    good = asyncio.ensure_future(scene.hw.queue("neighbour").push({"good": True}))
    await scene.orders.fail(scene.messages, error="half a character: \ud800", retry=False)
    assert (await good).offset == 0
    assert len(await scene.orders.dead_letters()) == 3


async def test_extending_no_messages_does_nothing(scene: Scene) -> None:
    assert await scene.orders.extend([]) is None  # type: ignore[func-returns-value]


async def test_requeueing_a_dead_letter_twice_in_one_call_pushes_it_once(scene: Scene) -> None:
    (letter,) = await scene.orders.dead_letters()
    try:
        assert await scene.orders.requeue([letter.id, letter.id]) == 1
    except headwater.HeadwaterError:
        return
    status = await scene.orders.status()
    assert status is not None
    assert status.records == 7


async def test_one_idempotency_key_never_stands_for_another(scene: Scene) -> None:
    lanes = [Outgoing(payload=lane, partition=lane) for lane in ("a", "b", "c")]
    await scene.hw.queue("keys").push_many(lanes, idempotency_key="order")
    for number, key in enumerate(("order#1", "order#2", "order/1", "order:1", "order-1")):
        receipt = await scene.hw.queue("keys").push(key, partition=f"own-{number}", idempotency_key=key)
        assert receipt.partition == f"own-{number}"
    status = await scene.hw.queue("keys").status()
    assert status is not None
    assert status.records == 8


async def test_an_outgoing_with_a_partition_of_its_own_goes_there(scene: Scene) -> None:
    try:
        receipt = await scene.orders.push(Outgoing(payload=1, partition="its-own"))
    except headwater.HeadwaterError:
        return
    assert receipt.partition == "its-own"
    messages = await scene.orders.pop(partition="its-own", group="reader")
    assert [message.payload for message in messages] == [1]


async def test_an_outgoing_for_another_queue_does_not_land_here(scene: Scene) -> None:
    try:
        receipt = await scene.orders.push(Outgoing(payload=1, queue="mails"))
    except headwater.HeadwaterError:
        return
    assert receipt.queue == "mails"


async def test_a_far_timestamp_does_not_break_whoever_reads_the_message(scene: Scene) -> None:
    try:
        await scene.hw.queue("times").push(1, timestamp=2**61)
    except headwater.HeadwaterError:
        return
    (message,) = await scene.hw.queue("times").pop()
    assert message.created_at.year > 2_000


@pytest.mark.parametrize("store", [None, 7, b"store.db", "", ":memory:", "mysql://x/y", "a\0b"])
async def test_a_hostile_address_is_refused(store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(headwater.HeadwaterError):
        async with headwater.open(store):
            pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "setting",
    [
        {"batch_max": 0},
        {"batch_max": "many"},
        {"wait_seconds_max": nan},
        {"wait_seconds_max": -1},
        {"lock_wait_seconds": nan},
        {"wakeup": "magic"},
        {"encryption_key": "short"},
        {"durability": "fast"},
        {"housekeeping_seconds": 0},
    ],
    ids=str,
)
async def test_a_hostile_setting_is_refused_by_name(folder: Path, setting: dict[str, Any]) -> None:
    with pytest.raises(headwater.HeadwaterError) as refused:
        async with headwater.open(str(folder / "store.db"), **setting):
            pass
    assert refused.value.code == "config"
    assert next(iter(setting)) in str(refused.value)
    assert list(folder.iterdir()) == []
