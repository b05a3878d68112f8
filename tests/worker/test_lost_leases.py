"""A lease that was lost while its worker waited for the store: nothing of it is started, and the worker goes on."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.config import Durability
from headwater.errors import StoreBusy
from headwater.log.committer import CommittedResult, Committer
from headwater.log.job_operations import Claim, Claimed, ClaimedJob, Depart, Heartbeat, JobReport
from headwater.log.operations import Operation
from headwater.model.job import JobNumber, JobOutcome, JobState, Work, WorkerSettings
from headwater.services.jobs import JobService
from headwater.stores.job_starts import JobStarts, read_starts, starts_path
from headwater.worker.commands import Commands
from headwater.worker.worker import Worker
from headwater.worker.worker_options import WorkerOptions
from tests.waiting import expect_soon_async
from tests.worker.bench import SECONDS, Bench

CLAIMS_MAX = 30


async def nothing() -> None:
    """Nobody comes between."""


class SlowStore:
    """The committer as a worker sees it whose store is long in answering: something else comes before the heartbeat by
    which it makes sure that its claim is on stable storage."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.seen: Counter[str] = Counter()
        self.before: Callable[[], Awaitable[None]] = nothing
        self.on_claim: Callable[[int], None] = lambda count: None

    def submit(self, operation: Operation[Any], durability: Durability = Durability.SYNCED) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._submit(operation, durability))

    async def _submit(self, operation: Operation[Any], durability: Durability) -> CommittedResult:
        kind = type(operation).__name__
        if isinstance(operation, Claim):
            self.on_claim(self.seen[kind])
        if isinstance(operation, Heartbeat) and durability is Durability.SYNCED:
            before, self.before = self.before, nothing
            await before()
        answer = await self._committer.submit(operation, durability)
        self.seen[f"{kind} {durability.value}"] += 1
        self.seen[kind] += 1
        return answer


