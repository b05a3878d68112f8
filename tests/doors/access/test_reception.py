"""Who asks is found out once, known for a while, and forgotten the moment it is no longer so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.app import Headwater, open_door
from headwater.clock import Timestamp
from headwater.doors.access import reception
from headwater.doors.access.rates import Allowances
from headwater.doors.access.reception import KNOWN_SECONDS, Reception
from headwater.doors.access.tokens import TokenVerifier
from headwater.doors.access.verifiers import Verified
from headwater.doors.browser.routes import ROUTES as PAGE_ROUTES
from headwater.doors.wire import Request, Response
from headwater.errors import HeadwaterError, StoreBusy
from headwater.log.tail import Tail
from headwater.model.access_token import AccessToken
from headwater.model.allowance import Rate
from headwater.stores.contract import Store
from tests.contracts.clock import FakeClock
from tests.doors.access.visits import Hand, bearer, document, header, opened, say_who, visit
from tests.waiting import expect_soon_async


class CountingVerifier(TokenVerifier):
    """The verifier of tokens, which counts, and can be made to keep its answer to itself for a while."""

    def __init__(self, store: Store, tail: Tail) -> None:
        super().__init__(store, tail)
        self.count = 0
        self.failure: HeadwaterError | None = None
        self.found = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def verify(self, credential: str, now: Timestamp) -> Verified:
        self.count += 1
        if self.failure is not None:
            raise self.failure
        verified = await super().verify(credential, now)
        self.found.set()
        await self.may_answer.wait()
        return verified


class Scene:
    """A door with tokens, over a real store."""

    def __init__(self, hw: Headwater, clock: FakeClock) -> None:
        self.hw = hw
        self.clock = clock
        self.hand = Hand()
        self.verifier = CountingVerifier(hw.store, hw.tail)
        self.guesses = Allowances(Rate(per_second=1.0, burst=3.0), now=self.hand)
        self.door = Reception(say_who, [self.verifier], clock, self.guesses, self.hand)

    async def create(self, **more: float) -> tuple[AccessToken, str]:
        return await self.hw.access_tokens("tenant").create("ci", ["publish"], queues=["orders.*"], **more)

    async def has_waiter(self) -> bool:
        return self.hw.queues_service.intentions.count > 0

    async def status(self, text: str, client: str = "192.0.2.1") -> int:
        return (await self.door(visit(client=client, **bearer(text)))).status


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = FakeClock()
    async with opened(tmp_path, clock) as hw:
        yield Scene(hw, clock)


WRONG = "hw_" + "0" * 12 + "_" + "0" * 64


async def test_a_good_token_brings_its_principal_to_the_routes(scene: Scene) -> None:
    _, text = await scene.create()
    response = await scene.door(visit(**bearer(text)))
    assert document(response) == {
        "database": "tenant",
        "subject": "ci",
        "scopes": ["publish"],
        "queues": ["orders.*"],
        "rules": [],
        "claims": "",
    }


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
async def test_the_word_bearer_may_be_written_in_any_case(scene: Scene, kind: str) -> None:
    _, text = await scene.create()
    assert (await scene.door(visit(authorization=f"{kind} {text}"))).status == 200


async def test_without_a_credential_the_way_to_show_one_is_told(scene: Scene) -> None:
    response = await scene.door(visit())
    assert (response.status, response.content_type) == (401, "application/problem+json")
    assert header(response, "www-authenticate") == 'Bearer realm="headwater"'
    told = document(response)
    assert (told["code"], told["request_id"]) == ("unauthenticated", "request-1")
    assert told["error"] == told["detail"]
    assert "Authorization: Bearer" in told["error"]


@pytest.mark.parametrize(
    "value",
    [
        "Basic YWxpY2U6c2VjcmV0",
        "Bearer",
        "Bearer ",
        "Bearer  {good}",
        "Bearer {good} ",
        "Bearer {good}, Bearer {good}",
        "Bearer {good},",
        "Bearer {good}\x00",
        "{good}",
        "Token {good}",
        "Bearer \u00e9{good}",
        "Bearer {long}",
        "Bearer x",
        "Bearer a.b.c",
        "Bearer " + WRONG,
    ],
)
async def test_whatever_else_is_shown_is_refused_alike(scene: Scene, value: str) -> None:
    _, good = await scene.create()
    response = await scene.door(visit(authorization=value.format(good=good, long="a" * 8_193)))
    assert response.status == 401
    assert header(response, "www-authenticate") == 'Bearer realm="headwater", error="invalid_token"'
    assert good not in response.body.decode()


async def test_refusals_do_not_say_what_was_wrong(scene: Scene) -> None:
    token, text = await scene.create()
    last = "1" if text[-1] == "0" else "0"
    unknown, altered = [await scene.door(visit(**bearer(shown))) for shown in (WRONG, text[:-1] + last)]
    await scene.hw.access_tokens("tenant").revoke(token.id)
    revoked = await scene.door(visit(**bearer(text)))
    assert unknown.body == altered.body == revoked.body


async def test_what_watches_over_a_server_needs_no_credential_and_gets_no_rights(scene: Scene) -> None:
    for path in ("/health", "/ready"):
        response = await scene.door(visit(path))
        assert document(response)["scopes"] == []
        assert document(response)["queues"] == []
    for path in ("/metrics", "/health/", "/healthy", "//health", "/HEALTH"):
        assert (await scene.door(visit(path))).status == 401


async def test_what_pages_are_made_of_needs_no_credential_and_gets_no_rights(scene: Scene) -> None:
    """No `import` of a page can send one."""
    for path in [route.path for route in PAGE_ROUTES]:
        for headers in ({}, bearer("hw_wrong")):
            response = await scene.door(visit(path, **headers))
            assert (document(response)["scopes"], document(response)["queues"]) == ([], [])
    for path in ("/demo", "/headwater", "/headwater.json", "/headwater.js/x", "//demo/todo"):
        assert (await scene.door(visit(path))).status == 401


# ── knowing and forgetting ──


async def test_a_token_is_looked_up_once_while_nothing_changes(scene: Scene) -> None:
    _, text = await scene.create()
    for _ in range(5):
        assert await scene.status(text) == 200
    assert scene.verifier.count == 1
    await scene.hw.queue("orders").push(1)
    assert await scene.status(text) == 200
    assert scene.verifier.count == 1


async def test_knowing_a_token_ends_after_a_while(scene: Scene) -> None:
    _, text = await scene.create()
    await scene.status(text)
    scene.hand.at += KNOWN_SECONDS
    assert await scene.status(text) == 200
    assert scene.verifier.count == 2


async def test_a_revoked_token_is_refused_at_once(scene: Scene) -> None:
    token, text = await scene.create()
    assert await scene.status(text) == 200
    await scene.hw.access_tokens("tenant").revoke(token.id)
    assert await scene.status(text) == 401


async def test_a_token_that_another_process_revokes_is_refused_as_soon_as_the_tail_knows(
    scene: Scene, tmp_path: Path
) -> None:
    # Its looks at the file would hear of it half a second later; that is not what is shown here.
    await scene.hw.sentinel.close()
    token, text = await scene.create()
    assert await scene.status(text) == 200
    async with opened(tmp_path, scene.clock) as other:
        await other.access_tokens("tenant").revoke(token.id)

        async def is_refused() -> bool:
            return await scene.status(text) == 401

        await expect_soon_async(is_refused)


async def test_a_revocation_while_the_token_is_being_looked_up_is_not_missed(scene: Scene) -> None:
    token, text = await scene.create()
    scene.verifier.may_answer.clear()
    entering = asyncio.ensure_future(scene.status(text))
    await scene.verifier.found.wait()
    await scene.hw.access_tokens("tenant").revoke(token.id)
    scene.verifier.may_answer.set()
    assert await entering == 200, "it was good when it was looked up"
    assert await scene.status(text) == 401


async def test_a_known_token_ends_with_its_time(scene: Scene) -> None:
    _, text = await scene.create(lifetime_seconds=10)
    assert await scene.status(text) == 200
    scene.clock.advance(9.9)
    assert await scene.status(text) == 200
    scene.clock.advance(0.1)
    assert await scene.status(text) == 401


async def test_only_so_many_are_known_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "KNOWN_MAX", 3)
    texts = [(await scene.create())[1] for _ in range(5)]
    for text in texts:
        assert await scene.status(text) == 200
    assert len(scene.door) == 3
    assert await scene.status(texts[0]) == 200
    assert scene.verifier.count == 6


async def test_what_is_not_good_is_not_remembered(scene: Scene) -> None:
    await scene.status(WRONG)
    assert len(scene.door) == 0


# ── guessing ──


async def test_whoever_guesses_is_told_to_wait(scene: Scene) -> None:
    for _ in range(3):
        assert await scene.status(WRONG) == 401
    response = await scene.door(visit(**bearer(WRONG)))
    assert response.status == 429
    assert header(response, "retry-after") == "1"
    assert document(response)["code"] == "rate_exceeded"
    scene.hand.at += 1
    assert await scene.status(WRONG) == 401
    assert await scene.status(WRONG) == 429


async def test_many_guesses_at_once_are_no_more_than_one_after_the_other(scene: Scene) -> None:
    statuses = await asyncio.gather(*(scene.status(WRONG) for _ in range(50)))
    assert sorted(statuses) == [401] * 3 + [429] * 47


async def test_a_credential_that_is_good_passes_whoever_guesses_beside_it(scene: Scene) -> None:
    _, text = await scene.create()
    assert await scene.status(text) == 200
    for _ in range(10):
        await scene.status(WRONG)
    assert await scene.status(text) == 200, "known before, from the same address"
    scene.hand.at += KNOWN_SECONDS
    for _ in range(10):
        await scene.status(WRONG)
    assert await scene.status(text) == 200, "known before, and verified again"
    _, fresh = await scene.create()
    assert await scene.status(fresh) == 200, "never seen before, from an address that has no guesses left"
    assert await scene.status(WRONG) == 429


async def test_good_tokens_are_no_guesses(scene: Scene) -> None:
    for _ in range(10):
        _, text = await scene.create()
        assert await scene.status(text) == 200


async def test_addresses_of_one_network_guess_together(scene: Scene) -> None:
    statuses = [await scene.status(WRONG, client=f"2001:db8:0:1::{number}") for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert await scene.status(WRONG, client="2001:db8:0:2::1") == 401


async def test_the_log_says_why_and_not_what(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    token, text = await scene.create()
    await scene.hw.access_tokens("tenant").revoke(token.id)
    await scene.status(text)
    assert "request request-1 from 192.0.2.1 refused: the token is revoked" in caplog.text
    assert text not in caplog.text


# ── what happens meanwhile ──


async def test_a_store_that_does_not_answer_is_no_guess_and_no_open_door(scene: Scene) -> None:
    _, text = await scene.create()
    scene.verifier.failure = StoreBusy("opening /secret/place")
    for _ in range(10):
        response = await scene.door(visit(**bearer(text)))
        assert (response.status, document(response)["code"]) == (503, "store_busy")
        assert "secret" not in response.body.decode()
    scene.verifier.failure = None
    assert await scene.status(text) == 200


async def test_what_a_waiting_pop_got_is_not_given_to_who_was_revoked_meanwhile(scene: Scene) -> None:
    token, text = await scene.hw.access_tokens("tenant").create("worker", ["consume"])
    orders = scene.hw.database("tenant").queue("orders")
    async with open_door(scene.hw) as routes:
        door = Reception(routes, [scene.verifier], scene.clock, scene.guesses, scene.hand)
        asked = msgspec.structs.replace(
            visit("/api/v1/pop/queue/orders", **bearer(text)), query="wait=true&timeout=60000"
        )
        waiting = asyncio.ensure_future(door(asked))
        await expect_soon_async(scene.has_waiter)
        await scene.hw.access_tokens("tenant").revoke(token.id)
        await orders.push("secret")
        response = await waiting
    assert response.status == 401
    assert b"secret" not in response.body

    async def is_back() -> bool:
        messages = await orders.pop()
        return [(message.payload, message.attempts) for message in messages] == [("secret", 1)]

    await expect_soon_async(is_back)


async def test_what_was_done_is_answered_even_if_the_token_was_revoked_meanwhile(scene: Scene) -> None:
    token, text = await scene.create()

    async def do(request: Request) -> Response:
        await scene.hw.access_tokens("tenant").revoke(token.id)
        return await say_who(request)

    door = Reception(do, [scene.verifier], scene.clock, scene.guesses, scene.hand)
    assert (await door(visit(**bearer(text)))).status == 200
    assert (await door(visit(**bearer(text)))).status == 401


PATIENCE_SECONDS = 30
WAITS = {
    "a pop with nothing": ("GET", "/api/v1/pop/queue/orders", "wait=true&timeout=60000", b""),
    "a pop of our own wire": ("POST", "/v1/pop", "", b'{"queue": "orders", "wait_seconds": 60}'),
    "the log": ("GET", "/v1/segments", "queue=orders&after=0&limit=10&wait_seconds=60", b""),
    "a job": ("GET", "/v1/jobs/wait", "id=job-1&seconds=60", b""),
    "a job for everybody": ("GET", "/api/v1/jobs/job-1/wait", "seconds=60", b""),
}


@pytest.mark.parametrize("kind", WAITS)
async def test_whoever_is_revoked_while_waiting_is_told_so_and_nothing_else(scene: Scene, kind: str) -> None:
    method, path, query, body = WAITS[kind]
    token, text = await scene.hw.access_tokens("tenant").create("worker", ["admin", "operator"])
    tenant = scene.hw.database("tenant")
    await tenant.jobs.add(id="job-1", type="secret:job")
    parked = asyncio.Event()
    async with open_door(scene.hw) as routes:
        door = Reception(routes, [scene.verifier], scene.clock, scene.guesses, scene.hand)
        asked = msgspec.structs.replace(
            visit(path, content_type="application/json", **bearer(text)),
            method=method,
            query=query,
            body=body,
            park=parked.set,
        )
        waiting = asyncio.ensure_future(door(asked))
        await asyncio.wait_for(parked.wait(), PATIENCE_SECONDS)
        await scene.hw.access_tokens("tenant").revoke(token.id)
        scene.hw.queues_service.intentions.drain()
        await tenant.queue("orders").push("secret")
        await tenant.jobs.cancel("job-1")
        response = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert response.status == 401, response.body
    assert b"secret" not in response.body


async def test_a_pop_that_acks_what_it_brings_takes_nothing_for_who_was_revoked_before(scene: Scene) -> None:
    token, text = await scene.hw.access_tokens("tenant").create("worker", ["consume"])
    orders = scene.hw.database("tenant").queue("orders")
    async with open_door(scene.hw) as routes:
        door = Reception(routes, [scene.verifier], scene.clock, scene.guesses, scene.hand)
        query = "wait=true&timeout=60000&autoAck=true"
        waiting = asyncio.ensure_future(
            door(msgspec.structs.replace(visit("/api/v1/pop/queue/orders", **bearer(text)), query=query))
        )
        await expect_soon_async(scene.has_waiter)
        await scene.hw.access_tokens("tenant").revoke(token.id)
        await orders.push("once")
        response = await waiting
    assert response.status == 401
    assert b"once" not in response.body
    assert [message.payload for message in await orders.pop()] == ["once"]


async def test_a_pop_that_acks_what_it_brings_is_answered_because_nobody_else_gets_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed before the token was revoked, and the answer is on its way."""
    popped = scene.hw.queues_service.pop_batches

    async def revoke_behind(*arguments: Any, **options: Any) -> Any:
        found = await popped(*arguments, **options)
        await scene.hw.access_tokens("tenant").revoke(token.id)
        return found

    monkeypatch.setattr(scene.hw.queues_service, "pop_batches", revoke_behind)
    token, text = await scene.hw.access_tokens("tenant").create("worker", ["consume"])
    async with open_door(scene.hw) as routes:
        door = Reception(routes, [scene.verifier], scene.clock, scene.guesses, scene.hand)
        query = "wait=true&timeout=60000&autoAck=true"
        waiting = asyncio.ensure_future(
            door(msgspec.structs.replace(visit("/api/v1/pop/queue/orders", **bearer(text)), query=query))
        )
        await expect_soon_async(scene.has_waiter)
        await scene.hw.database("tenant").queue("orders").push("once")
        response = await waiting
    assert response.status == 200
    assert b"once" in response.body


async def test_a_stream_of_events_ends_for_whoever_is_revoked(scene: Scene) -> None:
    token, text = await scene.hw.access_tokens("tenant").create("watcher", ["admin"])
    tenant = scene.hw.database("tenant")
    async with open_door(scene.hw) as routes:
        door = Reception(routes, [scene.verifier], scene.clock, scene.guesses, scene.hand)
        response = await door(visit("/api/v1/job-events", **bearer(text)))
        assert response.chunks is not None
        assert await anext(response.chunks) == b": jobs\n\n"
        await tenant.jobs.add(id="seen", type="a:b")
        assert b"seen" in await anext(response.chunks)
        await scene.hw.access_tokens("tenant").revoke(token.id)
        await tenant.jobs.add(id="unseen", type="a:b")
        assert [chunk async for chunk in response.chunks] == []
