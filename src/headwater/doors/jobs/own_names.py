"""Ids of jobs and names of schedules as their callers know them.

Whoever may use some queues alone chooses among names of their own (`Principal.own_name`), which are kept with a mark.
Here, in one place for all routes about jobs, the mark is taken out of whatever is answered: documents, errors, results,
what a job printed, events. And it is decided which of the jobs in their queues they see: their own, and those under ids
that nobody chose among theirs. Where they have one of the same id, theirs is the one that it names.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import wraps
from typing import Any

import msgspec

from headwater.doors.routes import Route, RouteHandler
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.errors import HeadwaterError
from headwater.model.names import NAME_LENGTH_MAX
from headwater.model.principal import Principal
from headwater.stores.job_questions import FindJob, JobStatus, ScheduleStatus


def with_own_names(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Routes whose answers have the callers' own names in them."""
    return tuple(msgspec.structs.replace(route, handler=in_own_names(route.handler)) for route in routes)


def in_own_names(handler: RouteHandler) -> RouteHandler:
    """A handler whose answers and errors have the caller's own names in them."""

    @wraps(handler)
    async def answer(site: Site, request: Request, *values: Any) -> Response:
        principal = request.principal
        try:
            response = await handler(site, request, *values)
        except HeadwaterError as error:
            error.args = tuple(_shown(principal, value) for value in error.args)
            raise
        if principal.may_use_all():
            return response
        chunks = None if response.chunks is None else _shown_chunks(principal, response.chunks)
        return msgspec.structs.replace(response, body=principal.shown(response.body), chunks=chunks)

    return answer


def _shown(principal: Principal, value: object) -> object:
    if not isinstance(value, str):
        return value
    return principal.shown(value.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


async def _shown_chunks(principal: Principal, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in chunks:
            yield principal.shown(chunk)
    finally:
        await chunks.aclose()


async def is_visible(site: Site, principal: Principal, id: str, queue: str) -> bool:
    """Whether somebody sees the job of an id, as it is kept, in a queue."""
    if principal.may_use_all():
        return True
    if not principal.may_use(queue) or not principal.may_see_name(id):
        return False
    own = principal.own_name(id)
    if principal.is_own_name(id) or len(own) > NAME_LENGTH_MAX:
        return True
    return await site.queues.ask(FindJob(principal.database, own)) is None


async def visible_jobs(site: Site, request: Request, jobs: Iterable[JobStatus]) -> list[JobStatus]:
    """Those of some jobs that the caller sees."""
    return [job for job in jobs if await is_visible(site, request.principal, job.id, job.queue)]


def visible_schedules(request: Request, schedules: Sequence[ScheduleStatus]) -> list[ScheduleStatus]:
    """Those of all schedules that the caller sees."""
    principal = request.principal
    names = {one.name for one in schedules}

    def is_seen(name: str) -> bool:
        return principal.is_own_name(name) or principal.may_use_all() or principal.own_name(name) not in names

    return [
        one
        for one in schedules
        if principal.may_use(one.job.queue) and principal.may_see_name(one.name) and is_seen(one.name)
    ]
