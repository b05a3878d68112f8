"""Calls as a worker holds them, and what it reports of those that cannot report themselves."""

import asyncio
import logging
import time
from collections.abc import Collection

import msgspec

from headwater.log.job_operations import ClaimedJob, JobReport
from headwater.model.job import LOAD_SECONDS_MAX, LOOP_SECONDS_MAX, JobNumber, JobOutcome
from headwater.services.job_functions import RunAbout
from headwater.worker.capture import Capture
from headwater.worker.frames import Done, Run
from headwater.worker.loading import FunctionSources
from headwater.worker.suspects import Suspects

log = logging.getLogger(__name__)

# What a call that was stopped comes to, if not to what it chose itself.
STOPPED_OUTCOMES = (JobOutcome.FAILED, JobOutcome.BURIED, JobOutcome.CANCELLED, JobOutcome.RELEASED)


# How the error begins of an attempt that ended its process.
PROCESS_ENDED = "the process that ran it"


class FunctionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How functions are run."""

    sources: FunctionSources
    concurrency: int = 1
    grace_seconds: float = 5.0
    output_bytes_max: int = 65_536
    recycle_after: int = 0
    load_seconds_max: float = LOAD_SECONDS_MAX
    loop_seconds_max: float = LOOP_SECONDS_MAX
    worker: str = ""


class Call(msgspec.Struct):
    """A call that the runner has. `begun_at` is known of async ones, which their loop has from then on and starts when
    it comes to them; that of the plain one stands on the slate."""

    job: ClaimedJob
    begun_at: float = 0.0
    stopped: str = ""
    is_pressed: bool = False
    timer: asyncio.TimerHandle | None = None
    output: Capture | None = None
    progress: str | None = None


def run_of(job: ClaimedJob, slot: int) -> Run:
    """A job as its runner gets it, with the slot in which it marks it as started."""
    results = None if job.results is None else {name: bytes(result) for name, result in job.results.items()}
    about = RunAbout(
        id=job.id,
        queue=job.queue,
        type=job.type,
        token=job.token,
        attempt=job.attempt,
        attempts_max=job.attempts_max,
        previous_error=job.previous_error,
        results=results,
    )
    return Run(job.number, about, bytes(job.work.arguments), job.work.timeout_seconds, slot)


def output_of(call: Call) -> str:
    """What a call has printed."""
    return call.output.text() if call.output is not None else ""


def blame(call: Call, how: str, begun_at: float | None) -> JobReport:
    """A call that was ended, or whose process was: why, and since when it ran if it did."""
    reason = f"{PROCESS_ENDED} {how}"
    if call.stopped == "timeout":
        reason = f"timed out after {call.job.work.timeout_seconds:g} s"
    elif call.stopped:
        reason = call.stopped
    return JobReport(
        number=call.job.number,
        token=call.job.token,
        outcome=JobOutcome.CANCELLED if call.stopped == "cancelled" else JobOutcome.FAILED,
        error=reason,
        output=output_of(call),
        progress=call.progress,
        duration_seconds=None if begun_at is None else time.monotonic() - begun_at,
    )


def end_of(call: Call, done: Done) -> JobReport:
    """A call that has ended by itself; for one that was stopped that is why, unless it chose something else."""
    if call.stopped and done.outcome in STOPPED_OUTCOMES:
        return blame(call, call.stopped, time.monotonic() - done.duration_seconds)
    return JobReport(
        number=call.job.number,
        token=call.job.token,
        outcome=done.outcome,
        result=done.result,
        error=done.error,
        after_seconds=done.after_seconds,
        duration_seconds=done.duration_seconds,
        output=output_of(call),
        progress=call.progress,
    )


def is_charged(call: Call, culprits: Collection[JobNumber], suspects: Suspects, *, alone: bool) -> bool:
    """Whether the end of its process is an attempt of a call that had begun in it.

    It is none of a call whose process another one has ended, except where a second start is one too many. Where nobody
    knows which one it was, none is charged, unless nobody else can have been it: they come again one by one.
    """
    number = call.job.number
    if call.stopped or call.job.attempts_max == 1:
        return True
    return number in culprits if culprits else alone or suspects.is_too_often(number)


class Death(msgspec.Struct, frozen=True):
    """The end of a process: how it came, whose fault it was if that is known, and since when its calls ran.

    `is_late`: whoever it was had returned, and what they left behind did it. `alone`: only one call has run there, and
    nobody else beside it nor before it: a thread or a timer of one that is done may end those that come behind it.
    """

    how: str
    culprits: frozenset[JobNumber]
    begun: dict[JobNumber, float]
    is_late: bool
    alone: bool


def judge(call: Call, death: Death, suspects: Suspects) -> JobReport:
    """What the end of its process means for a call that had begun in it; whoever may do it again runs apart then."""
    number = call.job.number
    if is_charged(call, death.culprits, suspects, alone=death.alone):
        suspects.clear(number)
        if death.alone or number in death.culprits:
            suspects.add(number)
        return blame(call, death.how, death.begun.get(number))
    log.warning("job %s is given back: the process that ran it %s, not by its fault", call.job.id, death.how)
    if not death.culprits:
        suspects.add(number)
    elif death.is_late:
        suspects.shelter(number)
    return release(call.job)


def has_ended_a_process(job: ClaimedJob) -> bool:
    """Whether its last attempt did, in whichever worker."""
    return job.previous_error.startswith(PROCESS_ENDED)


def release(job: ClaimedJob) -> JobReport:
    """Others may have the job, and no attempt is counted: nothing of it has run, or its end was another's fault."""
    return JobReport(number=job.number, token=job.token, outcome=JobOutcome.RELEASED)
