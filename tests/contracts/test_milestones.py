"""Named work in numbered steps: each step takes effect once, together with what it did."""

import pytest

from headwater.errors import AlreadyReached
from headwater.log.operations import Reach, Reached, Transaction
from headwater.stores.questions import FindMilestone
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, push


def step(number: int, *payloads: int, name: str = "work") -> Transaction:
    return Transaction(operations=[Reach(name=name, number=number, note=f"of {len(payloads)}"), push(*payloads)])


async def test_a_step_is_taken_once_with_what_it_did(log: Log) -> None:
    await log.run(step(0, 1, 2))
    with pytest.raises(AlreadyReached, match="step 0 was taken before") as refused:
        await log.run(step(0, 1, 2))
    assert (refused.value.number, refused.value.note) == (0, "of 2")
    await log.run(step(1, 3))
    with pytest.raises(AlreadyReached):
        await log.run(step(0, 1, 2))
    assert await log.drain() == [1, 2, 3]
    assert await log.store.ask(FindMilestone("main", "work")) == 1


async def test_steps_of_the_same_commit_are_told_apart(log: Log) -> None:
    first, again, next_one = await log.results(step(7, 1), step(7, 2), step(8, 3))
    assert first.results[0] == Reached(before=None)
    assert isinstance(again, AlreadyReached)
    assert next_one.results[0] == Reached(before=7)
    assert await log.drain() == [1, 3]


async def test_work_of_another_name_or_database_has_its_own_steps(log: Log) -> None:
    await log.run(Reach(name="work", number=5))
    assert await log.run(Reach(name="other", number=5)) == Reached(before=None)
    assert await log.run(Reach(name="work", number=5, database="tenant")) == Reached(before=None)
    assert await log.store.ask(FindMilestone("main", "unknown")) is None


async def test_a_step_that_fails_is_not_taken(log: Log) -> None:
    await log.configure(size_max=1)
    (refused,) = await log.results(step(0, 1, 2))
    assert isinstance(refused, Exception)
    assert await log.store.ask(FindMilestone("main", "work")) is None


async def test_another_store_knows_the_steps(log: Log, open_log: OpenLog) -> None:
    await log.run(step(3, 1))
    later = await open_log()
    with pytest.raises(AlreadyReached):
        await later.run(step(3, 1))
