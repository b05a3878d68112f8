"""Guards over real transports: the published queen-mq client with a token, an ASGI app, headers nobody would send."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queen import Queen
from starlette.applications import Starlette
from starlette.routing import Mount

import headwater
from headwater.app import Headwater, open_door
from headwater.clock import SystemClock
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.errors import ConfigError
from tests.doors.access.issuer import SECRET
from tests.doors.access.visits import say_who, visit
from tests.doors.live_door import LiveDoor


@asynccontextmanager
async def behind_guards(hw: Headwater) -> AsyncIterator[str]:
    """What `headwater serve --auth token` runs."""
    async with open_door(hw, load_access({}, auth="token")) as door:
        edge = Edge(door, admit=door)
        await edge.start("127.0.0.1", 0)
        yield f"http://127.0.0.1:{edge.port}"
        await edge.stop()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    live = LiveDoor(tmp_path / "headwater.db", behind_guards)
    live.start()
    yield live
    live.stop()


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The client takes the signals of the process, which are given back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def create(door: LiveDoor, *scopes: str, queues: tuple[str, ...] = ("*",)) -> str:
    making = door.hw.access_tokens("acme").create("worker", scopes, queues=queues)
    return asyncio.run_coroutine_threadsafe(making, door.loop).result(10)[1]


async def test_the_published_client_works_with_a_token(door: LiveDoor) -> None:
    token = create(door, "publish", "consume", queues=("orders.*",))
    async with Queen(url=door.url, bearer_token=token, retry_attempts=1) as queen:
        (pushed,) = await queen.queue("orders.eu").push([{"data": {"id": 7}}])
        assert pushed["status"] == "queued"
        (message,) = await queen.queue("orders.eu").wait(False).pop()
        assert (message["data"], message["producerSub"]) == ({"id": 7}, "worker")
        assert (await queen.ack(message))["success"]
        with pytest.raises(httpx.HTTPStatusError, match="there is no queue 'bills'"):
            await queen.queue("bills").push([{"data": 1}])
        with pytest.raises(httpx.HTTPStatusError, match="needs the scope admin"):
            await queen.queue("orders.eu").delete()


@pytest.mark.parametrize(("token", "why"), [(None, "needs a credential"), ("hw_wrong", "is not valid")])
async def test_the_published_client_shows_why_it_was_refused(door: LiveDoor, token: str | None, why: str) -> None:
    async with Queen(url=door.url, bearer_token=token, retry_attempts=1) as queen:
        with pytest.raises(httpx.HTTPStatusError, match=why) as refused:
            await queen.queue("orders").push([{"data": 1}])
    assert refused.value.response.status_code == 401


async def test_an_asgi_app_is_guarded_when_it_is_told_how(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "a.db")) as hw:
        _, token = await hw.access_tokens().create("ci", ["subscribe"])
        any_name = {"allowed_hosts": ["*"]}
        for access, bare, shown in ((any_name, 200, 200), ({"auth": "token"}, 401, 200)):
            app = headwater.asgi(hw, access=access)
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://q.example") as client:
                assert (await client.get("/version")).status_code == bare
                headers = {"authorization": f"Bearer {token}"}
                assert (await client.get("/version", headers=headers)).status_code == shown


PAGES: dict[str, tuple[dict[str, str], int]] = {
    "a program": ({}, 200),
    "a page of its own": ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200),
    "a foreign page": ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
    "an image on a foreign page": ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    "a name that a stranger's DNS points here": ({"host": "evil.example"}, 403),
    "a host that is no name": ({"host": "localhost:80@evil.example"}, 403),
}
WIDER: dict[str, Any] = {"allowed_hosts": ["evil.example"], "allowed_origins": ["https://evil.example"]}


@pytest.mark.parametrize("mounted", [False, True], ids=["alone", "mounted"])
@pytest.mark.parametrize("sent", PAGES)
async def test_an_asgi_app_keeps_foreign_pages_out_until_it_is_told_otherwise(
    tmp_path: Path, sent: str, mounted: bool
) -> None:
    headers, status = PAGES[sent]
    body = {"items": [{"queue": "orders", "payload": 1}]}
    async with headwater.open(str(tmp_path / "a.db")) as hw:
        for access, expected in ((None, status), (WIDER, 200)):
            app: Any = headwater.asgi(hw, access=access)
            app = Starlette(routes=[Mount("/queues", app)]) if mounted else app
            base = "http://localhost/queues" if mounted else "http://localhost"
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
                before = await _count(hw)
                response = await client.post("/api/v1/push", json=body, headers=headers)
                refused = expected != 200 or sent in ("an image on a foreign page", "a host that is no name")
                assert response.status_code == (403 if refused else 201)
                assert await _count(hw) == before + (not refused)


async def _count(hw: headwater.Headwater) -> int:
    return sum(queue.records for queue in await hw.queues())


def test_an_asgi_app_that_could_not_guard_itself_is_not_made() -> None:
    with pytest.raises(ConfigError, match="jwt_algorithms"):
        headwater.asgi("unused.db", access={"auth": "jwt"})


# ── headers nobody would send ──

letters = st.text(st.characters(max_codepoint=255), max_size=40)
headers = st.fixed_dictionaries(
    {},
    optional={
        "authorization": letters
        | letters.map(lambda text: f"Bearer {text}")
        | letters.map(lambda text: f"Bearer a.{text}.b"),
        "host": letters | st.just("127.0.0.1"),
        "origin": letters | letters.map(lambda text: f"http://{text}"),
        "sec_fetch_site": letters,
        "sec_fetch_mode": letters,
        "content_type": letters,
    },
)


@given(headers, st.sampled_from(["GET", "POST", "OPTIONS", "BREW"]), letters)
def test_whatever_a_client_sends_it_gets_an_answer(sent: dict[str, str], method: str, client: str) -> None:
    settings = load_access(
        {}, auth="jwt", jwt_algorithms="HS256", jwt_secret=SECRET.decode(), allowed_hosts="q.example"
    )
    door = guarded(say_who, settings, None, None, SystemClock())  # type: ignore[arg-type]

    async def ask() -> int:
        return (await door(visit("/", method, b"x", client=client, **sent))).status

    assert asyncio.run(ask()) in (401, 403, 415)
