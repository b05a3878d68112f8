"""What may be handed in, by type: one place for whatever way an operation came, the library, the command line, a wire.

Fields are checked by their names, which mean the same in every operation; what must hold beyond one field is checked by
type. Operations of our own, as those of chores and workers, are not looked at. Pushes and pops come too often for that:
`verbs.py` has a way for each that looks once.
"""

from collections.abc import Callable, Sized
from functools import cache, partial
from typing import Any, TypeVar

import msgspec

from headwater.config import Config
from headwater.errors import InvalidOption, TooLarge
from headwater.log.flow_operations import Load, Unstage
from headwater.log.group_operations import ConfigureGroup, GiveBack, ReleaseLeases
from headwater.log.job_operations import (
    CancelJobs,
    ChangeSchedule,
    ChooseJobs,
    DropJobs,
    Enqueue,
    PauseJobs,
    PutSchedule,
    RegisterTypes,
    RetryJobs,
    SetJobConfig,
    SetJobLimit,
    StopWorkers,
)
from headwater.log.operations import (
    Ack,
    Clear,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Operation,
    Purge,
    Requeue,
    Seek,
    Trace,
)
from headwater.model.coverage import check_positions
from headwater.model.job_settings import JOB_SETTINGS, check_job_setting
from headwater.model.names import check_name
from headwater.model.own_queues import check_not_own
from headwater.model.record import check_ready_json
from headwater.services.checks import (
    check_ids,
    check_limit,
    check_list,
    check_number,
    check_optional_name,
    check_seconds,
    check_text,
    check_timestamp,
)
from headwater.services.document_checks import CHECKS as DOCUMENT_CHECKS
from headwater.services.job_checks import SECONDS_MAX, check_job, check_range, check_schedule
from headwater.services.messages import ERROR_LENGTH_MAX
from headwater.services.records import check_target

JOBS_MAX = 100_000
OUTCOMES_MAX = 100_000

Admitted = TypeVar("Admitted", bound=Operation)
Check = Callable[[Any], object]


def admit(operation: Admitted, config: Config) -> Admitted:
    """The operation as it is handed in; raises when it may not be."""
    kind = type(operation)
    if kind not in _whole:
        return operation
    changes = {}
    for name, default, check in _plan(kind):
        value = getattr(operation, name)
        if value != default or type(value) is not type(default):
            checked = check(value)
            if checked is not value:
                changes[name] = checked
    whole = _whole[kind]
    if whole is not None:
        changes |= whole(operation, config)
    return msgspec.structs.replace(operation, **changes) if changes else operation


@cache
def _plan(kind: type[Operation]) -> tuple[tuple[str, object, Check], ...]:
    """The checks of a type, each with the value that means nothing was said."""
    found = []
    for field in msgspec.structs.fields(kind):
        check = _own_checks.get((kind, field.name)) or _checks.get(field.name)
        if check is not None:
            default = field.default if field.default in ("", None, ()) else msgspec.NODEFAULT
            found.append((field.name, default, check))
    return tuple(found)


# ── fields ──


def _names(kind: str) -> Check:
    """A list of names, each once."""
    return lambda values: tuple(dict.fromkeys(check_name(kind, value) for value in check_list("ids", values)))


def _trace_names(values: object) -> tuple[str, ...]:
    """Texts: clients of queen-mq choose any."""
    return tuple(check_text("trace name", name) for name in check_list("names", values))


def _seconds(value: object) -> object:
    check_seconds("seconds", value)
    return value


def _offsets(values: Sized) -> Sized:
    if len(values) > OUTCOMES_MAX:
        raise TooLarge(f"a report is about {OUTCOMES_MAX:,} records at most; got {len(values):,}")
    return values


def _errors(values: dict[int | str, str] | None) -> dict[int | str, str] | None:
    return {at: text[:ERROR_LENGTH_MAX] for at, text in values.items()} if values else None


_checks: dict[str, Check] = {
    "queue": partial(check_name, "queue"),
    "group": partial(check_name, "group"),
    "partition": partial(check_name, "partition"),
    "namespace": partial(check_optional_name, "namespace"),
    "task": partial(check_optional_name, "task"),
    "partition_id": partial(check_number, "partition_id"),
    "token": partial(check_number, "token"),
    "lsn": partial(check_number, "lsn"),
    "offset": partial(check_number, "offset"),
    "timestamp": check_timestamp,
    "before": check_timestamp,
    "limit": check_limit,
    "error": partial(check_text, "error"),
    "event": partial(check_text, "event"),
    "transaction_id": partial(check_text, "transaction_id"),
    "names": _trace_names,
    "seconds": _seconds,
    "type": partial(check_name, "job type"),
}
_own_checks: dict[tuple[type[Operation], str], Check] = {
    (Requeue, "ids"): check_ids,
    (Purge, "ids"): check_ids,
    **{(kind, "ids"): _names("job") for kind in (CancelJobs, RetryJobs, DropJobs)},
    (ChangeSchedule, "name"): partial(check_name, "schedule"),
    (SetJobLimit, "seconds"): lambda value: value,
    (Ack, "offsets"): _offsets,
    (Ack, "errors"): _errors,
}


