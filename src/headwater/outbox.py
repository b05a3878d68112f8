"""Messages and jobs inside your own transaction: they commit together with your rows, or not at all.

In the store's own file, through an apsw connection of yours, they are in the log as soon as your transaction commits:

>>> from headwater import outbox
>>> with connection:                                   # your own apsw connection to the same file
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.push(connection, "orders", {"id": 7}, partition="customer-42")
...     outbox.enqueue(connection, send_email.job(to="ada@example.org"))

In a database of your own, with `sqlite3`, SQLAlchemy or Django, they wait in a table there, and a process that has the
store open moves them to the log, each once:

>>> outbox.create_table(connection)                    # once, with your migrations
>>> with connection:                                   # sqlite3; also a SQLAlchemy session, or Django's connection
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.stage(connection, "orders", {"id": 7})
>>> await outbox.drain(hw, lambda: sqlite3.connect("shop.db"))
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import apsw
import msgspec

from headwater.app import Headwater
from headwater.config import load_config
from headwater.errors import InvalidInput, JobError, QueueError
from headwater.log.job_operations import Enqueue, NewJob
from headwater.log.operations import Operation, Push
from headwater.model.names import DATABASE_DEFAULT, Offset, check_name
from headwater.services.checks import check_outgoing
from headwater.services.job_checks import check_job
from headwater.services.outgoing import Target, make_record, target, target_of
from headwater.services.verbs import check_push
from headwater.stores.outbox.table import Plain, Staged, Table, create_table
from headwater.stores.outbox.table import stage as stage_row
from headwater.stores.sqlite import outbox

__all__ = ["create_table", "drain", "enqueue", "push", "stage", "stage_jobs"]

log = logging.getLogger(__name__)

BITE = 200

# What speaks against the row itself. Trouble of the store is not the row's fault, and may pass.
_REFUSALS = (InvalidInput, QueueError, JobError)

_kinds: dict[str, type[Operation]] = {"push": Push, "enqueue": Enqueue}


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
    partition: str = "",
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
    of this one; this push itself is not checked, because your transaction happens once.
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
    partition: str = "",
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

    `connection` is one of `sqlite3`, a SQLAlchemy connection or session, or Django's. A `delay` and a time to live are
    counted from when it is moved.
    """
    message = check_outgoing(
        payload, transaction_id=transaction_id, trace_id=trace_id, type=type, headers=headers, timestamp=timestamp
    )
    operation = _push_of(database, message, target(queue, partition, delay, priority), ttl_seconds, _new_key())
    stage_row(connection, "push", msgspec.json.encode(operation).decode())


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
    check_name("database", database)
    bytes_max = load_config().record_bytes_max
    named = [check_job(job if job.id else msgspec.structs.replace(job, id=str(uuid4())), bytes_max) for job in jobs]
    operation = Enqueue(database=database, key=_new_key(), jobs=named)
    stage_row(connection, "enqueue", msgspec.json.encode(operation).decode())
    return [job.id for job in named]


def _new_key() -> str:
    """Whoever moves a row to the log and dies before dropping it moves it again: the key makes that one message."""
    return f"outbox/{uuid4()}"


async def drain(hw: Headwater, connect: Callable[[], Plain], *, every_seconds: float | None = None) -> int:
    """Move everything that waits in a database of yours to the log, in order; how much that was.

    `connect` makes a connection of yours to that database; it is used in a thread of its own. With `every_seconds` it
    goes on for ever, looking that often. One process at a time should do this; two do no harm. A row that is refused
    for good is set aside (its column `error` says why) and told in the log.
    """
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-outbox") as thread:
        table = await loop.run_in_executor(thread, lambda: Table(connect()))
        try:
            count = 0
            while True:
                staged = await loop.run_in_executor(thread, table.oldest, BITE)
                if staged:
                    done, refused = await _move(hw, staged)
                    await loop.run_in_executor(thread, table.settle, done, refused)
                    count += len(done)
                elif every_seconds is None:
                    return count
                else:
                    await asyncio.sleep(every_seconds)
        finally:
            await loop.run_in_executor(thread, table.close)


async def _move(hw: Headwater, staged: list[Staged]) -> tuple[list[int], list[tuple[int, str]]]:
    """Apply what was staged; the numbers of those that are in the log, and of those that never will be, with why.

    Trouble that may pass, a full disk or a full queue, is raised: all of it waits, and what was applied is known again
    by its key.
    """
    read = {row.number: _read(row) for row in staged}
    operations = {number: operation for number, operation in read.items() if isinstance(operation, Operation)}
    answers = hw.committer.submit_all(list(operations.values()))
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    done: list[int] = []
    refused = [(number, reason) for number, reason in read.items() if isinstance(reason, str)]
    for number, outcome in zip(operations, outcomes, strict=True):
        if not isinstance(outcome, BaseException):
            done.append(number)
        elif isinstance(outcome, _REFUSALS) and not outcome.retryable:
            refused.append((number, f"{outcome.code}: {outcome}"))
        else:
            raise outcome
    for number, reason in refused:
        log.error("row %d of headwater_outbox was refused and is set aside: %s", number, reason)
    return done, refused


def _read(row: Staged) -> Operation | str:
    """The operation of a row, or why there is none."""
    kind = _kinds.get(row.kind)
    if kind is None:
        return f"no such kind: {row.kind!r:.80}"
    try:
        return msgspec.json.decode(row.body, type=kind)
    except msgspec.MsgspecError as error:
        return f"it cannot be read: {error}"
