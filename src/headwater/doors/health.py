"""What a server says of itself: whether it is well, which version it is, and what this address offers."""

import msgspec

from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response, json_response, problem_response, text_response
from headwater.errors import HeadwaterError

PAGE = """\
Headwater {version}: one durable log in the database you already have, and every way of drinking from it.

  GET  /health                    whether this server and its store are well
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
    lsn: int


class Version(msgspec.Struct, frozen=True):
    """The version of a server."""

    version: str


async def home(site: Site, request: Request) -> Response:
    """What there is."""
    return text_response(PAGE.format(version=site.version))


async def show_version(site: Site, request: Request) -> Response:
    """Which version this is."""
    return json_response(Version(site.version))


async def health(site: Site, request: Request) -> Response:
    """Well means that the store answers a question, not only that this process runs."""
    try:
        lsn = await site.store.last_lsn()
    except HeadwaterError as error:
        return problem_response(503, error.code, "the store does not answer", request_id=request.id)
    return json_response(Health("ok", site.version, site.store.traits.name, lsn))


ROUTES = (
    Route(method="GET", path="/", handler=home, summary="What there is", content_type="text/plain"),
    Route(method="GET", path="/version", handler=show_version, summary="Which version this is", gives=Version),
    Route(method="GET", path="/health", handler=health, summary="Whether server and store are well", gives=Health),
)
