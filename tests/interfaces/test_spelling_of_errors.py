"""What goes wrong is told in the words of whoever called: with async, or without. One table, both interfaces."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headwater
import headwater.sync
from headwater import forks
from headwater.errors import HeadwaterError
from headwater.jobs import JobApp
from tests.worker.functions import plain

SOON = 20.0
# Words of the async interface, and a `with` or `for` that is not one of its.
ASYNC = re.compile(r"async|await|coroutine|event loop|__a\w+__|headwater\.open|headwater\.connect")
PLAIN = re.compile(r"headwater\.sync|(?<!async )\bwith (app|headwater|queue)|enqueue_sync")


@contextmanager
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a fork leaves what was open: made by another process."""
    with monkeypatch.context() as patch:
        patch.setattr(forks._forks, "count", forks._forks.count + 1)
        yield


# ── without async ──


def after_closing(deed: Callable[[headwater.sync.Headwater, headwater.sync.Message], object]) -> "Plainly":
    def case(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
        hw.queue("orders").push(1)
        [message] = hw.queue("orders").pop()
        hw.close()
        deed(hw, message)

    return case


def after_forking(deed: Callable[[headwater.sync.Headwater], object]) -> "Plainly":
    def case(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
        with forked(patch):
            deed(hw)

    return case


def transact(hw: headwater.sync.Headwater) -> None:
    with hw.transaction() as together:
        together.push("orders", 1)


def a_block_that_was_left(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    with hw.queue("orders").consume() as messages:
        pass
    next(messages)


def a_loop_over_a_block_that_was_left(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    with hw.queue("orders").consume() as messages:
        pass
    iter(messages)


def a_block_in_a_block(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    with hw.queue("orders").consume() as messages, messages:
        pass


def a_block_behind_a_loop(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    with iter(hw.queue("orders").consume()) as messages:  # type: ignore[attr-defined, unused-ignore]
        next(messages)


def two_at_once(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    with hw.queue("orders").consume() as messages:
        told: list[BaseException] = []

        def ask() -> None:
            try:
                next(messages)
            except BaseException as error:
                told.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not told:
            threads[0].join(0.001)
        hw.queue("orders").push(1)
        for thread in threads:
            thread.join(SOON)
        raise told[0]


def somebody_elses_message(hw: headwater.sync.Headwater, patch: pytest.MonkeyPatch) -> None:
    hw.queue("orders").push_many([1, 2])
    done, taken = threading.Event(), threading.Event()
    with hw.queue("orders").consume() as messages:

        def work() -> None:
            next(messages)
            taken.set()
            done.wait(SOON)

        thread = threading.Thread(target=work)
        thread.start()
        assert taken.wait(SOON)
        try:
            next(messages)
        finally:
            done.set()
            thread.join(SOON)


Plainly = Callable[[headwater.sync.Headwater, pytest.MonkeyPatch], object]

plainly: dict[str, Plainly] = {
    "push, closed": after_closing(lambda hw, _: hw.queue("orders").push(1)),
    "pop, closed": after_closing(lambda hw, _: hw.pop()),
    "report, closed": after_closing(lambda hw, message: message.ack()),
    "consume, closed": after_closing(lambda hw, _: next(iter(hw.queue("orders").consume()))),
    "transaction, closed": after_closing(lambda hw, _: transact(hw)),
    "jobs, closed": after_closing(lambda hw, _: hw.jobs.add(command="true")),
    "push, forked": after_forking(lambda hw: hw.queue("orders").push(1)),
    "consume, forked": after_forking(lambda hw: next(iter(hw.queue("orders").consume()))),
    "transaction, forked": after_forking(transact),
    "jobs, forked": after_forking(lambda hw: hw.jobs.add(command="true")),
    "a block that was left": a_block_that_was_left,
    "a loop over a block that was left": a_loop_over_a_block_that_was_left,
    "a block in a block": a_block_in_a_block,
    "a block behind a loop": a_block_behind_a_loop,
    "two at once": two_at_once,
    "somebody else's message": somebody_elses_message,
}


@pytest.mark.parametrize("name", plainly)
def test_without_async_errors_speak_without_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with headwater.sync.open(str(tmp_path / "headwater.db")) as hw, pytest.raises(HeadwaterError) as caught:
        plainly[name](hw, monkeypatch)
    assert not ASYNC.search(str(caught.value)), str(caught.value)


# ── with async ──


async def block_left(hw: headwater.Headwater) -> None:
    async with hw.queue("orders").consume() as messages:
        pass
    await anext(aiter(messages))


async def block_in_block(hw: headwater.Headwater) -> None:
    async with hw.queue("orders").consume() as messages, messages:
        pass


async def two_tasks(hw: headwater.Headwater) -> None:
    async with hw.queue("orders").consume() as messages:
        asking = [asyncio.create_task(take(messages)) for _ in range(2)]
        done, rest = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await done.pop()


async def take(messages: object) -> object:
    return await anext(messages)  # type: ignore[call-overload]


async def transact_async(hw: headwater.Headwater) -> None:
    async with hw.transaction() as together:
        together.push("orders", 1)


async def without_opening(hw: headwater.Headwater) -> None:
    await headwater.open("unopened.db").queue("orders").push(1)


def closed(
    deed: Callable[[headwater.Headwater], Awaitable[object]],
) -> Callable[[headwater.Headwater], Awaitable[object]]:
    async def case(hw: headwater.Headwater) -> None:
        await hw.close()
        await deed(hw)

    return case


awaited: dict[str, Callable[[headwater.Headwater], Awaitable[object]]] = {
    "push, not opened": without_opening,
    "push, closed": closed(lambda hw: hw.queue("orders").push(1)),
    "pop, closed": closed(lambda hw: hw.pop()),
    "transaction, closed": closed(transact_async),
    "jobs, closed": closed(lambda hw: hw.jobs.add(command="true")),
    "a block that was left": block_left,
    "a block in a block": block_in_block,
    "two at once": two_tasks,
}


@pytest.mark.parametrize("name", awaited)
async def test_with_async_errors_speak_with_it(name: str, tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "headwater.db")) as hw:
        with pytest.raises(HeadwaterError) as caught:
            await awaited[name](hw)
    assert not PLAIN.search(str(caught.value)), str(caught.value)


# ── apps of jobs ──


def test_what_an_app_has_handed_in_says_how_its_app_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = JobApp(str(tmp_path / "headwater.db"))
    shout = app.job(plain)
    with app:
        handle = shout.enqueue_sync("a")
        with forked(monkeypatch), pytest.raises(HeadwaterError, match=r"this JobApp was opened by .*: with app:"):
            handle.wait(0)
    with pytest.raises(HeadwaterError, match=r"^this JobApp is closed; .*: with app:$"):
        handle.wait(0)


def test_the_jobs_of_an_app_that_is_open_without_async_say_what_to_use(tmp_path: Path) -> None:
    with JobApp(str(tmp_path / "headwater.db")) as app, pytest.raises(HeadwaterError, match="enqueue_sync"):
        app.jobs  # noqa: B018
