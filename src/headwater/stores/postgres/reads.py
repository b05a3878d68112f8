"""What a store is asked beside its commits, answered in the thread of reads."""

from typing import cast

from headwater.clock import Clock, Timestamp
from headwater.log.operations import Touch
from headwater.model.lane import Lane
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.contract import Findings
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.postgres.examination import examine
from headwater.stores.postgres.read_thread import ReadThread
from headwater.stores.questions import Answer, FindIdentity, Question, Segment
from headwater.stores.tables.answers import Answers
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Number, Text
from headwater.stores.tables.jobs import Jobs
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Seen

# Whether it is a standby, seconds that it may be behind.
LagRow = tuple[bool, float]


class Reads:
    """Answers from rows, through one connection in one thread."""

    def __init__(self, thread: ReadThread, codec: Codec, clock: Clock) -> None:
        self._thread = thread
        self._connection = thread.connection
        self._sql = self._connection.sql
        self._answers = Answers(self._connection, codec, clock)
        catalog, segments = Catalog(self._connection, codec), Segments(self._connection, codec, 0, 0)
        self._jobs = Jobs(self._connection, catalog, segments)

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        if isinstance(question, FindJobsReady):
            return cast(Answer, await self._thread.run(self._jobs_ready, question))
        return await self._thread.run(self._answers.answer, question)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._thread.run(self._answers.read, after, through, limit, queue)

    async def touched(self, after: Lsn, limit: int) -> tuple[list[Touch], Seen]:
        """The segments after `after` without their records, and what else others may have changed."""
        return await self._thread.run(self._touched, after, limit)

    def _touched(self, after: Lsn, limit: int) -> tuple[list[Touch], Seen]:
        found, seen = self._connection.together((self._sql.touched_with_lanes, (after, limit)), (self._sql.look, ()))
        touched = [Touch(lsn, number, first, count, Lane(*lane)) for lsn, number, first, count, *lane in found.rows]
        return touched, Seen(*seen.rows[0])

    async def version(self) -> int:
        """A number that rises with every commit that writes."""
        return await self._thread.run(self._version)

    def version_now(self) -> int:
        """The same, waited for on the spot."""
        return self._thread.now(self._version)

    def _version(self) -> int:
        [(version,)] = self._connection.rows(self._sql.read_version, (), Number)
        return version

    def _jobs_ready(self, asked: FindJobsReady) -> Timestamp | None:
        self._jobs.forget()
        return self._jobs.ready_at(asked)

    async def database(self) -> str:
        """The name of the database that the store is in."""
        return await self._thread.run(self._database)

    def _database(self) -> str:
        [(name,)] = self._connection.rows(self._sql.current_database, (), Text)
        return name

    async def replica_lag(self) -> float | None:
        """By how many seconds a standby may be behind; None when it is the server itself that answers."""
        return await self._thread.run(self._replica_lag)

    def _replica_lag(self) -> float | None:
        [(is_standby, seconds)] = self._connection.rows(self._sql.replica_lag, (), LagRow)
        return seconds if is_standby else None

    async def examine(self) -> Findings:
        """What the server says of itself and of the tables."""
        return await self._thread.run(self._examine)

    def _examine(self) -> Findings:
        return examine(self._connection, self._answers.answer(FindIdentity()))
