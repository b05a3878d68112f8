"""Jobs over HTTP: each handler checks who asks, calls the service, and gives back what it says.

A token with `jobs:submit` adds functions, and commands that are allowed by name, and sees what became of them;
everything else is an admin's. The queues of a token are job queues here, and what is not theirs is answered as if it
were not there.
"""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress

import msgspec

from headwater.doors.jobs import shapes
from headwater.doors.jobs.own_names import is_visible, visible_jobs, visible_schedules
from headwater.doors.site import Site, check_use, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption, JobMissing, NotAllowed, QueueMissing
from headwater.log.job_operations import DropJobs, NewJob, StopWorkers
from headwater.model.job import COMMAND_PREFIX, FINISHED, QUEUE_DEFAULT, SHELL, runs_command
from headwater.model.job_policy import JobPolicy
from headwater.model.names import NAME_LENGTH_MAX, check_name
from headwater.model.principal import Scope, require_all
from headwater.services.admission import admit as admit_operation
from headwater.services.job_documents import (
    DependencyDocument,
    FullJobDocument,
    attempt_document,
    job_document,
    job_of,
    limit_document,
    minute_document,
    queue_document,
    schedule_document,
    worker_document,
)
from headwater.services.job_options import decode_call
from headwater.services.jobs import Jobs, named
from headwater.stores.job_questions import JobFilter, JobStatus


def jobs_of(site: Site, request: Request) -> Jobs:
    """The jobs of the caller's database."""
    return Jobs(site.jobs, request.principal.database)


# ── adding, and what became of it ──


async def add(site: Site, request: Request, body: shapes.AddJobs) -> Response:
    """Add functions and allowed commands as jobs, all of them or none."""
    if not body.jobs:
        raise InvalidOption("name at least one job")
    made = await admitted(site, request, [job_of(document) for document in body.jobs])
    handles = await jobs_of(site, request).add_many(made, idempotency_key=key_of(request, body.key))
    return json_response([shapes.AddedJob(handle.id, handle.duplicate) for handle in handles], status=201)


async def admitted(site: Site, request: Request, jobs: Sequence[NewJob]) -> list[NewJob]:
    """Jobs as they may come over HTTP: functions, and commands that the operator allows by name, in queues of theirs.

    Any other command is for this machine's own shell.
    """
    types = await jobs_of(site, request).types()
    found = [admit(site, request, job, types) for job in jobs]
    if request.principal.may_use_all():
        return found
    together = {job.id for job in found}
    return [await _with_own_names(site, request, job, together) for job in found]


async def _with_own_names(site: Site, request: Request, job: NewJob, together: Set[str]) -> NewJob:
    """Ids and keys are those of the whole database: theirs must not meet those of queues that they may not use. Nor can
    a job of such a queue be waited for: what it gave would be handed to theirs."""
    own = request.principal.check_own_name
    needs = [
        own("job", name) if name in together else (await visible(site, request, name)).id for name in job.depends_on
    ]
    return msgspec.structs.replace(
        job,
        id=own("job", job.id),
        depends_on=tuple(needs),
        unique_key=own("unique_key", job.unique_key),
        concurrency_key=own("concurrency_key", job.concurrency_key),
    )


def admit(site: Site, request: Request, job: NewJob, types: Mapping[str, JobPolicy]) -> NewJob:
    """One such job; its queue is said from here on, so that it is the one that was checked."""
    refuse_command(job)
    if runs_command(job.type):
        return commanded(site, request, job)
    queue = job.queue or types.get(job.type, JobPolicy()).queue or QUEUE_DEFAULT
    check_use(request, check_name("queue", queue))
    return msgspec.structs.replace(job, queue=queue)


def refuse_command(job: NewJob) -> None:
    """Raises when somebody wants to say over HTTP what is run, where, or with which environment."""
    if job.type == SHELL or job.command or job.argv or job.env or job.cwd:
        raise NotAllowed("commands cannot be enqueued over HTTP; give the type of a function, and its arguments")


