"""`/v1/jobs/…`: the operations of jobs as they are. Who may do what is as under `/api/v1/jobs`.

Of an environment the names are told and never the values: see `stores/tables/job_answers.py`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from headwater.doors.jobs.handlers import (
    admitted,
    check_new_schedule,
    check_schedule,
    check_theirs,
    found,
    jobs_of,
    visible,
)
from headwater.doors.jobs.own_names import visible_schedules
from headwater.doors.site import Site, check_scope, check_use, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption
from headwater.log.job_operations import (
    Cancel,
    Changed,
    ChangeSchedule,
    DropJobs,
    Enqueue,
    Enqueued,
    Limited,
    PauseJobs,
    Rearm,
    RegisterTypes,
    Scheduled,
    StopWorkers,
)
from headwater.log.operations import Operation
from headwater.model.job import FINISHED, QUEUE_DEFAULT
from headwater.model.names import check_name
from headwater.model.principal import Scope, require_all
from headwater.services import job_requests as asked
from headwater.services.checks import check_limit, check_optional_name, check_text, check_timestamp
from headwater.services.requests import HandedJob
from headwater.stores.job_questions import ListJobConfig, ListJobMinutes

# ── changing ──


async def add(site: Site, request: Request, body: asked.AddJobsRequest) -> Response:
    """Add functions as jobs, all of them or none."""
    if not body.jobs:
        raise InvalidOption("name at least one job")
    operation = await enqueue_of(site, request, body.jobs, key_of(request, body.key))
    enqueued: Enqueued = await site.jobs.run(operation)
    return json_response(enqueued, status=201)


async def enqueue_of(site: Site, request: Request, jobs: Sequence[HandedJob], key: str = "") -> Enqueue:
    """Jobs that may come over HTTP, as their operation."""
    made = await admitted(site, request, [asked.new_job(job) for job in jobs])
    return Enqueue(database=request.principal.database, key=key, jobs=jobs_of(site, request).check_all(made))


async def cancel(site: Site, request: Request, body: asked.ChooseJobsRequest) -> Response:
    """Cancel jobs that have not ended."""
    return await _changed(site, request, Cancel(**await _choice(site, request, body)))


async def retry(site: Site, request: Request, body: asked.ChooseJobsRequest) -> Response:
    """Give jobs all their attempts again."""
    return await _changed(site, request, Rearm(**await _choice(site, request, body)))


async def drop(site: Site, request: Request, body: asked.ChooseJobsRequest) -> Response:
    """Forget jobs that have ended."""
    before = None if body.before is None else check_timestamp(body.before)
    return await _changed(site, request, DropJobs(**await _choice(site, request, body), before=before))


async def _changed(site: Site, request: Request, operation: Operation) -> Response:
    changed: Changed = await site.jobs.run(operation)
    ids = [name for name in changed.ids if request.principal.may_see_name(name)]
    return json_response(msgspec.structs.replace(changed, ids=ids))


async def _choice(site: Site, request: Request, body: asked.ChooseJobsRequest) -> dict[str, Any]:
    """The fields of an operation on these jobs, which are theirs: by id, or by state."""
    if bool(body.ids) == (body.state is not None):
        raise InvalidOption("choose jobs either by their ids or by their state")
    check_optional_name("queue", body.queue)
    check_optional_name("job type", body.type)
    ids: list[str] = []
    if body.ids:
        ids = await check_theirs(site, request, [check_name("job", name) for name in body.ids])
    elif body.queue:
        check_use(request, body.queue)
    else:
        require_all(request.principal, Scope.ADMIN)
    return {
        "database": request.principal.database,
        "key": key_of(request, body.key),
        "ids": tuple(dict.fromkeys(ids)),
        "state": body.state,
        "queue": body.queue,
        "type": body.type,
        "error": check_text("error", body.error),
        "limit": check_limit(body.limit),
        "skip_unfit": body.skip_unfit,
    }


async def pause(site: Site, request: Request, body: asked.PauseJobsRequest) -> Response:
    """Hand out no more jobs of a queue, or hand them out again."""
    check_use(request, check_name("queue", body.queue))
    about = {"database": request.principal.database, "key": key_of(request, body.key)}
    return json_response(await site.jobs.run(PauseJobs(queue=body.queue, paused=body.paused, **about)))


async def limit(site: Site, request: Request, body: asked.LimitRequest) -> Response:
    """Limit one type of job in one queue."""
    check_use(request, check_name("queue", body.queue))
    jobs = jobs_of(site, request)
    if body.clear:
        return json_response(Limited(0, was_limited=await jobs.clear_limit(body.type, queue=body.queue)))
    count = await jobs.limit(
        body.type,
        queue=body.queue,
        rate=body.rate,
        per=body.seconds,
        burst=body.burst,
        concurrency=body.concurrency,
        each_key=body.each_key,
    )
    return json_response(Limited(count))


async def configure(site: Site, request: Request, body: asked.SettingRequest) -> Response:
    """Remember a setting, or forget it."""
    require_all(request.principal, Scope.ADMIN)
    await jobs_of(site, request).configure(body.name, body.value, queue=body.queue)
    return json_response(Changed([]))


async def register(site: Site, request: Request, body: asked.RegisterRequest) -> Response:
    """Remember how functions are run."""
    require_all(request.principal, Scope.ADMIN)
    for name in body.types:
        check_name("job type", name)
    about = {"database": request.principal.database, "key": key_of(request, body.key)}
    return json_response(await site.jobs.run(RegisterTypes(types=body.types, **about)))


async def schedule(site: Site, request: Request, body: asked.ScheduleRequest) -> Response:
    """Add a schedule, or change it: it may be another's, so whoever may only add jobs may not."""
    (template,) = await admitted(site, request, [asked.new_job(body.job)])
    name = check_new_schedule(request, body.name)
    jobs = jobs_of(site, request)
    next_at = await jobs.schedule(name, template, cron=body.cron, every=body.every_seconds, timezone=body.timezone)
    return json_response(Scheduled(next_at))


