"""huey's SQLite storage: a message is a task with the payload as its argument."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from huey import SqliteHuey

from benchmarks.peers import Context, Payload, Peer, Queue


class Huey(Queue):
    def __init__(self, huey: SqliteHuey) -> None:
        self._enqueue = huey.task(name="message")(lambda payload: None)

    async def push(self, payload: Payload) -> None:
        self._enqueue(payload)


@asynccontextmanager
async def open_huey(context: Context) -> AsyncIterator[Queue]:
    huey = SqliteHuey("bench", filename=str(context.folder / "huey.db"), fsync=True)
    try:
        yield Huey(huey)
    finally:
        huey.storage.close()


PEERS = {"huey": Peer(("huey",), "WAL, fsync=True: fsync per commit", open_huey)}
