"""How long the store takes is measured around it, by what it was asked for."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import headwater
from headwater.clock import Timestamp
from headwater.errors import StoreBusy
from headwater.log.operations import Ack, Commit, Operation, Pop, Push
from headwater.model.histogram import FINE_STEPS, Histogram
from headwater.services.timings import TimedStore, Timings
from headwater.stores.contract import Store
from headwater.stores.questions import FindLastLsn, ListQueues


async def test_commits_questions_and_waits_for_the_disk_are_counted_by_kind(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "a.db"), housekeeping=False) as hw:
        timings = hw.queues_service.timings
        orders = hw.queue("orders")
        await orders.push(1)
        await orders.ack(await orders.pop())
        await hw.queues()
        counted = {kind: sum(found.counts) for kind, found in timings.operations.items()}
        assert {Push, Pop, Ack} <= set(counted)
        assert counted[Push] == 1
        assert sum(timings.questions[ListQueues].counts) == 1
        assert sum(timings.syncs.counts) >= 1
        assert timings.operations[Push].total > 0


class Slow:
    """A store that does what it is told to."""

    def __init__(self, commit: Commit | None) -> None:
        self._commit = commit
        self.synced: asyncio.Future[None] | None = None

    def apply_now(self, operations: list[Operation], now: Timestamp) -> Commit | None:
        return self._commit

    async def apply(self, operations: list[Operation], now: Timestamp) -> Commit:
        if self._commit is None:
            raise StoreBusy("not now")
        return self._commit

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        return self.synced

    def landed(self) -> asyncio.Future[None] | None:
        return self.synced

    async def ask(self, question: Any) -> Any:
        raise StoreBusy("not now")


def measured(commit: Commit | None) -> tuple[TimedStore, Timings, Slow]:
    timings, slow = Timings(), Slow(commit)
    return TimedStore(cast(Store, slow), timings), timings, slow


async def test_a_commit_counts_once_for_each_kind_of_operation_in_it() -> None:
    store, timings, _ = measured(Commit([], [], wrote=True))
    pushes = [Push(queue="q", records=()) for _ in range(3)]
    assert store.apply_now([*pushes, Pop(queue="q")], Timestamp(0)) is not None
    await store.apply(pushes, Timestamp(0))
    assert {kind: sum(found.counts) for kind, found in timings.operations.items()} == {Push: 2, Pop: 1}


async def test_what_was_not_done_is_not_counted() -> None:
    store, timings, _ = measured(None)
    assert store.apply_now([Pop(queue="q")], Timestamp(0)) is None
    for asked in (store.apply([Pop(queue="q")], Timestamp(0)), store.ask(FindLastLsn())):
        with pytest.raises(StoreBusy):
            await asked
    assert (timings.operations, timings.questions, sum(timings.syncs.counts)) == ({}, {}, 0)


async def test_a_wait_for_the_disk_is_counted_when_it_is_over() -> None:
    store, timings, slow = measured(None)
    assert store.make_durable(1) is None
    assert sum(timings.syncs.counts) == 1, "the store went to the disk at once"
    slow.synced = asyncio.get_running_loop().create_future()
    assert store.make_durable(1) is slow.synced
    assert sum(timings.syncs.counts) == 1
    slow.synced.set_result(None)
    await asyncio.sleep(0)
    assert sum(timings.syncs.counts) == 2


def test_durations_are_counted_in_the_steps_that_were_chosen() -> None:
    found = Histogram(FINE_STEPS)
    for seconds in (0.00005, 0.0002, 99.0):
        found.observe(seconds)
    steps = dict(found.cumulative())
    assert (steps["0.0001"], steps["0.00025"], steps["10.0"], steps["+Inf"]) == (1, 2, 2, 3)
