"""The files of this folder over HTTP, as they are. They say nothing of a store, so everybody may have them."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response

_SCRIPT = "text/javascript; charset=utf-8"
# What a page may load: our own files, and a WebSocket to where it comes from.
_PAGE_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
)

Handler = Callable[[Site, Request], Awaitable[Response]]


def _serving(name: str, content_type: str, headers: tuple[tuple[str, str], ...] = ()) -> Handler:
    """A handler that gives one file. Nobody keeps it: they are small, and after an update everybody has the new one."""
    answer = Response(content_type=content_type, body=files(__package__).joinpath(name).read_bytes(), headers=headers)

    async def serve(site: Site, request: Request) -> Response:
        return answer

    return serve


def _route(path: str, handler: Handler, summary: str, content_type: str) -> Route:
    return Route(method="GET", path=path, handler=handler, summary=summary, content_types=(content_type,), lenient=True)


ROUTES = (
    _route("/headwater.js", _serving("headwater.js", _SCRIPT), "The client for browsers", "text/javascript"),
    _route("/headwater.d.ts", _serving("headwater.d.ts", "text/plain; charset=utf-8"), "Its types", "text/plain"),
    _route(
        "/demo/canvas",
        _serving("canvas.html", "text/html; charset=utf-8", _PAGE_HEADERS),
        "A canvas to draw on together",
        "text/html",
    ),
    _route("/demo/canvas.css", _serving("canvas.css", "text/css; charset=utf-8"), "Its looks", "text/css"),
    _route("/demo/canvas.js", _serving("canvas.js", _SCRIPT), "What it does", "text/javascript"),
)
