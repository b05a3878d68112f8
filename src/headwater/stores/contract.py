"""What a store is, in words of the log: the same calls over a SQLite file, PostgreSQL or a bucket.

A store applies operations in one transaction (`apply`), makes what it applied survive power loss (`make_durable`), and
answers questions about what is kept. It knows nothing of waiting callers, of doors or of wake-ups. One suite,
`tests/contracts`, runs over every store.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Operation, Touch
from headwater.model.names import Lsn
from headwater.stores.questions import Answer, Question, Segment
from headwater.wakeups.contract import Wakeup


class Traits(msgspec.Struct, frozen=True):
    """What callers may need to know of a store without knowing its kind."""

    name: str
    location: str
    engine: str
    several_machines: bool
    durable_by: str


class Asked(Protocol):
    """Answers questions: a store, or a server."""

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        ...


class Chore(Protocol):
    """Something to be done again and again."""

    name: str

    async def wait(self) -> None:
        """Until it is time."""
        ...

    async def run(self) -> int:
        """Do it; how many things were done."""
        ...


class Store(Protocol):
    """One durable log and its state."""

    traits: Traits

    async def open(self) -> None:
        """Connect, check that the place is ours or empty, and bring its tables up to date."""
        ...

    async def close(self) -> None:
        """Let go of everything. What was answered stays."""
        ...

    def check(self) -> None:
        """Raises StoreReplaced when the store that was opened is no more. Cheap: it is asked every half second."""
        ...

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Like `apply`, if that needs no waiting; None, with nothing done, when it would have to wait."""
        ...

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Apply all operations in one transaction; when it raises, none of them took effect."""
        ...

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything applied so far survives power loss; None when it does already, and raises when it is
        known already that it will not. `callers` says how many wait for it."""
        ...

    def confirm(self) -> None:
        """Raises StoreReplaced when what was applied went to a store that is no more. Asked before an answer that does
        not wait for `make_durable`, which looks by itself."""
        ...

    async def recover(self) -> None:
        """After `make_durable` failed: bring what was applied to stable storage in another way, or raise."""
        ...

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question, as of a moment after everything that was committed before it was asked."""
        ...

    def changed_elsewhere(self) -> bool:
        """Whether somebody else has committed since this was last asked or `apply` last ran. Cheap."""
        ...

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        """Like `touched`, if that needs no waiting; None when it would have to wait."""
        ...

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        """The segments after `after`, in LSN order, without their records."""
        ...

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """Segments after `after` up to `through`, with records, of one (database, queue) or of all."""
        ...

    def access_version(self) -> int:
        """A number that changes when access tokens may have changed, here or elsewhere. Costs nothing.

        It follows other processes' commits as quickly as this one is woken by them.
        """
        ...

    def job_starts_path(self, worker: str) -> str:
        """Where a worker notes what it has started, for whoever takes its jobs back."""
        ...

    def jobs_ready_at(
        self, database: str, queues: Sequence[str], now: Timestamp, functions: frozenset[str] | None = None
    ) -> Timestamp | None:
        """When a claim on these queues (none: all) could get something: `now`, a later time, or None for nobody knows.

        Cheap: it is asked whenever jobs change.
        """
        ...

    def chores(self) -> Sequence[Chore]:
        """What has to be done for this store again and again, beside what every store needs."""
        ...

    def wakeup(self) -> Wakeup:
        """The best way to learn of others' commits that this store has here, as `wakeup` of the settings allows."""
        ...

    async def backup(self, path: str) -> None:
        """Write a copy of everything that is committed to a new file, while others go on. It is a store of its own."""
        ...

    async def make_room(self) -> bool:
        """Set room aside for deletes on a disk that is full; whether it is there. True where there is none to set."""
        ...

    async def examine(self) -> dict[str, Any]:
        """Facts for `headwater doctor`: sizes, settings in force, and under `problems` what is wrong."""
        ...
