"""How a worker is started."""

import os
import socket

import msgspec

from headwater.log.job_operations import Capacity, Claim, WorkerAbout
from headwater.model.job import LOAD_SECONDS_MAX, LOOP_SECONDS_MAX, WorkerSettings
from headwater.worker.call_reports import FunctionSettings
from headwater.worker.loading import FunctionSources

# Exit codes of a worker, for its supervisor. Whose signal it was, the supervisor knows.
TOLD_BY_SIGNAL = 10
WITHOUT_HEARTBEAT = 11
UNLOADABLE = 12
# They could be loaded before: somebody may be changing them.
UNLOADABLE_NOW = 13


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is started. One that is alone in its process kills whatever its commands leave behind (`sweeps`)."""

    id: str
    database: str
    queues: tuple[str, ...] = ()
    concurrency: int = 1
    sources: FunctionSources = FunctionSources()
    supervisor: str = ""
    drain: bool = False
    sweeps: bool = False
    recycle_after: int = 0
    load_seconds_max: float = LOAD_SECONDS_MAX
    loop_seconds_max: float = LOOP_SECONDS_MAX

    def about(self) -> WorkerAbout:
        """What others are told of it."""
        return WorkerAbout(
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor=self.supervisor,
            queues=self.queues,
            concurrency=self.concurrency,
        )

    def claim(self, limit: int, settings: WorkerSettings, functions: frozenset[str], capacity: Capacity) -> Claim:
        """How it asks for jobs."""
        return Claim(
            database=self.database,
            worker=self.id,
            queues=self.queues,
            limit=limit,
            lease_seconds=settings.lease,
            functions=functions,
            capacity=capacity,
        )

    def functions(self, settings: WorkerSettings) -> FunctionSettings:
        """How it runs functions."""
        return FunctionSettings(
            sources=self.sources,
            concurrency=self.concurrency,
            grace_seconds=settings.grace,
            output_bytes_max=settings.output_max,
            recycle_after=self.recycle_after,
            load_seconds_max=self.load_seconds_max,
            loop_seconds_max=self.loop_seconds_max,
            worker=self.id,
        )
