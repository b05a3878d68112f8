"""The doors as an ASGI app: for people who mount Headwater in the FastAPI, Starlette or Django app they already run.

The store is opened when the server says that it starts up, or, where a mounted app is not told, at the first request;
then it goes with the event loop. One event loop has it at a time.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec

from headwater.doors.asgi_socket import AsgiSocket, refuse_websocket
from headwater.doors.edge.budget import Budget, Hold, has_too_much, owner_of
from headwater.doors.edge.limits import Limits
from headwater.doors.event_stream import as_event_stream
from headwater.doors.sessions import OpenSessions
from headwater.doors.wire import (
    CONTINUE,
    Handler,
    Request,
    Response,
    can_be_asked_again,
    error_response,
    no_room,
    not_delivered,
    problem_response,
    too_much_to_take,
)
from headwater.errors import ConfigError, HeadwaterError, WrongLoop

log = logging.getLogger(__name__)

_limits = Limits()

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class AsgiApp:
    """Serves a door that opens with the app. Also a context manager, for a host app's own start and stop."""

    def __init__(
        self,
        open_door: Callable[[], AbstractAsyncContextManager[Handler]],
        *,
        body_bytes_max: int = _limits.body_bytes_max,
        bodies_bytes_max: int = _limits.bodies_bytes_max,
    ) -> None:
        self._open_door = open_door
        self.budget = Budget(bodies_bytes_max, body_bytes_max)
        self.answers = Budget(bodies_bytes_max, body_bytes_max)
        self.sessions = OpenSessions()
        self._body_bytes_max = body_bytes_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._opened: AbstractAsyncContextManager[Handler] | None = None
        self._handler: Handler | None = None

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """One conversation of the ASGI protocol."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._converse(scope, receive, send)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def in_front_of(self, app: Application, *, at: str) -> Application:
        """This app at a path and below it, another one everywhere else: for hosts that mount no apps, as Django.

        The server's start and stop are told to this app alone, because Django's does not listen to them.

        >>> application = headwater.asgi("shop.db").in_front_of(get_asgi_application(), at="/queues")
        """
        if not at.startswith("/") or at.endswith("/"):
            raise ConfigError(f"at must be a path such as /queues, without a slash at its end; got {at!r}")

        async def choose(scope: Event, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await self(scope, receive, send)
            elif f"{_below(scope['path'], _root(scope))}/".startswith(f"{at}/"):
                await self(_mounted(scope, at), receive, send)
            else:
                await app(scope, receive, send)

        return choose

    async def _start(self) -> Handler:
        loop = asyncio.get_running_loop()
        if self._handler is not None and self._loop is loop:
            return self._handler
        self._settle_on(loop)
        async with self._opening:
            if self._handler is None:
                self._opened = self._open_door()
                self._handler = await self._opened.__aenter__()
            return self._handler

    def _settle_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """A store that went with its event loop is forgotten, as between the requests of a test client."""
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise WrongLoop(
                "this app serves another event loop already; give each event loop an app of its own, "
                "and a test client its `with`"
            )
        self._loop, self._opening, self._opened, self._handler = loop, asyncio.Lock(), None, None

    async def close(self) -> None:
        """Say goodbye to the clients of sessions, and let go of the store."""
        self.sessions.close()
        self.sessions = OpenSessions()
        opened, self._opened, self._handler, self._loop = self._opened, None, None, None
        if opened is not None:
            await opened.__aexit__(None, None, None)

    # ── the life of the app ──

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.startup":
                try:
                    await self._start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                await send({"type": "lifespan.startup.complete"})
            elif event["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ── one request ──

    async def _answer(self, scope: Event, receive: Receive, send: Send) -> None:
        request_id = secrets.token_hex(8)
        try:
            handler = await self._start()
        except HeadwaterError as error:
            log.error("request %s: there is no store to ask: %s", request_id, error)
            await _send(error_response(error, request_id), scope, receive, send)
            return
        head = _request(scope, request_id)
        if has_too_much(self.answers, head):
            await _send(too_much_to_take(request_id), scope, receive, send)
            return
        hold = Hold(self.budget, owner_of(head))
        try:
            body = await self._read(handler, head, hold, receive)
            if isinstance(body, Response):
                await _send(body, scope, receive, send)
            elif body is not None:
                request = msgspec.structs.replace(head, body=body, awaits_body=False)
                response = await _while_client_stays(self._respond(handler, request), receive)
                if response is not None:
                    let_go = asyncio.Event()
                    if request.method != "HEAD":
                        outbox_bytes_max = _limits.outbox_bytes_max
                        response = as_event_stream(response, self.sessions, outbox_bytes_max, let_go.set)
                    if has_too_much(self.answers, request) and can_be_asked_again(request, response):
                        not_delivered(response)
                        response = too_much_to_take(request_id)
                    with self.answers.holding(owner_of(request), len(response.body)):
                        await _send(response, scope, receive, send, let_go)
        finally:
            hold.release()

    async def _converse(self, scope: Event, receive: Receive, send: Send) -> None:
        """A client asks for a WebSocket: a session if the route has one for it, else the refusal."""
        request = msgspec.structs.replace(_request({**scope, "method": "GET"}, secrets.token_hex(8)), awaits_body=False)
        request.headers.setdefault("upgrade", "websocket")
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            response = await self._respond(await self._start(), request)
        except HeadwaterError as error:
            log.error("request %s: there is no store to ask: %s", request.id, error)
            response = error_response(error, request.id)
        if response.session is None:
            await refuse_websocket(response, scope, send)
        else:
            hold = Hold(self.budget, owner_of(request))
            await AsgiSocket(self.sessions, hold, receive, send).converse(response.session)

    async def _read(self, handler: Handler, head: Request, hold: Hold, receive: Receive) -> bytes | Response | None:
        """The body; a response instead when it is not wanted or too large, None when the client left."""
        pieces: list[bytes] = []
        length = head.headers.get("content-length", "0")
        size, declared = 0, int(length) if length.isdigit() else 0
        while True:
            event = await receive()
            if event["type"] != "http.request":
                return None
            pieces.append(event.get("body", b""))
            size += len(pieces[-1])
            if max(size, declared) > self._body_bytes_max:
                detail = f"a body may have {self._body_bytes_max:,} bytes"
                return problem_response(413, "body_too_large", detail, request_id=head.id)
            more = event.get("more_body", False)
            if more and len(pieces) == 1:
                # Only this much is held for somebody who is not let in.
                admitted = await self._respond(handler, head)
                if admitted.status != CONTINUE.status:
                    return admitted
            if not hold.grow(max(size, declared)):
                return no_room(head.id)
            if not more:
                return b"".join(pieces)

    @staticmethod
    async def _respond(handler: Handler, request: Request) -> Response:
        try:
            return await handler(request)
        except Exception:
            log.exception("request %s failed: %s %s", request.id, request.method, request.path)
            return problem_response(500, "internal", "this server failed to answer", request_id=request.id)


def _request(scope: Event, request_id: str) -> Request:
    """A request of which only the head has come."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    client = scope.get("client")
    return Request(
        method=scope["method"],
        path=_path(scope),
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=headers,
        id=request_id,
        awaits_body=True,
        client=client[0] if client else "",
    )


