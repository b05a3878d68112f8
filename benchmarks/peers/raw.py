"""The limit: what SQLite through apsw does with the least statements, one row per message and nobody to serve."""

import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import apsw

from benchmarks.peers import Context, Messages, Payload, Peer, Queue, decode, encode
from headwater.wakeups.inotify import watch

BUSY_MS = 5_000
IDLE_MS = 1_000
READ_BYTES = 65_536

SCHEMA = """
create table if not exists messages(id integer primary key, body blob not null);
create table if not exists cursors(
    name text primary key, leased integer not null, acknowledged integer not null) without rowid;
insert or ignore into cursors values('workers', 0, 0);
"""
INSERT = "insert into messages(body) values(?)"
READ = "select id, body from messages where id > (select acknowledged from cursors where name = ?) order by id limit ?"
LEASE = "update cursors set leased = ? where name = ?"
ACKNOWLEDGE = "update cursors set acknowledged = ? where name = ?"


class Table(Queue):
    """A log in one table with a cursor row: a commit to push, a commit to lease, a commit to acknowledge."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._log = f"{connection.filename}-wal"

    async def push(self, payload: Payload) -> None:
        self._connection.execute(INSERT, (encode(payload),))

    async def push_many(self, payloads: list[Payload]) -> None:
        self._connection.execute("begin immediate")
        self._connection.executemany(INSERT, [(encode(payload),) for payload in payloads])
        self._connection.execute("commit")

    async def take(self, count: int, group: str = "workers") -> int:
        rows: list[Any] = self._connection.execute(READ, (group, count)).fetchall()
        if rows:
            last = rows[-1][0]
            self._connection.execute(LEASE, (last, group))
            for _, body in rows:
                decode(body)
            self._connection.execute(ACKNOWLEDGE, (last, group))
        return len(rows)

    async def consume(self) -> Messages:
        """Woken by the kernel as ours is, with nothing else to do: a read, a commit to lease, one to acknowledge."""
        descriptor = watch(self._log)
        written = select.poll()
        written.register(descriptor, select.POLLIN)
        while True:
            row = self._connection.execute(READ, ("workers", 1)).fetchone()
            if row is None:
                written.poll(IDLE_MS)
                with suppress(BlockingIOError):
                    os.read(descriptor, READ_BYTES)
                continue
            self._connection.execute(LEASE, (row[0], "workers"))
            yield decode(row[1])
            self._connection.execute(ACKNOWLEDGE, (row[0], "workers"))


@asynccontextmanager
async def open_table(synchronous: str, context: Context) -> AsyncIterator[Queue]:
    connection = apsw.Connection(str(context.folder / "raw.db"))
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("pragma journal_mode = wal")
        connection.execute(f"pragma synchronous = {synchronous}")
        connection.execute(SCHEMA)
        yield Table(connection)
    finally:
        connection.close()


PEERS = {
    "raw-full": Peer(("apsw",), "WAL, synchronous=FULL: fsync per commit", partial(open_table, "full")),
    "raw-normal": Peer(("apsw",), "WAL, synchronous=NORMAL: no fsync per commit", partial(open_table, "normal")),
}
