"""Rows of jobs as the writing side holds them, and the values that go in and out of them."""

import secrets
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import StoreDamaged
from headwater.log.job_operations import JobReport, NewJob
from headwater.model.job import Backoff, Defaults, Held, JobOutcome, JobState, Work
from headwater.stores.statements import Statements
from headwater.stores.tables.job_queues import JobQueue


def lists_of(sql: Statements) -> dict[JobState, str]:
    """Lists of jobs of a queue by type and limit: each state has an index of its own, and so a statement of its own."""
    return {
        JobState.PENDING: sql.list_pending,
        JobState.SCHEDULED: sql.list_scheduled,
        JobState.FAILED: sql.list_failed,
        JobState.WAITING: sql.list_waiting,
        JobState.PROCESSING: sql.list_processing,
        JobState.COMPLETED: sql.list_completed,
        JobState.DEAD: sql.list_dead,
        JobState.CANCELLED: sql.list_cancelled,
    }


# Number, end of its promise, and the job that has it with its state, if that is there.
UniqueRow = tuple[int, Timestamp, str | None, str | None]


class JobRow(NamedTuple):
    """The columns that a change of state needs."""

    number: int
    id: str
    queue_id: int
    lane: int
    state: str
    type: str
    attempts: int
    attempts_max: int
    token: int
    worker: str | None
    started_at: int | None
    run_at: int
    waits: int
    work: str

    def held(self) -> Held:
        """What the rules need to know."""
        return Held(self.id, self.attempts, self.attempts_max, decode_work(self.work).backoff)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Work)
_NO_ARGUMENTS = Work().arguments


# A function with none of these set differs from others of its queue in its arguments only.
_own = attrgetter(
    *("command", "argv", "env", "cwd", "run_at", "timeout", "result_ttl"),
    *("backoff_base", "backoff_max", "backoff_jitter"),
)
_nothing_own = _own(NewJob())
_SOME_ARGUMENTS = msgspec.Raw(b'["\x7f"]')


def encode_work(job: NewJob, queue: JobQueue) -> str:
    """What a job does, with the settings of its queue where it has none of its own."""
    if _own(job) == _nothing_own and job.arguments != _NO_ARGUMENTS:
        begin, end = _around_arguments(queue.defaults, queue.backoff)
        return f"{begin}{str(job.arguments, 'utf-8')}{end}"
    return _encode_work(job, queue)


@lru_cache(maxsize=64)
def _around_arguments(defaults: Defaults, backoff: Backoff) -> tuple[str, str]:
    """What stands before and after the arguments of a function: the same as the encoder would write, found once."""
    work = Work(
        arguments=_SOME_ARGUMENTS,
        timeout_seconds=defaults.timeout,
        result_seconds=defaults.result_ttl,
        backoff=backoff,
    )
    begin, _, end = _encoder.encode(work).decode().partition(bytes(_SOME_ARGUMENTS).decode())
    return begin, end


def _encode_work(job: NewJob, queue: JobQueue) -> str:
    return _encoder.encode(
        Work(
            command=job.command,
            argv=job.argv,
            arguments=job.arguments,
            env=job.env,
            cwd=job.cwd,
            run_at=job.run_at,
            timeout_seconds=_or(job.timeout, queue.defaults.timeout),
            result_seconds=_or(job.result_ttl, queue.defaults.result_ttl),
            backoff=_backoff(job, queue.backoff),
        )
    ).decode()


def _backoff(job: NewJob, standing: Backoff) -> Backoff:
    if job.backoff_base is None and job.backoff_max is None and job.backoff_jitter is None:
        return standing
    return Backoff(
        _or(job.backoff_base, standing.base),
        _or(job.backoff_max, standing.max_seconds),
        _or(job.backoff_jitter, standing.jitter),
    )


def _or(value: float | None, standing: float) -> float:
    return standing if value is None else value


def decode_work(text: str) -> Work:
    """What a job does."""
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"what a job does cannot be read: {error}") from error


def ran_micros(row: JobRow, report: JobReport | None, now: Timestamp) -> int:
    """How long a job ran, in microseconds, as told by whoever ran it: from its claim on it may have waited in its
    worker's hands. That counts where nobody knows better, and not for a job that was given back unbegun."""
    if report is None or report.outcome is JobOutcome.RELEASED:
        return 0
    if report.duration_seconds is not None:
        return int(report.duration_seconds * SECOND)
    return now - (row.started_at or now)


def numbers_of(rows: Iterable[tuple[object, ...]]) -> str:
    """The numbers of rows, as a statement takes them."""
    return _encoder.encode([row[0] for row in rows]).decode()


def as_json(values: object) -> str:
    """A list as a statement takes it."""
    return _encoder.encode(values).decode()


class JobIds:
    """Ids that sort by time, so that new ones stand together in the index and a commit touches few pages of it."""

    def __init__(self) -> None:
        self._last = 0
        self._suffix = f"{secrets.randbits(24):06x}"

    def next(self, now: int) -> str:
        """A new id."""
        last = self._last + 1
        self._last = last = now if now > last else last
        return "%014x%s" % (last, self._suffix)  # noqa: UP031 - twice as fast as a formatted text
