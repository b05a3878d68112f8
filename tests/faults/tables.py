"""What a file holds, as rows: for comparing two states, and for judging one.

`dump` is the state; two equal dumps are the same store. `find_faults` knows the rules that every state must keep,
however it came about.
"""

import hashlib
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import apsw
import msgspec

Rows = list[tuple[Any, ...]]

ORIGIN = 6  # where the column stands in hw_segments
HOLDER = 12  # the last column of hw_cursors
TABLES = (
    "hw_meta",
    "hw_queues",
    "hw_partitions",
    "hw_segments",
    "hw_groups",
    "hw_cursors",
    "hw_dead_letters",
    "hw_traces",
    "hw_applied",
    "hw_access_tokens",
)


def dump(connection: apsw.Connection) -> dict[str, Rows]:
    """Every row of our tables, in the order of their keys; without tables, nothing."""
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {table: list(connection.execute(f"SELECT * FROM {table}")) for table in TABLES if table in found}


def dump_file(path: str) -> dict[str, Rows]:
    """The same for a file that other connections may have open."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return dump(connection)
    finally:
        connection.close()


def comparable(state: dict[str, Rows]) -> dict[str, Rows]:
    """The state without what differs between two runs that come to the same: who wrote a segment, how often names
    were changed, which store it is, which process holds a lease."""
    if not state:
        return {}
    unheld = [row[:HOLDER] for row in state["hw_cursors"]]
    anonymous = [(*row[:ORIGIN], *row[ORIGIN + 1 :]) for row in state["hw_segments"]]
    meta = [row for row in state["hw_meta"] if row[0] not in ("catalog_version", "identity")]
    return {**state, "hw_segments": anonymous, "hw_cursors": unheld, "hw_meta": meta}


def digest(state: dict[str, Rows]) -> bytes:
    """A state in few bytes."""
    return hashlib.blake2b(repr(state).encode(), digest_size=16).digest()


def find_damage(connection: apsw.Connection) -> list[str]:
    """What SQLite finds wrong with a file."""
    return [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]


def find_faults(connection: apsw.Connection) -> list[str]:
    """Which of our own rules the tables break; none before they are made."""
    if not dump(connection):
        return []
    return [*_faults_of_segments(connection), *_faults_of_cursors(connection), *_orphans(connection)]


def _faults_of_segments(connection: apsw.Connection) -> Iterator[str]:
    """Offsets are dense from the partition's start, LSNs rise with them, bodies are what was written."""
    expected: dict[int, int] = dict(list(connection.execute("SELECT id, start_offset FROM hw_partitions")))
    newest: dict[int, int] = {}
    rows = connection.execute(
        "SELECT lsn, partition_id, first_offset, count, codec, checksum, records FROM hw_segments "
        "ORDER BY partition_id, first_offset"
    )
    for lsn, partition, first, count, codec, checksum, body in rows:
        if first != expected.get(partition):
            yield f"partition {partition}: segment {lsn} begins at {first}, not at {expected.get(partition)}"
        if lsn <= newest.get(partition, 0):
            yield f"partition {partition}: segment {lsn} stands behind {newest[partition]}"
        if crc32(body) != checksum or (codec == 0 and len(msgspec.json.decode(body)) != count):
            yield f"segment {lsn} has another body than was written"
        expected[partition] = first + count
        newest[partition] = lsn


def _faults_of_cursors(connection: apsw.Connection) -> Iterator[str]:
    """A cursor stands inside its partition; one behind the end is due at some time; a lease covers something."""
    bounds = {
        partition: (start, end)
        for partition, start, end in connection.execute(
            "SELECT p.id, p.start_offset, coalesce((SELECT max(first_offset + count) FROM hw_segments "
            "WHERE partition_id = p.id), p.start_offset) FROM hw_partitions p"
        )
    }
    rows = connection.execute(
        "SELECT group_id, partition_id, position, settled, lease_until, leased_to, attempts, ready_at FROM hw_cursors"
    )
    for group, partition, position, settled, lease_until, leased_to, attempts, ready_at in rows:
        name = f"cursor {group}/{partition}"
        start, end = bounds.get(partition, (0, -1))
        beyond = msgspec.json.decode(settled or "[]")
        if not 0 <= position <= end or leased_to > end:
            yield f"{name} stands at {position} with a lease up to {leased_to}; the partition ends at {end}"
        if any(not position <= offset < end for offset in beyond):
            yield f"{name} at {position} has settled {beyond}"
        if lease_until is not None and (leased_to <= position or ready_at is None or not attempts):
            yield f"{name} has a lease that covers nothing, was not counted or never ends"
        # What was dropped before the group read it does not wait for it.
        if ready_at is None and max(position, start) < end:
            yield f"{name} sleeps at {position} though the partition ends at {end}"


def _orphans(connection: apsw.Connection) -> Iterator[str]:
    """Rows whose owner is gone."""
    owners = (
        ("hw_partitions", "queue_id", "hw_queues"),
        ("hw_groups", "queue_id", "hw_queues"),
        ("hw_dead_letters", "queue_id", "hw_queues"),
        ("hw_segments", "partition_id", "hw_partitions"),
        ("hw_cursors", "partition_id", "hw_partitions"),
        ("hw_cursors", "group_id", "hw_groups"),
    )
    for table, column, owner in owners:
        query = f"SELECT count(*) FROM {table} WHERE {column} NOT IN (SELECT id FROM {owner})"
        (count,) = connection.execute(query).fetchone() or (0,)
        if count:
            yield f"{count} rows of {table} have no {owner}"
