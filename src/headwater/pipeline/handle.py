"""A store as the driver of a flow, or one of its tasks, holds it: open, without async, for questions and commits.

Spark calls plain functions, so each call here runs the store's loop until its answer is there. A commit is answered
when it survives power loss. While the handle is used, the write-ahead log is kept short as a server would keep it.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from headwater.clock import Clock, SharedClock
from headwater.config import Durability, load_config
from headwater.log.committer import Committer
from headwater.log.operations import Operation, Touch
from headwater.model.names import Lsn
from headwater.pipeline.asking import ask
from headwater.stores.log_reader import LogReader
from headwater.stores.open import open_reader, open_store
from headwater.stores.questions import FindLastLsn, ListPartitions, ListQueues, PartitionStatus, QueueStatus

TOUCHES_PER_LOOK = 50_000

Result = TypeVar("Result")


class Handle:
    """One store, open. `with Handle("headwater.db") as log: log.ask(log.store.last_lsn())`."""

    commit_bytes_max = 4 * 1_048_576

    def __init__(self, address: str, *, create: bool = False, clock: Clock | None = None) -> None:
        self._clock = clock or SharedClock()
        self._address = address
        self._reading: LogReader | None = None
        self.config = load_config(housekeeping=False)
        self.store = open_store(address, self.config, self._clock, create=create)
        self.location = str(self.store.traits.location)
        self._committer = Committer(self.store, self._clock, pending_max=self.config.pending_max)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> Self:
        """Open the store; itself, ready to be asked."""
        self._runner = asyncio.Runner()
        try:
            ask(self._runner, self._open())
        except BaseException:
            self._runner.close()
            raise
        return self

    def close(self) -> None:
        """Finish what was taken, then let go."""
        try:
            ask(self._runner, self._close())
        finally:
            self._runner.close()

    def greet(self) -> None:
        """Nothing more to ask: a store that is not there could not be opened."""

    def now(self) -> int:
        """The time, in microseconds."""
        return self._clock.now()

    def ask(self, question: Coroutine[Any, Any, Result]) -> Result:
        """The answer to a question: `log.ask(log.store.queues("main"))`."""
        return ask(self._runner, question)

    def reader(self) -> LogReader:
        """The same log for reading by LSN."""
        if self._reading is None:
            reader = open_reader(self._address, self.config)
            self.ask(reader.open())
            self._reading = reader
        return self._reading

    def tenant(self, database: str) -> str:
        """The database that is meant by a name: in a file the one that has it."""
        return database

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return self.ask(self.store.ask(FindLastLsn()))

    def queues(self, database: str) -> list[QueueStatus]:
        """The queues of a database."""
        return self.ask(self.store.ask(ListQueues(database)))

    def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """The first partitions of a queue after a number."""
        return self.ask(self.store.ask(ListPartitions(database, queue, limit, after)))

    def touches(self, database: str, queues: Sequence[str], after: int, last: int) -> Iterator[Touch]:
        """The segments from `after` up to `last`, of whichever queues; others may be added meanwhile."""
        while found := self.ask(self.store.touched(Lsn(after), TOUCHES_PER_LOOK)):
            for touch in found:
                if touch.lsn > last:
                    return
                yield touch
            after = found[-1].lsn

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Commit operations together and wait until they survive power loss; what each came to."""
        return ask(self._runner, self._commit(operations))

    async def _open(self) -> None:
        await self.store.open()
        self._committer.start()
        self._chores = {chore: asyncio.ensure_future(chore.wait()) for chore in self.store.chores()}

    async def _close(self) -> None:
        for waiting in self._chores.values():
            waiting.cancel()
        await self._committer.close()
        if self._reading is not None:
            await self._reading.close()
        await self.store.close()

    async def _commit(self, operations: Sequence[Operation]) -> list[Any]:
        answers = self._committer.submit_all(operations, Durability.SYNCED)
        results = [(await answer).result for answer in answers]
        for chore, waiting in self._chores.items():
            if waiting.done():
                await chore.run()
                self._chores[chore] = asyncio.ensure_future(chore.wait())
        return results