async def change_schedule(site: Site, request: Request, body: asked.ChangeScheduleRequest) -> Response:
    """Let a schedule rest, or remove it. To run it, or let it go on, is to run code."""
    if body.run or body.paused is False:
        check_scope(request, Scope.SUBMIT_JOBS)
    name = await check_schedule(site, request, check_name("schedule", body.name))
    about = {"database": request.principal.database, "key": key_of(request, body.key)}
    operation = ChangeSchedule(name=name, paused=body.paused, remove=body.remove, run=body.run, **about)
    scheduled: Scheduled = await site.jobs.run(operation)
    return json_response(scheduled)


async def stop_workers(site: Site, request: Request, body: asked.StopWorkersRequest) -> Response:
    """Ask workers to finish and end."""
    require_all(request.principal, Scope.ADMIN)
    about = {"database": request.principal.database, "key": key_of(request, body.key)}
    return json_response(await site.jobs.run(StopWorkers(workers=body.workers, **about)))


# ── looking ──


async def find(site: Site, request: Request, query: asked.FindJobsQuery) -> Response:
    """Jobs by state, queue, type and batch."""
    return json_response(await found(site, request, query))


async def show(site: Site, request: Request, query: asked.JobQuery) -> Response:
    """One job."""
    return json_response(await visible(site, request, query.id))


async def wait(site: Site, request: Request, query: asked.WaitForJobQuery) -> Response:
    """The job once it has ended, or as it stands when the time is over."""
    job = await visible(site, request, query.id)
    if not 0 <= query.seconds <= site.config.wait_seconds_max:
        raise InvalidOption(f"seconds must be 0 to {site.config.wait_seconds_max:g}; got {query.seconds!r}")
    if job.state not in FINISHED and query.seconds:
        request.park()
        with suppress(TimeoutError):
            await jobs_of(site, request).wait(job.id, query.seconds)
        job = await visible(site, request, job.id)
    return json_response(job)


async def attempts(site: Site, request: Request, query: asked.JobQuery) -> Response:
    """A job's attempts."""
    job = await visible(site, request, query.id)
    return json_response(await jobs_of(site, request).attempts(job.id))


async def dependencies(site: Site, request: Request, query: asked.JobQuery) -> Response:
    """The jobs that a job depends on."""
    job = await visible(site, request, query.id)
    return json_response(await jobs_of(site, request).dependencies(job.id))


async def queues(site: Site, request: Request) -> Response:
    """Job queues with how many jobs are in which state."""
    found = await jobs_of(site, request).queues()
    return json_response([queue for queue in found if request.principal.may_use(queue.queue)])


async def minutes(site: Site, request: Request, query: asked.MinutesQuery) -> Response:
    """What was done in each minute."""
    found = await site.store.ask(ListJobMinutes(request.principal.database, check_timestamp(query.since)))
    return json_response([minute for minute in found if request.principal.may_use(minute.queue)])


async def limits(site: Site, request: Request) -> Response:
    """The limits of types."""
    found = await jobs_of(site, request).limits()
    return json_response([one for one in found if request.principal.may_use(one.queue)])


async def config(site: Site, request: Request) -> Response:
    """The settings that were set."""
    found = await site.store.ask(ListJobConfig(request.principal.database))
    theirs = request.principal.may_use
    said = [
        asked.JobSetting(queue, name, value) for (queue, name), value in found.items() if not queue or theirs(queue)
    ]
    return json_response(said)


async def schedules(site: Site, request: Request) -> Response:
    """The schedules."""
    found = await jobs_of(site, request).schedules()
    return json_response(visible_schedules(request, found))


async def types(site: Site, request: Request) -> Response:
    """How registered functions are run, by type: those that go to queues of theirs."""
    found = await jobs_of(site, request).types()
    theirs = request.principal.may_use
    return json_response({name: policy for name, policy in found.items() if theirs(policy.queue or QUEUE_DEFAULT)})


async def workers(site: Site, request: Request) -> Response:
    """The workers."""
    require_all(request.principal, Scope.ADMIN)
    return json_response(await jobs_of(site, request).workers())
