"""Servers that are none, or broken, or hostile: a clear error within the time that was given, and never a hang."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.doors.edge.limits import Limits
from headwater.errors import (
    ConfigError,
    HeadwaterError,
    NotAllowed,
    Overloaded,
    QueueMissing,
    RateExceeded,
    ServerRefused,
    ServerUnreachable,
    ServerUnreadable,
    TooLarge,
    Unauthenticated,
)
from tests.client.server import Server
from tests.waiting import expect_soon_async

PATIENCE = 20.0
IMPATIENT: dict[str, Any] = {"retry_seconds": 0.3, "answer_seconds": 0.5, "connect_seconds": 1.0}

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(behave: Behaviour) -> AsyncIterator[str]:
    """A server that behaves like this on each connection; its address."""
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(one(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # The client may be faster to leave.
            with suppress(OSError):
                await behave(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(answer: bytes, *, then_wait: bool = False) -> Behaviour:
    """Answers each request with the same bytes."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(answer)
            await writer.drain()
            if not then_wait:
                return

    return behave


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


def problem(status: int, code: str, **headers: str) -> bytes:
    return answer(status, f'{{"code": "{code}", "detail": "because"}}'.encode(), **headers)


async def failure(url: str) -> HeadwaterError:
    """What becomes of an impatient client's greeting."""
    client = headwater.connect(url, **IMPATIENT)
    with pytest.raises(HeadwaterError) as raised:
        await asyncio.wait_for(client.start(), PATIENCE)
    return raised.value


BOUNDS = b'{"version":"1","record_bytes_max":9,"batch_max":9,"batch_bytes_max":9,"wait_seconds_max":9,"lsn":0,"now":1}'
ENDLESS = 70_000 * b"a"

GARBLED = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "zeroes": bytes(1_000),
    "bad chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}}",
    "a length below zero": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "an endless header": b"HTTP/1.1 200 OK\r\nx: " + ENDLESS,
    "an endless status": b"HTTP/1.1 200 " + ENDLESS,
    "endless words on the way": 3_000 * b"HTTP/1.1 100 Continue\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "no JSON": answer(200, b"<html>welcome</html>"),
    "other JSON": answer(200, b'{"hello": "world"}'),
    "deep JSON": answer(200, 100_000 * b"["),
    "no UTF-8": answer(200, b'{"version": "\xff"}'),
    "nothing": answer(200),
}


@pytest.mark.parametrize("sent", GARBLED.values(), ids=GARBLED.keys())
async def test_what_is_no_answer_of_a_headwater_server_is_called_that(sent: bytes) -> None:
    async with serving(saying(sent, then_wait=True)) as url:
        assert isinstance(await failure(url), ServerUnreadable)


CUT = {
    "nothing at all": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{}",
    "half a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
}


@pytest.mark.parametrize("sent", CUT.values(), ids=CUT.keys())
@pytest.mark.parametrize("then_wait", [False, True], ids=["then it hangs up", "then it says no more"])
async def test_an_answer_that_does_not_end_is_given_up(sent: bytes, then_wait: bool) -> None:
    async with serving(saying(sent, then_wait=then_wait)) as url:
        assert isinstance(await failure(url), ServerUnreachable)


async def test_an_answer_that_trickles_is_given_up() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(behave) as url:
        assert "within 0.5 seconds" in str(await failure(url))


async def test_nobody_at_the_address_is_told() -> None:
    async with serving(saying(b"")) as url:
        pass
    error = await failure(url)
    assert isinstance(error, ServerUnreachable)
    assert "no connection" in str(error)


async def test_a_server_that_comes_up_late_is_waited_for(server: Server) -> None:
    """It is retried, and not for the first request only."""
    refused = [problem(503, "closed", retry_after="0"), answer(502, b"<html>"), answer(500), problem(500, "internal")]

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(refused.pop(0) if refused else answer(200, BOUNDS))

    async with serving(behave) as url, headwater.connect(url) as client:
        assert not refused
        assert client.server is not None
        assert client.config.batch_max == 9


FINAL = {
    "who is that": (problem(401, "unauthenticated"), Unauthenticated),
    "a proxy's 401": (answer(401, b"<html>"), Unauthenticated),
    "not allowed": (problem(403, "forbidden"), NotAllowed),
    "not there": (problem(404, "not_found"), QueueMissing),
    "no such server": (answer(404, b"<html>"), ServerRefused),
    "too large": (answer(413), TooLarge),
    "elsewhere": (answer(301, b"", location="http://example.org"), ServerRefused),
    "an unknown code": (problem(418, "teapot"), ServerRefused),
    "no such status": (answer(999), ServerRefused),
}


@pytest.mark.parametrize(("sent", "kind"), FINAL.values(), ids=FINAL.keys())
async def test_what_a_server_refuses_is_raised_as_what_it_is(sent: bytes, kind: type[HeadwaterError]) -> None:
    async with serving(saying(sent, then_wait=True)) as url:
        error = await failure(url)
    assert type(error) is kind
    assert "<html>" not in str(error)


