"""Access that is withdrawn while somebody waits: what comes later is not told them, and others get it.

A token can be revoked, and access rules can take a collection's log away. Every way to wait is tried: pops of both
wires, with leases and without, the log of a queue, and events.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from headwater.app import Headwater, make_guarded_door
from headwater.doors.access import keys
from headwater.doors.access.settings import load_access
from headwater.doors.wire import Handler, Response
from headwater.model.document import changes_queue
from headwater.model.document_rules import DocumentRule
from tests.contracts.clock import FakeClock
from tests.doors.access.issuer import EXPECTED, NOW, public_jwk, rs256, write_jwks
from tests.doors.access.visits import bearer, opened, visit
from tests.waiting import expect_soon_async

LOG = changes_queue("notes")
SECRET = "the secret"
LIFETIME_SECONDS = 3_600
SCOPES = ["documents:read", "subscribe", "consume"]


class Office:
    """A server, and somebody who waits there."""

    def __init__(self, hw: Headwater, door: Handler, clock: FakeClock, keys: Path) -> None:
        self.hw = hw
        self._door = door
        self.clock = clock
        self.keys = keys
        self.id = self.token = ""

    async def ask(self, method: str, path: str, query: str = "", body: Any = None) -> Response:
        text = b"" if body is None else msgspec.json.encode(body)
        request = visit(path, method, text, **{**bearer(self.token), "content_type": "application/json"})
        return await self._door(msgspec.structs.replace(request, query=query))

    async def waits(self) -> None:
        """Until somebody waits."""

        async def is_waiting() -> bool:
            followers = self.hw.queues_service.followers
            return bool(self.hw.queues_service.intentions.count or followers.under_way)

        await expect_soon_async(is_waiting)

    async def withdraw_by_rules(self) -> None:
        await self.hw.set_document_rules([DocumentRule(pattern="notes", read="owner == auth.sub")])

    async def withdraw_by_revoking(self) -> None:
        await self.hw.access_tokens().revoke(self.id)

    async def withdraw_by_time(self) -> None:
        self.clock.advance(2 * LIFETIME_SECONDS)

    async def withdraw_by_keys(self) -> None:
        write_jwks(self.keys, public_jwk("rsa-new"))


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    clock = FakeClock()
    async with opened(tmp_path, clock) as hw:
        office = Office(hw, make_guarded_door(hw, load_access(auth="token")), clock, tmp_path)
        made, office.token = await hw.access_tokens().create("ada", SCOPES, lifetime_seconds=LIFETIME_SECONDS)
        office.id = made.id
        yield office


@pytest.fixture
async def issuers_office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Office]:
    """One that takes JSON web tokens, and looks for other keys at every turn."""
    monkeypatch.setattr(keys, "LOOK_SECONDS", 0.0)
    clock, file = FakeClock(), tmp_path / "keys.json"
    write_jwks(file, public_jwk("rsa"))
    access = load_access(
        auth="jwt",
        jwt_algorithms="RS256",
        jwt_keys_file=str(file),
        jwt_audience="headwater",
        jwt_issuer=EXPECTED.issuer,
    )
    async with opened(tmp_path, clock) as hw:
        office = Office(hw, make_guarded_door(hw, access), clock, file)
        office.token = rs256(exp=NOW + LIFETIME_SECONDS)
        yield office


def queen_pop(office: Office, queue: str, *, auto_ack: bool) -> Awaitable[Response]:
    query = f"wait=true&timeout=30000&consumerGroup=g&autoAck={str(auto_ack).lower()}"
    return office.ask("GET", f"/api/v1/pop/queue/{quote(queue, safe='')}", query)


def native_pop(office: Office, queue: str, *, auto_ack: bool) -> Awaitable[Response]:
    body = {"queue": queue, "group": "g", "auto_ack": auto_ack, "wait_seconds": 30}
    return office.ask("POST", "/v1/pop", body=body)


def segments(office: Office, queue: str, *, auto_ack: bool) -> Awaitable[Response]:
    return office.ask("GET", "/v1/segments", f"queue={quote(queue, safe='')}&after=0&wait_seconds=30")


WAYS: dict[str, Callable[..., Awaitable[Response]]] = {
    "queen pop": queen_pop,
    "native pop": native_pop,
    "segments": segments,
}
WITHDRAWN = {
    "rules": Office.withdraw_by_rules,
    "revoked": Office.withdraw_by_revoking,
    "expired": Office.withdraw_by_time,
}


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("withdraw", WITHDRAWN)
@pytest.mark.parametrize("way", WAYS)
async def test_who_waits_for_what_is_withdrawn_is_told_nothing_of_it(
    office: Office, way: str, withdraw: str, auto_ack: bool
) -> None:
    waiting = asyncio.ensure_future(WAYS[way](office, LOG, auto_ack=auto_ack))
    await office.waits()
    await WITHDRAWN[withdraw](office)
    await office.hw.collection("notes").create({"owner": "bob", "text": SECRET}, id="n1")
    response = await waiting
    assert SECRET.encode() not in response.body
    if response.status == 200:
        assert msgspec.json.decode(response.body)["batches"] == []
    else:
        assert response.status in (204, 401, 404)
    again = await WAYS[way](office, LOG, auto_ack=auto_ack)
    assert again.status in (401, 403, 404)
    # Nothing of it is leased or lost: somebody who may read it gets it.
    (message,) = await office.hw.queue(LOG).pop(group="g", batch=10)
    assert SECRET in str(message.payload)


@pytest.mark.parametrize("auto_ack", [False, True])
@pytest.mark.parametrize("withdraw", [Office.withdraw_by_time, Office.withdraw_by_keys])
@pytest.mark.parametrize("way", [queen_pop, native_pop])
async def test_who_waits_with_a_token_that_is_good_no_more_takes_nothing(
    issuers_office: Office, way: Any, withdraw: Any, auto_ack: bool
) -> None:
    office = issuers_office
    waiting = asyncio.ensure_future(way(office, "orders", auto_ack=auto_ack))
    await office.waits()
    await withdraw(office)
    await office.hw.queue("orders").push(SECRET)
    response = await waiting
    assert (response.status, SECRET.encode() in response.body) == (401, False)
    (message,) = await office.hw.queue("orders").pop(group="g", batch=10, wait=5)
    assert message.payload == SECRET


@pytest.mark.parametrize("way", WAYS)
async def test_who_waits_for_something_else_gets_it(office: Office, way: str) -> None:
    """At once, or when they ask again: who may read what was changed, not what they may read."""
    waiting = asyncio.ensure_future(WAYS[way](office, "orders", auto_ack=False))
    await office.waits()
    await office.withdraw_by_rules()
    await office.hw.queue("orders").push("here")
    response = await waiting
    if b"here" not in response.body:
        assert response.status in (200, 204)
        response = await WAYS[way](office, "orders", auto_ack=False)
    assert b"here" in response.body


async def test_a_lease_that_was_given_before_the_rules_came_is_taken_back(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules are set between the commit of the pop and its answer."""
    popped = office.hw.queues_service.pop_batches

    async def late(*arguments: Any, **options: Any) -> Any:
        found = await popped(*arguments, **options)
        if found.batches:
            await office.withdraw_by_rules()
        return found

    monkeypatch.setattr(office.hw.queues_service, "pop_batches", late)
    waiting = asyncio.ensure_future(queen_pop(office, LOG, auto_ack=False))
    await office.waits()
    await office.hw.collection("notes").create({"owner": "bob", "text": SECRET}, id="n1")
    response = await waiting
    assert response.status == 404
    assert SECRET.encode() not in response.body
    (message,) = await office.hw.queue(LOG).pop(group="g", batch=10, wait=5)
    assert SECRET in str(message.payload)
