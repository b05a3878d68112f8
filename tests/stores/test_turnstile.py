"""Turns at the write lock: one at a time, in a queue, and never kept for somebody who does not come."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.errors import StoreBusy
from headwater.stores.sqlite.turnstile import HAND_OVER_SECONDS, Turnstile
from tests.waiting import expect_soon, expect_soon_async

MakeTurnstile = Callable[..., Turnstile]
SOON = 20.0


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeTurnstile]:
    made: list[Turnstile] = []

    def make_one(wait_seconds: float = SOON) -> Turnstile:
        made.append(Turnstile(str(tmp_path / "turn"), wait_seconds))
        return made[-1]

    yield make_one
    for turnstile in made:
        turnstile.close()


async def asks_its_thread(turnstile: Turnstile) -> bool:
    return turnstile._waiters is not None


async def test_one_has_the_turn_and_the_next_gets_it_after_them(make: MakeTurnstile) -> None:
    first, second = make(), make()
    await first.enter()
    assert not second.try_enter()
    entering = asyncio.ensure_future(second.enter())
    await asyncio.sleep(0.05)
    assert not entering.done()
    first.leave()
    await asyncio.wait_for(entering, SOON)
    assert not first.try_enter()
    second.leave()


async def test_a_turn_that_does_not_come_is_told(make: MakeTurnstile) -> None:
    first, second = make(), make(wait_seconds=0.05)
    await first.enter()
    with pytest.raises(StoreBusy, match="other programs held the write lock"):
        await second.enter()
    first.leave()
    # The thread still gets the turn that nobody waits for, and lets it go at once.
    await asyncio.wait_for(first.enter(), SOON)


async def test_a_loop_that_does_not_come_for_its_turn_holds_nobody_up(make: MakeTurnstile) -> None:
    first, blocked, third = make(), make(), make()
    await first.enter()
    entering = asyncio.ensure_future(blocked.enter())
    await expect_soon_async(partial(asks_its_thread, blocked))
    first.leave()
    # From here this loop does nothing for long, as with a body that never awaits; a thread stands for another process.
    got_in = threading.Event()

    def go_in() -> None:
        expect_soon(third.try_enter, SOON)
        got_in.set()
        third.leave()

    other = threading.Thread(target=go_in)
    assert not got_in.wait(HAND_OVER_SECONDS * 2)
    other.start()
    assert got_in.wait(SOON), "the turn was kept for a loop that does not come"
    other.join()
    await asyncio.wait_for(entering, SOON)
    assert not third.try_enter(), "the loop that comes back gets its turn"
    blocked.leave()


async def test_a_turn_is_used_before_anything_else_that_the_loop_has_to_do(make: MakeTurnstile) -> None:
    first, second = make(), make()
    await first.enter()
    done: list[str] = []
    using = asyncio.ensure_future(second.within(lambda: done.append("used")))
    await expect_soon_async(partial(asks_its_thread, second))
    loop = asyncio.get_running_loop()

    def look() -> None:
        """Each turn of the loop, like a program with work of its own."""
        free = first.try_enter()
        if free:
            first.leave()
        done.append("free" if free else "held")
        if not using.done():
            loop.call_soon(look)

    first.leave()
    loop.call_soon(look)
    await asyncio.wait_for(using, SOON)
    # From when it was used on, nobody found it held.
    assert "held" not in done[done.index("used") :]


async def test_work_in_a_thread_lets_the_next_one_in_without_the_loop(make: MakeTurnstile) -> None:
    first, second, third = make(), make(), make()
    await first.enter()
    begun = threading.Event()
    using = asyncio.ensure_future(second.within_thread(begun.set))
    await expect_soon_async(partial(asks_its_thread, second))
    first.leave()
    # This loop does nothing from here on.
    assert begun.wait(SOON)
    expect_soon(third.try_enter, SOON)
    third.leave()
    await asyncio.wait_for(using, SOON)


@pytest.mark.parametrize("way", ["within", "within_thread"])
async def test_an_error_in_a_turn_is_told_and_ends_the_turn(make: MakeTurnstile, way: str) -> None:
    first, second = make(), make()
    await first.enter()
    using = asyncio.ensure_future(getattr(second, way)(lambda: 1 // 0))
    await expect_soon_async(partial(asks_its_thread, second))
    first.leave()
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(using, SOON)
    assert first.try_enter()


@pytest.mark.parametrize("way", ["enter", "within", "within_thread"])
async def test_who_waits_no_more_does_nothing_and_keeps_no_turn(make: MakeTurnstile, way: str) -> None:
    first, second = make(), make()
    await first.enter()
    done: list[int] = []
    waiting = second.enter() if way == "enter" else getattr(second, way)(lambda: done.append(1))
    using = asyncio.ensure_future(waiting)
    await expect_soon_async(partial(asks_its_thread, second))
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    first.leave()
    await asyncio.wait_for(first.enter(), SOON)
    first.leave()
    assert done == []
