"""Jobs as a state machine: whatever is asked in whatever order, every change is one that the drawing allows.

The log is the witness: it must tell, for every job, a path through the drawing that ends where the table says. Beside
it the run remembers what jobs depend on and what those came to: whoever may still run finds all of it.
"""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.log.job_operations import (
    CancelJobs,
    ClaimedJob,
    Depart,
    DropJobs,
    Prune,
    Rescue,
    RetryJobs,
    SetJobConfig,
)
from headwater.model.job import FINISHED, JOBS_QUEUE, JobOutcome, JobState, may_follow
from headwater.stores.job_questions import JobFilter, ListJobDependencies, ListJobs
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.factories import FACTORIES, Factory
from tests.contracts.jobs import Board, shell
from tests.contracts.log import LSN_MAX, Log, payloads

NAMES = [f"job{number}" for number in range(6)]
WORKERS = ["one", "two"]
RETENTION_SECONDS = 2
# A result is kept no longer than that for anybody but those that depend on it.
RESULT_SECONDS = 1


class Step(NamedTuple):
    """Something that is asked of the store."""

    verb: str
    arguments: tuple[Any, ...] = ()


names = st.sampled_from(NAMES)
workers = st.sampled_from(WORKERS)
steps = st.one_of(
    st.builds(
        Step,
        st.just("add"),
        st.tuples(
            names,
            st.integers(0, 2),
            st.sampled_from([0, 0, 5]),
            st.sets(names, max_size=2),
            st.sampled_from(["completed", "finished"]),
        ),
    ),
    st.builds(Step, st.just("claim"), st.tuples(workers, st.integers(1, 3))),
    st.builds(Step, st.just("settle"), st.tuples(workers, st.integers(0, 20), st.sampled_from(JobOutcome))),
    st.builds(Step, st.just("advance"), st.tuples(st.sampled_from([1, 3, 20]))),
    st.builds(Step, st.just("beat"), st.tuples(workers)),
    st.builds(Step, st.just("cancel"), st.tuples(names)),
    st.builds(Step, st.just("retry"), st.tuples(names)),
    st.builds(Step, st.just("drop"), st.tuples(names)),
    st.builds(Step, st.just("drop_old"), st.tuples(st.sampled_from(sorted(FINISHED)))),
    st.just(Step("drop_all")),
    st.just(Step("retry_all")),
    st.just(Step("prune")),
    st.builds(Step, st.just("depart"), st.tuples(workers)),
    st.just(Step("rescue")),
)

# Few jobs that depend on each other, and all that can become of those: most of what is asked here does something.
FAMILY = [
    Step("add", ("job0", 0, 0, set(), "completed")),
    Step("add", ("job1", 0, 0, {"job0"}, "completed")),
    Step("add", ("job2", 0, 0, {"job1"}, "finished")),
]
kin = st.sampled_from(NAMES[:3])
steps_of_kin = st.one_of(
    st.builds(
        Step,
        st.just("add"),
        st.tuples(kin, st.just(0), st.just(0), st.sets(kin, max_size=2), st.sampled_from(["completed", "finished"])),
    ),
    st.builds(Step, st.just("work"), st.tuples(st.sampled_from([JobOutcome.COMPLETED, JobOutcome.FAILED]))),
    st.builds(Step, st.sampled_from(["cancel", "retry", "drop"]), st.tuples(kin)),
    st.builds(Step, st.just("drop_old"), st.tuples(st.sampled_from(sorted(FINISHED)))),
    st.sampled_from([Step("drop_all"), Step("retry_all"), Step("prune")]),
    st.just(Step("advance", (RETENTION_SECONDS,))),
)


