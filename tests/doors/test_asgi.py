"""The ASGI app: its life, its place in other apps, and streams whose client leaves."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import headwater
from headwater.config import Config
from headwater.doors.asgi import AsgiApp
from headwater.doors.wire import CONTINUE, Handler, Request, Response
from tests.waiting import expect_soon_async

Event = dict[str, Any]


def scope(path: str = "/", **more: Any) -> Event:
    return {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", **more}


class Conversation:
    """What a server says to an app, and what the app says back."""

    def __init__(self, *events: Event) -> None:
        self._events = asyncio.Queue[Event]()
        for event in events:
            self._events.put_nowait(event)
        self.sent: list[Event] = []

    async def receive(self) -> Event:
        return await self._events.get()

    async def send(self, event: Any) -> None:
        self.sent.append(dict(event))

    def tell(self, event: Event) -> None:
        self._events.put_nowait(event)

    def leave(self) -> None:
        self.tell({"type": "http.disconnect"})

    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)


def app_of(handler: Handler) -> AsgiApp:
    @asynccontextmanager
    async def open_door() -> AsyncIterator[Handler]:
        yield handler

    return AsgiApp(open_door, body_bytes_max=10)


async def test_a_stream_goes_on_until_its_client_leaves() -> None:
    closed = asyncio.Event()

    async def count() -> AsyncGenerator[bytes, None]:
        try:
            for number in range(10**9):
                yield f"{number},".encode()
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    async def answer(request: Request) -> Response:
        return Response(body=b"begin,", chunks=count())

    talk = Conversation({"type": "http.request", "body": b"", "more_body": False})
    serving = asyncio.ensure_future(app_of(answer)(scope(), talk.receive, talk.send))

    async def has_begun() -> bool:
        return b"2," in talk.body()

    await expect_soon_async(has_begun)
    talk.leave()
    await asyncio.wait_for(serving, 10)
    assert closed.is_set()
    assert talk.body().startswith(b"begin,0,1,2,")


async def test_a_stream_that_ends_is_ended_in_good_order() -> None:
    async def twice() -> AsyncGenerator[bytes, None]:
        yield b"a"
        yield b"b"

    async def answer(request: Request) -> Response:
        return Response(chunks=twice())

    talk = Conversation({"type": "http.request"})
    await app_of(answer)(scope(), talk.receive, talk.send)
    assert (talk.body(), talk.sent[-1]["more_body"]) == (b"ab", False)
    assert not [name for name, _ in talk.sent[0]["headers"] if name == b"content-length"]


async def test_a_client_that_leaves_before_the_answer_gives_it_back() -> None:
    returned = asyncio.Event()

    async def answer(request: Request) -> Response:
        talk.leave()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return Response(undelivered=returned.set)
        return Response()

    talk = Conversation({"type": "http.request"})
    await app_of(answer)(scope(), talk.receive, talk.send)
    assert returned.is_set()
    assert talk.sent == []


async def test_a_body_over_its_limit_and_a_broken_handler_are_told() -> None:
    async def broken(request: Request) -> Response:
        if request.awaits_body:
            return CONTINUE
        raise RuntimeError("a secret")

    large = Conversation(
        {"type": "http.request", "body": b"x" * 6, "more_body": True}, {"type": "http.request", "body": b"x" * 6}
    )
    await app_of(broken)(scope(), large.receive, large.send)
    assert large.sent[0]["status"] == 413
    small = Conversation({"type": "http.request"})
    await app_of(broken)(scope(), small.receive, small.send)
    assert small.sent[0]["status"] == 500
    assert b"secret" not in small.body()


async def test_a_body_that_is_not_wanted_is_not_read_on() -> None:
    async def closed(request: Request) -> Response:
        assert (request.awaits_body, request.body) == (True, b"")
        return Response(status=401)

    talk = Conversation({"type": "http.request", "body": b"x", "more_body": True})
    await app_of(closed)(scope(), talk.receive, talk.send)
    assert talk.sent[0]["status"] == 401


async def test_bodies_of_an_app_stay_within_its_budget() -> None:
    """Two callers with half of it each; the third is told to come back, and finds room when one is answered."""
    go_on = asyncio.Event()

    async def slow(request: Request) -> Response:
        await go_on.wait()
        return Response(status=200)

    @asynccontextmanager
    async def open_door() -> AsyncIterator[Handler]:
        yield slow

    app = AsgiApp(open_door, body_bytes_max=10, bodies_bytes_max=20)

    async def ask(caller: bytes) -> Conversation:
        talk = Conversation({"type": "http.request", "body": b"x" * 10})
        await app({**scope(), "headers": [(b"authorization", caller)]}, talk.receive, talk.send)
        return talk

    waiting = [asyncio.ensure_future(ask(caller)) for caller in (b"a", b"b")]

    async def is_full() -> bool:
        return app.budget.bytes == 20

    await expect_soon_async(is_full)
    refused = (await ask(b"c")).sent[0]
    assert (refused["status"], dict(refused["headers"])[b"retry-after"]) == (503, b"1")
    go_on.set()
    assert [talk.sent[0]["status"] for talk in await asyncio.gather(*waiting)] == [200, 200]
    assert (await ask(b"c")).sent[0]["status"] == 200
    assert app.budget.bytes == 0


async def test_who_has_answers_of_an_app_to_take_gets_no_more_until_they_are_taken() -> None:
    taken, asked = asyncio.Event(), []

    async def large(request: Request) -> Response:
        asked.append(request.path)
        return Response(body=b"x" * 20)

    @asynccontextmanager
    async def open_door() -> AsyncIterator[Handler]:
        yield large

    app = AsgiApp(open_door, body_bytes_max=10, bodies_bytes_max=20)
    slow = Conversation({"type": "http.request"})

    async def send_slowly(event: Any) -> None:
        await slow.send(event)
        await taken.wait()

    about = {**scope(), "headers": [(b"authorization", b"a")]}
    answering = asyncio.ensure_future(app(about, slow.receive, send_slowly))

    async def waits() -> bool:
        return app.answers.bytes == 20

    await expect_soon_async(waits)
    refused = Conversation({"type": "http.request"})
    await app(about, refused.receive, refused.send)
    assert (refused.sent[0]["status"], dict(refused.sent[0]["headers"])[b"retry-after"]) == (503, b"1")
    assert len(asked) == 1, "nothing was done for it"
    taken.set()
    await answering
    again = Conversation({"type": "http.request"})
    await app(about, again.receive, again.send)
    assert again.sent[0]["status"] == 200


@pytest.mark.parametrize(
    ("about", "path"),
    [
        ({"path": "/a/b", "raw_path": b"/a%2Fb"}, "/a%2Fb"),
        ({"path": "/mounted/a", "root_path": "/mounted"}, "/a"),
        ({"path": "/mounted", "root_path": "/mounted"}, "/"),
        ({"path": "/x", "raw_path": b"/x?query"}, "/x"),
        ({"path": "/100%/é"}, "/100%25/%C3%A9"),
    ],
)
async def test_a_path_counts_from_where_the_app_is_mounted(about: Event, path: str) -> None:
    async def answer(request: Request) -> Response:
        return Response(body=request.path.encode())

    talk = Conversation({"type": "http.request"})
    await app_of(answer)(scope(**about), talk.receive, talk.send)
    assert talk.body().decode() == path


def lifespan() -> Event:
    return {"type": "lifespan"}


async def get(app: Any, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return await client.get(path)


async def test_an_app_of_its_own_lives_as_long_as_its_server(tmp_path: Path) -> None:
    app = headwater.asgi(str(tmp_path / "a.db"))
    talk = Conversation({"type": "lifespan.startup"})
    living = asyncio.ensure_future(app(lifespan(), talk.receive, talk.send))
    assert (await get(app, "/health")).json()["status"] == "ok"
    assert (tmp_path / "a.db-reserve").stat().st_size == Config().reserve_bytes
    talk.tell({"type": "lifespan.shutdown"})
    await asyncio.wait_for(living, 10)
    assert [event["type"] for event in talk.sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_mounted_app_opens_its_store_when_it_is_first_asked(tmp_path: Path) -> None:
    inner = headwater.asgi(str(tmp_path / "a.db"))
    app = Starlette(routes=[Mount("/queues", inner)])
    assert (await get(app, "/health")).status_code == 404
    assert not (tmp_path / "a.db").exists()
    assert (await get(app, "/queues/health")).json()["lsn"] == 0
    await inner.close()


async def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"this is no database" * 100)
    talk = Conversation({"type": "lifespan.startup"})
    with pytest.raises(headwater.StoreError):
        await headwater.asgi(str(tmp_path / "a.db"))(lifespan(), talk.receive, talk.send)
    assert [event["type"] for event in talk.sent] == ["lifespan.startup.failed"]