class Scene:
    """One worker on such a store, and a ledger of what it started."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        service = bench.hw.jobs_service
        self.store = SlowStore(service.committer)
        seen = JobService(service.store, cast(Committer, self.store), service.followers, service.clock, service.config)
        self.options = WorkerOptions(id=f"slow-{os.getpid()}", database="main")
        self.worker = Worker(seen, self.options, WorkerSettings(lease=30.0, grace=0.3, output_max=4_096))
        self.store.on_claim = self._count
        self.ledger = bench.folder / "ledger"

    def _count(self, count: int) -> None:
        """A worker that claims for ever is stopped, so that the test can say so."""
        if count > CLAIMS_MAX:
            self.worker.stop()

    async def add(self, id: str, **fields: Any) -> None:
        command = f"echo {id} $HEADWATER_JOB_TOKEN >> {self.ledger}"
        await self.bench.hw.jobs.add(**{"id": id, "command": command, "retries": 0, **fields})

    def started(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    async def take_back(self) -> None:
        """Somebody takes back what the worker holds, as after the end of its lease."""
        await self.bench.hw.jobs_service.run(Depart(database="main", worker=self.options.id))

    async def claim_elsewhere(self) -> list[ClaimedJob]:
        claimed: Claimed = await self.bench.hw.jobs_service.run(Claim(database="main", worker="other", limit=10))
        return claimed.jobs

    async def state_of(self, id: str) -> JobState:
        return (await self.bench.hw.jobs.show(id)).state

    async def run(self, *ended: str) -> None:
        """Until these jobs have ended, or the worker was stopped."""
        task = asyncio.ensure_future(self.worker.run())
        for id in ended:
            waiting = asyncio.ensure_future(self.bench.hw.jobs.wait(id, SECONDS))
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        self.worker.stop()
        await asyncio.wait_for(task, SECONDS)


@pytest.fixture
def scene(bench: Bench) -> Scene:
    return Scene(bench)


async def test_what_another_has_claimed_since_is_not_started_here(scene: Scene) -> None:
    """The lease ends behind the claim, and a heartbeat that was on its way learns of it before the claim is taken."""
    taken: list[ClaimedJob] = []

    async def lose() -> None:
        await scene.take_back()
        taken.extend(await scene.claim_elsewhere())
        beats = scene.store.seen["Heartbeat written"]
        await scene.bench.hw.jobs.resume("aside")

        async def has_beaten() -> bool:
            return scene.store.seen["Heartbeat written"] > beats

        await expect_soon_async(has_beaten)

    await scene.bench.hw.jobs.pause("aside")
    await scene.add("later", queue="aside")
    await scene.add("once")
    scene.store.before = lose
    await scene.run("later")
    assert [(job.id, job.token) for job in taken] == [("once", 2)]
    assert scene.started() == ["later 1"]
    assert await scene.state_of("once") is JobState.PROCESSING


async def test_a_worker_that_lost_its_lease_behind_a_claim_gets_the_jobs_again_and_runs_them(scene: Scene) -> None:
    """It claimed them and gave them back for ever, because nobody told it that its marks were closed."""
    for number in range(7):
        await scene.add(f"job{number}")
    scene.store.before = scene.take_back
    await scene.run(*(f"job{number}" for number in range(7)))
    assert sorted(line.split()[0] for line in scene.started()) == [f"job{number}" for number in range(7)]
    assert scene.store.seen["Claim"] < CLAIMS_MAX


async def test_a_claim_that_could_not_be_made_safe_is_given_back(scene: Scene) -> None:
    """Nobody would run it otherwise for as long as the worker lives."""

    async def refuse() -> None:
        raise StoreBusy("the file is locked")

    await scene.add("once")
    scene.store.before = refuse
    await scene.run("once")
    assert await scene.state_of("once") is JobState.COMPLETED
    assert scene.started() == ["once 2"]


async def test_a_worker_whose_marks_were_closed_in_vain_begins_anew(scene: Scene) -> None:
    """Whoever wanted to take its jobs back could not commit that: the lease lives, and nothing can be started."""

    async def close() -> None:
        assert read_starts(starts_path(scene.bench.hw.store.traits.beside, scene.options.id)) is not None

    await scene.add("once")
    await scene.add("often", retries=3, backoff_base=1)
    scene.store.before = close
    await scene.run("once", "often")
    assert len([line for line in scene.started() if line.startswith("once")]) <= 1
    assert await scene.state_of("often") is JobState.COMPLETED
    assert scene.store.seen["Claim"] < CLAIMS_MAX


async def test_a_command_that_runs_when_the_lease_is_lost_is_ended_and_each_of_its_starts_is_an_attempt(
    scene: Scene,
) -> None:
    """No more, no fewer: it was started, so it is charged once, under a token of its own, and what comes late from the
    first start changes nothing."""
    jobs = scene.bench.hw.jobs
    begun = f"echo long $HEADWATER_JOB_TOKEN >> {scene.ledger}"
    await scene.add("long", command=f"{begun}; test $(wc -l < {scene.ledger}) -ge 2 || sleep 1000", retries=3)

    async def has_begun() -> bool:
        return len(scene.started()) == 1

    async def lose() -> None:
        await expect_soon_async(has_begun)
        await scene.take_back()
        # The workers are told something, and with that one learns what became of its lease.
        await jobs.pause("aside")

    losing = asyncio.ensure_future(lose())
    await scene.run("long")
    await losing
    shown = await jobs.show("long")
    assert shown.state is JobState.COMPLETED
    tokens = [line.split()[1] for line in scene.started()]
    assert shown.attempts == len(tokens) == len(set(tokens)) == 2
    assert [attempt.outcome for attempt in await jobs.attempts("long")] == ["failed", "completed"]


def job_of(token: int) -> ClaimedJob:
    work = Work(command="sleep 60" if token == 1 else "true")
    return ClaimedJob(JobNumber(1), "a", "default", "shell", token, token, 3, work)


async def test_a_job_that_comes_again_while_its_first_command_is_being_ended_is_reported_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = JobStarts.make(str(tmp_path / "starts"), 10)
    settings = WorkerSettings(lease=30.0, grace=0.3, output_max=4_096)
    commands = Commands(settings, starts, worker=f"worker-{os.getpid()}", sweeps=False)
    reports: list[JobReport] = []
    commands.on_report = reports.append
    commands.run(job_of(1))
    commands.abort("the lease was lost")
    commands.run(job_of(2))
    assert commands.count == 2
    await asyncio.wait_for(commands.closed(), SECONDS)
    starts.close()
    assert sorted((report.token, report.outcome) for report in reports) == [
        (1, JobOutcome.FAILED),
        (2, JobOutcome.COMPLETED),
    ]
    assert not caplog.records
