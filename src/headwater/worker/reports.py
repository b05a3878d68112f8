"""What the end of a command means for its job."""

import signal

from headwater.log.job_operations import ClaimedJob, Report
from headwater.model.job import Outcome
from headwater.worker.shell import Ended


def report_of(job: ClaimedJob, ended: Ended) -> Report:
    """What a command's end means for its job."""
    if ended.stopped == "cancelled":
        outcome, error = Outcome.CANCELLED, "cancelled"
    elif ended.stopped == "timeout":
        outcome, error = Outcome.FAILED, f"timed out after {job.work.timeout_seconds:g} s"
    elif ended.stopped:
        outcome, error = Outcome.FAILED, ended.stopped
    elif ended.exit_code == 0:
        outcome, error = Outcome.COMPLETED, ""
    else:
        how = f"exit code {ended.exit_code}" if ended.exit_code > 0 else f"ended by {_signal_name(-ended.exit_code)}"
        outcome, error = Outcome.FAILED, f"{how}: {ended.last_line}" if ended.last_line else how
    return Report(
        number=job.number,
        token=job.token,
        outcome=outcome,
        error=error,
        output=ended.output,
        exit_code=ended.exit_code,
        duration_seconds=ended.duration_seconds,
        memory_bytes=ended.memory_bytes,
    )


def unstartable(job: ClaimedJob, error: OSError) -> str:
    """Why a command could not even begin."""
    name = job.work.argv[0] if job.work.argv else "/bin/sh"
    return f"{name} cannot be started: {error.strerror or error}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
