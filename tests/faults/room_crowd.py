"""Many members of one room in a process of their own: `python -m tests.faults.room_crowd COUNT PORT OTHER_PORT`.

All of them join at the first server; when it is gone, all of them come to the other at once. Each step is a line on the
standard output: `here`, `back` and how many seconds that took, `heard` once everybody got a message there.
"""

import asyncio
import sys

from benchmarks.room_clients import LeanClient, connect

HOST = "127.0.0.1"
RETRY_SECONDS = 0.05


class Crowd:
    """They, and how many of them were let into the room, and have heard something, since they came."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._joined = self._heard = 0
        self._all_joined = asyncio.Event()
        self._all_heard = asyncio.Event()

    async def come(self, port: int) -> list[LeanClient]:
        """All of them at once; done when all of them are in the room."""
        self._joined = self._heard = 0
        self._all_joined.clear()
        self._all_heard.clear()
        clients = await asyncio.gather(*(self._come(port) for _ in range(self._count)))
        await self._all_joined.wait()
        return clients

    async def hear(self) -> None:
        """Everybody has heard something."""
        await self._all_heard.wait()

    async def _come(self, port: int) -> LeanClient:
        has_heard = False

        def told(text: bytes) -> None:
            nonlocal has_heard
            if b'"join_ack"' in text:
                self._joined += 1
                if self._joined == self._count:
                    self._all_joined.set()
            elif b'"room-message"' in text and not has_heard:
                has_heard = True
                self._heard += 1
                if self._heard == self._count:
                    self._all_heard.set()

        while True:
            try:
                client = await connect(HOST, port, told)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            client.say("join", {"room": "a", "quiet": True})
            return client


async def main(count: int, port: int, other_port: int) -> None:
    """Here, gone, back, heard."""
    loop = asyncio.get_running_loop()
    crowd = Crowd(count)
    clients = await crowd.come(port)
    print("here", flush=True)
    await asyncio.gather(*(client.closed for client in clients))
    begun = loop.time()
    clients = await crowd.come(other_port)
    print(f"back {loop.time() - begun:.1f}", flush=True)
    await crowd.hear()
    print("heard", flush=True)
    for client in clients:
        client.cut()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
