"""Settings of jobs and workers by the names that people type, with their bounds: for `queuectl config`."""

import msgspec

from headwater.errors import InvalidOption
from headwater.model.job import Defaults, WorkerSettings

DAY = 86_400.0
YEAR = 365 * DAY


class JobSetting(msgspec.Struct, frozen=True):
    """One setting: its type, bounds, default and what it does; `for_queue` when a queue can have its own."""

    kind: type
    low: float
    high: float
    default: float
    purpose: str
    for_queue: bool = True


_job, _worker = Defaults(), WorkerSettings()
JOB_SETTINGS: dict[str, JobSetting] = {
    "max-retries": JobSetting(int, 0, 1_000, _job.max_retries, "attempts after the first; then a job is dead"),
    "backoff-base": JobSetting(float, 1, 1_000, _job.backoff_base, "a retry waits base ** attempts seconds"),
    "backoff-max": JobSetting(float, 0, YEAR, _job.backoff_max, "the longest wait before a retry, in seconds"),
    "backoff-jitter": JobSetting(float, 0, 10, _job.backoff_jitter, "up to this share is added to each wait"),
    "timeout": JobSetting(float, 0, YEAR, _job.timeout, "seconds a job may run; 0 lets it run for ever"),
    "result-ttl": JobSetting(float, 0, 10 * YEAR, _job.result_ttl, "seconds a result is kept; 0 keeps it with the job"),
    "lease": JobSetting(float, 1, DAY, _worker.lease, "seconds a silent worker keeps its jobs", False),
    "grace": JobSetting(float, 0, 3_600, _worker.grace, "seconds between TERM and KILL", False),
    "output-max": JobSetting(int, 0, 16 * 1_048_576, _worker.output_max, "bytes of output kept of a command", False),
    "retention": JobSetting(
        float, 0, 10 * YEAR, _worker.retention, "seconds a job that ended is kept; 0: for ever", False
    ),
}


def check_job_setting(name: str, value: object, *, for_queue: bool = False) -> int | float:
    """The value as its setting wants it; an error names the setting, what was expected and what came."""
    setting = JOB_SETTINGS.get(name)
    if setting is None:
        raise InvalidOption(f"no such job setting: {name!r:.80}; there are {', '.join(JOB_SETTINGS)}")
    if for_queue and not setting.for_queue:
        raise InvalidOption(f"{name} holds for all workers of a database; a queue cannot have its own")
    what = "a whole number" if setting.kind is int else "a number"
    bounds = f"{what} from {setting.low:g} to {setting.high:,.0f}"
    try:
        number: float = msgspec.convert(value, setting.kind, strict=False)
    except msgspec.ValidationError:
        raise InvalidOption(f"{name} must be {bounds}; got {value!r:.80}") from None
    if isinstance(value, bool) or not setting.low <= number <= setting.high:
        raise InvalidOption(f"{name} must be {bounds}; got {value!r:.80}")
    return int(number) if setting.kind is int else float(number)
