"""Pushes and jobs inside your own SQLite transaction: they commit together with your rows, or not at all.

>>> from headwater import outbox
>>> with connection:                                   # your own apsw connection to the same file
...     connection.execute("INSERT INTO orders (id) VALUES (7)")
...     outbox.push(connection, "orders", {"id": 7}, partition="customer-42")
...     outbox.enqueue(connection, send_email.job(to="ada@example.org"))

The message is delivered, and the job run, like any other as soon as your transaction commits; how durable that is, your
connection decides.
"""

import sqlite3

import apsw

from headwater.config import load_config
from headwater.log.job_operations import NewJob
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.job_checks import check_job
from headwater.stores.sqlite import outbox
from headwater.stores.sqlite.outbox import push

__all__ = ["enqueue", "push"]


def enqueue(
    connection: apsw.Connection | sqlite3.Connection, *jobs: NewJob, database: str = DATABASE_DEFAULT
) -> list[str]:
    """Add jobs as part of the transaction that is open on `connection`; their ids, if that commits."""
    bytes_max = load_config().record_bytes_max
    return outbox.enqueue(connection, *(check_job(job, bytes_max) for job in jobs), database=database)
