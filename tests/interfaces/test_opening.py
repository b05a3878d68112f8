"""What was never opened, was closed, or was opened by another process says so at once, with the line to write."""

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import Closed, Forked, HeadwaterError, NotOpened
from headwater.stores.sqlite.store import SqliteStore
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.forks import CHILD_SECONDS, in_a_child

ASYNC_LINES = {"library": "async with headwater.open(", "http": "async with headwater.connect("}
SYNC_LINES = {"library": "with headwater.sync.open(", "http": "with headwater.sync.connect("}
INTERFACES = ("library", "http")


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    running = LiveDoor(tmp_path / "headwater.db", on_the_edge)
    running.start()
    yield running
    running.stop()


class Places:
    """Where the interfaces open something."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = str(path)
        self._url = url

    def make(self, interface: str) -> Any:
        return headwater.open(self._path) if interface == "library" else headwater.connect(self._url)

    def open_sync(self, interface: str) -> headwater.sync.Headwater:
        return headwater.sync.open(self._path) if interface == "library" else headwater.sync.connect(self._url)


@pytest.fixture
def places(door: LiveDoor, tmp_path: Path) -> Places:
    return Places(tmp_path / "headwater.db", door.url)


def do_nothing(message: object) -> None:
    """A handler."""


VERBS: dict[str, Callable[[Any], Any]] = {
    "push": lambda hw: hw.queue("orders").push(1),
    "push_many": lambda hw: hw.queue("orders").push_many([1]),
    "pop": lambda hw: hw.queue("orders").pop(),
    "run": lambda hw: hw.queue("orders").run(do_nothing),
    "configure": lambda hw: hw.queue("orders").configure(),
    "seek": lambda hw: hw.queue("orders").seek("end"),
    "status": lambda hw: hw.queue("orders").status(),
    "groups": lambda hw: hw.queue("orders").groups(),
    "dead_letters": lambda hw: hw.queue("orders").dead_letters(),
    "delete": lambda hw: hw.queue("orders").delete(),
    "push_all": lambda hw: hw.push_all([headwater.Outgoing(queue="orders", payload=1)]),
    "pop any": lambda hw: hw.pop(),
    "queues": lambda hw: hw.queues(),
    "delete_group": lambda hw: hw.delete_group("g"),
    "jobs": lambda hw: hw.jobs,
}


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_forgotten_async_with_is_told_at_once(places: Places, interface: str, verb: str) -> None:
    """Outside of any event loop and without `await`: who forgets the one often forgets the other."""
    with pytest.raises(NotOpened) as told:
        VERBS[verb](places.make(interface))
    assert ASYNC_LINES[interface] in str(told.value)


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_loop_over_what_was_never_opened_is_told(places: Places, interface: str) -> None:
    async def loop() -> None:
        async for _ in places.make(interface).queue("orders").consume():
            pass

    with pytest.raises(NotOpened, match="async with"):
        asyncio.run(loop())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("verb", VERBS)
def test_what_was_closed_says_how_to_open_it_again(places: Places, interface: str, verb: str) -> None:
    async def close() -> Any:
        async with places.make(interface) as hw:
            return hw

    with pytest.raises(Closed) as told:
        VERBS[verb](asyncio.run(close()))
    assert ASYNC_LINES[interface] in str(told.value)
    plain = places.open_sync(interface)
    plain.close()
    plain.close()
    with pytest.raises(Closed) as told:
        VERBS[verb](plain)
    assert SYNC_LINES[interface] in str(told.value)


@pytest.mark.parametrize("interface", INTERFACES)
def test_the_wrong_kind_of_block_or_loop_names_the_right_one(places: Places, interface: str) -> None:
    async def wrongly() -> None:
        async with Places.open_sync(places, interface):
            raise AssertionError("it was entered")

    async def loop_wrongly() -> None:
        with places.open_sync(interface) as hw:
            async for _ in hw.queue("orders").consume():
                pass

    with pytest.raises(TypeError, match=r"`with headwater.sync.\w+\(...\) as hw:`"), places.make(interface):
        pass
    with pytest.raises(TypeError, match=r"async with headwater\.open"):
        asyncio.run(wrongly())
    with pytest.raises(TypeError, match="async for"):
        asyncio.run(loop_wrongly())
    with pytest.raises(TypeError, match=r"`async for message in queue\.consume"):
        list(places.make(interface).queue("orders").consume())
    with (
        pytest.raises(TypeError, match=r"`async with queue\.consume"),
        places.make(interface).queue("orders").consume(),
    ):
        pass


# ── forks ──


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_fork_of_the_sync_face_is_told_to_open_it_anew(places: Places, interface: str, verb: str) -> None:
    with places.open_sync(interface) as hw:
        hw.queue("orders").push(1)
        said = in_a_child(lambda: VERBS[verb](hw))
        assert said.startswith("Forked: "), said
        assert SYNC_LINES[interface] in said
        assert hw.queue("orders").push(2).durability == "synced", "the parent was disturbed"


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_fork_of_the_async_face_is_told_to_open_it_anew(places: Places, interface: str, verb: str) -> None:
    async def program() -> str:
        async with places.make(interface) as hw:
            await hw.queue("orders").push(1)
            said = in_a_child(lambda: VERBS[verb](hw))
            assert (await hw.queue("orders").push(2)).durability == "synced"
            return said

    said = asyncio.run(program())
    assert said.startswith("Forked: "), said
    assert ASYNC_LINES[interface] in said


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_fork_holds_nothing_of_its_parent_and_gives_nothing_back(places: Places, interface: str) -> None:
    """A child that drops or closes what it was forked with leaves the parent's messages to the parent."""
    with places.open_sync(interface) as hw:
        orders = hw.queue("orders")
        orders.push_many([1, 2], partition="one")
        kept = [orders.consume(batch=2)]
        message = next(kept[0])

        def leave() -> None:
            kept.clear()
            hw.close()

        assert in_a_child(leave) == "nothing"
        assert orders.pop() == []
        said = in_a_child(lambda: message.ack())
        assert said.startswith("Forked: "), said
        message.ack()
        assert next(kept[0]).payload == 2


