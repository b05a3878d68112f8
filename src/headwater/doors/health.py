"""What a server says of itself: whether it is well, which version it is, and what this address offers."""

from headwater.doors.wire import Handler, Request, Response, json_response, problem_response, text_response
from headwater.errors import HeadwaterError
from headwater.stores.contract import Store

PAGE = """\
Headwater {version}: one durable log in the database you already have, and every way of drinking from it.

  GET /health    whether this server and its store are well
  GET /version   the version of this server

Queues are used through the library and the command line for now; `headwater --help` shows how.
"""


def health_door(store: Store, version: str) -> Handler:
    """The routes `/`, `/health` and `/version` over an open store."""

    async def home(request: Request) -> Response:
        return text_response(PAGE.format(version=version))

    async def show_version(request: Request) -> Response:
        return json_response({"version": version})

    async def health(request: Request) -> Response:
        return await check_health(request, store, version)

    routes: dict[str, Handler] = {"/": home, "/health": health, "/version": show_version}

    async def answer(request: Request) -> Response:
        return await find_route(routes, request)(request)

    return answer


async def check_health(request: Request, store: Store, version: str) -> Response:
    """Well means that the store answers a question, not only that this process runs."""
    try:
        lsn = await store.last_lsn()
    except HeadwaterError as error:
        return problem_response(503, error.code, "the store does not answer", request_id=request.id)
    return json_response({"status": "ok", "version": version, "store": store.traits.name, "lsn": lsn})


def find_route(routes: dict[str, Handler], request: Request) -> Handler:
    """The route for a path that is only read; or one that says why there is none."""
    route = routes.get(request.path)
    if route is None:
        return not_found
    return route if request.method in ("GET", "HEAD") else only_read


async def not_found(request: Request) -> Response:
    """There is nothing at this path."""
    return problem_response(404, "not_found", "there is nothing here; / says what there is", request_id=request.id)


async def only_read(request: Request) -> Response:
    """The path is there, and takes no writes."""
    return problem_response(
        405,
        "method_not_allowed",
        "this path takes GET and HEAD",
        request_id=request.id,
        headers=(("allow", "GET, HEAD"),),
    )
