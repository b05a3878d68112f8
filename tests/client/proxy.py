"""A network that fails as a test chooses: it cuts, delays and halves what passes over it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

READ_BYTES = 65_536

Meeting = Callable[[bytes], Awaitable[tuple[bytes, bool]]]


class Fault:
    """What becomes of one piece of data on its way: what to pass on, and whether to cut after it. This one: nothing."""

    async def request(self, data: bytes) -> tuple[bytes, bool]:
        return data, False

    async def answer(self, data: bytes) -> tuple[bytes, bool]:
        return data, False


class CutAnswers(Fault):
    """The first answers are lost: the server has done what was asked, and nobody is told."""

    def __init__(self, count: int, kept_bytes: int = 0) -> None:
        self.left = count
        self._kept_bytes = kept_bytes

    async def answer(self, data: bytes) -> tuple[bytes, bool]:
        if not self.left:
            return data, False
        self.left -= 1
        return data[: self._kept_bytes], True


class CutRequests(Fault):
    """The first requests are lost half way."""

    def __init__(self, count: int) -> None:
        self.left = count

    async def request(self, data: bytes) -> tuple[bytes, bool]:
        if not self.left:
            return data, False
        self.left -= 1
        return data[: len(data) // 2], True


class Weather(Fault):
    """Bad luck by seed: a part of what passes is cut before, within or after, or comes late."""

    def __init__(self, seed: int, share: float) -> None:
        self._random = random.Random(seed)
        self._share = share
        self.cuts = 0

    async def request(self, data: bytes) -> tuple[bytes, bool]:
        return await self._meet(data)

    async def answer(self, data: bytes) -> tuple[bytes, bool]:
        return await self._meet(data)

    async def _meet(self, data: bytes) -> tuple[bytes, bool]:
        luck = self._random.random()
        if luck < self._share:
            self.cuts += 1
            return data[: self._random.randrange(len(data) + 1)], True
        if luck < 2 * self._share:
            await asyncio.sleep(self._random.random() * 0.01)
        return data, False


class Proxy:
    """Stands between a client and a server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.fault = Fault()
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Cut all that is under way."""
        for writer in self._writers:
            writer.transport.abort()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back_writer}
        self._writers |= ends
        pumps = [
            asyncio.ensure_future(_pump(reader, back_writer, self._request)),
            asyncio.ensure_future(_pump(back_reader, writer, self._answer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                # What was passed on before a cut must arrive; an abort would throw it away.
                end.close()
            self._writers -= ends

    async def _request(self, data: bytes) -> tuple[bytes, bool]:
        return await self.fault.request(data)

    async def _answer(self, data: bytes) -> tuple[bytes, bool]:
        return await self.fault.answer(data)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, meet: Meeting) -> None:
    with suppress(OSError):
        while data := await reader.read(READ_BYTES):
            passed, cut = await meet(data)
            writer.write(passed)
            await writer.drain()
            if cut:
                return
