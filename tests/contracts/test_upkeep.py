"""What a store must do besides operations: open and close, become durable, recover, keep itself in order."""

import asyncio

import pytest

from headwater.errors import Closed, HeadwaterError
from headwater.log.committer import Committer
from headwater.log.operations import Configure, Operation, Pop
from headwater.stores.questions import FindLastLsn, ListQueues
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, payloads, push, until_durable


class Strange(Operation, frozen=True, kw_only=True):
    """An operation that no store knows: applying it is a bug, and the whole commit must be undone."""


async def test_what_was_applied_becomes_durable(log: Log) -> None:
    await log.push(1)
    await asyncio.wait_for(until_durable(log.store, 1), 30)
    await asyncio.wait_for(asyncio.gather(*[until_durable(log.store, 5) for _ in range(10)]), 30)
    assert await log.drain() == [1]


async def test_a_store_that_applies_at_once_answers_like_one_that_waits(log: Log) -> None:
    commit = log.store.apply_now([push(1), Pop(queue="orders")], log.clock.now())
    if commit is None:
        commit = await log.commit(push(1), Pop(queue="orders"))
    pushed, popped = commit.results
    assert pushed.offsets() == [0]
    assert payloads(popped.batches[0]) == [1]


async def test_a_commit_that_breaks_leaves_no_trace(log: Log) -> None:
    await log.push("before", ids=["1"])
    with pytest.raises(Exception, match="Strange"):
        await log.commit(
            Configure(queue="orders", options={"retry_limit": 9}),
            push("undone", ids=["2"]),
            push("undone", queue="bills"),
            Pop(queue="orders", batch=10),
            Strange(),
        )
    assert [status.queue for status in await log.store.ask(ListQueues("main"))] == ["orders"]
    assert (await log.queue()).options.retry_limit == 3
    pushed = await log.push("after", ids=["2"])
    assert (pushed.offsets(), pushed.duplicates) == ([1], {})
    assert pushed.lsn == await log.store.ask(FindLastLsn()) == 2
    batch = await log.take(10)
    assert (payloads(batch), batch.attempts) == (["before", "after"], 1)


async def test_an_operation_that_breaks_a_commit_does_not_take_its_neighbours_with_it(log: Log) -> None:
    committer = Committer(log.store, log.clock, pending_max=100)
    committer.start()
    asked: list[Operation] = [push(number) for number in range(5)]
    answers = committer.submit_all([*asked[:3], Strange(), *asked[3:]])
    results = await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), 30)
    await committer.close()
    assert [place for place, result in enumerate(results) if isinstance(result, Exception)] == [3]
    assert await log.drain() == [0, 1, 2, 3, 4]


async def test_a_commit_that_breaks_does_not_disturb_another_store(log: Log, other: Log) -> None:
    await other.push("theirs")
    with pytest.raises(Exception, match="Strange"):
        await log.commit(push("undone"), Strange())
    assert (await other.push("theirs too")).offsets() == [1]
    assert await log.drain() == ["theirs", "theirs too"]


async def test_recovering_keeps_everything(log: Log) -> None:
    await log.push(1)
    await log.store.recover()
    await log.push(2)
    assert await log.drain() == [1, 2]


async def test_upkeep_keeps_everything(log: Log) -> None:
    for number in range(20):
        await log.push(number)
        if number % 5 == 0:
            for chore in log.store.chores():
                assert await chore.run() >= 0
    assert await log.drain() == list(range(20))
    assert (await log.store.examine()).problems == []


async def test_a_closed_store_takes_nothing(log: Log) -> None:
    await log.store.close()
    with pytest.raises(Closed):
        await log.push(1)
    await log.store.close()


async def test_a_store_tells_what_it_is(log: Log, address: str) -> None:
    traits = log.store.traits
    assert traits.name
    assert traits.engine
    assert traits.durable_by


async def test_a_store_is_opened_again_and_again(log: Log, open_log: OpenLog) -> None:
    for number in range(5):
        again = await open_log()
        assert (await again.push(number)).offsets() == [number]
        await again.store.close()
    assert await log.drain() == [0, 1, 2, 3, 4]


async def test_an_error_leaves_no_trace_in_the_answers_of_others(log: Log) -> None:
    await log.configure("small", size_max=1)
    results = await log.results(*[push(number, queue="small") for number in range(3)], push("fine"))
    assert [isinstance(result, HeadwaterError) for result in results] == [False, True, True, False]
