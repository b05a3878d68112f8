"""Many members of one room in a process of their own: `python -m tests.faults.room_crowd COUNT PORT OTHER_PORT`.

All of them join at the first server; when it is gone, all of them come to the other at once. Each step is a line on the
standard output: `here`, `back` and how many seconds that took, `heard` once everybody got a message there.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.room_clients import LeanClient, connect

HOST = "127.0.0.1"
RETRY_SECONDS = 0.05


class NotLetIn(Exception):
    """A server took somebody, and then did not let them into the room."""


class Crowd:
    """They, and how many of them have heard something since they came."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._heard = 0
        self._all_heard = asyncio.Event()

    async def come(self, port: int) -> list[LeanClient]:
        """All of them at once; done when all of them are in the room."""
        self._heard = 0
        self._all_heard.clear()
        return await asyncio.gather(*(self._come(port) for _ in range(self._count)))

    async def hear(self) -> None:
        """Everybody has heard something."""
        await self._all_heard.wait()

    async def _come(self, port: int) -> LeanClient:
        guest = Guest(self._note_heard)
        while True:
            try:
                client = await connect(HOST, port, guest.told)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            client.say("join", {"room": "a", "quiet": True})
            await guest.wait_until_joined(client)
            return client

    def _note_heard(self) -> None:
        self._heard += 1
        if self._heard == self._count:
            self._all_heard.set()


class Guest:
    """What one of them was told. Whoever was taken by a server is let into the room: anything else ends the crowd."""

    def __init__(self, note_heard: Callable[[], None]) -> None:
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._note_heard: Callable[[], None] | None = note_heard

    def told(self, text: bytes) -> None:
        """One message of the server."""
        if b'"room-message"' in text:
            note, self._note_heard = self._note_heard, None
            if note is not None:
                note()
        elif b'"heartbeat"' not in text and not self._answer.done():
            self._answer.set_result(text)

    async def wait_until_joined(self, client: LeanClient) -> None:
        """The answer to the join has come, and is what it should be."""
        ends: list[asyncio.Future[Any]] = [self._answer, client.closed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._answer.done() or b'"join_ack"' not in self._answer.result():
            said = self._answer.result().decode() if self._answer.done() else f"closed with {client.closed.result()}"
            raise NotLetIn(f"somebody who was taken was not let into the room: {said}")


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
