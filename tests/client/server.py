"""A whole server on the loop of the test: a store, all routes, the edge."""

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import headwater
from headwater.app import open_door
from headwater.doors.edge.limits import Limits
from headwater.doors.edge.server import Edge


class Server:
    """A server that listens on a port of this machine."""

    def __init__(self, path: Path | str, port: int = 0, limits: Limits | None = None, **settings: object) -> None:
        self._path = path
        self._port = port
        self._limits = limits
        self._settings = settings
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.hw = await self._open.enter_async_context(headwater.open(str(self._path), **self._settings))  # type: ignore[arg-type]
        self.edge = Edge(await self._open.enter_async_context(open_door(self.hw)), self._limits)
        await self.edge.start("127.0.0.1", self._port)
        self.port = self.edge.port
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hw.queues_service.intentions.drain()
        self.edge.abort()
        await self.edge.stop()
        await self._open.aclose()

    def waiting(self) -> int:
        """How many pops are parked."""
        return self.hw.queues_service.intentions.count
