"""A broker that stands by hands requests on as they are, and takes them from others only when they are signed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from headwater.doors.access.guard import guarded_outside
from headwater.doors.access.settings import AccessSettings
from headwater.doors.edge.server import Edge
from headwater.doors.front import FORWARDED_HEADER, Front, judge_holder
from headwater.doors.wire import BrokenOff, Handler, Request, Response, json_response
from headwater.errors import StoreSilent
from headwater.stores.contract import Holder

SECRET = b"of these brokers"
GUARD = "token/0123"


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


def holding(handler: Handler, secret: bytes = SECRET, guard: str = GUARD) -> Front:
    front = Front()
    front.join(secret, Holder("", guard))
    front.serve(handler)
    return front


def standing_by(holder: str | None, own: str = "", guard: str = GUARD, **about: Any) -> Front:
    """A broker that believes the holder to be guarded as it is itself."""
    front = Front(**about)
    front.join(SECRET, Holder(own, guard))
    front.stand_by(lambda: None if holder is None else Holder(holder, guard))
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
        front.stand_by(lambda: Holder(url, GUARD))
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
        front.stand_by(lambda: Holder(holders[-1], GUARD))
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


# ── brokers that are guarded otherwise ──

UPGRADE = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "eA=="}
ASKED: list[dict[str, Any]] = [
    {},
    {"path": "/health", "method": "GET", "body": b""},
    {"path": "/metrics", "method": "GET", "body": b""},
    {"path": "/metrics/prometheus", "method": "GET", "body": b""},
    {"path": "/realtime/sse", "method": "GET", "body": b""},
    {"path": "/realtime/ws", "method": "GET", "body": b"", "headers": {"host": "shop.example", **UPGRADE}},
]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("theirs", ["none/0123", "token/4567", ""])
async def test_nothing_is_handed_on_to_a_holder_that_says_it_is_guarded_otherwise(
    asked: dict[str, Any], theirs: str, caplog: pytest.LogCaptureFixture
) -> None:
    holder = Recorder()
    # It would take it: an older version, or a program of one's own, knows nothing of the rule.
    async with listening(holder) as url:
        front = standing_by(None, asks_who=True)
        front.stand_by(lambda: Holder(url, theirs))
        answers = [await front(request(**asked)) for _ in range(3)]
    assert holder.asked == []
    assert front.forwarded == 0
    assert {answer.status for answer in answers} == {503}
    assert all(b'"code":"store_busy"' in answer.body for answer in answers)
    assert url.encode() not in answers[0].body
    (told,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert url in told
    assert "--auth" in told


@pytest.mark.parametrize("asked", ASKED)
async def test_a_holder_that_was_started_anew_with_another_guard_refuses_what_is_handed_on(
    asked: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    holder = Recorder()
    async with listening(holding(holder, guard="none/0123")) as url:
        answer = await standing_by(url, asks_who=True)(request(**asked))
    assert holder.asked == []
    assert answer.status == 503
    assert b"guarded otherwise" in answer.body
    assert any(record.levelname == "ERROR" and "--auth" in record.message for record in caplog.records)


async def test_a_guard_that_a_client_names_is_not_believed() -> None:
    holder = Recorder()
    front = holding(holder, guard="none/0123")
    client, _, signature = standing_by("")._sign(request()).split(" ")
    headers = {**request().headers, FORWARDED_HEADER: f"{client} none/0123 {signature}"}
    await front(request(headers=headers, client="127.0.0.1"))
    assert [asked.client for asked in holder.asked] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("address", "is_well"),
    [
        ("http://10.0.0.5:6632", False),
        ("http://broker.example", False),
        ("https://10.0.0.5:6632", True),
        ("http://127.0.0.1:6632", True),
        ("http://[::1]:6632", True),
    ],
)
def test_who_speaks_tls_does_not_hand_on_in_clear_to_another_machine(address: str, is_well: bool) -> None:
    own, holder = Holder("https://me", GUARD), Holder(address, GUARD)
    assert (judge_holder(own, holder, is_encrypted=True) == "") is is_well
    assert judge_holder(own, holder, is_encrypted=False) == ""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "shop.example", "origin": "https://evil.example"}, 403),
        ({"host": "shop.example", "origin": "https://app.example"}, 201),
        ({"host": "shop.example", "sec-fetch-site": "cross-site"}, 403),
        ({"host": "shop.example"}, 201),
    ],
)
async def test_names_and_origins_are_judged_by_the_broker_that_was_asked(headers: dict[str, str], status: int) -> None:
    holder = Recorder()
    access = AccessSettings(allowed_hosts=("shop.example",), allowed_origins=("https://app.example",))
    told = {**headers, "content-type": "application/json"}
    async with listening(holding(holder)) as url:
        front = standing_by(url, guards=partial(guarded_outside, settings=access))
        assert (await front(request(headers=told))).status == status
    assert len(holder.asked) == (status == 201)


async def test_an_origin_that_both_brokers_allow_is_named_once() -> None:
    access = AccessSettings(allowed_hosts=("shop.example",), allowed_origins=("https://app.example",))
    headers = {"host": "shop.example", "origin": "https://app.example", "content-type": "application/json"}
    async with listening(holding(guarded_outside(Recorder(), access))) as url:
        answer = await standing_by(url, guards=partial(guarded_outside, settings=access))(request(headers=headers))
    names = [name for name, _ in answer.headers]
    assert sorted(names) == ["access-control-allow-origin", "vary", "x-mine"]


@pytest.mark.parametrize("status", [200, 401])
async def test_who_may_read_the_metrics_of_a_broker_that_asks_who_comes_is_known_to_the_holder(status: int) -> None:
    async def judge(request: Request) -> Response:
        return json_response({"of": "the holder"}, status=status)

    async with listening(holding(judge)) as url:
        answer = await standing_by(url, asks_who=True)(request(path="/metrics", method="GET", body=b""))
    assert answer.status == status
    assert (b"headwater_bucket_forwarded_total" in answer.body) is (status == 200)
    assert (b"the holder" in answer.body) is (status == 401)
