"""What a report on a job means for its row: values that go into statements, and the rules' word on it."""

from headwater.clock import SECOND, Timestamp
from headwater.errors import HeadwaterError
from headwater.log.job_operations import JobReport
from headwater.model.job import FINISHED, JobNumber, JobOutcome, JobState, Verdict, judge
from headwater.stores.tables.connection import Value
from headwater.stores.tables.job_rows import JobRow, decode_work

ERROR_LENGTH_MAX = 16_384


def judge_report(row: JobRow, report: JobReport, now: Timestamp) -> Verdict:
    """The rules' word on a report; what cannot be read ends in the dead letters, not in everybody's way."""
    if report.outcome is JobOutcome.COMPLETED:
        return Verdict(JobState.COMPLETED, row.attempts)
    try:
        return judge(row.held(), report.outcome, now, report.after_seconds)
    except HeadwaterError:
        return Verdict(JobState.DEAD, row.attempts)


def is_plain(report: JobReport) -> bool:
    """A completion with nothing to keep: all of these are one statement."""
    kept = report.result is not None or report.output or report.exit_code is not None or report.progress is not None
    return report.outcome is JobOutcome.COMPLETED and not kept


def leaves_attempt(row: JobRow, report: JobReport | None) -> bool:
    """Whether an attempt leaves a row of its own: it failed, or a command printed or measured something."""
    if report is None or row.state != JobState.PROCESSING:
        return False
    return bool(report.error or report.output or report.exit_code is not None)


def cancellation(row: JobRow, reason: str) -> JobReport | None:
    """Why a job is cancelled, if somebody said."""
    if not reason:
        return None
    return JobReport(number=JobNumber(row.number), token=row.token, outcome=JobOutcome.CANCELLED, error=reason)


def update_of(row: JobRow, verdict: Verdict, report: JobReport | None, now: Timestamp) -> tuple[Value, ...]:
    """What the row says from now on."""
    finished = now if verdict.state in FINISHED else None
    error = report.error[:ERROR_LENGTH_MAX] if report is not None and report.error else None
    result = report.result if report is not None else None
    expires_at = None
    if result is not None and (seconds := decode_work(row.work).result_seconds):
        expires_at = now + int(seconds * SECOND)
    run_at = row.run_at if verdict.run_at is None else verdict.run_at
    progress = report.progress if report is not None else None
    state = verdict.state.value
    return (state, verdict.attempts, run_at, now, finished, error, result, expires_at, progress, row.number)


def attempt_of(row: JobRow, verdict: Verdict, report: JobReport | None, now: Timestamp) -> tuple[Value, ...]:
    """What is kept of the attempt."""
    assert report is not None
    measured = (report.exit_code, report.duration_seconds, report.memory_bytes)
    error = report.error[:ERROR_LENGTH_MAX]
    about = (row.number, row.attempts, row.token, row.worker or "", row.started_at, now, report.outcome.value, error)
    return (*about, *measured, report.output)
