"""How long the store takes is measured by what it was asked for: commits by the committer, answers around the store."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import headwater
from headwater.clock import SystemClock, Timestamp
from headwater.errors import StoreBusy
from headwater.log.committer import Committer
from headwater.log.operations import Ack, Commit, Operation, Pop, Push
from headwater.log.timings import Timings
from headwater.model.histogram import FINE_STEPS, Histogram
from headwater.services.timings import timed
from headwater.stores.contract import Store, Traits
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
    """A store that does what it is told to: commits at once or later, and goes to the disk at once or later."""

    traits = Traits(name="slow", location="", engine="", several_machines=False, durable_by="")

    def __init__(self, *, waits: bool = False, refuses: bool = False) -> None:
        self._waits, self._refuses = waits, refuses
        self.synced: asyncio.Future[None] | None = None
        self.asked = asyncio.Event()

    def apply_now(self, operations: list[Operation], now: Timestamp) -> Commit | None:
        return None if self._waits or self._refuses else Commit([None] * len(operations), [], wrote=True)

    async def apply(self, operations: list[Operation], now: Timestamp) -> Commit:
        if self._refuses:
            raise StoreBusy("not now")
        return Commit([None] * len(operations), [], wrote=True)

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        self.asked.set()
        return self.synced

    async def ask(self, question: Any) -> Any:
        raise StoreBusy("not now")


def started(slow: Slow) -> tuple[Committer, Timings]:
    timings = Timings()
    committer = Committer(cast(Store, slow), SystemClock(), pending_max=100, timings=timings)
    committer.start()
    return committer, timings


@pytest.mark.parametrize("waits", [False, True])
async def test_a_commit_counts_once_for_each_kind_of_operation_in_it(waits: bool) -> None:
    committer, timings = started(Slow(waits=waits))
    pushes = [Push(queue="q", records=()) for _ in range(3)]
    for operations in ([*pushes, Pop(queue="q")], pushes, pushes[:1]):
        await asyncio.gather(*committer.submit_all(operations))
    assert {kind: sum(found.counts) for kind, found in timings.operations.items()} == {Push: 3, Pop: 1}


async def test_what_was_not_done_is_not_counted() -> None:
    slow = Slow(refuses=True)
    committer, timings = started(slow)
    for asked in (committer.submit(Pop(queue="q")), timed(cast(Store, slow), timings).ask(FindLastLsn())):
        with pytest.raises(StoreBusy):
            await asked
    assert (timings.operations, timings.questions, sum(timings.syncs.counts)) == ({}, {}, 0)


async def test_a_wait_for_the_disk_is_counted_when_it_is_over() -> None:
    slow = Slow()
    committer, timings = started(slow)
    await committer.submit(Pop(queue="q"))
    assert sum(timings.syncs.counts) == 1, "the store went to the disk at once"
    slow.synced = asyncio.get_running_loop().create_future()
    answer = committer.submit(Pop(queue="q"))
    slow.asked.clear()
    await slow.asked.wait()
    assert (answer.done(), sum(timings.syncs.counts)) == (False, 1)
    slow.synced.set_result(None)
    await answer
    assert sum(timings.syncs.counts) == 2


def test_durations_are_counted_in_the_steps_that_were_chosen() -> None:
    found = Histogram(FINE_STEPS)
    for seconds in (0.00005, 0.0002, 99.0):
        found.observe(seconds)
    steps = dict(found.cumulative())
    assert (steps["0.0001"], steps["0.00025"], steps["10.0"], steps["+Inf"]) == (1, 2, 2, 3)