def test_a_fork_may_open_a_client_of_its_own_and_no_store_that_its_parent_has_open(places: Places) -> None:
    """SQLite would take the locks of the parent for its own, and the parent itself for the last who has the file."""

    def push(interface: str) -> None:
        with places.open_sync(interface) as own:
            own.queue("orders").push(f"from the child by {interface}")

    with places.open_sync("library") as hw:
        hw.queue("orders").push("from the parent")
        assert in_a_child(lambda: push("http")) == "nothing"
        said = in_a_child(lambda: push("library"))
        assert said.startswith("Forked: "), said
        assert "spawn" in said
        payloads = {message.payload for message in hw.queue("orders").pop(batch=10)}
    assert payloads == {"from the child by http", "from the parent"}


def test_a_fork_may_open_a_store_that_its_parent_had_open_before(tmp_path: Path) -> None:
    def push(payload: str) -> None:
        with headwater.sync.open(str(tmp_path / "alone.db")) as own:
            own.queue("orders").push(payload)

    push("from the parent")
    assert in_a_child(lambda: push("from the child")) == "nothing"
    with headwater.sync.open(str(tmp_path / "alone.db")) as hw:
        assert {message.payload for message in hw.queue("orders").pop(batch=10)} == {
            "from the child",
            "from the parent",
        }


def test_a_fork_does_not_come_into_the_middle_of_a_write(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child would find SQLite as its parent's thread had it in that moment, for ever."""
    transact, inside, may_end = SqliteStore._transact, threading.Event(), threading.Event()

    def transact_slowly(self: SqliteStore, *arguments: Any) -> Any:
        inside.set()
        assert may_end.wait(CHILD_SECONDS)
        return transact(self, *arguments)

    def look() -> None:
        assert may_end.is_set()

    with places.open_sync("library") as hw:
        monkeypatch.setattr(SqliteStore, "_transact", transact_slowly)
        writing = threading.Thread(target=hw.queue("orders").push, args=("from the parent",))
        writing.start()
        assert inside.wait(CHILD_SECONDS)
        threading.Timer(0.2, may_end.set).start()
        said = in_a_child(look)
        writing.join()
        assert said == "nothing"
        assert [message.payload for message in hw.queue("orders").pop(batch=10)] == ["from the parent"]


def test_a_worker_process_that_was_forked_says_so(places: Places) -> None:
    """The way in which people meet it: a module that opens a store, and a pool of processes."""
    with places.open_sync("library") as hw:
        context = multiprocessing.get_context("fork")
        receiving, sending = context.Pipe(duplex=False)

        def work() -> None:
            try:
                hw.queue("orders").push(1)
            except HeadwaterError as error:
                sending.send(error.code)

        process = context.Process(target=work)
        process.start()
        assert receiving.poll(CHILD_SECONDS)
        assert receiving.recv() == Forked.code
        process.join(CHILD_SECONDS)
        assert process.exitcode == 0
