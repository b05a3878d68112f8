"""What the end of a command means for its job, and what the worker's log says of jobs."""

import logging
import signal
from collections.abc import Iterable

from headwater.log.job_operations import ClaimedJob, JobReport
from headwater.model.job import JobOutcome, first_line
from headwater.worker.shell import Ended

log = logging.getLogger(__name__)

TYPES_LOGGED_MAX = 1_000


class LeftToOthers:
    """Functions that this worker does not have: said once for each type, as an operator may have forgotten an app."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def say(self, types: Iterable[str]) -> None:
        """Jobs of these types were passed over."""
        for kind in types:
            if kind not in self._logged and len(self._logged) < TYPES_LOGGED_MAX:
                self._logged.add(kind)
                log.warning("jobs of type %.200r are left to others: this worker has no such function", kind)


def log_failure(job: ClaimedJob, report: JobReport) -> None:
    """What went wrong, in a line: `queuectl show` and `logs` have the rest."""
    about = (job.id, job.type, job.attempt, job.attempts_max, first_line(report.error) or "no reason was given")
    log.warning("job %s (%.200s) failed, attempt %d of %d: %.500s", *about)


def report_of(job: ClaimedJob, ended: Ended) -> JobReport:
    """What a command's end means for its job."""
    if ended.stopped == "cancelled":
        outcome, error = JobOutcome.CANCELLED, "cancelled"
    elif ended.stopped == "timeout":
        outcome, error = JobOutcome.FAILED, f"timed out after {job.work.timeout_seconds:g} s"
    elif ended.stopped:
        outcome, error = JobOutcome.FAILED, ended.stopped
    elif ended.exit_code == 0:
        outcome, error = JobOutcome.COMPLETED, ""
    else:
        how = f"exit code {ended.exit_code}" if ended.exit_code > 0 else f"ended by {_signal_name(-ended.exit_code)}"
        outcome, error = JobOutcome.FAILED, f"{how}: {ended.last_line}" if ended.last_line else how
    return JobReport(
        number=job.number,
        token=job.token,
        outcome=outcome,
        error=error,
        output=ended.output,
        exit_code=ended.exit_code,
        duration_seconds=ended.duration_seconds,
        memory_bytes=ended.memory_bytes,
    )


def unstartable(job: ClaimedJob, error: OSError | ValueError) -> str:
    """Why a command could not even begin."""
    name = job.work.argv[0] if job.work.argv else "/bin/sh"
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    shown = name if name and name.isprintable() else repr(name)
    return f"{shown:.200} cannot be started: {why}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