class Run:
    """One run of steps against a store, with what the rules say must hold."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.claimed: list[tuple[str, ClaimedJob]] = []
        self.tokens: dict[int, int] = {}
        self.completed: dict[int, int] = {}
        # What each job of today was added to depend on, and what each came to, by id.
        self.needs: dict[str, set[str]] = {}
        self.results: dict[str, bytes] = {}

    async def take(self, step: Step) -> None:
        """Do a step; an error that is one of ours changes nothing and is no failure."""
        before = await self.states()
        try:
            await getattr(self, step.verb)(*step.arguments)
        except HeadwaterError:
            assert await self.states() == before
        counts = await self.board.counts()
        found = list((await self.states()).values())
        assert counts == {state.value: found.count(state) for state in set(found)}
        await self.check_needs()

    async def states(self) -> dict[str, JobState]:
        return {job.id: job.state for job in await self.board.log.store.ask(ListJobs("main", JobFilter()))}

    async def check_needs(self) -> None:
        """Who may still run has all that it depends on, and who waits waits for one that may yet end as it needs."""
        for name, state in (await self.states()).items():
            if state in (JobState.COMPLETED, JobState.CANCELLED):
                continue
            found = dict(await self.board.log.store.ask(ListJobDependencies("main", name)))
            assert set(found) == self.needs[name]
            if state is JobState.WAITING:
                assert set(found.values()) - {JobState.COMPLETED}

    async def add(self, name: str, retries: int, delay: float, needs: set[str], when: str) -> None:
        about = {"retries": retries, "delay": delay, "depends_on": tuple(sorted(needs)), "depends_when": when}
        await self.board.add(shell(name, backoff_base=1, backoff_jitter=0, result_ttl=RESULT_SECONDS, **about))
        self.needs[name] = needs
        self.results.pop(name, None)

    async def claim(self, worker: str, limit: int) -> None:
        for job in await self.board.claim(limit, worker, lease_seconds=10):
            assert job.token > self.tokens.get(job.number, 0)
            assert 1 <= job.attempt <= job.attempts_max
            needs = self.needs[job.id]
            results = {name: msgspec.Raw(self.results.get(name, b"null")) for name in needs}
            assert job.results == (results if needs else None)
            self.tokens[job.number] = job.token
            self.claimed.append((worker, job))

    async def settle(self, worker: str, place: int, outcome: JobOutcome) -> None:
        if not self.claimed:
            return
        holder, job = self.claimed[place % len(self.claimed)]
        result = f"{job.number}" if outcome is JobOutcome.COMPLETED else None
        (state,) = await self.board.settle(job, outcome=outcome, worker=worker, error="x", result=result)
        if state is not None:
            assert worker == holder
            assert job.token == self.tokens[job.number]
        if state is JobState.COMPLETED:
            self.completed[job.number] = self.completed.get(job.number, 0) + 1
            assert self.completed[job.number] == 1
            self.results[job.id] = b"%d" % job.number

    async def work(self, outcome: JobOutcome) -> None:
        """The next job, from its claim to its end."""
        held = len(self.claimed)
        await self.claim(WORKERS[0], 1)
        if len(self.claimed) > held:
            await self.settle(WORKERS[0], held, outcome)

    async def advance(self, seconds: float) -> None:
        self.board.log.clock.advance(seconds)

    async def beat(self, worker: str) -> None:
        await self.board.beat(worker, lease_seconds=10)

    async def cancel(self, name: str) -> None:
        await self.board.change(CancelJobs(ids=(name,)))

    async def retry(self, name: str) -> None:
        await self.board.change(RetryJobs(ids=(name,)))

    async def drop(self, name: str) -> None:
        await self.board.change(DropJobs(ids=(name,)))

    async def drop_old(self, state: JobState) -> None:
        await self.board.change(DropJobs(state=state, before=self.board.log.clock.now()))

    async def drop_all(self) -> None:
        await self.board.change(DropJobs(ids=tuple(NAMES), skip_unfit=True))

    async def retry_all(self) -> None:
        await self.board.change(RetryJobs(ids=tuple(NAMES), skip_unfit=True))

    async def prune(self) -> None:
        await self.board.change(Prune())

    async def depart(self, worker: str) -> None:
        await self.board.change(Depart(worker=worker))

    async def rescue(self) -> None:
        await self.board.change(Rescue())

    async def check_paths(self) -> None:
        """Every job's changes on the log are steps of the drawing, and end where the table says."""
        paths: dict[str, JobState] = {}
        segments = await self.board.log.store.read(0, LSN_MAX, 10_000, ("main", JOBS_QUEUE))  # type: ignore[arg-type]
        for change in (change for segment in segments for change in payloads(segment)):
            if "state" not in change:
                continue
            after, before = JobState(change["state"]), paths.get(change["id"])
            fresh = after in (JobState.PENDING, JobState.SCHEDULED, JobState.WAITING) and not change.get("attempt")
            # An id can be given again once its job was dropped: then a new path begins.
            assert (
                before is None or may_follow(before, after) or (fresh and before in ("completed", "dead", "cancelled"))
            )
            paths[change["id"]] = after
        for name, state in (await self.states()).items():
            assert paths[name] is state


async def run(factory: Factory, chosen: Sequence[Step]) -> None:
    clock = FakeClock()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        async with factory(Path(folder)) as address:
            store = open_store(address, load_config({}), clock)
            await store.open()
            try:
                machine = Run(Board(Log(store, clock)))
                await machine.board.change(SetJobConfig(name="retention", value=RETENTION_SECONDS))
                for step in chosen:
                    await machine.take(step)
                await machine.check_paths()
            finally:
                await store.close()


@pytest.mark.parametrize("name", FACTORIES)
@settings(max_examples=settings().max_examples // 4)
@given(chosen=st.lists(steps, min_size=5, max_size=40))
def test_every_change_of_a_job_is_one_that_the_drawing_allows(name: str, chosen: list[Step]) -> None:
    asyncio.run(run(FACTORIES[name], chosen))
    assert chosen


@pytest.mark.parametrize("name", FACTORIES)
@settings(max_examples=settings().max_examples // 2)
@given(chosen=st.lists(steps_of_kin, min_size=5, max_size=20))
def test_who_may_still_run_finds_what_it_depends_on_whatever_is_dropped(name: str, chosen: list[Step]) -> None:
    asyncio.run(run(FACTORIES[name], [*FAMILY, *chosen]))
    assert chosen
