"""What a SQLite store can be asked: every question goes to the reading thread, so that none holds up the event loop."""

from collections.abc import Sequence
from typing import Any

from headwater.clock import Clock, Timestamp
from headwater.model.access_token import AccessToken
from headwater.model.job import JobState
from headwater.model.job_policy import JobPolicy
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.rollup import Rollup, RollupQuery
from headwater.stores.contract import (
    EVERY,
    WHOLE,
    CursorStatus,
    DeadLetter,
    GroupStatus,
    LeaseStatus,
    Part,
    PartitionStatus,
    Position,
    QueueStatus,
    Segment,
    StateQuestion,
    StateValue,
    StreamQuery,
    TraceEvent,
    TraceName,
)
from headwater.stores.job_contract import (
    JobAttempt,
    JobFilter,
    JobLimitStatus,
    JobMinute,
    JobQueueStatus,
    JobStatus,
    ScheduleStatus,
    WorkerStatus,
)
from headwater.stores.sqlite.answers import Answers
from headwater.stores.tables.job_answers import JobAnswers


class Questions:
    """The questions of the contract; whoever opens the file gives it what answers them."""

    _answers: Answers
    _jobs: JobAnswers
    _clock: Clock

    async def last_lsn(self) -> Lsn:
        """The LSN of the newest segment."""
        return await self._answers.ask(self._answers.last_lsn)

    async def backup(self, path: str) -> None:
        """Write a copy of everything to a new file."""
        await self._answers.ask(self._answers.backup, path)

    async def last_lsn_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """The LSN of the newest segment in queues whose names fit a pattern."""
        return await self._answers.ask(self._answers.last_lsn_of, database, patterns)

    async def identity(self) -> str:
        """The UUID of the store."""
        return await self._answers.ask(self._answers.identity)

    async def ready(self, groups: Sequence[tuple[str, str, str]], now: Timestamp) -> list[tuple[str, str, str]]:
        """Those of the groups that a pop could serve now."""
        return await self._answers.ask(self._answers.ready, groups, now)

    async def expired(self, now: Timestamp, limit: int) -> list[tuple[PartitionId, str]]:
        """Leases that ran out, by partition and group."""
        return await self._answers.ask(self._answers.expired, now, limit)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None = None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._answers.ask(self._answers.read, after, through, limit, queue)

    async def queues(self, database: str, part: Part = WHOLE) -> list[QueueStatus]:
        """The queues of a database with their sizes."""
        return await self._answers.ask(self._answers.queues, database, part)

    async def groups(self, database: str, queue: str = "", part: Part = WHOLE) -> list[GroupStatus]:
        """The consumer groups of a database, or of one queue."""
        return await self._answers.ask(self._answers.groups, database, queue, part, self._clock.now())

    async def next_due(self) -> Timestamp | None:
        """When the next message for later is due."""
        return await self._answers.ask(self._answers.next_due)

    async def leases(self, database: str, queue: str = "", group: str = "", limit: int = 1_000) -> list[LeaseStatus]:
        """Live leases of a database, or of one queue or group."""
        return await self._answers.ask(self._answers.leases, database, queue, group, limit, self._clock.now())

    async def dead_letters(self, database: str, queue: str, limit: int, after: int = 0) -> list[DeadLetter]:
        """Dead letters of a queue, oldest first."""
        return await self._answers.ask(self._answers.dead_letters, database, queue, limit, after)

    async def partitions(
        self, database: str, queue: str = "", limit: int = 1_000, after: int = 0, patterns: Sequence[str] = EVERY
    ) -> list[PartitionStatus]:
        """Partitions with where their records begin and end."""
        return await self._answers.ask(self._answers.partitions, database, queue, limit, after, patterns)

    async def cursors(self, database: str, group: str, limit: int) -> list[CursorStatus]:
        """Where a group stands, in each partition it has met."""
        return await self._answers.ask(self._answers.cursors, database, group, limit, self._clock.now())

    async def read_partition(self, partition_id: PartitionId, first: Offset, limit: int) -> list[Segment]:
        """A stretch of one partition with its records."""
        return await self._answers.ask(self._answers.read_partition, partition_id, first, limit)

    async def traces_named(
        self, database: str, name: str, limit: int, skip: int = 0, patterns: Sequence[str] = EVERY
    ) -> list[TraceEvent]:
        """The events noted under a name, newest first."""
        return await self._answers.ask(self._answers.traces_named, database, name, limit, skip, patterns)

    async def stream(self, database: str, query_id: int) -> StreamQuery | None:
        """A streaming query of a database."""
        return await self._answers.ask(self._answers.stream, database, query_id)

    async def stream_state(self, question: StateQuestion) -> list[StateValue]:
        """What a streaming query remembers."""
        return await self._answers.ask(self._answers.stream_state, question)

    async def switches(self) -> list[tuple[str, str]]:
        """What is turned on, as (database, name)."""
        return await self._answers.ask(self._answers.switches)

    async def trace_names(self, database: str, limit: int, patterns: Sequence[str] = EVERY) -> list[TraceName]:
        """The names that events were noted under."""
        return await self._answers.ask(self._answers.trace_names, database, limit, patterns)

    async def milestone(self, database: str, name: str) -> int | None:
        """The last step that named work has reached."""
        return await self._answers.ask(self._answers.milestone, database, name)

    async def staged(self, database: str, upload: str) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        return await self._answers.ask(self._answers.staged, database, upload)

    async def traces(self, database: str, partition_id: PartitionId, transaction_id: str) -> list[TraceEvent]:
        """The noted events of one record."""
        return await self._answers.ask(self._answers.traces, database, partition_id, transaction_id)

    async def positions(self, database: str) -> list[Position]:
        """Where every group of a database stands."""
        return await self._answers.ask(self._answers.positions, database)

    async def archived(self, database: str, queue: str) -> Lsn:
        """Up to which LSN a queue is archived."""
        return await self._answers.ask(self._answers.archived, database, queue)

    async def rollups(self, database: str, wanted: RollupQuery) -> list[Rollup]:
        """Rollups of a stretch of time."""
        return await self._answers.ask(self._answers.rollups, database, wanted)

    async def rollup_state(self, database: str) -> tuple[int, str]:
        """Where the last rollup stood."""
        return await self._answers.ask(self._answers.rollup_state, database)

    async def access_token(self, token_id: str) -> AccessToken | None:
        """The access token with this id."""
        return await self._answers.ask(self._answers.access_token, token_id)

    async def access_tokens(self, database: str = "") -> list[AccessToken]:
        """The access tokens of a database, or of all."""
        return await self._answers.ask(self._answers.access_tokens, database)

    async def job(self, database: str, id: str) -> JobStatus | None:
        """One job."""
        return await self._answers.ask(self._jobs.job, database, id)

    async def jobs(self, database: str, chosen: JobFilter) -> list[JobStatus]:
        """Jobs by queue, state, type or batch."""
        return await self._answers.ask(self._jobs.jobs, database, chosen)

    async def job_attempts(self, database: str, id: str) -> list[JobAttempt]:
        """What is known of a job's attempts."""
        return await self._answers.ask(self._jobs.attempts, database, id)

    async def job_dependencies(self, database: str, id: str) -> list[tuple[str, JobState]]:
        """The jobs that a job depends on."""
        return await self._answers.ask(self._jobs.dependencies, database, id)

    async def job_queues(self, database: str) -> list[JobQueueStatus]:
        """The job queues of a database."""
        return await self._answers.ask(self._jobs.queues, database)

    async def job_minutes(self, database: str, since: Timestamp) -> list[JobMinute]:
        """What was done in each minute."""
        return await self._answers.ask(self._jobs.minutes, database, since)

    async def job_config(self, database: str) -> dict[tuple[str, str], Any]:
        """Settings that were set."""
        return await self._answers.ask(self._jobs.config, database)

    async def job_limits(self, database: str) -> list[JobLimitStatus]:
        """The limits of types of jobs."""
        return await self._answers.ask(self._jobs.limits, database)

    async def job_types(self, database: str) -> dict[str, JobPolicy]:
        """How registered functions are run, by type."""
        return await self._answers.ask(self._jobs.types, database)

    async def workers(self, database: str) -> list[WorkerStatus]:
        """The workers of a database."""
        return await self._answers.ask(self._jobs.workers, database)

    async def schedules(self, database: str) -> list[ScheduleStatus]:
        """The schedules of a database."""
        return await self._answers.ask(self._jobs.schedules, database)