# ── what must hold beyond one field; the fields that it changes ──

Changes = dict[str, object]


def _check_seek(seek: Seek, config: Config) -> Changes:
    if sum(target is not None for target in (seek.timestamp, seek.lsn, seek.offset)) > 1:
        raise InvalidOption("a group goes to a timestamp, behind an LSN or to an offset, not to several")
    if seek.to not in ("beginning", "end"):
        raise InvalidOption(f"seek to beginning, end, a datetime or an offset; got {seek.to!r:.80}")
    return {}


def _check_requeue(requeue: Requeue, config: Config) -> Changes:
    """Pushed back is pushed: what Headwater tells in a queue of its own nobody else tells there, not even again. A
    room's may be delivered once more to its own group, which is for nobody else."""
    check_not_own(requeue.to or requeue.queue, "requeue to another name")
    if requeue.to or requeue.all_groups:
        check_target(requeue.to or requeue.queue, "")
    return {}


def _check_removal(removal: DeleteQueue | Clear, config: Config) -> Changes:
    check_not_own(removal.queue, "their retention_seconds says for how long they are kept")
    return {}


def _check_trace(trace: Trace, config: Config) -> Changes:
    check_ready_json(trace.data, config.record_bytes_max)
    return {}


def _check_load(load: Load, config: Config) -> Changes:
    check_target(load.queue, load.partition)
    check_positions(load.positions, load.covers, len(load.records))
    return {}


def _check_choice(choice: ChooseJobs, config: Config) -> Changes:
    if bool(choice.ids) == (choice.state is not None):
        raise InvalidOption("choose jobs either by their ids or by their state")
    return {}


def _check_stop(stop: StopWorkers, config: Config) -> Changes:
    if stop.workers is not None and not check_list("workers", stop.workers):
        raise InvalidOption("name at least one worker, or leave them out to stop all")
    return {}


def _check_jobs(enqueue: Enqueue, config: Config) -> Changes:
    jobs = check_list("jobs", enqueue.jobs)
    if not jobs:
        raise InvalidOption("name at least one job")
    if len(jobs) > JOBS_MAX:
        raise TooLarge(f"{JOBS_MAX:,} jobs may be added at once; got {len(jobs):,}")
    return {"jobs": [check_job(job, config.record_bytes_max) for job in jobs]}


def _check_limit(limit: SetJobLimit, config: Config) -> Changes:
    if limit.clear:
        return {}
    check_range("rate", limit.rate or 0, 0, 1_000_000)
    check_range("per", limit.seconds, 0.001, SECONDS_MAX)
    check_range("burst", limit.burst, 1, 1_000_000, whole=True)
    check_range("concurrency", limit.concurrency or 0, 0, 1_000_000, whole=True)
    if limit.rate is None and limit.concurrency is None:
        raise InvalidOption("a limit needs rate or concurrency; clear_limit lifts one")
    return {}


def _check_setting(setting: SetJobConfig, config: Config) -> Changes:
    if setting.value is not None:
        check_job_setting(setting.name, setting.value, for_queue=bool(setting.queue))
    elif setting.name not in JOB_SETTINGS:
        check_job_setting(setting.name, setting.value)
    return {}


def _check_give_back(giving_back: GiveBack, config: Config) -> Changes:
    if len(giving_back.leases) > config.batch_max:
        raise TooLarge(f"one pop has up to {config.batch_max:,} leases; got {len(giving_back.leases):,}")
    return {}


def _check_schedule(schedule: PutSchedule, config: Config) -> Changes:
    return {"job": check_schedule(schedule, config.record_bytes_max)}


def _check_types(types: RegisterTypes, config: Config) -> Changes:
    for name in types.types:
        check_name("job type", name)
    return {}


_whole: dict[type[Operation], Callable[[Any, Config], Changes] | None] = {
    Configure: None,
    DeleteQueue: _check_removal,
    Clear: _check_removal,
    Seek: _check_seek,
    DeleteGroup: None,
    ConfigureGroup: None,
    ReleaseLeases: None,
    Requeue: _check_requeue,
    Purge: None,
    Trace: _check_trace,
    Ack: None,
    Extend: None,
    GiveBack: _check_give_back,
    Load: _check_load,
    Unstage: None,
    Enqueue: _check_jobs,
    CancelJobs: _check_choice,
    RetryJobs: _check_choice,
    DropJobs: _check_choice,
    PauseJobs: None,
    SetJobLimit: _check_limit,
    SetJobConfig: _check_setting,
    RegisterTypes: _check_types,
    PutSchedule: _check_schedule,
    ChangeSchedule: None,
    StopWorkers: _check_stop,
    **DOCUMENT_CHECKS,
}