async def test_a_client_that_is_too_fast_waits_as_long_as_it_is_told() -> None:
    times: list[float] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            times.append(asyncio.get_running_loop().time())
            writer.write(problem(429, "rate_exceeded", retry_after="1"))

    async with serving(behave) as url:
        client = headwater.connect(url, retry_seconds=1.9)
        with pytest.raises(RateExceeded) as raised:
            await asyncio.wait_for(client.start(), PATIENCE)
    assert raised.value.retry_seconds == 1
    assert len(times) == 2
    assert times[1] - times[0] >= 0.95


async def test_a_pause_beyond_all_patience_is_not_begun() -> None:
    async with serving(saying(problem(429, "overloaded", retry_after="99999"), then_wait=True)) as url:
        client = headwater.connect(url)
        with pytest.raises(Overloaded):
            await asyncio.wait_for(client.start(), PATIENCE)


async def test_of_a_pause_that_a_server_guesses_at_no_more_is_taken_than_there_is_time() -> None:
    refused = [problem(503, "overloaded", retry_after="99999")]

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            writer.write(refused.pop(0) if refused else answer(200, BOUNDS))

    async with serving(behave) as url, headwater.connect(url, retry_seconds=0.3) as client:
        assert client.config.batch_max == 9
    assert not refused


async def test_a_server_that_is_away_for_longer_than_there_is_time_is_asked_once_more() -> None:
    times: list[float] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            times.append(asyncio.get_running_loop().time())
            writer.write(problem(503, "overloaded", retry_after="99999"))

    async with serving(behave) as url:
        assert isinstance(await failure(url), Overloaded)
    assert len(times) >= 2


async def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_one(server: Server) -> None:
    """Two answers to one request: the second must not be read as that of another."""
    twice = saying(answer(200, BOUNDS) + answer(200, b"[]"), then_wait=True)
    async with serving(twice) as url, headwater.connect(url, **IMPATIENT) as client:
        with pytest.raises(ServerUnreadable):
            await client.queues()


async def test_a_body_larger_than_the_server_takes_is_too_large(tmp_path: Path) -> None:
    limits = Limits(body_bytes_max=1_000_000)
    async with Server(tmp_path / "small.db", limits=limits) as small, headwater.connect(small.url) as client:
        with pytest.raises(TooLarge):
            await client.queue("orders").push_many(["x" * 200_000] * 8)
        assert (await client.queue("orders").push("x" * 200_000)).durability == "synced"


async def test_more_callers_than_connections_all_get_their_turn(server: Server) -> None:
    async with headwater.connect(server.url, connections_max=2) as client:
        receipts = await asyncio.gather(*(client.queue("orders").push(n) for n in range(50)))
    assert all(receipt.offset is not None for receipt in receipts)
    assert len({(receipt.partition, receipt.offset) for receipt in receipts}) == 50


async def are_parked(server: Server, count: int) -> bool:
    return server.waiting() == count


async def test_waiting_pops_do_not_keep_pushes_from_being_sent(server: Server) -> None:
    async with headwater.connect(server.url, connections_max=1) as client:
        waiting = [asyncio.ensure_future(client.queue("orders").pop(wait=30)) for _ in range(5)]
        await expect_soon_async(partial(are_parked, server, 5))
        for number in range(5):
            await client.queue("orders").push(number, partition=f"p{number}")
        popped = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    assert sorted(messages[0].payload for messages in popped) == list(range(5))


async def test_a_closed_client_says_so(server: Server) -> None:
    client = headwater.connect(server.url)
    async with client:
        pass
    with pytest.raises(headwater.HeadwaterError, match="closed"):
        await client.queue("orders").push(1)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:6632", "ftp://x", "http://", "http://x:notaport", "http://x/?a=b", "http://x y/", "http://ü/", ""],
)
async def test_a_wrong_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError):
        headwater.connect(url)


async def test_secrets_are_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        headwater.connect("http://ada:s3cret@x/")
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        headwater.connect("http://x/", token="s3cret\r\nx: y")
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigError):
        headwater.connect("http://x/", answer_seconds=-1)
    with pytest.raises(ConfigError):
        headwater.connect("http://x/", retry_seconds=float("nan"))


async def test_the_token_is_sent_with_every_request() -> None:
    heads: list[bytes] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.read(65_536))
        writer.write(problem(401, "unauthenticated"))

    async with serving(behave) as url:
        client = headwater.connect(f"{url}/queues/", token="hw_abc", **IMPATIENT)
        with pytest.raises(Unauthenticated):
            await client.start()
    assert heads[0].startswith(b"GET /queues/v1/bounds HTTP/1.1\r\n")
    assert b"\r\nauthorization: Bearer hw_abc\r\n" in heads[0]
