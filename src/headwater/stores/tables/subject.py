"""A subject: one part of what is kept, with what it does for which operation and what it has to be told of commits.

The writer holds a list of subjects and knows none of their operations. A subject overrides the hooks that it needs;
those that it leaves alone are never called. What can be asked about a subject is answered by `SubjectAnswers` beside
it, which reads through a connection of its own and remembers nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from headwater.clock import Timestamp
from headwater.log.operations import Operation, Touch
from headwater.model.names import Lsn
from headwater.stores.questions import Question
from headwater.stores.tables.connection import Value

# What applies one operation: it answers as the operation says (`result_type`), or raises and has changed nothing.
Handler = Callable[[Any, Timestamp], object]
Handlers = Mapping[type[Operation], Handler]
# What applies operations of a kind together: an answer or an error for each.
Together = Callable[[Sequence[Any], Timestamp], list[Any]]
# What answers a question, as the question says (`answer_type`).
Answering = Mapping[type[Question[Any]], Callable[[Any], object]]


class Phase(IntEnum):
    """When operations of a kind are applied within a commit; most are applied first."""

    FIRST = 0
    REPORTS = 1
    PUSHES = 2
    TRANSACTIONS = 3
    POPS = 4


class Seen(NamedTuple):
    """What others may have changed, in one row."""

    catalog_version: int
    last_lsn: Lsn
    newest_partition: int
    newest_jump: int
    latest_at: int
    access_version: int
    identity: str


SeenRow = tuple[int, Lsn, int, int, int, int, str]


class Read(NamedTuple):
    """A statement that only reads, by name, with its bindings."""

    statement: str
    bindings: tuple[Value, ...] = ()


class Subject:
    """One part of what is kept, under the write lock."""

    phases: ClassVar[Mapping[type[Operation], Phase]] = MappingProxyType({})
    """Those of its operations that are not applied first."""

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {}

    def together(self) -> Mapping[type[Operation], Together]:
        """What applies those that gain by being applied together."""
        return {}

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """What these operations will read first, as far as they and what is remembered tell.

        What one commit of others can change is taken for not remembered. It may be more than is read then; and what it
        answers holds only until this commit writes to the same place.
        """
        return []

    # ── hooks ──

    def begin(self, now: Timestamp) -> None:
        """A commit begins: others' commits are taken in, and no operation is applied yet."""

    def flush(self) -> None:
        """Write what waits: another operation of this commit is about to look at the rows."""

    def close(self, now: Timestamp) -> None:
        """All operations of the commit are applied: write what they gathered."""

    def catch_up(self, seen: Seen) -> None:
        """Others have committed: drop what may not be so any more."""

    def follow(self, touched: Sequence[Touch], *, complete: bool) -> None:
        """Others have appended these segments; not `complete` when there may have been more."""

    def committed(self) -> None:
        """The commit holds, and everybody can see it."""

    def forget(self) -> None:
        """After a rollback: what is remembered may never have happened."""

    def keep(self) -> Callable[[], None]:
        """A transaction begins: what brings back what was gathered before, should it fail. `forget` is called first."""
        return _nothing

    def clock_set_back(self, now: Timestamp, by: int) -> None:
        """The clock was set back to `now`: what was promised for a time of the wrong clock comes as much earlier."""


class SubjectAnswers(ABC):
    """What can be asked about a subject, answered through a connection that only reads."""

    @abstractmethod
    def handlers(self) -> Answering:
        """What answers which question."""


def overriding(subjects: Sequence[Subject], hook: str) -> list[Subject]:
    """Those of the subjects that have a hook of their own: the others need not be called."""
    return [subject for subject in subjects if getattr(type(subject), hook) is not getattr(Subject, hook)]


def _nothing() -> None:
    """Nothing was gathered."""
