"""How a worker is started."""

import os
import socket

import msgspec

from headwater.log.job_operations import WorkerAbout
from headwater.worker.loading import FunctionSources

# The exit code of a worker that ends because of a signal: whether that was its supervisor's, the supervisor knows.
TOLD_BY_SIGNAL = 10
WITHOUT_HEARTBEAT = 11


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

    def about(self) -> WorkerAbout:
        """What others are told of it."""
        return WorkerAbout(
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor=self.supervisor,
            queues=self.queues,
            concurrency=self.concurrency,
        )
