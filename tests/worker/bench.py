"""A worker in this process, as the tests hold it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import headwater
from headwater.model.job import JobState, WorkerSettings
from headwater.stores.job_questions import JobStatus
from headwater.worker.loading import FunctionSources
from headwater.worker.worker import Worker
from headwater.worker.worker_options import WorkerOptions

SECONDS = 120.0
FUNCTIONS = "tests.worker.functions:app"


class Bench:
    """Jobs of one store, and workers for them."""

    def __init__(self, hw: headwater.Headwater, folder: Path) -> None:
        self.hw = hw
        self.folder = folder

    def worker(self, id: str = "worker-1", lease: float = 30.0, **options: Any) -> Worker:
        """A worker that has not begun. What a lost worker left running is killed by its name, all over the machine: so
        names are this process's own."""
        named = {name: options.pop(name) for name in FunctionSources.__struct_fields__ if name in options}
        sources = FunctionSources(**{"app": FUNCTIONS, **named})
        chosen = WorkerOptions(id=f"{id}-{os.getpid()}", database="main", sources=sources, **options)
        settings = WorkerSettings(lease=lease, grace=0.3, output_max=4_096)
        return Worker(self.hw.jobs_service, chosen, settings)

    async def drain(self, **options: Any) -> int:
        """Run everything that is there."""
        return await asyncio.wait_for(self.worker(drain=True, **options).run(), SECONDS)

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs until the block ends."""
        worker = self.worker(**options)
        task = asyncio.get_running_loop().create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(task, SECONDS)

    async def run(self, **fields: Any) -> JobStatus:
        """One job, run to its end."""
        job = await self.hw.jobs.add(**{"retries": 0, **fields})
        await self.drain()
        return await self.hw.jobs.show(job.id)

    async def ended(self, id: str) -> JobState:
        """The state in which a job ends."""
        return await self.hw.jobs.wait(id, SECONDS)