def commanded(site: Site, request: Request, job: NewJob) -> NewJob:
    """The job of a command template, with the caller's values in its places, under a type that can be limited."""
    template = site.commands.get(job.type.removeprefix(COMMAND_PREFIX))
    if template is None:
        raise NotAllowed(f"{job.type!r:.80} is not among the commands that the operator of this server allows")
    args, kwargs = decode_call(job.arguments)
    if args:
        raise InvalidOption("the parameters of a command are given by name: use kwargs, not args")
    if template.queue and job.queue not in ("", QUEUE_DEFAULT, template.queue):
        raise InvalidOption(f"{job.type} goes to the queue {template.queue}; leave out queue")
    queue = template.queue or job.queue or QUEUE_DEFAULT
    check_use(request, check_name("queue", queue))
    timeout = job.timeout or template.timeout
    if template.timeout is not None and (timeout or 0.0) > template.timeout:
        raise InvalidOption(f"{job.type} may run for {template.timeout:g} s; got a timeout of {timeout:g}")
    return msgspec.structs.replace(
        job,
        queue=queue,
        timeout=timeout,
        arguments=NewJob().arguments,
        argv=template.fill(kwargs),
        cwd=template.cwd,
        env=template.env,
    )


async def show(site: Site, request: Request, id: str) -> Response:
    """One job with its attempts."""
    job = await visible(site, request, id)
    return json_response(await whole(site, request, job))


async def wait(site: Site, request: Request, query: shapes.WaitQuery, id: str) -> Response:
    """The job once it has ended, or as it stands when the time is over."""
    return json_response(await whole(site, request, await ended(site, request, id, query.seconds)))


async def ended(site: Site, request: Request, id: str, seconds: float) -> JobStatus:
    """A job that the caller may see, once it has ended or the time is over."""
    job = await visible(site, request, id)
    if not 0 <= seconds <= site.config.wait_seconds_max:
        raise InvalidOption(f"seconds must be 0 to {site.config.wait_seconds_max:g}; got {seconds!r}")
    if job.state in FINISHED or not seconds:
        return job
    request.park()
    with suppress(TimeoutError):
        await jobs_of(site, request).wait(job.id, seconds)
    return await visible(site, request, job.id)


async def whole(site: Site, request: Request, job: JobStatus) -> FullJobDocument:
    """Everything that is known of a job."""
    jobs = jobs_of(site, request)
    attempts = [attempt_document(attempt) for attempt in await jobs.attempts(job.id)]
    needs: list[DependencyDocument] = [
        {"id": name, "state": state.value} for name, state in await jobs.dependencies(job.id)
    ]
    return {**job_document(job), "attempt_list": attempts, "depends_on": needs}


async def visible(site: Site, request: Request, id: str) -> JobStatus:
    """A job that the caller may see, by its id or by the one they chose: one that is not theirs is not there."""
    own = request.principal.own_name(id)
    for name in dict.fromkeys((own if len(own) <= NAME_LENGTH_MAX else id, id)):
        with suppress(JobMissing):
            job = await jobs_of(site, request).show(name)
            if await is_visible(site, request.principal, job.id, job.queue):
                return job
    raise JobMissing(f"there is no job {id!r}")


# ── looking ──


async def list_jobs(site: Site, request: Request, query: shapes.JobsQuery) -> Response:
    """Jobs by state, queue, type and batch."""
    for name in query.__struct_fields__:
        if getattr(query, name) == "":
            raise InvalidOption(f"{name} is empty; leave it out, or say which is meant")
    return json_response([job_document(job) for job in await found(site, request, query)])


async def found(site: Site, request: Request, query: shapes.JobsQuery | JobFilter) -> list[JobStatus]:
    """The jobs that are asked for, as far as the caller sees them. What is not theirs takes no place in the list."""
    jobs = jobs_of(site, request)
    queues = [query.queue]
    if not query.queue and not request.principal.may_use_all():
        # Where there are none of theirs, what is asked for is still checked.
        queues = [one.queue for one in await jobs.queues() if request.principal.may_use(one.queue)] or [""]
    listed: list[JobStatus] = []
    for queue in queues:
        some = await jobs.list(
            state=query.state,
            queue=queue or None,
            type=query.type or None,
            batch=query.batch or None,
            error=query.error or "",
            limit=query.limit,
        )
        listed += await visible_jobs(site, request, some)
        if len(listed) >= query.limit:
            break
    return listed[: query.limit]