def _path(scope: Event) -> str:
    """The path as it was sent, counted from where the app is mounted. Some servers tell only what it means."""
    raw = scope.get("raw_path")
    path: str = raw.decode("latin-1").partition("?")[0] if raw else scope["path"]
    root = _root(scope)
    below = _below(path, root)
    if below is path and root:
        # A proxy has taken its own prefix off the path already; only what was mounted since is still there.
        below = _below(path, root.removeprefix(scope.get("app_root_path", "").rstrip("/")))
    return (below if raw else quote(below)) or "/"


def _mounted(scope: Event, at: str) -> Event:
    """What an app that is mounted at a path is told: as Starlette tells its own."""
    root = _root(scope)
    return {**scope, "app_root_path": scope.get("app_root_path", root), "root_path": f"{root}{at}"}


def _root(scope: Event) -> str:
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def _below(path: str, root: str) -> str:
    """What of a path is below a root; the whole path when it is not there."""
    return path[len(root) :] if root and f"{path}/".startswith(f"{root}/") else path


async def _while_client_stays(answering: "Awaitable[Response]", receive: Receive) -> Response | None:
    """The answer, or None when the client left first; then the route is cancelled and gives back what it has."""
    answer = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        answer.cancel()
        raise
    finally:
        leaving.cancel()
    if answer.done():
        return answer.result()
    answer.cancel()
    await asyncio.wait({answer})
    if not answer.cancelled():
        not_delivered(answer.result())
    return None


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(
    response: Response, scope: Event, receive: Receive, send: Send, let_go: asyncio.Event | None = None
) -> None:
    headers = [
        (b"content-type", response.content_type.encode("latin-1")),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers),
    ]
    if response.chunks is None and response.status != 204:
        headers.append((b"content-length", str(len(response.body)).encode()))
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        with_body = scope["method"] != "HEAD"
        more = with_body and response.chunks is not None
        body = response.body if with_body else b""
        await send({"type": "http.response.body", "body": body, "more_body": more})
        if more and response.chunks is not None:
            await _stream(response.chunks, receive, send, let_go or asyncio.Event())
    except OSError:
        # Since version 2.4 of the protocol this is how a server says that the client is gone.
        not_delivered(response)


async def _stream(chunks: AsyncGenerator[bytes, None], receive: Receive, send: Send, let_go: asyncio.Event) -> None:
    """Send an answer that has no length, until it ends, the client leaves or is let go; whoever makes it is told."""
    pumping = asyncio.ensure_future(_pump(chunks, send))
    ending = {pumping, asyncio.ensure_future(_left(receive)), asyncio.ensure_future(_until(let_go))}
    try:
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        await chunks.aclose()
    if not pumping.cancelled():
        pumping.result()


async def _pump(chunks: AsyncGenerator[bytes, None], send: Send) -> None:
    async for chunk in chunks:
        if chunk:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
