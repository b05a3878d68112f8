"""Nobody may ask more often than allowed, and counting them takes bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.doors.access.rates import Allowances, address_key, within_rate
from headwater.doors.wire import Request
from headwater.model.allowance import Rate
from headwater.model.principal import OWNER, Principal
from tests.doors.access.visits import Hand, document, header, say_who, visit


def allowances(keys_max: int = 100) -> tuple[Allowances, Hand]:
    hand = Hand()
    return Allowances(Rate(per_second=0.5, burst=2.0), keys_max, hand), hand


def test_what_is_allowed_at_once_is_taken_and_comes_back_with_time() -> None:
    allowed, hand = allowances()
    assert [allowed.take("a") for _ in range(3)] == [0, 0, 2]
    hand.at += 2
    assert [allowed.take("a") for _ in range(2)] == [0, 2]


def test_keys_do_not_share() -> None:
    allowed, _ = allowances()
    assert [allowed.take(key) for key in "aabb"] == [0] * 4


def test_being_refused_costs_nothing() -> None:
    allowed, hand = allowances()
    for _ in range(20):
        allowed.take("a")
    hand.at += 2
    assert allowed.take("a") == 0


@given(st.lists(st.integers(0, 1_000), max_size=300))
def test_memory_is_bounded_however_many_come(keys: list[int]) -> None:
    allowed, _ = allowances(keys_max=10)
    for key in keys:
        allowed.take(key)
    assert len(allowed) <= 10


def test_the_one_that_was_quiet_for_longest_is_forgotten() -> None:
    allowed, _ = allowances(keys_max=2)
    for key in "aaba":
        allowed.take(key)
    allowed.take("c")
    assert allowed.take("a") > 0, "it came last but one, so it is still known"


@pytest.mark.parametrize(
    ("client", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::"),
        ("2001:db8:0:0:ffff::1", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_an_address_stands_for_its_host_or_network(client: str, key: str) -> None:
    assert address_key(client) == key


async def test_a_principal_is_limited_wherever_it_comes_from() -> None:
    allowed, _ = allowances()
    door = within_rate(say_who, allowed)
    alice = Principal(subject="alice")

    def ask(number: int, principal: Principal) -> Request:
        return Request(method="GET", path="/", client=f"192.0.2.{number}", principal=principal)

    assert [(await door(ask(number, alice))).status for number in range(3)] == [200, 200, 429]
    assert (await door(ask(1, Principal(subject="alice", database="other")))).status == 200
    assert [(await door(ask(9, OWNER))).status for _ in range(3)] == [200, 200, 429]
    assert (await door(ask(8, OWNER))).status == 200


async def test_who_comes_too_often_is_told_for_how_long_to_stay_away() -> None:
    allowed, _ = allowances()
    door = within_rate(say_who, allowed)
    responses = [await door(visit()) for _ in range(3)]
    assert header(responses[2], "retry-after") == "2"
    told = document(responses[2])
    assert (told["code"], told["error"]) == ("rate_exceeded", "too many requests; slow down")


async def test_what_watches_over_a_server_may_come_as_often_as_it_likes() -> None:
    allowed, _ = allowances()
    door = within_rate(say_who, allowed)
    for path in ("/health", "/ready"):
        assert [(await door(visit(path))).status for _ in range(10)] == [200] * 10
    assert [(await door(visit())).status for _ in range(3)] == [200, 200, 429]
