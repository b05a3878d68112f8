"""The log of a server as flows hold it: what `handle.py` is for a file, over HTTP.

What flows ask of a log is little: its queues and partitions, where its segments are, and that records of a source be
taken in once. A server answers that to programs elsewhere; what it keeps for itself (rollups, marks of archives) is for
flows on its own machine, and `need_file` says so.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from headwater.client.access import Access
from headwater.client.log_reader import RemoteLogReader
from headwater.client.log_writer import PART_BYTES, RemoteLogWriter
from headwater.clock import Clock, SystemClock
from headwater.config import Config, load_config
from headwater.errors import NotAllowed, SourceUnfit
from headwater.log.flow_operations import Load
from headwater.log.operations import Operation, Touch
from headwater.model.lane import Lane
from headwater.model.names import DATABASE_DEFAULT, Lsn
from headwater.pipeline.asking import ask
from headwater.pipeline.handle import Handle
from headwater.stores.log_reader import LogReader
from headwater.stores.open import is_server
from headwater.stores.questions import PartitionStatus, QueueStatus

Result = TypeVar("Result")

PARTITIONS_PER_LOOK = 10_000
TOUCHES_PER_LOOK = 50_000


class Log(Protocol):
    """What flows use, over a file or a server."""

    config: Config
    location: str
    commit_bytes_max: int

    def __enter__(self) -> Self:
        """Open it."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what was taken, then let go."""
        ...

    def greet(self) -> None:
        """Raises when nobody is there, or the token is not good."""
        ...

    def ask(self, question: Coroutine[Any, Any, Result]) -> Result:
        """The answer to a question."""
        ...

    def reader(self) -> LogReader:
        """The same log for reading by LSN."""
        ...

    def tenant(self, database: str) -> str:
        """The database that is meant by a name."""
        ...

    def now(self) -> int:
        """The time, in microseconds."""
        ...

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        ...

    def queues(self, database: str) -> list[QueueStatus]:
        """The queues of a database."""
        ...

    def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """The first partitions of a queue after a number."""
        ...

    def touches(self, database: str, queues: Sequence[str], after: int, last: int) -> Iterator[Touch]:
        """The segments in a stretch of the log, without their records: those of these queues, and maybe others."""
        ...

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Commit operations together and wait until they survive power loss; what each came to."""
        ...


class ServedLog:
    """A server's log, without async. Who only loads needs no right to read, so nothing is asked before it is needed."""

    # One request carries a commit.
    commit_bytes_max = PART_BYTES

    def __init__(self, address: str, access: Access, *, clock: Clock | None = None) -> None:
        self.config = load_config(housekeeping=False)
        self.location = address
        self._clock = clock or SystemClock()
        self._access = access
        self._reading: RemoteLogReader | None = None
        self._writer = RemoteLogWriter(address, access)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ask(self._close())
        self._runner.close()

    def greet(self) -> None:
        """Raises when nobody is there, or the token is not good. Who may only push is greeted, too."""
        with suppress(NotAllowed):
            self.ask(self._writer.identity())

    def now(self) -> int:
        """The time, in microseconds."""
        return self._clock.now()

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return self.ask(self.reader().span())[1]

    def tenant(self, database: str) -> str:
        """The database of the token, which is meant by the default one too; another that is named is refused."""
        # A flow that was told no database has the default one, and means that of the token.
        self.ask(self.reader().queue_numbers("" if database == DATABASE_DEFAULT else database))
        return self.ask(self.reader().database())

    def queues(self, database: str) -> list[QueueStatus]:
        """The queues that the token may use."""
        self.tenant(database)
        return self.ask(self.reader().queue_statuses())

    def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """The first partitions of a queue after a number."""
        return self.ask(self.reader().partitions(database, queue, limit, after))

    def touches(self, database: str, queues: Sequence[str], after: int, last: int) -> Iterator[Touch]:
        """The segments of these queues in a stretch of the log."""
        lanes: dict[int, Lane] = {}
        while found := self.ask(self.reader().outline(Lsn(after), Lsn(last), TOUCHES_PER_LOOK, database, queues)):
            if any(segment.partition_id not in lanes for segment in found):
                lanes = {number: lane for queue in queues for number, lane in self._lanes(database, queue)}
            for segment in found:
                lane = lanes.get(segment.partition_id)
                if lane is not None:
                    yield Touch(segment.lsn, segment.partition_id, segment.first_offset, segment.count, lane)
            after = found[-1].lsn

    def commit(self, operations: Sequence[Operation]) -> list[Any]:
        """Have the server take in records of a source, one load after the other."""
        loads = [operation for operation in operations if isinstance(operation, Load)]
        if len(loads) != len(operations):
            raise TypeError("a flow through a server commits loads and nothing else")
        return [self.ask(self._writer.load(load)) for load in loads]

    def _lanes(self, database: str, queue: str) -> Iterator[tuple[int, Lane]]:
        after = 0
        while found := self.partitions(database, queue, PARTITIONS_PER_LOOK, after):
            for one in found:
                yield one.partition_id, Lane(database, queue, "", "", one.partition)
            after = found[-1].partition_id

    def reader(self) -> RemoteLogReader:
        """The same log for reading by LSN."""
        if self._reading is None:
            reader = RemoteLogReader(self.location, self._access)
            self.ask(reader.open())
            self._reading = reader
        return self._reading

    async def _close(self) -> None:
        await self._writer.close()
        if self._reading is not None:
            await self._reading.close()

    def ask(self, question: Coroutine[Any, Any, Result]) -> Result:
        """The answer to a question."""
        return ask(self._runner, question)


def open_log(address: str, access: Access, *, create: bool = False) -> Log:
    """The log at an address, to be opened by `with`: a file, which may be made, or that of a server."""
    return ServedLog(address, access) if is_server(address) else Handle(address, create=create)


def need_file(address: str, flow: str, why: str) -> None:
    """Raises when a flow that needs the store itself is aimed at a server."""
    if is_server(address):
        raise SourceUnfit(
            f"{flow} works on the store's file, not through a server, because {why}: run it on the server's machine "
            f"with --store, also while the server runs"
        )
