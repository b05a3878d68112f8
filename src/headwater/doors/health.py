"""What a server says of itself: whether it is well, which version it is, and what this address offers."""

import asyncio

import msgspec

from headwater.doors.holds import is_in_maintenance
from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.status_page import status_page
from headwater.doors.wire import Request, Response, json_response, problem_response, public_detail, text_response
from headwater.errors import HeadwaterError, StoreFull, StoreSilent
from headwater.model.principal import Scope
from headwater.stores.questions import FindLastLsn

HEALTH_SECONDS = 0.5

PAGE = """\
Headwater {version}: one durable log in the database you already have, and every way of drinking from it.

  GET  /health                    whether this server and its store are well
  GET  /ready                     whether it takes work now
  GET  /metrics                   what it did and how its queues are, for Prometheus
  GET  /version                   the version of this server
  POST /api/v1/push               append messages to queues
  GET  /api/v1/pop/queue/{{queue}}  lease the next ones, or wait for them
  POST /api/v1/ack                say that they are done

The queue API is that of queen-mq: its clients work unchanged. docs/http.md has all of it.
"""


class Health(msgspec.Struct, frozen=True):
    """A server that is well."""

    status: str
    version: str
    store: str
    lsn: int | msgspec.UnsetType = msgspec.UNSET


class Version(msgspec.Struct, frozen=True):
    """The version of a server."""

    version: str


async def home(site: Site, request: Request) -> Response:
    """What there is: for a browser the queues and how they are, for others what can be asked."""
    if "text/html" in request.headers.get("accept", "") and request.principal.may(Scope.METRICS):
        return await status_page(site, request)
    return text_response(PAGE.format(version=site.version))


async def show_version(site: Site, request: Request) -> Response:
    """Which version this is."""
    return json_response(Version(site.version))


async def health(site: Site, request: Request) -> Response:
    """Well means that the store answers a question, not only that this process runs; a bucket that is full or silent
    for now is no reason to start another. Where the log ends is told to who may know of all databases."""
    try:
        lsn = await _find_lsn(site)
    except HeadwaterError as error:
        detail = f"the store does not answer: {public_detail(error)}"
        return problem_response(503, error.code, detail, request_id=request.id)
    shown = lsn if lsn is not None and request.principal.may(Scope.OPERATOR) else msgspec.UNSET
    return json_response(Health("ok", site.version, site.queues.traits.name, shown))


async def _find_lsn(site: Site) -> int | None:
    """Where the log ends; None when that can only be told once something lands."""
    if not site.queues.traits.answers_wait:
        return await site.queues.ask(FindLastLsn())
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            return await site.queues.ask(FindLastLsn())
    except (StoreFull, StoreSilent, TimeoutError):
        return None


async def ready(site: Site, request: Request) -> Response:
    """Ready means well, not on its way down, not in maintenance, and with room for more work.

    Maintenance is that of the caller's database; whoever watches over a server shows no credential and is told of the
    database `main`.
    """
    if site.queues.intentions.draining:
        return problem_response(503, "stopping", "this server is on its way down", request_id=request.id)
    if site.committer.pending >= site.config.pending_max:
        return problem_response(503, "overloaded", "too many operations wait already", request_id=request.id)
    if site.committer.full:
        return problem_response(503, StoreFull.code, "the store is full: pushes are refused", request_id=request.id)
    if await is_in_maintenance(site, request):
        detail = "pushes or pops are held off for maintenance"
        return problem_response(503, "maintenance", detail, request_id=request.id)
    return await health(site, request)


ROUTES = (
    Route(method="GET", path="/ready", handler=ready, summary="Whether it takes work now", gives=Health, lenient=True),
    Route(method="GET", path="/", handler=home, summary="What there is", content_types=("text/plain", "text/html")),
    Route(method="GET", path="/version", handler=show_version, summary="Which version this is", gives=Version),
    Route(
        method="GET",
        path="/health",
        handler=health,
        summary="Whether server and store are well",
        gives=Health,
        lenient=True,
    ),
)
