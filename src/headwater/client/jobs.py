"""Serves the jobs of the interfaces from afar: their operations and questions as they are, and waiting for an end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast
from urllib.parse import urlencode

import msgspec

from headwater.client.exchange import Exchange, decoder_of
from headwater.client.wire import Wire
from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.errors import JobMissing, QueueMissing
from headwater.log.operations import Operation
from headwater.model.job import FINISHED, JobState
from headwater.stores.job_questions import FindJob
from headwater.stores.questions import Answer, Question

# As with waiting pops: what stands between may hang up on a connection that is quiet for longer.
SLICE_SECONDS = 20.0


@contextmanager
def jobs_missing() -> Iterator[None]:
    """What is not there is told in the same words for queues and jobs; here it is a job, or its queue or schedule."""
    try:
        yield
    except QueueMissing as error:
        raise JobMissing(str(error)) from error


class Known(Protocol):
    """What a client knows of its server, as of its last answer."""

    @property
    def config(self) -> Config:
        """The server's bounds."""
        ...

    @property
    def clock(self) -> Clock:
        """The server's time."""
        ...


class RemoteJobs:
    """The jobs that a server lets this client use. The database is that of the token, whatever is named."""

    def __init__(self, exchange: Exchange, wire: Wire, known: Known) -> None:
        self._wire = wire
        self._known = known
        self.store = RemoteJobQuestions(wire)
        self.waits = RemoteJobWaits(exchange, known)

    @property
    def config(self) -> Config:
        """The server's bounds."""
        return self._known.config

    @property
    def clock(self) -> Clock:
        """The server's time."""
        return self._known.clock

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        """One operation, and what it came to."""
        with jobs_missing():
            return await self._wire.run(operation)


class RemoteJobQuestions:
    """What can be asked about jobs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def ask(self, question: Question[Answer]) -> Answer:
        """What the server answers to a question about jobs; what is not there is None where that is an answer."""
        try:
            with jobs_missing():
                return await self._wire.ask(question)
        except JobMissing:
            if isinstance(question, FindJob):
                return cast(Answer, None)
            raise


class _Ended(msgspec.Struct, frozen=True):
    """What is read of a job that is waited for."""

    state: JobState


_ended = decoder_of(_Ended)


class RemoteJobWaits:
    """Waiting for jobs to end, some seconds at a time."""

    def __init__(self, exchange: Exchange, known: Known) -> None:
        self._exchange = exchange
        self._known = known

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while True:
            left = SLICE_SECONDS if deadline is None else max(deadline - loop.time(), 0)
            seconds = min(left, SLICE_SECONDS, self._known.config.wait_seconds_max)
            target = f"/v1/jobs/wait?{urlencode({'id': name, 'seconds': f'{seconds:.6f}'})}"
            with jobs_missing():
                job = await self._exchange.ask("GET", target, b"", _ended, wait_seconds=seconds)
            if job.state in FINISHED:
                return job.state
            if deadline is not None and loop.time() >= deadline:
                raise TimeoutError
