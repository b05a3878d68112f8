"""The client at a server that asks who it is: the token says which queues, which database, and what may be done."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

import headwater
from headwater.app import open_door
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.errors import LeaseLost, NotAllowed, QueueMissing, Unauthenticated
from headwater.model.principal import Principal

Verb = Callable[[], Awaitable[object]]


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


@pytest.fixture
async def url(hw: headwater.Headwater) -> AsyncIterator[str]:
    async with open_door(hw, load_access(auth="token")) as door:
        edge = Edge(door)
        await edge.start("127.0.0.1", 0)
        yield f"http://127.0.0.1:{edge.port}"
        edge.abort()
        await edge.stop()


async def token(hw: headwater.Headwater, *scopes: str, database: str = "main", queues: tuple[str, ...] = ("*",)) -> str:
    _, secret = await hw.access_tokens(database).create("ada", scopes, queues=queues)
    return secret


async def test_a_client_without_a_good_token_is_told_so_at_once(url: str) -> None:
    for wrong in ("", "hw_nonsense"):
        with pytest.raises(Unauthenticated):
            await headwater.connect(url, token=wrong, retry_seconds=0).start()


async def test_a_token_allows_what_its_scopes_say(hw: headwater.Headwater, url: str) -> None:
    async with headwater.connect(url, token=await token(hw, "publish")) as client:
        await client.queue("orders").push(1)
        with pytest.raises(NotAllowed, match="consume"):
            await client.queue("orders").pop()
        with pytest.raises(NotAllowed):
            await client.queue("orders").delete()


async def test_a_token_for_some_queues_reaches_no_others(hw: headwater.Headwater, url: str) -> None:
    await hw.queue("other").push(1)
    secret = await token(hw, "admin", queues=("orders*",))
    async with headwater.connect(url, token=secret) as client:
        await client.queue("orders.eu").push(1)
        # What is not theirs looks like what is not there.
        other = client.queue("other")
        missing: list[Verb] = [partial(other.push, 2), other.pop, other.delete]
        for verb in missing:
            with pytest.raises(QueueMissing):
                await verb()
        broad: list[Verb] = [partial(client.pop, namespace="shop"), partial(client.delete_group, "g")]
        for verb in broad:
            with pytest.raises(NotAllowed):
                await verb()
        assert [status.queue for status in await client.queues()] == ["orders.eu"]
        async with client.transaction() as together:
            together.push("orders.us", 1)
        stolen = client.transaction()
        stolen.push("other", 2)
        with pytest.raises(QueueMissing):
            await stolen.commit()


async def test_the_database_is_that_of_the_token(hw: headwater.Headwater, url: str) -> None:
    secret = await token(hw, "admin", database="acme")
    await hw.queue("orders").push("ours")
    async with headwater.connect(url, token=secret) as client:
        assert await client.queue("orders").status() is None
        await client.queue("orders").push("theirs")
        [status] = await client.queues()
        assert status.database == "acme"
        [message] = await client.queue("orders").pop()
        assert message.payload == "theirs"
        await client.queue("orders").ack(message)
        [ours] = await hw.queue("orders").pop()
        with pytest.raises((QueueMissing, LeaseLost)):
            await client.queue("orders").ack(ours)
    await hw.queue("orders").ack(ours)


@pytest.mark.parametrize("said", ["", "ada", "ops (host:1)", "ada (host:1)", ") ops (", " ", "ops"])
@pytest.mark.parametrize("path", ["/v1/pop", "/api/v1/pop/queue/orders"])
async def test_who_holds_a_lease_is_who_the_token_says_whatever_the_client_says(
    hw: headwater.Headwater, url: str, path: str, said: str
) -> None:
    """No text that a client sends can stand where the name of a token stands."""
    await hw.queue("orders").push(1, partition="p")
    headers = {"authorization": f"Bearer {await token(hw, 'consume')}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as wire:
        if path == "/v1/pop":
            answer = await wire.post(path, json={"queue": "orders", "holder": said})
        else:
            answer = await wire.get(path, params={"holder": said})
        assert answer.status_code == 200, answer.text
    (lease,) = await hw.leases()
    assert lease.holder == ("ada" if not said or path != "/v1/pop" else f"ada ({said})")


async def test_our_client_is_shown_by_its_token_and_its_process(hw: headwater.Headwater, url: str) -> None:
    await hw.queue("orders").push(1, partition="p")
    async with headwater.connect(url, token=await token(hw, "consume")) as client:
        await client.queue("orders").pop()
        (lease,) = await hw.leases()
        assert lease.holder == f"ada ({socket.gethostname()[:100]}:{os.getpid()})"


def test_who_has_no_name_cannot_take_one() -> None:
    """A signed token may come without a subject."""
    assert Principal().as_holder("ops (host:1)") == "(ops (host:1))"
    assert Principal().as_holder() == ""
