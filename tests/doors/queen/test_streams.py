"""The streaming SDK of queen-mq 0.15.0: windows, gates and sinks whose state lives in our store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from queen import Queen
from queen.streams import Stream
from queen.streams.helpers.rate_limiter import token_bucket_gate
from queen.streams.runtime.register import StreamsConfigHashMismatch, register_query
from queen.streams.runtime.streams_http_client import StreamsHttpClient

from tests.doors.live_door import LiveDoor
from tests.waiting import expect_soon_async


@asynccontextmanager
async def running(stream: Any, query: str, door: LiveDoor, **options: Any) -> AsyncIterator[Any]:
    """A stream that runs until the block ends, without an error."""
    runner = await stream.run(query_id=query, url=door.url, max_wait_millis=100, **options)
    try:
        yield runner
    finally:
        await runner.stop()
    assert runner.metrics()["errorsTotal"] == 0, runner.metrics()["lastError"]


async def drained(queen: Queen, queue: str, count: int) -> list[Any]:
    """As many payloads of a queue, once they are there."""
    found: list[Any] = []

    async def complete() -> bool:
        messages = await queen.queue(queue).batch(100).partitions(20).wait(False).pop()
        found.extend(message["data"] for message in messages)
        if messages:
            await queen.ack(messages)
        return len(found) >= count

    await expect_soon_async(complete)
    return found


async def test_a_stream_maps_and_filters_into_another_queue(queen: Queen, door: LiveDoor) -> None:
    await queen.queue("numbers").push([{"data": {"n": number}} for number in range(10)])
    stream = (
        Stream.from_(queen.queue("numbers"))
        .filter(lambda message: message["data"]["n"] % 2 == 0)
        .map(lambda message: {"square": message["data"]["n"] ** 2})
        .to(queen.queue("squares"))
    )
    async with running(stream, "squares", door):
        found = await drained(queen, "squares", 5)
    assert [value["square"] for value in found] == [0, 4, 16, 36, 64]
    assert await queen.queue("numbers").group("streams.squares").wait(False).pop() == []


async def test_windows_add_up_by_key_and_survive_a_restart_of_the_stream(queen: Queen, door: LiveDoor) -> None:
    def make() -> Any:
        return (
            Stream.from_(queen.queue("sales"))
            .key_by(lambda message: message["data"]["shop"])
            .window_tumbling(seconds=60, event_time=lambda message: message["data"]["at"])
            .reduce(lambda total, value: total + value["amount"], 0)
            .to(queen.queue("totals"))
        )

    def sale(shop: str, minute: int, amount: int) -> dict[str, Any]:
        return {"data": {"shop": shop, "at": minute * 60_000, "amount": amount}}

    async def sold_out() -> bool:
        groups = await queen.admin.list_consumer_groups()
        return any(group["name"] == "streams.totals" and group["totalLag"] == 0 for group in groups)

    await queen.queue("sales").push([sale("a", 1, 1), sale("b", 1, 10), sale("a", 1, 2)])
    async with running(make(), "totals", door):
        await expect_soon_async(sold_out)
    await queen.queue("sales").push([sale("a", 1, 4), sale("a", 3, 100), sale("b", 3, 100)])
    async with running(make(), "totals", door):
        found = await drained(queen, "totals", 2)
    assert sorted(value["value"] for value in found) == [7, 10]


async def test_a_gate_holds_messages_back_in_their_order_and_loses_none(queen: Queen, door: LiveDoor) -> None:
    await queen.queue("calls").config({"lease_time": 1, "retry_limit": 1}).create()
    await queen.queue("calls").push([{"data": {"n": number}} for number in range(9)])
    gate = token_bucket_gate(capacity=3, refill_per_sec=3)
    stream = Stream.from_(queen.queue("calls")).gate(gate).to(queen.queue("allowed"))
    async with running(stream, "limiter", door):
        found = await drained(queen, "allowed", 9)
    assert [value["n"] for value in found] == list(range(9))
    assert (await queen.queue("calls").dlq().get())["total"] == 0


async def test_a_stream_of_another_shape_is_refused_until_it_is_reset(door: LiveDoor) -> None:
    http = StreamsHttpClient(door.url)
    try:
        first = await register_query(http, "shape", "numbers", "one")
        assert first["fresh"]
        with pytest.raises(StreamsConfigHashMismatch, match="reset"):
            await register_query(http, "shape", "numbers", "other")
        again = await register_query(http, "shape", "numbers", "other", reset=True)
        assert (again["queryId"], again["didReset"]) == (first["queryId"], True)
    finally:
        await http.close()
