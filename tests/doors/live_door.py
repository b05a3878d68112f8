"""A whole server in a thread of its own: a store, all routes, carried by the edge or by an ASGI server."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import Mount

import headwater
from headwater.app import open_door
from headwater.doors.access.settings import AccessSettings, Auth
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.server import Edge
from tests.waiting import expect_soon_async

PATIENCE_SECONDS = 20.0
MOUNTED_AT = "/queues"
TRANSPORTS = ("edge", "asgi")

Serving = Callable[[headwater.Headwater], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def on_the_edge(
    hw: headwater.Headwater, limits: Limits | None = None, access: AccessSettings | None = None
) -> AsyncIterator[str]:
    """What `headwater serve` runs on."""
    async with open_door(hw, access) as door:
        edge = Edge(door, limits, admit=door)
        await edge.start("127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{edge.port}"
        finally:
            hw.queues_service.intentions.drain()
            await edge.stop()


@asynccontextmanager
async def inside_another_app(hw: headwater.Headwater, access: Mapping[str, object] | None = None) -> AsyncIterator[str]:
    """Mounted under a prefix in an app that people already run, behind a server of theirs."""
    app = Starlette(routes=[Mount(MOUNTED_AT, headwater.asgi(hw, access=access))])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = _Unsignalled(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        await expect_soon_async(server.is_started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{MOUNTED_AT}"
        finally:
            hw.queues_service.intentions.drain()
            server.should_exit = True
            await serving


class _Unsignalled(uvicorn.Server):
    """One that leaves the signals of the test alone."""

    async def is_started(self) -> bool:
        return self.started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


SERVINGS: dict[str, Serving] = {"edge": on_the_edge, "asgi": inside_another_app}
# The same, where everybody is asked for a token.
GUARDED_SERVINGS: dict[str, Serving] = {
    "edge": partial(on_the_edge, access=AccessSettings(auth=(Auth.TOKEN,))),
    "asgi": partial(inside_another_app, access={"auth": "token"}),
}


class LiveDoor:
    """A server that runs: its address, and the Headwater inside it."""

    def __init__(self, store: Path | str, serving: Serving, **settings: object) -> None:
        self._store = store
        self._serving = serving
        self._settings = settings
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS), "the server did not start"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop in good order, and wait for the end."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the server did not stop"

    def waiting(self) -> int:
        """How many pops are parked."""
        return self.hw.queues_service.intentions.count

    def client(self, **options: object) -> httpx.Client:
        """A client of this server; the caller closes it."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, **options)  # type: ignore[arg-type]

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with (
                headwater.open(str(self._store), **self._settings) as self.hw,  # type: ignore[arg-type]
                self._serving(self.hw) as self.url,
            ):
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            self._failure = error
            self._ready.set()
            raise
