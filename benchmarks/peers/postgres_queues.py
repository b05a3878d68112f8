"""Queues on one PostgreSQL server: Headwater's store, pgmq, pgqueuer's tables, and the plainest rows with SKIP LOCKED.

pgmq is the SQL of its extension, which its package carries: no extension need be installed. All of them run on a
private server with its own settings, so fsync on, through a Unix socket.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import psycopg

import headwater
from benchmarks.peers import Context, Payload, Peer, Queue, decode, encode
from benchmarks.peers.job_sides import postgres_server
from benchmarks.peers.ours import Headwater

LEASE_SECONDS = 30
_LOCK = 4_711


class Pgmq(Queue):
    """One queue of pgmq: read by the batch, and deleted when it is done."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def prepare(self) -> None:
        """Several processes of a measure come here at once."""
        await self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        found = await self._connection.execute("SELECT to_regnamespace('pgmq') IS NOT NULL")
        if await found.fetchone() == (False,):
            await self._connection.execute(files("pgmq").joinpath("sql/pgmq.sql").read_text().encode())
            await self._connection.execute("SELECT pgmq.create('bench')")
        await self._connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    async def push(self, payload: Payload) -> None:
        await self._connection.execute(
            "SELECT pgmq.send('bench', %s::jsonb)", (encode(payload).decode(),), prepare=True
        )

    async def push_many(self, payloads: list[Payload]) -> None:
        texts = [encode(payload).decode() for payload in payloads]
        await self._connection.execute("SELECT pgmq.send_batch('bench', %s::jsonb[])", (texts,), prepare=True)

    async def take(self, count: int, group: str = "workers") -> int:
        asked = "SELECT msg_id, message::text FROM pgmq.read('bench', %s, %s)"
        rows = await (await self._connection.execute(asked, (LEASE_SECONDS, count), prepare=True)).fetchall()
        for _, text in rows:
            decode(text)
        if rows:
            numbers = [row[0] for row in rows]
            await self._connection.execute("SELECT pgmq.delete('bench', %s::bigint[])", (numbers,), prepare=True)
        return len(rows)


class SkipLocked(Queue):
    """A table, as anybody would write it: leased by an UPDATE of what nobody has locked, deleted when it is done."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def prepare(self) -> None:
        await self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        await self._connection.execute(
            "CREATE TABLE IF NOT EXISTS bench (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "body jsonb NOT NULL, free_at timestamptz NOT NULL DEFAULT now())"
        )
        await self._connection.execute("CREATE INDEX IF NOT EXISTS bench_free ON bench (free_at, id)")
        await self._connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    async def push(self, payload: Payload) -> None:
        await self._connection.execute(
            "INSERT INTO bench (body) VALUES (%s::jsonb)", (encode(payload).decode(),), prepare=True
        )

    async def push_many(self, payloads: list[Payload]) -> None:
        texts = [encode(payload).decode() for payload in payloads]
        await self._connection.execute("INSERT INTO bench (body) SELECT unnest(%s::jsonb[])", (texts,), prepare=True)

    async def take(self, count: int, group: str = "workers") -> int:
        leased = (
            "UPDATE bench SET free_at = now() + interval '30 s' WHERE id IN (SELECT id FROM bench "
            "WHERE free_at <= now() ORDER BY free_at, id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, body::text"
        )
        rows = await (await self._connection.execute(leased, (count,), prepare=True)).fetchall()
        for _, text in rows:
            decode(text)
        if rows:
            await self._connection.execute(
                "DELETE FROM bench WHERE id = ANY (%s)", ([row[0] for row in rows],), prepare=True
            )
        return len(rows)


class PgQueuerMessages(Queue):
    """pgqueuer's own queries, without its workers."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        from pgqueuer.db import PsycopgDriver
        from pgqueuer.queries import Queries

        self._queries: Any = Queries(PsycopgDriver(connection))
        self._connection = connection

    async def prepare(self) -> None:
        await self._connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        found = await self._connection.execute("SELECT to_regclass('pgqueuer') IS NOT NULL")
        if await found.fetchone() == (False,):
            await self._queries.install()
        await self._connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))

    async def push(self, payload: Payload) -> None:
        await self._queries.enqueue(["bench"], [encode(payload)], [0])

    async def push_many(self, payloads: list[Payload]) -> None:
        size = len(payloads)
        await self._queries.enqueue(["bench"] * size, [encode(payload) for payload in payloads], [0] * size)

    async def take(self, count: int, group: str = "workers") -> int:
        from datetime import timedelta
        from uuid import UUID

        from pgqueuer.queries import EntrypointExecutionParameter

        about = {"bench": EntrypointExecutionParameter(concurrency_limit=0)}
        jobs = await self._queries.dequeue(count, about, UUID(int=1), None, heartbeat_timeout=timedelta(seconds=30))
        for job in jobs:
            decode(job.payload or b"{}")
        if jobs:
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)


@asynccontextmanager
async def open_side(kind: Any, context: Context) -> AsyncIterator[Queue]:
    async with await psycopg.AsyncConnection.connect(context.address, autocommit=True) as connection:
        queue = kind(connection)
        await queue.prepare()
        yield queue


@asynccontextmanager
async def open_ours(context: Context) -> AsyncIterator[Queue]:
    async with headwater.open(context.address) as store:
        yield Headwater(store.queue("bench"), context.partitions)


_DURABLE = "PostgreSQL, fsync before every answer"
PEERS = {
    "headwater-postgres": Peer(("headwater", "psycopg"), _DURABLE, open_ours, postgres_server),
    "pgmq": Peer(("pgmq", "psycopg"), _DURABLE, partial(open_side, Pgmq), postgres_server),
    "pgqueuer-messages": Peer(("pgqueuer", "psycopg"), _DURABLE, partial(open_side, PgQueuerMessages), postgres_server),
    "skip-locked": Peer(("psycopg",), _DURABLE, partial(open_side, SkipLocked), postgres_server),
}
