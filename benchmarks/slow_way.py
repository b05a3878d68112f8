"""A way to a server that takes time: whatever it answers arrives so many milliseconds later.

python -m benchmarks.slow_way UPSTREAM_PORT MILLISECONDS    prints the port to speak with
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"
READ_BYTES = 1 << 18


class SlowWay:
    """Carries bytes both ways, those that come back late."""

    def __init__(self, upstream: int, seconds: float) -> None:
        self._upstream = upstream
        self._seconds = seconds

    async def serve(self, tell: Callable[[int], None]) -> None:
        """Until the process ends."""
        server = await asyncio.start_server(self._carry, HOST, 0, limit=READ_BYTES)
        tell(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._upstream, limit=READ_BYTES)
        try:
            with suppress(ConnectionError):
                await asyncio.gather(self._there(reader, far_writer), self._back(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    async def _there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(READ_BYTES):
            loop.call_later(self._seconds, writer.write, data)
        loop.call_later(self._seconds, writer.close)


def main() -> None:
    upstream, milliseconds = int(sys.argv[1]), float(sys.argv[2])
    asyncio.run(SlowWay(upstream, milliseconds / 1_000).serve(lambda port: print(port, flush=True)))


if __name__ == "__main__":
    main()