async def queues(site: Site, request: Request) -> Response:
    """Job queues with how many jobs are in which state."""
    found = await jobs_of(site, request).queues()
    return json_response([queue_document(queue) for queue in found if request.principal.may_use(queue.queue)])


async def stats(site: Site, request: Request, query: shapes.StatsQuery) -> Response:
    """What was done in each minute."""
    found = await jobs_of(site, request).minutes(query.hours)
    return json_response([minute_document(minute) for minute in found if request.principal.may_use(minute.queue)])


async def workers(site: Site, request: Request) -> Response:
    """The workers of the database."""
    require_all(request.principal, Scope.ADMIN)
    return json_response([worker_document(worker) for worker in await jobs_of(site, request).workers()])


async def schedules(site: Site, request: Request) -> Response:
    """The schedules of the database."""
    found = await jobs_of(site, request).schedules()
    return json_response([schedule_document(one) for one in visible_schedules(request, found)])


async def config(site: Site, request: Request) -> Response:
    """The settings as they hold for the database."""
    return json_response(await jobs_of(site, request).config())


# ── changing ──


async def cancel(site: Site, request: Request, body: shapes.JobNames) -> Response:
    """Cancel jobs."""
    ids = await check_theirs(site, request, body.ids)
    changed = await jobs_of(site, request).cancel(*ids)
    return json_response(shapes.ChangedNames(list(changed)))


async def retry(site: Site, request: Request, body: shapes.JobNames) -> Response:
    """Give jobs all their attempts again."""
    ids = await check_theirs(site, request, body.ids)
    changed = await jobs_of(site, request).retry(*ids)
    return json_response(shapes.ChangedNames(list(changed)))


async def drop(site: Site, request: Request, body: shapes.JobNames) -> Response:
    """Forget jobs that have ended."""
    ids = await check_theirs(site, request, body.ids)
    jobs = jobs_of(site, request)
    changed = await jobs.change(DropJobs(database=jobs.database, ids=named(ids)))
    return json_response(shapes.DroppedNames(changed.ids, changed.cancelled))


async def check_theirs(site: Site, request: Request, ids: list[str]) -> list[str]:
    """The ids of jobs that are theirs; raises when one of them is not there, or not theirs."""
    if len(ids) > site.config.batch_max:
        raise InvalidOption(f"at most {site.config.batch_max:,} jobs at once; got {len(ids):,}")
    if request.principal.may_use_all():
        return ids
    return [(await visible(site, request, name)).id for name in ids]


async def clean_up(site: Site, request: Request, body: shapes.CleanUp) -> Response:
    """Forget jobs that ended long ago."""
    if body.queue:
        check_use(request, body.queue)
    else:
        require_all(request.principal, Scope.ADMIN)
    found = await jobs_of(site, request).drop_old(older_than=body.older_than, state=body.state, queue=body.queue)
    return json_response(shapes.Dropped(found.dropped, found.kept, found.cancelled))


async def pause(site: Site, request: Request, queue: str) -> Response:
    """Hand out no more jobs of a queue."""
    check_use(request, queue)
    await jobs_of(site, request).pause(queue)
    return json_response(shapes.QueuePaused(queue, paused=True))


async def resume(site: Site, request: Request, queue: str) -> Response:
    """Hand out the jobs of a queue again."""
    check_use(request, queue)
    await jobs_of(site, request).resume(queue)
    return json_response(shapes.QueuePaused(queue, paused=False))


async def limit(site: Site, request: Request, body: shapes.LimitType) -> Response:
    """Limit one type of job in one queue."""
    check_use(request, body.queue)
    count = await jobs_of(site, request).limit(
        body.type,
        queue=body.queue,
        rate=body.rate,
        per=body.per,
        burst=body.burst,
        concurrency=body.concurrency,
        each_key=body.each_key,
    )
    return json_response(shapes.LimitedJobs(count))


