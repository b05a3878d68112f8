"""A broker that stands by hands requests on as they are, and takes them from others only when they are signed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from headwater.doors.edge.server import Edge
from headwater.doors.front import FORWARDED_HEADER, Front
from headwater.doors.wire import BrokenOff, Handler, Request, Response, json_response
from headwater.errors import StoreSilent

SECRET = b"of these brokers"


class Recorder:
    """Answers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def __call__(self, request: Request) -> Response:
        self.asked.append(request)
        return json_response({"path": request.path}, status=201, headers=(("x-mine", "yes"),))


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[str]:
    edge = Edge(handler)
    await edge.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{edge.port}"
    finally:
        await edge.stop()


def holding(handler: Handler, secret: bytes = SECRET) -> Front:
    front = Front()
    front.join(secret, "")
    front.serve(handler)
    return front


def standing_by(holder: str | None, own: str = "") -> Front:
    front = Front()
    front.join(SECRET, own)
    front.stand_by(lambda: holder)
    return front


def request(**fields: object) -> Request:
    told = {"method": "POST", "path": "/a%20b", "query": "c=d", "body": b"{}", "client": "10.1.2.3", "id": "r"}
    headers = {"host": "shop.example", "authorization": "Bearer t", "content-type": "application/json"}
    return msgspec.structs.replace(Request(method="", path=""), **{**told, "headers": headers, **fields})


async def test_a_request_comes_to_the_holder_as_it_was_sent_and_its_answer_back() -> None:
    holder = Recorder()
    async with listening(holding(holder)) as url:
        answer = await standing_by(url)(request())
    (asked,) = holder.asked
    assert (asked.method, asked.path, asked.query, asked.body) == ("POST", "/a%20b", "c=d", b"{}")
    assert asked.headers["host"] == "shop.example"
    assert asked.headers["authorization"] == "Bearer t"
    assert asked.client == "10.1.2.3"
    assert (answer.status, answer.body, answer.headers) == (201, b'{"path":"/a%20b"}', (("x-mine", "yes"),))


async def test_whoever_does_not_know_the_secret_is_the_client_it_is() -> None:
    holder = Recorder()
    async with listening(holding(holder, b"of others")) as url:
        await standing_by(url)(request())
    assert holder.asked[0].client == "127.0.0.1"


@pytest.mark.parametrize("changed", [{"method": "GET"}, {"path": "/other"}, {"query": "c=e"}])
async def test_a_signature_is_of_one_request(changed: dict[str, str]) -> None:
    holder = Recorder()
    front = holding(holder)
    mark = standing_by("")._sign(request())
    headers = {**request().headers, FORWARDED_HEADER: mark}
    await front(request(headers=headers, client="127.0.0.1"))
    await front(request(headers=headers, client="127.0.0.1", **changed))
    await front(request(headers={**headers, FORWARDED_HEADER: f"9.{mark}"}, client="127.0.0.1"))
    assert [asked.client for asked in holder.asked] == ["10.1.2.3", "127.0.0.1", "127.0.0.1"]


async def test_two_brokers_that_take_each_other_for_the_holder_do_not_send_a_request_round() -> None:
    front = standing_by(None)
    async with listening(front) as url:
        front.stand_by(lambda: url)
        answer = await standing_by(url)(request())
    assert answer.status == 503
    assert b"does not hold the store" in answer.body


@pytest.mark.parametrize(
    ("holder", "told"),
    [("http://127.0.0.1:9", b"the broker at http://127.0.0.1:9"), ("", b"not said where"), ("http://me", b"not said")],
)
async def test_a_holder_that_cannot_be_asked_is_named(holder: str, told: bytes) -> None:
    answer = await standing_by(holder, own="http://me")(request())
    assert (answer.status, dict(answer.headers)) == (503, {"retry-after": "1"})
    assert b'"code":"store_busy"' in answer.body
    assert told in answer.body


async def test_what_waits_at_a_holder_is_told_to_come_back_when_the_store_is_held_here() -> None:
    asked, here = asyncio.Event(), Recorder()

    async def never(request: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with listening(holding(never)) as url:
        front = standing_by(url)
        waiting = asyncio.ensure_future(front(request()))
        await asked.wait()
        front.serve(here)
        assert (await waiting).status == 503
    assert (await front(request())).status == 201
    assert len(here.asked) == 1


async def test_what_waits_at_a_holder_is_told_when_the_store_cannot_be_had_any_more() -> None:
    """It was stopped with its lease over, and the bucket does not answer whoever would follow it."""
    asked, holders = asyncio.Event(), [""]

    async def never(request: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with listening(holding(never)) as url:
        front = standing_by(None)
        front.stand_by(lambda: holders[-1])
        holders.append(url)
        waiting = asyncio.ensure_future(front(request()))
        await asked.wait()
        holders.append("")
        front.tell(StoreSilent("the bucket has not answered for 10 seconds"))
        for answer in (await waiting, await front(request())):
            assert (answer.status, dict(answer.headers)) == (503, {"retry-after": "1"})
            assert b'"code":"store_silent"' in answer.body
    front.tell(None)
    assert b'"code":"store_busy"' in (await front(request())).body


async def test_an_answer_that_a_holder_breaks_off_is_broken_off_here() -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"[1,"
        raise BrokenOff("no more")

    async def stream(request: Request) -> Response:
        return Response(chunks=half())  # type: ignore[arg-type]

    async with listening(holding(stream)) as url:
        answer = await standing_by(url)(request(method="GET", body=b""))
        assert answer.chunks is not None
        with pytest.raises(BrokenOff):
            await collect(answer.chunks)


async def collect(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def test_a_stream_is_handed_on_as_it_comes_and_ends_with_its_reader() -> None:
    ended = asyncio.Event()

    async def count() -> AsyncIterator[bytes]:
        try:
            for number in range(1_000_000):
                yield b"%d\n" % number
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def stream(request: Request) -> Response:
        return Response(content_type="text/plain", chunks=count())  # type: ignore[arg-type]

    async with listening(holding(stream)) as url:
        front = standing_by(url)
        answer = await front(request(method="GET", body=b""))
        assert answer.chunks is not None
        seen = b""
        while b"3\n" not in seen:
            seen += await anext(answer.chunks)
        assert seen.startswith(b"0\n1\n2\n")
        await answer.chunks.aclose()
        await asyncio.wait_for(ended.wait(), 30)
        assert not front._hops
