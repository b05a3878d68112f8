"""The work of the jobs suite: adding, draining with four workers, going round, and what the store alone can do."""

import asyncio
import os
import subprocess
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import headwater
from benchmarks.helper import helper, receive
from benchmarks.peers import Context, load
from benchmarks.peers.job_sides import WORKERS, JobSide
from benchmarks.timing import Sample, now_ns, peak_memory_mb, summarise
from headwater.log.job_operations import Claim, ClaimedJob, JobReport, NewJob, Settle
from headwater.model.job import JobOutcome, JobState
from headwater.wakeups.inotify import watch

EVENTS_BYTES = 65_536
LOOK_SECONDS = 0.005
DRAIN_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
WAITING = 10_000
START_SECONDS = 2.0  # until the last worker is there as well


async def add_in_bulk(batch: int, name: str, context: Context) -> Sample:
    """One producer that adds jobs by the batch."""
    async with opened(name, context) as side:
        await side.add(batch)
        added, begun = 0, time.monotonic()
        while time.monotonic() - begun < context.seconds:
            await side.add(batch)
            added += batch
        return Sample(rate=added / (time.monotonic() - begun), memory_mb=peak_memory_mb())


async def drain(count: int, name: str, context: Context) -> Sample:
    """Four worker processes and jobs that wait: from the first tenth that is done to the last job."""
    async with opened(name, context) as side:
        await side.add(count)
        with running(side):
            await many_marks(side, count // 10)
            begun = time.monotonic()
            await many_marks(side, count)
            return Sample(rate=(count - count // 10) / (time.monotonic() - begun))


async def drain_commands(count: int, name: str, context: Context) -> Sample:
    """The same with programs, which leave no mark: the store is asked how many are done."""
    async with opened(name, context) as side:
        await side.add(count)
        with running(side):
            async with headwater.open(str(context.folder / "headwater.db"), housekeeping=False) as hw:
                await completed(hw, count // 10)
                begun = time.monotonic()
                await completed(hw, count)
                return Sample(rate=(count - count // 10) / (time.monotonic() - begun))


async def spawn_programs(name: str, context: Context) -> Sample:
    """The raw limit: four processes that start programs and wait for them, and do nothing else."""
    with ExitStack() as stack:
        pipes = [stack.enter_context(helper(spawn, context.seconds)) for _ in range(WORKERS)]
        for pipe in pipes:
            receive(pipe)
        for pipe in pipes:
            pipe.send("go")
        return Sample(rate=sum(receive(pipe) for pipe in pipes))


def spawn(pipe: "Connection[float | str, str]", seconds: float) -> None:
    pipe.send("ready")
    pipe.recv()
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], os.environ), 0)
        count += 1
    pipe.send(count / (time.monotonic() - begun))


async def go_round(count: int, name: str, context: Context) -> Sample:
    """One job at a time, from being added to being done, with workers that are idle."""
    async with opened(name, context) as side:
        with running(side), marks(side) as reached:
            await side.add(1)
            await reached(1)
            await asyncio.sleep(START_SECONDS)
            latencies = array("Q")
            begun = now_ns()
            for number in range(count):
                before = now_ns()
                await side.add(1)
                await reached(number + 2)
                latencies.append(now_ns() - before)
            return summarise(latencies, count, now_ns() - begun)


async def claim_and_complete(waiting: int, batch: int, name: str, context: Context) -> Sample:
    """The store alone: claim and complete by the batch while so many wait."""
    async with headwater.open(str(context.folder / "headwater.db")) as hw:
        more = NewJob(type="mark")
        for start in range(0, waiting, 10_000):
            await hw.jobs.add_many([more] * min(10_000, waiting - start))
        service, done, begun = hw.jobs_service, 0, time.monotonic()
        while time.monotonic() - begun < context.seconds:
            jobs = (await service.run(Claim(worker="w", limit=batch))).jobs
            await refill(hw, jobs)
            done += len(jobs)
        return Sample(rate=done / (time.monotonic() - begun), memory_mb=peak_memory_mb())


async def insert_only(batch: int, name: str, context: Context) -> Sample:
    """The document's first figure: new jobs a second, by the batch, in one process."""
    async with headwater.open(str(context.folder / "headwater.db")) as hw:
        more = [NewJob(type="mark")] * batch
        added, begun = 0, time.monotonic()
        while time.monotonic() - begun < context.seconds:
            await hw.jobs.add_many(more)
            added += batch
        return Sample(rate=added / (time.monotonic() - begun), memory_mb=peak_memory_mb())


async def claim_only(batch: int, name: str, context: Context) -> Sample:
    """The second: jobs that are leased a second, of those that wait."""
    async with filled(context) as hw:
        taken, seconds = 0, 0.0
        while seconds < context.seconds:
            begun = time.monotonic()
            jobs = (await hw.jobs_service.run(Claim(worker="w", limit=batch))).jobs
            seconds += time.monotonic() - begun
            taken += len(jobs)
            await refill(hw, jobs)
        return Sample(rate=taken / seconds, memory_mb=peak_memory_mb())


async def complete_only(batch: int, name: str, context: Context) -> Sample:
    """The third: jobs that are completed a second, of those that are leased."""
    async with filled(context) as hw:
        done, seconds = 0, 0.0
        while seconds < context.seconds:
            jobs = (await hw.jobs_service.run(Claim(worker="w", limit=batch))).jobs
            begun = time.monotonic()
            await complete(hw, jobs)
            seconds += time.monotonic() - begun
            done += len(jobs)
            await hw.jobs.add_many([NewJob(type="mark")] * len(jobs))
        return Sample(rate=done / seconds, memory_mb=peak_memory_mb())


@asynccontextmanager
async def filled(context: Context) -> AsyncIterator[headwater.Headwater]:
    """A store in which jobs wait."""
    async with headwater.open(str(context.folder / "headwater.db")) as hw:
        await hw.jobs.add_many([NewJob(type="mark")] * WAITING)
        yield hw


async def complete(hw: headwater.Headwater, jobs: Sequence[ClaimedJob]) -> None:
    reports = [JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED) for job in jobs]
    await hw.jobs_service.run(Settle(worker="w", reports=reports))


async def refill(hw: headwater.Headwater, jobs: Sequence[ClaimedJob]) -> None:
    """As many new jobs as were taken, which are done then: what waits stays the same."""
    await complete(hw, jobs)
    await hw.jobs.add_many([NewJob(type="mark")] * len(jobs))


@asynccontextmanager
async def opened(name: str, context: Context) -> AsyncIterator[JobSide]:
    async with load(name).open(context) as queue:
        yield cast(JobSide, queue)


@contextmanager
def running(side: JobSide) -> Iterator[None]:
    """Four worker processes, for the time of the block."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, **quiet) for command in side.workers()]  # type: ignore[call-overload]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def marks(side: JobSide) -> Iterator[Callable[[int], Awaitable[None]]]:
    """Waits until so many jobs have left their mark. The kernel tells: looking again and again would weigh in.

    One watch for all of them: to end one takes the kernel ten milliseconds and more.
    """
    path = Path(side.path)
    path.touch(0o600)
    marked = asyncio.Event()
    descriptor = watch(str(path))
    asyncio.get_running_loop().add_reader(descriptor, _marked, descriptor, marked)

    async def reached(count: int) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                while path.stat().st_size < count:
                    await marked.wait()
                    marked.clear()
        except TimeoutError:
            raise TimeoutError(f"{count:,} jobs were not done in {DRAIN_SECONDS_MAX:.0f} s") from None

    try:
        yield reached
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def many_marks(side: JobSide, count: int) -> None:
    """The same for thousands of them: to be told of each would take a core from those who leave them."""
    path = Path(side.path)
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while not path.exists() or path.stat().st_size < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count:,} jobs were not done in {DRAIN_SECONDS_MAX:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)


def _marked(descriptor: int, marked: asyncio.Event) -> None:
    os.read(descriptor, EVENTS_BYTES)
    marked.set()


async def completed(hw: headwater.Headwater, count: int) -> None:
    """Until so many jobs are completed."""
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    while sum(queue.counts.get(JobState.COMPLETED, 0) for queue in await hw.jobs.queues()) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count:,} jobs were not done in {DRAIN_SECONDS_MAX:.0f} s")
        await asyncio.sleep(0.02)
