"""The protocol under a seeded scheduler: nothing is lost, nothing applied twice, and every planted bug is noticed."""

import asyncio
import random
from unittest.mock import patch

import pytest

from headwater.errors import StoreDamaged
from headwater.stores.bucket.address import BucketSettings
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.entries import Entry, Header
from headwater.stores.bucket.looking import Look, Names
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.contract import RaceLost
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges
from tests.stores.bucket.planted import BUGS, NEXT_ALONE, VOIDS, planted
from tests.stores.bucket.simulated_bucket import (
    BASE_ENTRIES,
    FIRST_PAGE,
    KEY,
    LEASE_SECONDS,
    TRAITS,
    Way,
    World,
    run_virtually,
    simulate,
)

SEEDS = 12
SEEDS_OF_A_CAMPAIGN = 2_000


def seeds(request: pytest.FixtureRequest) -> range:
    return range(SEEDS_OF_A_CAMPAIGN if request.config.getoption("--campaign") else SEEDS)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("insists", [False, True], ids=["polite", "insisting"])
@pytest.mark.parametrize("ship", ["chain", "image"])
def test_whatever_happens_on_the_way_nothing_is_lost_or_twice(
    request: pytest.FixtureRequest, ship: str, insists: bool
) -> None:
    """T2-a."""
    takeovers, bases, answered = 0, 0, 0
    for seed in seeds(request):
        run = simulate(seed, ship, insists=insists)
        takeovers += sum(broker.takeovers for broker in run.brokers)
        bases += len(run.world.bases)
        answered += sum(one.answered is not None for one in run.operations)
    # Enough has happened for this to mean something.
    assert takeovers > 2 * SEEDS
    assert bases > 2 * SEEDS
    assert answered > 20 * SEEDS


def test_who_takes_a_store_and_does_not_wait_lets_a_holder_tell_what_is_old() -> None:
    with patch("headwater.stores.bucket.chain_keeper.DRIFT", 0.0), pytest.raises(AssertionError, match="read"):
        simulate(36, "chain", insists=True)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(name: str) -> None:
    seed = BUGS[name][2]
    # Some by what the clients saw, some by the next who reads the log.
    with (
        planted(name),
        pytest.raises((AssertionError, StoreDamaged), match=r"operation|read|base|what was written"),
    ):
        simulate(seed, "chain")


class Sleeper(Way):
    """Falls asleep at its first refusal, before it can look who was first; its answer is lost as well."""

    async def create(self, key: str, data: bytes) -> str:
        try:
            return await super().create(key, data)
        except Refused:
            self.awake.clear()
            raise Unsure("it slept") from None


def holder(way: Way, lease_seconds: float = 0.0) -> ChainKeeper:
    now = asyncio.get_running_loop().time
    return ChainKeeper(Look(way, Names(KEY)), TRAITS, BucketSettings(lease_seconds=lease_seconds), now)


def one_page(number: int) -> PageChanges:
    return PageChanges({1: FIRST_PAGE, 2: number.to_bytes(8, "big") + bytes(PAGE_BYTES - 8)}, 2)


async def sleep_over_a_void() -> bool:
    """Whether a holder is told that its entry landed, whose place a void one had taken, which others may collect."""
    world = World(random.Random(0))
    world.be_kind()
    sleeper = Sleeper(world)
    first, second = holder(sleeper), holder(Way(world))
    await first.take_over()
    # Somebody's who was deposed long before.
    world.write(Names(KEY).entry(2), Entry(Header(2, 1, 77, 78)).encode())
    told = first.send(one_page(1))
    await asyncio.sleep(1)
    assert not sleeper.awake.is_set()
    await second.take_over()
    for number in range(4 * BASE_ENTRIES):
        await second.send(one_page(number))
    await asyncio.sleep(1)
    assert len(world.bases) > 2
    sleeper.awake.set()
    try:
        await told
    except RaceLost:
        return False
    return True


def test_a_sleeper_never_finds_the_place_of_a_void_entry_free() -> None:
    assert not run_virtually(sleep_over_a_void)


def test_a_collector_of_void_entries_would_let_it_answer_what_is_lost() -> None:
    with patch(*VOIDS):
        assert run_virtually(sleep_over_a_void)


class Upstream(Way):
    """What is sent waits until it may go; what is asked does not."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.free = asyncio.Event()
        self.free.set()

    async def create(self, key: str, data: bytes) -> str:
        await self.free.wait()
        return await super().create(key, data)


async def ask_beside_a_beat() -> bool:
    """Whether a holder takes the store for its own while a sign of life of its own is on the way, and others have taken
    over where that would lie, and have collected what they wrote behind it."""
    world = World(random.Random(0))
    world.be_kind()
    upstream = Upstream(world)
    first, second = holder(upstream, LEASE_SECONDS), holder(Way(world), LEASE_SECONDS)
    await first.take_over()
    await first.send(one_page(1))
    upstream.free.clear()
    await asyncio.sleep(LEASE_SECONDS)
    assert first.is_sending
    await second.take_over()
    for number in range(4 * BASE_ENTRIES):
        await second.send(one_page(number))
    await asyncio.sleep(1)
    assert len(world.bases) > 2
    confirmed = first.confirm()
    assert confirmed is not None
    try:
        await confirmed
    except RaceLost:
        return False
    return True


def test_a_holder_with_a_sign_of_life_on_its_way_notices_that_others_have_taken_over() -> None:
    assert not run_virtually(ask_beside_a_beat)


def test_a_look_at_the_next_position_alone_would_not_tell() -> None:
    with patch(*NEXT_ALONE):
        assert run_virtually(ask_beside_a_beat)


@pytest.mark.parametrize("seed", sorted({seed for _, _, seed in BUGS.values()}))
def test_without_the_bug_the_same_seeds_go_well(seed: int) -> None:
    assert simulate(seed, "chain").operations
