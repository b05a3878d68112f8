"""What `Jobs` asks of whoever serves it: the jobs of an open store, or of a server over HTTP."""

from typing import Protocol

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.log.operations import Operation, Result
from headwater.model.job import JobState
from headwater.stores.contract import Answerer


class Waiting(Protocol):
    """Waits for jobs to end."""

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        ...


class JobVerbs(Protocol):
    """Takes operations on jobs, answers questions about them, and waits for them."""

    @property
    def store(self) -> Answerer:
        """Answers questions."""
        ...

    @property
    def waits(self) -> Waiting:
        """Waits."""
        ...

    @property
    def clock(self) -> Clock:
        """The time where the jobs are."""
        ...

    @property
    def config(self) -> Config:
        """The bounds."""
        ...

    async def run(self, operation: Operation[Result], durability: Durability | None = None) -> Result:
        """One operation, and what it came to."""
        ...
