"""Messages and jobs inside your own transaction: they commit together with your rows, or not at all.

In the store's own file, through an apsw connection of yours, they are in the log as soon as your transaction commits:

>>> from headwater import outbox
>>> with connection:                                   # your own apsw connection to the same file
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.push(connection, "orders", {"id": 7}, partition="customer-42")
...     outbox.enqueue(connection, send_email.job(to="ada@example.org"))

In a database of your own, with `sqlite3`, psycopg, SQLAlchemy or Django, they wait in a table there, and a process that
has the store open moves them to the log, each once:

>>> outbox.create_table(connection)                    # once, with your migrations
>>> with connection:                                   # sqlite3 or psycopg; also a SQLAlchemy session, or Django's
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.stage(connection, "orders", {"id": 7})
>>> await outbox.drain(hw, lambda: sqlite3.connect("shop.db"))
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import apsw
import msgspec

from headwater.app import Headwater
from headwater.config import load_config
from headwater.errors import HeadwaterError, InvalidOption
from headwater.log.job_operations import Enqueue, NewJob
from headwater.log.operations import Push
from headwater.model.names import DATABASE_DEFAULT, SYSTEM_PREFIX, Offset, check_name
from headwater.model.outbox import Drained, Left, SetAside, Staged, Verdicts
from headwater.services.checks import check_number, check_outgoing, check_seconds
from headwater.services.draining import Drain, away_seconds
from headwater.services.job_checks import check_job
from headwater.services.outgoing import Target, make_record, target, target_of
from headwater.services.threads import in_thread
from headwater.services.verbs import check_push
from headwater.stores.outbox.table import (
    Plain,
    Table,
    create_table,
    create_table_async,
    is_away,
    list_aside,
    wait_again,
)
from headwater.stores.outbox.table import stage as stage_row
from headwater.stores.outbox.table import stage_async as stage_row_async
from headwater.stores.sqlite import outbox

log = logging.getLogger(__name__)

__all__ = [
    "Drained",
    "Left",
    "SetAside",
    "create_table",
    "create_table_async",
    "drain",
    "enqueue",
    "list_set_aside",
    "push",
    "requeue",
    "stage",
    "stage_async",
    "stage_jobs",
    "stage_jobs_async",
]


def enqueue(
    connection: apsw.Connection | sqlite3.Connection, *jobs: NewJob, database: str = DATABASE_DEFAULT
) -> list[str]:
    """Add jobs as part of the transaction that is open on `connection`; their ids, if that commits."""
    bytes_max = load_config().record_bytes_max
    return outbox.enqueue(connection, *(check_job(job, bytes_max) for job in jobs), database=database)


def push(
    connection: apsw.Connection | sqlite3.Connection,
    queue: str,
    payload: Any,
    *,
    partition: str | None = None,
    database: str = DATABASE_DEFAULT,
    transaction_id: str = "",
    trace_id: str = "",
    type: str = "",
    headers: dict[str, str] | None = None,
    timestamp: datetime | int | None = None,
    ttl_seconds: float | None = None,
    delay: float | timedelta = 0,
    priority: int = 0,
) -> Offset | None:
    """Append a message as part of the transaction that is open on `connection`; its offset, if that commits.

    Without a partition it goes to one of the queue's lanes, and the offset counts in that lane; one with a `delay` has
    none before it is due. A transaction id is kept with the message, and a later push with the same id is a duplicate
    of this one; this push itself is not checked, because your transaction happens once. A queue that is full refuses it
    (`QueueFull`) and leaves your transaction as it is: what becomes of your own rows is yours to decide.
    """
    message = check_outgoing(
        payload, transaction_id=transaction_id, trace_id=trace_id, type=type, headers=headers, timestamp=timestamp
    )
    return outbox.push(connection, _push_of(database, message, target(queue, partition, delay, priority), ttl_seconds))


def stage(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    partition: str | None = None,
    database: str = DATABASE_DEFAULT,
    transaction_id: str = "",
    trace_id: str = "",
    type: str = "",
    headers: dict[str, str] | None = None,
    timestamp: datetime | int | None = None,
    ttl_seconds: float | None = None,
    delay: float | timedelta = 0,
    priority: int = 0,
) -> None:
    """Let a message wait in your own database, as part of the transaction that is open there; `drain` moves it on.

    `connection` is one of `sqlite3` or psycopg, a SQLAlchemy connection or session, or Django's. A `delay` and a time
    to live are counted from when it is moved.
    """
    message = check_outgoing(
        payload, transaction_id=transaction_id, trace_id=trace_id, type=type, headers=headers, timestamp=timestamp
    )
    operation = _push_of(database, message, target(queue, partition, delay, priority), ttl_seconds, _new_key())
    stage_row(connection, "push", msgspec.json.encode(operation).decode())


async def stage_async(
    connection: Any,
    queue: str,
    payload: Any,
    *,
    partition: str | None = None,
    database: str = DATABASE_DEFAULT,
    transaction_id: str = "",
    trace_id: str = "",
    type: str = "",
    headers: dict[str, str] | None = None,
    timestamp: datetime | int | None = None,
    ttl_seconds: float | None = None,
    delay: float | timedelta = 0,
    priority: int = 0,
) -> None:
    """The same as `stage` for an async connection to PostgreSQL, of asyncpg (also one of a pool) or psycopg.

    >>> async with connection.transaction():
    ...     await connection.execute("INSERT INTO orders (id) VALUES (7)")
    ...     await outbox.stage_async(connection, "orders", {"id": 7})
    """
    message = check_outgoing(
        payload, transaction_id=transaction_id, trace_id=trace_id, type=type, headers=headers, timestamp=timestamp
    )
    operation = _push_of(database, message, target(queue, partition, delay, priority), ttl_seconds, _new_key())
    await stage_row_async(connection, "push", msgspec.json.encode(operation).decode())


def _push_of(database: str, message: Any, call: Target, ttl_seconds: float | None, key: str = "") -> Push:
    """The push of one message, once nothing speaks against it."""
    check_name("database", database)
    config = load_config()
    record = make_record(message, config.record_bytes_max)
    operation = target_of(message, call).push(database, [record], key=key, ttl_seconds=ttl_seconds)
    check_push(operation, config)
    return operation


def stage_jobs(connection: Any, *jobs: NewJob, database: str = DATABASE_DEFAULT) -> list[str]:
    """Let jobs wait in your own database, as part of the transaction that is open there; the ids they will have."""
    named, operation = _enqueue_of(database, jobs)
    stage_row(connection, "enqueue", msgspec.json.encode(operation).decode())
    return [job.id for job in named]


async def stage_jobs_async(connection: Any, *jobs: NewJob, database: str = DATABASE_DEFAULT) -> list[str]:
    """The same as `stage_jobs` for an async connection to PostgreSQL."""
    named, operation = _enqueue_of(database, jobs)
    await stage_row_async(connection, "enqueue", msgspec.json.encode(operation).decode())
    return [job.id for job in named]


def _enqueue_of(database: str, jobs: Sequence[NewJob]) -> tuple[list[NewJob], Enqueue]:
    """The jobs with their ids, and what adds them."""
    check_name("database", database)
    bytes_max = load_config().record_bytes_max
    named = [check_job(job if job.id else msgspec.structs.replace(job, id=str(uuid4())), bytes_max) for job in jobs]
    return named, Enqueue(database=database, key=_new_key(), jobs=named)


def _new_key() -> str:
    """Whoever moves a row to the log and dies before dropping it moves it again: the key makes that one message."""
    return f"outbox/{uuid4()}"


async def drain(hw: Headwater, connect: Callable[[], Plain], *, every_seconds: float | None = None) -> Drained:
    """Move everything that waits in a database of yours to the log, in order; what that came to.

    `connect` makes a connection of yours to that database; it is used in a thread of its own. With `every_seconds` it
    goes on for ever, looking that often, and waits for a database that is away. One process at a time should do this;
    two do no harm, and each counts its own.

    What is in the log is dropped from your database before more is moved. A queue that refuses its rows for now, a full
    one, does not hold up the others: its rows stay, in order, and are told as `left`, or with `every_seconds` tried
    again, later each time. A row that can never be taken is set aside: `list_set_aside` shows it, `requeue` lets it
    wait again.
    """
    if not isinstance(hw, Headwater):
        raise InvalidOption(
            "drain takes a store that is opened here with async: async with headwater.open(...) as hw; without async, "
            "run the command headwater outbox drain"
        )
    if every_seconds is not None:
        check_seconds("every_seconds", every_seconds)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-outbox") as thread:
        table = await _open_table(thread, connect, every_seconds)
        try:
            draining = Drain(hw.committer, hw.config, _Handed(thread, table), every_seconds)
            if every_seconds is not None:
                await draining.for_ever(every_seconds)
            return await draining.once()
        finally:
            await in_thread(thread, table.close)


async def _open_table(thread: ThreadPoolExecutor, connect: Callable[[], Plain], every_seconds: float | None) -> Table:
    """The table. Who goes on for ever waits for a database that is away, now as later."""
    tries = 0
    while True:
        try:
            return await in_thread(thread, lambda: Table(connect))
        except HeadwaterError as error:
            if every_seconds is None or not is_away(error):
                raise
            tries += 1
            log.warning("the outbox's database is away, and is waited for: %s: %s", error.code, error)
            await asyncio.sleep(away_seconds(tries, every_seconds))


class _Handed:
    """The table, handed from the event loop to the one thread that may use its connection."""

    def __init__(self, thread: ThreadPoolExecutor, table: Table) -> None:
        self._thread = thread
        self._table = table

    async def after(self, number: int, limit: int) -> list[Staged]:
        return await in_thread(self._thread, lambda: self._table.after(number, limit))

    async def settle(self, verdicts: Verdicts) -> Verdicts:
        return await in_thread(self._thread, lambda: self._table.settle(verdicts))


def list_set_aside(connection: Any) -> list[SetAside]:
    """The rows of your database that can never be taken as they are, oldest first, each with the reason."""
    return [
        SetAside(number, kind, _queue_of(kind, body), error) for number, kind, body, error in list_aside(connection)
    ]


def requeue(connection: Any, *numbers: int) -> int:
    """Let rows that were set aside wait again, those of these numbers or all, in their old places; how many.

    It is part of the transaction that is open on `connection`: commit it.
    """
    return wait_again(connection, [check_number("number", number) for number in numbers])


class _Addressed(msgspec.Struct):
    queue: str = ""


def _queue_of(kind: str, body: str) -> str:
    """Where a row was to go, as far as it can be read."""
    if kind == "enqueue":
        return f"{SYSTEM_PREFIX}jobs"
    try:
        return msgspec.json.decode(body, type=_Addressed).queue
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
