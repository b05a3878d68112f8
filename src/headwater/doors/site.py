"""What routes act on: the services of one open store, and what this server counts of its own work."""

from collections.abc import Sequence
from typing import Any

from headwater.clock import Clock
from headwater.config import Config
from headwater.doors.wire import Request
from headwater.errors import HeadwaterError
from headwater.log.committer import Answer
from headwater.log.operations import Acked, Popped, Push
from headwater.model.principal import Scope, require, require_queue
from headwater.services.queues import Queues
from headwater.stores.contract import Store


class Site:
    """Handed to every route. One for each open store that is served."""

    def __init__(self, queues: Queues, version: str) -> None:
        self.queues = queues
        self.version = version
        self.pushed_records = 0
        self.duplicate_records = 0
        self.refused_records = 0
        self.popped_records = 0
        self.pops_with_records = 0
        self.settled_records = 0
        self.refused_reports = 0
        self.dead_letters = 0

    @property
    def store(self) -> Store:
        """Questions go here."""
        return self.queues.store

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.queues.clock

    @property
    def config(self) -> Config:
        """The bounds."""
        return self.queues.config

    # ── counting ──

    def pushed(self, pushes: Sequence[Push], answers: Sequence[Answer | HeadwaterError]) -> None:
        """Count what became of pushes."""
        for push, answer in zip(pushes, answers, strict=True):
            count = len(push.records)
            if isinstance(answer, HeadwaterError):
                self.refused_records += count
                continue
            duplicates = len(answer.result.duplicates) if answer.result is not None else 0
            self.pushed_records += count - duplicates
            self.duplicate_records += duplicates

    def popped(self, popped: Popped) -> None:
        """Count what was delivered."""
        self.pops_with_records += 1
        for batch in popped.batches:
            self.popped_records += len(batch.offsets)

    def settled(self, reports: Sequence[Sequence[Any]], outcomes: Sequence[Acked | HeadwaterError]) -> None:
        """Count what consumers said of messages."""
        for said, outcome in zip(reports, outcomes, strict=True):
            if isinstance(outcome, HeadwaterError):
                self.refused_reports += len(said)
            else:
                self.settled_records += len(said)
                self.dead_letters += len(outcome.buried)


def check_scope(request: Request, scope: Scope) -> None:
    """Raises unless the caller has a scope."""
    require(request.principal, scope)


def check_use(request: Request, queue: str) -> None:
    """Raises when a queue is not among those that the caller may use: the same as when there is none of that name."""
    require_queue(request.principal, queue)
