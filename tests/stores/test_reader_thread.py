"""The thread that reads: what waits goes together, and nobody waits for a slow one that came later."""

import asyncio
import threading
from functools import partial

import pytest

from headwater.errors import StoreFailed
from headwater.stores.sqlite.reader_thread import ReaderThread

MANY = 500


async def test_of_many_answers_the_loop_is_told_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, told, begin = asyncio.get_running_loop(), 0, threading.Event()
    call_soon_threadsafe = loop.call_soon_threadsafe

    def count(*arguments: object) -> asyncio.Handle:
        nonlocal told
        told += 1
        return call_soon_threadsafe(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    reader = ReaderThread()
    first = asyncio.ensure_future(reader.run(begin.wait))
    asking = [asyncio.ensure_future(reader.run(partial(abs, number))) for number in range(MANY)]
    await asyncio.sleep(0)
    begin.set()
    assert await first
    assert await asyncio.gather(*asking) == list(range(MANY))
    assert told < MANY / 2
    reader.close()


async def test_a_slow_question_holds_back_no_answer_that_was_there_before_it() -> None:
    reader, go_on = ReaderThread(), threading.Event()
    busy = asyncio.ensure_future(reader.run(partial(threading.Event().wait, 0.05)))
    quick = asyncio.ensure_future(reader.run(lambda: "quick"))
    slow = asyncio.ensure_future(reader.run(partial(go_on.wait, 30)))
    async with asyncio.timeout(20):
        await busy
        assert await quick == "quick"
    assert not slow.done()
    go_on.set()
    assert await slow
    reader.close()


async def test_an_error_is_told_to_the_one_who_asked() -> None:
    def fail() -> None:
        raise StoreFailed("the disk is gone")

    reader = ReaderThread()
    found = await asyncio.gather(reader.run(lambda: 1), reader.run(fail), reader.run(lambda: 3), return_exceptions=True)
    assert [found[0], found[2]] == [1, 3]
    assert isinstance(found[1], StoreFailed)
    reader.close()


async def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    reader, go_on, begun = ReaderThread(), threading.Event(), threading.Event()
    first = asyncio.ensure_future(reader.run(go_on.wait))
    left = asyncio.ensure_future(reader.run(begun.set))
    last = asyncio.ensure_future(reader.run(lambda: "last"))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    go_on.set()
    assert await first
    assert await last == "last"
    assert not begun.is_set()
    reader.close()


async def test_a_thread_that_is_closed_has_answered_all_that_it_took_and_takes_no_more() -> None:
    reader, go_on = ReaderThread(), threading.Event()
    asking = [asyncio.ensure_future(reader.run(partial(go_on.wait, 30))) for _ in range(3)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(asyncio.to_thread(reader.close))
    go_on.set()
    assert await asyncio.gather(*asking) == [True] * 3
    await closing
    with pytest.raises(RuntimeError):
        await reader.run(lambda: "too late")


async def test_databases_are_answered_in_turn() -> None:
    reader, go_on, begun = ReaderThread(), threading.Event(), threading.Event()
    order: list[str] = []

    def hold() -> None:
        begun.set()
        go_on.wait()

    held = asyncio.ensure_future(reader.run(hold, "busy"))
    await asyncio.to_thread(begun.wait)
    lines = ["busy"] * 6 + ["other", "third", "other"]
    waiting = [asyncio.ensure_future(reader.run(partial(order.append, line), line)) for line in lines]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(held, *waiting)
    assert order[:5] == ["busy", "other", "third", "busy", "other"]
    assert order.count("busy") == 6
    reader.close()
