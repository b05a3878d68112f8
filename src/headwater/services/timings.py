"""How long the store takes, by what it was asked for: measured in one place, around every call that does work.

    committer ─┐                        apply         by the kinds of operations in the commit
    services  ─┴─► TimedStore ─► store  make_durable  together: one wait is for everybody
                                        ask           by the kind of question

Kinds are types of the program, so there are as many lines as it has types, and no more.
"""

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any, cast

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Operation
from headwater.model.histogram import FINE_STEPS, Histogram
from headwater.stores.contract import Store
from headwater.stores.questions import Answer, Question


class Timings:
    """What was measured since the process began."""

    def __init__(self) -> None:
        self.operations: dict[type[Operation], Histogram] = {}
        self.questions: dict[type[Question[Any]], Histogram] = {}
        self.syncs = Histogram(FINE_STEPS)

    def applied(self, operations: Sequence[Operation], seconds: float) -> None:
        """A commit took so long: it counts once for each kind of operation that was in it."""
        for kind in set(map(type, operations)):
            found = self.operations.get(kind)
            if found is None:
                found = self.operations[kind] = Histogram(FINE_STEPS)
            found.observe(seconds)

    def answered(self, kind: type[Question[Any]], seconds: float) -> None:
        """A question took so long."""
        found = self.questions.get(kind)
        if found is None:
            found = self.questions[kind] = Histogram(FINE_STEPS)
        found.observe(seconds)


class TimedStore:
    """A store whose work is measured; all else is the store's own."""

    def __init__(self, store: Store, timings: Timings) -> None:
        self._store = store
        self._timings = timings
        self._of_operations = timings.operations

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        """As the store does; what it did not do took no time."""
        begun = perf_counter()
        commit = self._store.apply_now(operations, now)
        if commit is not None:
            seconds = perf_counter() - begun
            # Most commits are of one operation, of a kind that was seen.
            found = self._of_operations.get(type(operations[0])) if len(operations) == 1 else None
            if found is not None:
                found.observe(seconds)
            else:
                self._timings.applied(operations, seconds)
        return commit

    def landed(self) -> asyncio.Future[None] | None:
        """As the store says. Every commit asks: it is written out to be quick."""
        return self._store.landed()

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        """As the store does, with the time that it waited for its turn."""
        begun = perf_counter()
        commit = await self._store.apply(operations, now)
        self._timings.applied(operations, perf_counter() - begun)
        return commit

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """As the store does. Where few wait, it may have gone to the disk before it returns, and there is no future."""
        begun = perf_counter()
        synced = self._store.make_durable(callers)
        if synced is None:
            self._timings.syncs.observe(perf_counter() - begun)
        else:
            synced.add_done_callback(lambda _: self._timings.syncs.observe(perf_counter() - begun))
        return synced

    async def ask(self, question: Question[Answer]) -> Answer:
        """As the store does."""
        begun = perf_counter()
        answer = await self._store.ask(question)
        self._timings.answered(type(question), perf_counter() - begun)
        return answer


def timed(store: Store, timings: Timings) -> Store:
    """The store, measured."""
    return cast(Store, TimedStore(store, timings))
