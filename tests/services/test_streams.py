"""What is followed goes on after a wait that was cancelled, and ends for everybody alike."""

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest

import headwater
from headwater.services.streams import Stream


class Source:
    """Steps that a test lets come one by one."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[list[int] | Exception] = asyncio.Queue()
        self.is_closed = False

    async def follow(self) -> AsyncGenerator[list[int], None]:
        try:
            while True:
                step = await self.steps.get()
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.is_closed = True


async def test_a_wait_that_ran_out_of_time_loses_nothing() -> None:
    source = Source()
    stream = Stream(source.follow())
    for number in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)
        source.steps.put_nowait([])
        source.steps.put_nowait([number, number + 10])
        assert [await anext(stream), await anext(stream)] == [number, number + 10]
    await stream.aclose()
    assert source.is_closed
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_two_who_wait_at_once_get_one_each() -> None:
    source = Source()
    async with Stream(source.follow()) as stream:
        waiting = [asyncio.ensure_future(anext(stream)) for _ in range(3)]
        await asyncio.sleep(0)
        source.steps.put_nowait([1, 2])
        source.steps.put_nowait([3])
        assert sorted(await asyncio.gather(*waiting)) == [1, 2, 3]
        left = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
    assert source.is_closed
    with pytest.raises(StopAsyncIteration):
        await left


async def test_an_error_is_raised_to_all_who_ask_after_it() -> None:
    source = Source()
    async with Stream(source.follow()) as stream:
        source.steps.put_nowait([1])
        source.steps.put_nowait(ValueError("gone"))
        assert await anext(stream) == 1
        for _ in range(2):
            with pytest.raises(ValueError, match="gone"):
                await anext(stream)


async def test_who_is_forgotten_while_it_waits_follows_no_more(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    stream = Stream(source.follow())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.01)
    was_closed = source.is_closed
    del stream
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (was_closed, source.is_closed) == (False, True)
    assert caplog.records == []


async def test_messages_and_changes_go_on_after_a_timeout(hw: headwater.Headwater) -> None:
    room, notes = hw.room("a"), hw.collection("notes")
    async with room.follow() as messages, notes.follow() as changes:
        assert (await anext(changes)).op == "snapshot"
        for number in range(3):
            for stream in (messages, changes):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(stream)
            await room.send(number)
            await notes.create({"n": number}, id=str(number))
            async with asyncio.timeout(60):
                assert (await anext(messages)).payload == number
                change = await anext(changes)
                assert change.document is not None
                assert (change.op, change.document.id) == ("insert", str(number))
