"""Jobs on our own wire: who may change them, and who may look at them. It is as under `/api/v1/jobs`.

Of an environment the names are told and never the values: see `stores/tables/job_answers.py`.
"""

from typing import Any

import msgspec

from headwater.doors.jobs.handlers import (
    admitted,
    check_new_schedule,
    check_schedule,
    check_theirs,
    ended,
    found,
    visible,
)
from headwater.doors.jobs.own_names import visible_schedules
from headwater.doors.native.rules import Rule
from headwater.doors.site import Site, check_scope, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.log.job_operations import (
    CancelJobs,
    Changed,
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
from headwater.log.operations import Operation
from headwater.model.job import QUEUE_DEFAULT
from headwater.model.job_policy import JobPolicy
from headwater.model.names import check_name
from headwater.model.principal import Scope, require_all
from headwater.services.checks import check_timestamp
from headwater.services.requests import WaitForJobQuery
from headwater.stores.job_questions import (
    FindJob,
    JobSettingStatus,
    ListJobAttempts,
    ListJobConfig,
    ListJobDependencies,
    ListJobLimits,
    ListJobMinutes,
    ListJobQueues,
    ListJobs,
    ListJobTypes,
    ListSchedules,
    ListWorkers,
    ScheduleStatus,
)
from headwater.stores.questions import Question

# ── changing ──


async def check_jobs(site: Site, request: Request, enqueue: Enqueue) -> Enqueue:
    """Jobs as they may come over HTTP."""
    return msgspec.structs.replace(enqueue, jobs=await admitted(site, request, enqueue.jobs))


async def _check_choice(site: Site, request: Request, choice: ChooseJobs) -> ChooseJobs:
    """A choice of jobs that are theirs: by id, or by state."""
    if choice.ids:
        ids = await check_theirs(site, request, [check_name("job", name) for name in choice.ids])
        return msgspec.structs.replace(choice, ids=tuple(ids))
    if choice.queue:
        check_use(request, check_name("queue", choice.queue))
    else:
        require_all(request.principal, Scope.ADMIN)
    return choice


async def _their_ids(site: Site, request: Request, choice: ChooseJobs, changed: Changed) -> Changed:
    def seen(names: list[str]) -> list[str]:
        return [name for name in names if request.principal.may_see_name(name)]

    left = (seen(changed.passed_over), seen(changed.asked_to_stop), seen(changed.kept), seen(changed.orphaned))
    return Changed(seen(changed.ids), *left, cancelled=changed.cancelled)


async def _check_new_schedule(site: Site, request: Request, put: PutSchedule) -> PutSchedule:
    """A schedule may be another's, so whoever may only add jobs may not add or change one."""
    (template,) = await admitted(site, request, [put.job])
    return msgspec.structs.replace(put, name=check_new_schedule(request, put.name), job=template)


async def _check_schedule(site: Site, request: Request, change: ChangeSchedule) -> ChangeSchedule:
    """To run a schedule, or let it go on, is to run code."""
    if change.run or change.paused is False:
        check_scope(request, Scope.SUBMIT_JOBS)
    return msgspec.structs.replace(change, name=await check_schedule(site, request, change.name))


_choice = Rule(scope=Scope.ADMIN, check=_check_choice, show=_their_ids)

OPERATIONS: dict[type[Operation], Rule] = {
    Enqueue: Rule(scope=Scope.SUBMIT_JOBS, check=check_jobs, status=201),
    CancelJobs: _choice,
    RetryJobs: _choice,
    DropJobs: _choice,
    PauseJobs: Rule(scope=Scope.ADMIN, queue="queue"),
    SetJobLimit: Rule(scope=Scope.ADMIN, queue="queue"),
    SetJobConfig: Rule(scope=Scope.ADMIN, whole=True),
    RegisterTypes: Rule(scope=Scope.ADMIN, whole=True),
    PutSchedule: Rule(scope=Scope.SUBMIT_JOBS, and_scope=Scope.ADMIN, check=_check_new_schedule),
    ChangeSchedule: Rule(scope=Scope.ADMIN, check=_check_schedule),
    StopWorkers: Rule(scope=Scope.ADMIN, whole=True),
}


# ── looking ──


async def _check_job(site: Site, request: Request, asked: Any) -> Any:
    """A question about a job that they see, under the id that it is kept by."""
    return msgspec.structs.replace(asked, id=(await visible(site, request, asked.id)).id)


async def _jobs(site: Site, request: Request, asked: ListJobs) -> Response:
    return json_response(await found(site, request, asked.chosen))


async def _check_since(site: Site, request: Request, asked: ListJobMinutes) -> ListJobMinutes:
    check_timestamp(asked.since)
    return asked


async def _of_their_queues(site: Site, request: Request, asked: Any, answer: list[Any]) -> list[Any]:
    return [one for one in answer if request.principal.may_use(one.queue)]


async def _their_settings(
    site: Site, request: Request, asked: object, answer: list[JobSettingStatus]
) -> list[JobSettingStatus]:
    return [one for one in answer if not one.queue or request.principal.may_use(one.queue)]


async def _their_schedules(
    site: Site, request: Request, asked: object, answer: list[ScheduleStatus]
) -> list[ScheduleStatus]:
    return visible_schedules(request, answer)


async def _their_types(
    site: Site, request: Request, asked: object, answer: dict[str, JobPolicy]
) -> dict[str, JobPolicy]:
    """Those that go to queues of theirs."""
    theirs = request.principal.may_use
    return {name: policy for name, policy in answer.items() if theirs(policy.queue or QUEUE_DEFAULT)}


# Whoever adds jobs may see what became of them.
_one = Rule(scope=Scope.SUBMIT_JOBS, or_scopes=(Scope.ADMIN,), check=_check_job)
_some = Rule(scope=Scope.ADMIN, show=_of_their_queues)

QUESTIONS: dict[type[Question[Any]], Rule] = {
    FindJob: _one,
    ListJobAttempts: _one,
    ListJobDependencies: _one,
    ListJobs: Rule(scope=Scope.ADMIN, reply=_jobs),
    ListJobQueues: _some,
    ListJobMinutes: msgspec.structs.replace(_some, check=_check_since),
    ListJobLimits: _some,
    ListJobConfig: Rule(scope=Scope.ADMIN, show=_their_settings),
    ListSchedules: Rule(scope=Scope.ADMIN, show=_their_schedules),
    ListJobTypes: Rule(scope=Scope.ADMIN, show=_their_types),
    ListWorkers: Rule(scope=Scope.ADMIN, whole=True),
}


async def wait(site: Site, request: Request, query: WaitForJobQuery) -> Response:
    """The job once it has ended, or as it stands when the time is over."""
    return json_response(await ended(site, request, query.id, query.seconds))
