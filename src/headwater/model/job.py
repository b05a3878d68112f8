"""Jobs: their states, what may follow what, and what becomes of one that failed. Values and rules, no clock, no disk.

    new ──► pending ──► processing ──► completed
     │         ▲            │
     ├► scheduled (a time) ─┤  back to pending: released, without an attempt
     └► waiting (others)    ├──► failed ──► pending   (again, after a delay)
                            ├──► dead                  (no attempt left; `retry` arms it again)
                            └──► cancelled             (from every state before the end)

An attempt is counted when a job is claimed, and taken back when nothing of it ran for certain: one that takes its
worker down with it runs out of attempts like any other, one that only waited there loses none. The token rises with
every claim; a report with an older one changes nothing.
"""

from enum import StrEnum
from typing import NewType
from zlib import crc32

import msgspec

from headwater.clock import SECOND, Timestamp

JobNumber = NewType("JobNumber", int)

QUEUE_DEFAULT = "default"
TRACE_BEGINS = "Traceback (most recent call last):"
SHELL = "shell"
COMMAND_PREFIX = "command:"
JOBS_QUEUE = "headwater/jobs"
CONTROL_PARTITION = "control"
DELAY_SECONDS_MAX = 365 * 86_400.0


class JobState(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


FINISHED = frozenset({JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED})
UNFINISHED = frozenset(JobState) - FINISHED
RETRYABLE = frozenset({JobState.FAILED, JobState.DEAD, JobState.CANCELLED, JobState.SCHEDULED})

_pending, _scheduled, _waiting = JobState.PENDING, JobState.SCHEDULED, JobState.WAITING
_cancelled = JobState.CANCELLED
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _pending: frozenset({JobState.PROCESSING, _cancelled}),
    _scheduled: frozenset({_pending, _cancelled}),
    _waiting: frozenset({_pending, _scheduled, _cancelled}),
    JobState.PROCESSING: frozenset(
        {JobState.COMPLETED, JobState.FAILED, JobState.DEAD, _cancelled, _pending, _scheduled}
    ),
    JobState.FAILED: frozenset({_pending, _cancelled}),
    JobState.COMPLETED: frozenset(),
    JobState.DEAD: frozenset({_pending}),
    _cancelled: frozenset({_pending, _waiting}),
}


def may_follow(before: JobState, after: JobState) -> bool:
    """Whether a job may go from one state to the other."""
    return after in TRANSITIONS[before]


def runs_command(type: str) -> bool:
    """Whether jobs of a type run a command; all others are functions."""
    return type == SHELL or type.startswith(COMMAND_PREFIX)


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How long a failed job waits: `base ** attempts` seconds up to a cap, and a little more, other for each job."""

    base: float = 2.0
    max_seconds: float = 3_600.0
    jitter: float = 0.1

    def delay(self, job_id: str, attempts: int) -> float:
        """Seconds until the next attempt, after this many.

        >>> Backoff(jitter=0).delay("job1", 3)
        8.0
        """
        seconds = min(_power(self.base, attempts, self.max_seconds), self.max_seconds)
        return seconds * (1 + self.jitter * crc32(f"{job_id}/{attempts}".encode()) / 2**32)


def _power(base: float, exponent: int, limit: float) -> float:
    """`base ** exponent`, or the limit where that has long been passed."""
    try:
        return float(base**exponent)
    except OverflowError:
        return limit


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job does: a command for the shell, a program with its arguments, or a function with its arguments.

    `run_at` is the time that somebody gave for it: that stays what it is when the clock is set.
    """

    command: str = ""
    argv: tuple[str, ...] = ()
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    env: dict[str, str] = {}
    cwd: str = ""
    run_at: Timestamp | None = None
    timeout_seconds: float = 0.0
    result_seconds: float = 0.0
    backoff: Backoff = Backoff()


# Stands where the value of a variable was: values go in, to the command, and never come out again.
HIDDEN = "(hidden)"


def hidden_values(env: dict[str, str]) -> dict[str, str]:
    """An environment as anybody may see it: its names."""
    return dict.fromkeys(env, HIDDEN)


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a job that says nothing else: the settings of its queue over those of its database."""

    max_retries: int = 3
    backoff_base: float = 2.0
    backoff_max: float = 3_600.0
    backoff_jitter: float = 0.1
    timeout: float = 3_600.0
    result_ttl: float = 7 * 86_400.0


# How long a worker's functions may take to be imported, and how long one of them may hold up the others' event loop.
LOAD_SECONDS_MAX = 120.0
LOOP_SECONDS_MAX = 30.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for workers that are started from now on."""

    lease: float = 30.0
    grace: float = 5.0
    output_max: int = 65_536
    retention: float = 7 * 86_400.0


class JobOutcome(StrEnum):
    """What a worker says of a job that it held."""

    COMPLETED = "completed"
    FAILED = "failed"
    BURIED = "buried"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a job: its next state, when it may run, and how many attempts it has behind it then."""

    state: JobState
    attempts: int
    run_at: Timestamp | None = None


class Held(msgspec.Struct, frozen=True, gc=False):
    """What the rules need to know of a job under a lease."""

    id: str
    attempts: int
    attempts_max: int
    backoff: Backoff


def judge(held: Held, outcome: JobOutcome, now: Timestamp, after_seconds: float | None = None) -> Verdict:
    """What becomes of a job after its worker's report; `after_seconds` is the worker's own wish for a delay."""
    if outcome is JobOutcome.COMPLETED:
        return Verdict(JobState.COMPLETED, held.attempts)
    if outcome is JobOutcome.CANCELLED:
        return Verdict(JobState.CANCELLED, held.attempts)
    if outcome is JobOutcome.RELEASED:
        return Verdict(JobState.PENDING, held.attempts - 1)
    if outcome is JobOutcome.SNOOZED:
        return Verdict(JobState.SCHEDULED, held.attempts - 1, _later(now, after_seconds or 0.0))
    if outcome is JobOutcome.BURIED or held.attempts >= held.attempts_max:
        return Verdict(JobState.DEAD, held.attempts)
    delay = held.backoff.delay(held.id, held.attempts) if after_seconds is None else after_seconds
    return Verdict(JobState.FAILED, held.attempts, _later(now, delay))


def first_state(now: Timestamp, run_at: Timestamp, *, waits: bool) -> JobState:
    """The state of a job that is new, or that nothing but time holds back any more."""
    if waits:
        return JobState.WAITING
    return JobState.SCHEDULED if run_at > now else JobState.PENDING


def _later(now: Timestamp, seconds: float) -> Timestamp:
    # Not a number compares with nothing: what a worker reports must not be able to stop a commit.
    bounded = seconds if 0 <= seconds <= DELAY_SECONDS_MAX else (DELAY_SECONDS_MAX if seconds > 0 else 0.0)
    return Timestamp(now + int(bounded * SECOND))


def first_line(error: str) -> str:
    """An error in a line: its type and what it says first. Those that older versions have kept begin with their traces
    and end with it."""
    lines = error.strip().splitlines() or [""]
    return lines[-1] if lines[0] == TRACE_BEGINS else lines[0]
