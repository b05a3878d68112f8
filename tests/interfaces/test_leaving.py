"""How a consumer's loop is left, and what becomes of the message it was left at: one table for every interface.

A way of leaving × the library or HTTP, async or sync × first, middle or last of a batch × through a generator or not ×
with a block or bare. What became of it is asked of the store, by somebody else, while the one who left is still there.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater.errors import Closed
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.waiting import expect_soon

SOON = 10.0
BATCH = 3
PAYLOADS = [1, 2, 3, 4]
INTERFACES = ("library", "library sync", "http", "http sync")
ENDINGS = (KeyboardInterrupt, SystemExit, ValueError, asyncio.CancelledError)

_names = (f"orders-{number}" for number in itertools.count())


class Scene:
    """A store in a file, a server over it, and somebody who looks at it from the side."""

    def __init__(self, path: Path, url: str, observer: headwater.sync.Headwater) -> None:
        self.path = str(path)
        self.url = url
        self.observer = observer

    def make_queue(self) -> str:
        """A queue with messages in one partition, whose failed messages come again at once."""
        name = next(_names)
        queue = self.observer.queue(name)
        queue.configure(retry_delay_seconds=0)
        queue.push_many(PAYLOADS, partition="one")
        return name

    def open(self, interface: str) -> Any:
        """What an async program would open."""
        return headwater.open(self.path) if interface.startswith("library") else headwater.connect(self.url)

    def open_sync(self, interface: str) -> headwater.sync.Headwater:
        """What a program without async would open."""
        return headwater.sync.open(self.path) if interface.startswith("library") else headwater.sync.connect(self.url)

    def drain(self, name: str) -> list[tuple[Any, int]]:
        """What others get from now on, at once and in order: payload and attempts."""
        found: list[tuple[Any, int]] = []
        queue = self.observer.queue(name)
        while not found or found[-1][0] != PAYLOADS[-1]:
            messages = queue.pop(batch=10, wait=SOON)
            assert messages, f"nothing came after {found}"
            found += [(message.payload, message.attempts) for message in messages]
            queue.ack(messages)
        return found

    def is_idle(self, name: str) -> bool:
        """Whether everything is done and nobody holds anything."""
        return [(group.lag, group.leased) for group in self.observer.queue(name).groups()] == [(0, 0)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    path = tmp_path_factory.mktemp("leaving") / "headwater.db"
    door = LiveDoor(path, on_the_edge)
    door.start()
    with headwater.sync.open(str(path)) as observer:
        yield Scene(path, door.url, observer)
    door.stop()


# ── ways of leaving ──


class Asynchronous:
    """The ways, as an async program writes them. The loop alone holds its iterator, as it does there."""

    @staticmethod
    async def break_as_the_last_statement(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                break

    @staticmethod
    async def break_in_the_middle(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    @staticmethod
    async def return_from_it(make: Callable[[], Any], at: int) -> object:
        async for message in make():
            if message.payload == at:
                return message
        return None

    @staticmethod
    async def break_inside_try_finally(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            try:
                if message.payload == at:
                    break
            finally:
                await asyncio.sleep(0)

    @staticmethod
    async def raise_error(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                raise ValueError("no such customer")

    @staticmethod
    async def raise_error_inside_try_finally(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            try:
                if message.payload == at:
                    raise ValueError("no such customer")
            finally:
                await asyncio.sleep(0)

    @staticmethod
    async def be_interrupted(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                raise KeyboardInterrupt

    @staticmethod
    async def exit_the_program(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                raise SystemExit(3)

    @staticmethod
    async def be_cancelled(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            if message.payload == at:
                raise asyncio.CancelledError

    @staticmethod
    async def go_on_to_the_end(make: Callable[[], Any], at: int) -> None:
        async for message in make():
            assert message.payload in PAYLOADS


class Plain:
    """The same ways, as a program without async writes them."""

    @staticmethod
    def break_as_the_last_statement(make: Callable[[], Any], at: int) -> None:
        for message in make():
            if message.payload == at:
                break

    @staticmethod
    def break_in_the_middle(make: Callable[[], Any], at: int) -> None:
        seen = []
        for message in make():
            if message.payload == at:
                break
            seen.append(message.payload)
        assert seen == PAYLOADS[: at - 1]

    @staticmethod
    def return_from_it(make: Callable[[], Any], at: int) -> object:
        for message in make():
            if message.payload == at:
                return message
        return None

    @staticmethod
    def break_inside_try_finally(make: Callable[[], Any], at: int) -> None:
        seen = []
        for message in make():
            try:
                if message.payload == at:
                    break
            finally:
                seen.append(message.payload)

    @staticmethod
    def raise_error(make: Callable[[], Any], at: int) -> None:
        for message in make():
            if message.payload == at:
                raise ValueError("no such customer")

    @staticmethod
    def raise_error_inside_try_finally(make: Callable[[], Any], at: int) -> None:
        seen = []
        for message in make():
            try:
                if message.payload == at:
                    raise ValueError("no such customer")
            finally:
                seen.append(message.payload)

    @staticmethod
    def be_interrupted(make: Callable[[], Any], at: int) -> None:
        for message in make():
            if message.payload == at:
                raise KeyboardInterrupt

    @staticmethod
    def exit_the_program(make: Callable[[], Any], at: int) -> None:
        for message in make():
            if message.payload == at:
                raise SystemExit(3)

    @staticmethod
    def be_cancelled(make: Callable[[], Any], at: int) -> None:
        for message in make():
            if message.payload == at:
                raise asyncio.CancelledError

    @staticmethod
    def go_on_to_the_end(make: Callable[[], Any], at: int) -> None:
        for message in make():
            assert message.payload in PAYLOADS


# What a block says of the message it is left at. A bare loop always releases it.
ACKED, FAILED, RELEASED = "acked", "failed", "released"
WAYS = {
    "break_as_the_last_statement": ACKED,
    "break_in_the_middle": ACKED,
    "return_from_it": ACKED,
    "break_inside_try_finally": ACKED,
    "raise_error": FAILED,
    "raise_error_inside_try_finally": FAILED,
    "be_interrupted": RELEASED,
    "exit_the_program": RELEASED,
    "be_cancelled": RELEASED,
}


def left(outcome: str, at: int) -> list[tuple[Any, int]]:
    """What others get when a loop was left at a message: those before it are done, those behind it are untouched."""
    behind = [(payload, 1) for payload in PAYLOADS if payload > at]
    return behind if outcome == ACKED else [(at, 2 if outcome == FAILED else 1), *behind]


async def through(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """A generator around messages, as people write to filter or to decode."""
    async for message in messages:
        yield message


def through_plain(messages: Any) -> Iterator[Any]:
    yield from messages


async def visit(queue: headwater.Queue, way: str, at: int, *, block: bool, wrapped: bool) -> None:
    """Consume, and leave in this way."""
    leave: Callable[..., Awaitable[object]] = getattr(Asynchronous, way)
    wrap: Callable[[Any], Any] = through if wrapped else lambda messages: messages
    if block:
        async with queue.consume(batch=BATCH) as messages:
            await leave(lambda: wrap(messages), at)
    else:
        await leave(lambda: wrap(queue.consume(batch=BATCH)), at)


def visit_plain(queue: headwater.sync.Queue, way: str, at: int, *, block: bool, wrapped: bool) -> None:
    leave: Callable[..., object] = getattr(Plain, way)
    wrap: Callable[[Any], Any] = through_plain if wrapped else lambda messages: messages
    if block:
        with queue.consume(batch=BATCH) as messages:
            leave(lambda: wrap(messages), at)
    else:
        leave(lambda: wrap(queue.consume(batch=BATCH)), at)


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("at", [1, 2, 3], ids=["first", "middle", "last"])
def test_the_message_at_which_a_loop_is_left(
    scene: Scene, interface: str, way: str, block: bool, wrapped: bool, at: int
) -> None:
    name = scene.make_queue()
    expected = left(WAYS[way] if block else RELEASED, at)
    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            with contextlib.suppress(*ENDINGS):
                visit_plain(hw.queue(name), way, at, block=block, wrapped=wrapped)
            assert scene.drain(name) == expected
        return

    async def program() -> None:
        async with scene.open(interface) as hw:
            with contextlib.suppress(*ENDINGS):
                await visit(hw.queue(name), way, at, block=block, wrapped=wrapped)
            assert await asyncio.to_thread(scene.drain, name) == expected

    asyncio.run(program())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("way", [way for way, outcome in WAYS.items() if outcome != ACKED])
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
def test_a_program_that_ends_inside_the_loop_has_said_all_before_it_is_gone(
    scene: Scene, interface: str, way: str, block: bool
) -> None:
    """The exception goes up through the block of the store or client, and out of `asyncio.run`."""
    name = scene.make_queue()

    async def program() -> None:
        async with scene.open(interface) as hw:
            await visit(hw.queue(name), way, 2, block=block, wrapped=False)

    def plain_program() -> None:
        with scene.open_sync(interface) as hw:
            visit_plain(hw.queue(name), way, 2, block=block, wrapped=False)

    with pytest.raises(ENDINGS):
        plain_program() if interface.endswith("sync") else asyncio.run(program())
    assert scene.drain(name) == left(WAYS[way] if block else RELEASED, 2)


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_loop_that_goes_on_to_the_end_has_acked_everything(
    scene: Scene, interface: str, block: bool, batch: int
) -> None:
    name = scene.make_queue()

    async def program() -> None:
        async with scene.open(interface) as hw:
            consumption = hw.queue(name).consume(batch=batch, idle_seconds=0)
            async with consumption if block else contextlib.nullcontext(consumption) as messages:
                await Asynchronous.go_on_to_the_end(lambda: messages, 0)
            await asyncio.to_thread(expect_soon, lambda: scene.is_idle(name))

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            consumption = hw.queue(name).consume(batch=batch, idle_seconds=0)
            with consumption if block else contextlib.nullcontext(consumption) as messages:
                Plain.go_on_to_the_end(lambda: messages, 0)
            expect_soon(lambda: scene.is_idle(name))
    else:
        asyncio.run(program())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
def test_each_message_is_acked_when_the_next_is_asked_for(scene: Scene, interface: str, block: bool) -> None:
    name = scene.make_queue()
    lags: list[int] = []

    def look() -> None:
        lags.extend(group.lag for group in scene.observer.queue(name).groups())

    async def program() -> None:
        async with scene.open(interface) as hw:
            consumption = hw.queue(name).consume(idle_seconds=0)
            async with consumption if block else contextlib.nullcontext(consumption) as messages:
                async for _ in messages:
                    await asyncio.to_thread(look)

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            consumption = hw.queue(name).consume(idle_seconds=0)
            with consumption if block else contextlib.nullcontext(consumption) as messages:
                for _ in messages:
                    look()
    else:
        asyncio.run(program())
    assert lags == [4, 3, 2, 1]


# ── cancelled, and interrupted while it waits ──


@pytest.mark.parametrize("interface", ["library", "http"])
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
def test_a_task_that_is_cancelled_in_the_body_releases_its_message_at_once(
    scene: Scene, interface: str, block: bool
) -> None:
    name = scene.make_queue()

    async def work(queue: headwater.Queue, begun: asyncio.Event) -> None:
        async with contextlib.AsyncExitStack() as stack:
            consumption = queue.consume(batch=BATCH)
            messages = await stack.enter_async_context(consumption) if block else consumption
            async for message in messages:
                if message.payload == 2:
                    begun.set()
                    await asyncio.Event().wait()

    async def program() -> None:
        async with scene.open(interface) as hw:
            begun = asyncio.Event()
            worker = asyncio.create_task(work(hw.queue(name), begun))
            await asyncio.wait_for(begun.wait(), SOON)
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
            assert await asyncio.to_thread(scene.drain, name) == left(RELEASED, 2)

    asyncio.run(program())


# ── generators that hold the loop ──


async def inside_a_generator(queue: headwater.Queue, *, block: bool) -> AsyncIterator[Any]:
    if block:
        async with queue.consume(batch=BATCH) as messages:
            async for message in messages:
                yield message
    else:
        async for message in queue.consume(batch=BATCH):
            yield message


def inside_a_plain_generator(queue: headwater.sync.Queue, *, block: bool) -> Iterator[Any]:
    if block:
        with queue.consume(batch=BATCH) as messages:
            yield from messages
    else:
        yield from queue.consume(batch=BATCH)


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
@pytest.mark.parametrize("end", ["closed", "dropped", "kept until the store closes"])
def test_a_generator_that_is_left_releases_what_it_holds(scene: Scene, interface: str, block: bool, end: str) -> None:
    """It cannot know whether the message that it handed out was done."""
    name = scene.make_queue()
    kept: list[Any] = []

    async def program() -> None:
        async with scene.open(interface) as hw:
            generator = inside_a_generator(hw.queue(name), block=block)
            assert [(await anext(generator)).payload for _ in range(2)] == [1, 2]
            if end == "closed":
                await generator.aclose()  # type: ignore[attr-defined]
            if end != "dropped":
                kept.append(generator)
            del generator
            if end != "kept until the store closes":
                assert await asyncio.to_thread(scene.drain, name) == left(RELEASED, 2)

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            generator = inside_a_plain_generator(hw.queue(name), block=block)
            assert [next(generator).payload for _ in range(2)] == [1, 2]
            if end == "closed":
                generator.close()  # type: ignore[attr-defined]
            if end != "dropped":
                kept.append(generator)
            del generator
            if end != "kept until the store closes":
                assert scene.drain(name) == left(RELEASED, 2)
    else:
        asyncio.run(program())
    if end == "kept until the store closes":
        assert scene.drain(name) == left(RELEASED, 2)
    # A generator that comes to its end after all is closed in good order.
    kept.clear()


# ── objects that are kept, dropped, and used twice ──


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_loop_that_is_left_releases_its_message_though_the_object_is_kept(scene: Scene, interface: str) -> None:
    name = scene.make_queue()
    kept: list[Any] = []

    async def program() -> None:
        async with scene.open(interface) as hw:
            kept.append(hw.queue(name).consume(batch=BATCH))
            await Asynchronous.break_in_the_middle(lambda: kept[0], 2)
            assert await asyncio.to_thread(scene.drain, name) == left(RELEASED, 2)

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            kept.append(hw.queue(name).consume(batch=BATCH))
            Plain.break_in_the_middle(lambda: kept[0], 2)
            assert scene.drain(name) == left(RELEASED, 2)
    else:
        asyncio.run(program())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("end", ["dropped", "kept", "closed"])
def test_an_iterator_held_by_hand_releases_its_message_when_it_goes_or_the_store_closes(
    scene: Scene, interface: str, end: str
) -> None:
    name = scene.make_queue()
    kept: list[Any] = []

    async def program() -> None:
        async with scene.open(interface) as hw:
            messages = hw.queue(name).consume(batch=BATCH)
            assert (await anext(messages)).payload == 1
            if end == "closed":
                await messages.aclose()
            kept.append(messages)
            del messages
            if end == "dropped":
                kept.clear()
            if end != "kept":
                assert await asyncio.to_thread(scene.drain, name) == left(RELEASED, 1)

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            messages = hw.queue(name).consume(batch=BATCH)
            assert next(messages).payload == 1
            if end == "closed":
                messages.release()
            kept.append(messages)
            del messages
            if end == "dropped":
                kept.clear()
            if end != "kept":
                assert scene.drain(name) == left(RELEASED, 1)
    else:
        asyncio.run(program())
    if end == "kept":
        assert scene.drain(name) == left(RELEASED, 1)
    kept.clear()


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
def test_an_object_that_is_used_twice_keeps_to_the_rule_each_time(scene: Scene, interface: str, block: bool) -> None:
    """Bare, the second loop begins with the message that the first one released; inside one block it goes on behind
    it, because it asks for the next one; in a second block it goes on behind what the first block acked."""
    name = scene.make_queue()
    seen: list[int] = []

    async def program() -> None:
        async with scene.open(interface) as hw:
            consumption = hw.queue(name).consume(batch=BATCH)
            for rounds in ((2, 3), (4,)):
                async with consumption if block else contextlib.nullcontext(consumption) as messages:
                    for at in rounds:
                        async for message in messages:
                            seen.append(message.payload)
                            if message.payload == at:
                                break

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            consumption = hw.queue(name).consume(batch=BATCH)
            for rounds in ((2, 3), (4,)):
                with consumption if block else contextlib.nullcontext(consumption) as messages:
                    for at in rounds:
                        for message in messages:
                            seen.append(message.payload)
                            if message.payload == at:
                                break
    else:
        asyncio.run(program())
    assert seen == ([1, 2, 3, 4] if block else [1, 2, 2, 3, 3, 4])


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_loop_may_begin_behind_a_first_look(scene: Scene, interface: str) -> None:
    """The loop takes over what was taken by hand, and acks it when it asks for the next."""
    name = scene.make_queue()

    async def program() -> None:
        async with scene.open(interface) as hw:
            messages = hw.queue(name).consume(idle_seconds=0)
            assert (await anext(messages)).payload == 1
            assert [message.payload async for message in messages] == [2, 3, 4]
            await asyncio.to_thread(expect_soon, lambda: scene.is_idle(name))

    if interface.endswith("sync"):
        with scene.open_sync(interface) as hw:
            messages = hw.queue(name).consume(idle_seconds=0)
            assert next(messages).payload == 1
            assert [message.payload for message in messages] == [2, 3, 4]
            expect_soon(lambda: scene.is_idle(name))
    else:
        asyncio.run(program())


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("block", [True, False], ids=["block", "bare"])
def test_the_store_may_close_while_a_body_runs(scene: Scene, interface: str, block: bool) -> None:
    """Shutdown releases: what is held goes back before the store or client is gone."""
    name = scene.make_queue()

    async def program() -> None:
        hw = scene.open(interface)
        await hw.start()
        consumption = hw.queue(name).consume(batch=BATCH)
        async with consumption if block else contextlib.nullcontext(consumption) as messages:
            async for message in messages:
                if message.payload == 2:
                    await hw.close()

    def plain_program() -> None:
        hw = scene.open_sync(interface)
        consumption = hw.queue(name).consume(batch=BATCH)
        with consumption if block else contextlib.nullcontext(consumption) as messages:
            for message in messages:
                if message.payload == 2:
                    hw.close()

    with pytest.raises(Closed):
        plain_program() if interface.endswith("sync") else asyncio.run(program())
    assert scene.drain(name) == left(RELEASED, 2)