async def limits(site: Site, request: Request) -> Response:
    """The limits of types, and of each limit key of a type."""
    found = await jobs_of(site, request).limits()
    return json_response([limit_document(one) for one in found if request.principal.may_use(one.queue)])


async def clear_limit(site: Site, request: Request, query: shapes.LimitQuery) -> Response:
    """Lift the limits of a type in a queue."""
    check_use(request, query.queue)
    lifted = await jobs_of(site, request).clear_limit(query.type, queue=query.queue)
    return json_response(shapes.LimitLifted(query.type, query.queue, lifted))


async def run_schedule(site: Site, request: Request, name: str) -> Response:
    """Enqueue the job of a schedule now: that runs code."""
    name = await check_schedule(site, request, name)
    job = await jobs_of(site, request).run_schedule(name)
    return json_response(shapes.RanJob(job.id), status=201)


async def configure(site: Site, request: Request, body: shapes.Setting, name: str) -> Response:
    """Remember a setting, or forget it."""
    require_all(request.principal, Scope.ADMIN)
    jobs = jobs_of(site, request)
    await jobs.configure(name, body.value, queue=body.queue)
    return json_response(shapes.SettingNow(name, (await jobs.config(body.queue))[name]))


async def put_schedule(site: Site, request: Request, body: shapes.AddSchedule, name: str) -> Response:
    """Add a schedule, or change it: it may be another's, so whoever may only add jobs may not."""
    (template,) = await admitted(site, request, [job_of(body.job)])
    name = check_new_schedule(request, name)
    jobs = jobs_of(site, request)
    await jobs.schedule(name, template, cron=body.cron, every=body.every, timezone=body.timezone)
    return await one_schedule(site, request, name)


async def pause_schedule(site: Site, request: Request, name: str) -> Response:
    """Let a schedule rest."""
    name = await check_schedule(site, request, name)
    await jobs_of(site, request).pause_schedule(name)
    return await one_schedule(site, request, name)


async def resume_schedule(site: Site, request: Request, name: str) -> Response:
    """Let a schedule go on: that runs code."""
    name = await check_schedule(site, request, name)
    await jobs_of(site, request).resume_schedule(name)
    return await one_schedule(site, request, name)


async def remove_schedule(site: Site, request: Request, name: str) -> Response:
    """Remove a schedule."""
    name = await check_schedule(site, request, name)
    await jobs_of(site, request).unschedule(name)
    return json_response(shapes.ScheduleRemoved(name, removed=True))


def check_new_schedule(request: Request, name: str) -> str:
    """The name of a schedule that they add or change: always among their own, so that what somebody else put into their
    queue is not changed by meeting its name."""
    return request.principal.check_own_name("schedule", check_name("schedule", name))


async def check_schedule(site: Site, request: Request, name: str) -> str:
    """The name of a schedule of theirs; raises when it is not there, or not theirs."""
    own = request.principal.own_name(check_name("schedule", name))
    theirs = {one.name for one in visible_schedules(request, await jobs_of(site, request).schedules())}
    for known in (own, name):
        if known in theirs:
            return known
    raise JobMissing(f"there is no schedule {name!r}")


async def one_schedule(site: Site, request: Request, name: str) -> Response:
    """A schedule as it stands."""
    for one in await jobs_of(site, request).schedules():
        if one.name == name:
            return json_response(schedule_document(one))
    raise QueueMissing(f"there is no schedule {name!r}")


async def stop_workers(site: Site, request: Request, body: shapes.StopNames) -> Response:
    """Ask workers to finish and end."""
    require_all(request.principal, Scope.ADMIN)
    jobs = jobs_of(site, request)
    names = None if body.ids is None else tuple(body.ids)
    changed = await jobs.service.run(
        admit_operation(StopWorkers(database=jobs.database, workers=names), jobs.service.config)
    )
    return json_response(shapes.ChangedNames(changed.ids))
