"""The files of this folder over HTTP, as they are. They say nothing of a store, so everybody may have them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from pathlib import Path

from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.wire import Refused, Request, Response

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


def find_rxdb(environment: Mapping[str, str]) -> Path:
    """Where `script/rxdb` puts RxDB, which is no part of this package."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headwater" / "rxdb.js"


async def serve_rxdb(site: Site, request: Request) -> Response:
    """RxDB as one module. It is looked for with every request, so that whoever fetches it needs no other server."""
    try:
        found = await asyncio.to_thread(find_rxdb(os.environ).read_bytes)
    except FileNotFoundError:
        raise Refused(404, "not_found", "RxDB is no part of Headwater: script/rxdb fetches it") from None
    return Response(content_type=_SCRIPT, body=found)


def _route(path: str, handler: Handler, summary: str, content_type: str) -> Route:
    return Route(method="GET", path=path, handler=handler, summary=summary, content_types=(content_type,), lenient=True)


# What `headwater.js` imports.
PARTS = ("documents", "events", "live", "order", "room")

DEMOS = {
    "canvas": "A canvas to draw on together",
    "todo": "A to-do list that everybody sees, on a live query",
    "offline": "The same list, which works without a server: RxDB keeps it in the browser",
}


def _text(path: str, file: str, kind: str, summary: str, headers: tuple[tuple[str, str], ...] = ()) -> Route:
    return _route(path, _serving(file, f"{kind}; charset=utf-8", headers), summary, kind)


def _script(path: str, file: str, summary: str) -> Route:
    return _text(path, file, "text/javascript", summary)


ROUTES = (
    _script("/headwater.js", "headwater.js", "The client for browsers"),
    *(_script(f"/headwater/{name}.js", f"headwater/{name}.js", "A part of it") for name in PARTS),
    _text("/headwater.d.ts", "headwater.d.ts", "text/plain", "Its types"),
    *(_text(f"/demo/{name}", f"{name}.html", "text/html", about, _PAGE_HEADERS) for name, about in DEMOS.items()),
    *(_script(f"/demo/{name}.js", f"{name}.js", "What it does") for name in DEMOS),
    _script("/demo/list-view.js", "list-view.js", "What both lists show"),
    _script("/demo/offline-worker.js", "offline-worker.js", "Keeps the files of the page for when there is no server"),
    _text("/demo/canvas.css", "canvas.css", "text/css", "Its looks"),
    _text("/demo/list.css", "list.css", "text/css", "The looks of both lists"),
    _route("/demo/rxdb.js", serve_rxdb, "RxDB, where somebody has fetched it", "text/javascript"),
)
