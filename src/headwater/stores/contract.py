"""What a store is, in words of the log: the same calls over a SQLite file, PostgreSQL or a bucket.

A store applies operations in one transaction (`apply`), makes what it applied survive power loss (`make_durable`), and
answers questions about what is kept. It knows nothing of waiting callers, of doors or of wake-ups. One suite,
`tests/contracts`, runs over every store.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from headwater.clock import Timestamp
from headwater.errors import StoreError
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
    # One holds the store, whoever else wants to write takes it over, and what has not landed by then never was: whoever
    # looks waits for what was seen.
    answers_wait: bool = False
    # How many makings durable may be under way together.
    flights_max: int = 1
    # What names of this machine's own files begin with, for those that belong to the store and to this machine.
    beside: str = ""


class RaceLost(Exception):
    """Another holds the store now, and nothing stands of what has not landed. Never told to callers: what they were not
    answered for is applied again, once the store has recovered."""


class Fact(msgspec.Struct, frozen=True):
    """Something to be known about a store, as `headwater doctor` shows it."""

    name: str
    value: str | int


class Findings(msgspec.Struct, frozen=True):
    """What a store says of itself, what is wrong with it, and what of its surroundings somebody should see to though
    nothing is damaged; a sentence each."""

    facts: Sequence[Fact]
    problems: Sequence[str] = ()
    cautions: Sequence[str] = ()

    def named(self, name: str) -> str | int | None:
        """The fact of this name, None where the store has none."""
        return next((fact.value for fact in self.facts if fact.name == name), None)


class Answerer(Protocol):
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
        """Raises StoreReplaced when the store that was opened is no more, StoreFull while it can keep nothing more, not
        even what is on its way, StoreSilent while it does not answer. Cheap: it is asked every half second."""
        ...

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """Like `apply`, if that needs no waiting; None, with nothing done, when it would have to wait."""
        ...

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """Apply all operations in one transaction; when it raises, none of them took effect."""
        ...

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """Done when everything applied so far survives power loss; None when it does already, and raises when it is
        known already that it will not. `callers` says how many wait for it. It fails with RaceLost where another has
        taken the store over: then nothing stands of what has not landed, and these are done in order."""
        ...

    def landed(self) -> asyncio.Future[None] | None:
        """Done when nothing that was applied so far can be taken back; None when that is so already, which is all there
        is to it where several can write. Asked before an answer that does not wait for `make_durable`. Raises
        StoreReplaced when what was applied went to a store that is no more, fails with RaceLost as `make_durable`."""
        ...

    async def recover(self) -> None:
        """After `make_durable` failed: bring what was applied to stable storage in another way, or raise. After a lost
        race: go on from what landed, and from what others have written since."""
        ...

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question, as of a moment after everything that was committed before it was asked."""
        ...

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        """Like `touched`, if that needs no waiting; None when it would have to wait.

        It stays beside `touched` for the tail, which asks at every wake-up, while somebody waits: over a file a task
        for each would make the answer come two fifths later, at as much more work. One method that answers or promises
        would have all others, who only await `touched`, tell the two apart.
        """
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

    def chores(self) -> Sequence[Chore]:
        """What has to be done for this store again and again, beside what every store needs."""
        ...

    def wakeup(self) -> Wakeup:
        """The best way to learn of others' commits that this store has here, as `wakeup` of the settings allows. It
        says when there may be something, and whether there is."""
        ...

    async def has_room(self) -> bool:
        """Whether there is room for more commits. A store that sets some aside, to be emptied when there is none, makes
        sure of that first. True where that is nothing to ask for."""
        ...

    async def examine(self) -> Findings:
        """What there is to know for `headwater doctor`: sizes, settings in force, and what is wrong."""
        ...


class Counts(Protocol):
    """A store that counts more than others do, for `/metrics`. Those that are counted up end in `_total`."""

    def numbers(self) -> dict[str, float]:
        """What this process has counted, by name."""
        ...


class Holder(NamedTuple):
    """What a broker that holds a store says of itself: where it is reached, and how it is guarded; '' is not said."""

    address: str
    guard: str = ""


@runtime_checkable
class HeldByOne(Protocol):
    """A store that one broker holds at a time. Others may hand on to it what they are asked, until they hold it."""

    def stand_by(self, own: Holder) -> None:
        """Before it is opened: others are told this of this broker once it holds the store, for which it waits for as
        long as it takes. Once it has lost the store to another, whoever waits is told so at once (StoreBusy)."""
        ...

    def trouble(self) -> StoreError | None:
        """Why the store cannot be had or written now, and nobody can tell when; None while all is well."""
        ...

    def held_by(self) -> Holder | None:
        """The broker that was seen to hold the store instead of this one; None while nobody else was."""
        ...

    def numbers(self) -> dict[str, float]:
        """What was asked of the bucket so far, also before it is opened, for the metrics."""
        ...

    async def secret(self) -> bytes:
        """What only those know who may open the store: brokers tell each other by it."""
        ...


@runtime_checkable
class WritesBackups(Protocol):
    """A store that copies itself to a file. Others are backed up with the tools of their database."""

    async def backup(self, path: str) -> None:
        """Write a copy of everything that is committed to a new file, while others go on. It is a store of its own."""
        ...


@runtime_checkable
class GrantsAccess(Protocol):
    """A store whose database asks who may use it. Files have permissions of their own."""

    async def grants(self, role: str, *, reads_only: bool) -> list[str]:
        """What lets another role use this store and do nothing else, as lines for its owner to run."""
        ...
