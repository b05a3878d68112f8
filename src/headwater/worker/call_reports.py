"""Calls as a worker holds them, and what it reports of those that cannot report themselves."""

import asyncio
import time

import msgspec

from headwater.log.job_operations import ClaimedJob, Report
from headwater.model.job import Outcome
from headwater.services.job_functions import RunAbout
from headwater.worker.capture import Capture
from headwater.worker.frames import Run
from headwater.worker.loading import FunctionSources


class FunctionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How functions are run."""

    sources: FunctionSources
    concurrency: int = 1
    grace_seconds: float = 5.0
    output_bytes_max: int = 65_536
    recycle_after: int = 0
    load_seconds_max: float = 120.0
    worker: str = ""


class Call(msgspec.Struct):
    """A call that the runner has. `begun_at` is known of async ones; that of the plain one stands on the slate."""

    job: ClaimedJob
    begun_at: float = 0.0
    stopped: str = ""
    timer: asyncio.TimerHandle | None = None
    output: Capture | None = None
    progress: str | None = None


def run_of(job: ClaimedJob) -> Run:
    """A job as its runner gets it."""
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
    return Run(job.number, about, bytes(job.work.arguments), job.work.timeout_seconds)


def output_of(call: Call) -> str:
    """What a call has printed."""
    return call.output.text() if call.output is not None else ""


def blame(call: Call, how: str, begun_at: float | None) -> Report:
    """A call that was ended, or whose process was: why, and since when it ran if it did."""
    reason = f"the process that ran it {how}"
    if call.stopped == "timeout":
        reason = f"timed out after {call.job.work.timeout_seconds:g} s"
    elif call.stopped:
        reason = call.stopped
    return Report(
        number=call.job.number,
        token=call.job.token,
        outcome=Outcome.CANCELLED if call.stopped == "cancelled" else Outcome.FAILED,
        error=reason,
        output=output_of(call),
        progress=call.progress,
        duration_seconds=None if begun_at is None else time.monotonic() - begun_at,
    )


def release(job: ClaimedJob) -> Report:
    """Nothing of the job has run: others may have it, and no attempt is counted."""
    return Report(number=job.number, token=job.token, outcome=Outcome.RELEASED)
