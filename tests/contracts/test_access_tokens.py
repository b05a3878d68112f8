"""Access tokens: kept by digest, found by id, worth nothing once revoked, and every store at the place learns of it."""

import pytest

from headwater.errors import InvalidOption, KeyReused, LeaseLost
from headwater.log.operations import AddAccessToken, Extend, RevokeAccessToken, Transaction
from headwater.model.access_token import AccessToken
from headwater.model.principal import Scope
from headwater.stores.questions import FindAccessToken, FindLastLsn, ListAccessTokens
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, push

DIGEST = "ab" * 32


def add(token_id: str = "aa", database: str = "main", **more: object) -> AddAccessToken:
    about: dict[str, object] = {"digest": DIGEST, "name": "ci", "scopes": (Scope.PUBLISH,), "queues": ("orders.*",)}
    return AddAccessToken(id=token_id, database=database, **{**about, **more})  # type: ignore[arg-type]


async def test_a_token_is_found_by_its_id_whatever_its_database(log: Log, clock: FakeClock) -> None:
    added = await log.run(add(database="tenant", scopes=(Scope.CONSUME, Scope.SUBMIT_JOBS), expires_at=clock.now() + 5))
    assert (added.id, added.created_at) == ("aa", clock.now())
    assert await log.store.ask(FindAccessToken("aa")) == AccessToken(
        id="aa",
        database="tenant",
        name="ci",
        digest=DIGEST,
        scopes=(Scope.CONSUME, Scope.SUBMIT_JOBS),
        queues=("orders.*",),
        created_at=clock.now(),
        expires_at=clock.now() + 5,  # type: ignore[arg-type]
    )
    assert await log.store.ask(FindAccessToken("ab")) is None


async def test_tokens_are_listed_by_database_oldest_first(log: Log, clock: FakeClock) -> None:
    for token_id, database in (("c", "main"), ("b", "tenant"), ("a", "main")):
        await log.run(add(token_id, database))
        clock.advance(1)
    assert [token.id for token in await log.store.ask(ListAccessTokens("main"))] == ["c", "a"]
    assert [token.id for token in await log.store.ask(ListAccessTokens("tenant"))] == ["b"]
    assert [token.id for token in await log.store.ask(ListAccessTokens())] == ["c", "b", "a"]


async def test_an_id_is_given_once_and_the_refusal_harms_no_neighbour(log: Log) -> None:
    first, second, third = await log.results(add("a", name="first"), add("a", name="second"), add("b"))
    assert first.id == "a"
    assert isinstance(second, InvalidOption)
    assert third.id == "b"
    token = await log.store.ask(FindAccessToken("a"))
    assert token is not None
    assert token.name == "first"


async def test_a_token_is_revoked_once_and_says_when(log: Log, clock: FakeClock) -> None:
    await log.run(add())
    at = clock.advance(7)
    assert (await log.run(RevokeAccessToken(id="aa"))).count == 1
    clock.advance(7)
    assert (await log.run(RevokeAccessToken(id="aa"))).count == 0
    token = await log.store.ask(FindAccessToken("aa"))
    assert token is not None
    assert token.revoked_at == at


async def test_a_token_of_another_database_cannot_be_revoked(log: Log) -> None:
    await log.run(add(database="tenant"))
    assert (await log.run(RevokeAccessToken(id="aa"))).count == 0
    assert (await log.run(RevokeAccessToken(id="bb"))).count == 0
    token = await log.store.ask(FindAccessToken("aa"))
    assert token is not None
    assert token.revoked_at is None


async def test_the_version_changes_with_tokens_and_with_nothing_else(log: Log) -> None:
    await log.push("a")
    before = log.store.access_version()
    await log.push("b")
    await log.configure(retry_limit=1)
    assert log.store.access_version() == before
    await log.run(add())
    added = log.store.access_version()
    assert added != before
    await log.run(RevokeAccessToken(id="none"))
    assert log.store.access_version() == added
    await log.run(RevokeAccessToken(id="aa"))
    assert log.store.access_version() not in (before, added)


async def test_another_store_at_the_place_learns_of_a_revocation_when_it_follows(log: Log, other: Log) -> None:
    await log.run(add())
    await other.store.touched(await other.store.ask(FindLastLsn()), 10)
    wakeup = other.store.wakeup()
    wakeup.changed()
    before = other.store.access_version()
    await log.run(RevokeAccessToken(id="aa"))
    assert wakeup.changed()
    wakeup.close()
    await other.store.touched(await other.store.ask(FindLastLsn()), 10)
    assert other.store.access_version() != before
    token = await other.store.ask(FindAccessToken("aa"))
    assert token is not None
    assert token.revoked_at is not None


async def test_a_commit_that_was_undone_leaves_no_token_and_no_version_that_comes_again(log: Log) -> None:
    await log.push("a")
    seen = [log.store.access_version()]
    lost = Extend(partition_id=(await log.push("a")).partition_id, token=99)
    with pytest.raises(LeaseLost):
        await log.run(Transaction(operations=[add(), lost]))
    assert await log.store.ask(FindAccessToken("aa")) is None
    for token_id in ("b", "c"):
        await log.run(add(token_id))
        assert log.store.access_version() not in seen
        seen.append(log.store.access_version())


async def test_tokens_are_there_after_opening_again(log: Log, open_log: OpenLog) -> None:
    await log.run(add())
    await log.results(push("a"))
    await log.store.close()
    again = await open_log()
    assert [token.id for token in await again.store.ask(ListAccessTokens())] == ["aa"]


async def test_an_idempotency_key_makes_one_token(log: Log) -> None:
    first = await log.run(add("a", key="once"))
    second = await log.run(add("a", key="once"))
    assert first == second
    with pytest.raises(KeyReused):
        await log.run(add("b", key="once"))
    assert [token.id for token in await log.store.ask(ListAccessTokens())] == ["a"]
