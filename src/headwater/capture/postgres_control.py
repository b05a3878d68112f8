"""What is asked of a followed PostgreSQL database besides its stream: tables, publication, slot, first copy, lag.

Everything here waits for the server, so it is called on threads.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Composed, Identifier, Literal

from headwater.capture.contract import Lag, Row
from headwater.capture.postgres_errors import one_line, translated
from headwater.capture.postgres_values import SESSION, value_of
from headwater.capture.publication import Member, Publication, faults_of
from headwater.capture.replication import CONNECTION
from headwater.errors import InvalidOption, SourceBusy, SourceUnfit
from headwater.stores.statements import load_statements

log = logging.getLogger(__name__)

ROWS_PER_FETCH = 1_000
RELEASE_SECONDS = 3.0
PLUGIN = "pgoutput"
LOOK_SECONDS = 0.05

sql = load_statements("headwater.capture")
_DEFAULT, _FULL, _INDEX, _NOTHING = "d", "f", "i", "n"
# By its replica identity, why the rows of a table are known by nothing, and what to do about it.
_UNKNOWN = {
    _DEFAULT: ("has no primary key", "add one, or ALTER TABLE … REPLICA IDENTITY FULL"),
    _INDEX: (
        "has as REPLICA IDENTITY an index that is gone",
        "set another with ALTER TABLE … REPLICA IDENTITY DEFAULT, or FULL",
    ),
    _NOTHING: (
        "has REPLICA IDENTITY NOTHING",
        "set another with ALTER TABLE … REPLICA IDENTITY DEFAULT (the primary key), or FULL",
    ),
}
_KINDS = {"r", "p"}


class Table(NamedTuple):
    """A table that is followed, and what its rows are known by. `number` is its own, whatever it is called."""

    number: int
    schema: str
    name: str
    key: tuple[str, ...]
    # Whether changes tell the whole row as it was, and not its key alone.
    is_full: bool

    @property
    def shown(self) -> str:
        """As it is called in changes."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> Identifier:
        """As it is called in SQL."""
        return Identifier(self.schema, self.name)


class Slot(NamedTuple):
    """A slot as the server has it. `database` and `plugin` are '' where it is one of the whole server."""

    confirmed: str
    status: str
    is_active: bool
    database: str
    plugin: str
    is_of_this_database: bool

    def foreign_to(self) -> str:
        """What it was made for instead, when it cannot be ours; '' when it may be."""
        if not self.database:
            return "it is a physical one, of the whole server"
        if not self.is_of_this_database:
            return f"it is of the database {self.database}"
        return "" if self.plugin == PLUGIN else f"it is for the plugin {self.plugin}"


class Control:
    """A connection to the database; connects when it is first needed, and again when it was lost."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open: psycopg.Connection | None = None

    def close(self) -> None:
        """Hang up."""
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def check_server(self) -> None:
        """Raises when the server keeps too little in its log to tell of changes."""
        (level,) = self._one("SHOW wal_level")
        if level != "logical":
            raise SourceUnfit(
                f"the server's wal_level is {level}; changes can be followed after ALTER SYSTEM SET wal_level = "
                "'logical' and a restart"
            )

    def claim(self, slot: str) -> None:
        """Be the only one who follows a slot, for as long as this connection lives: a copy is made before the server
        knows anybody to follow it. A server takes a moment to see that somebody hung up."""
        deadline = time.monotonic() + RELEASE_SECONDS
        while self._one(sql.claim_slot, slot) != (True,):
            if time.monotonic() > deadline:
                raise SourceBusy(f"another process follows the slot {slot}")
            time.sleep(LOOK_SECONDS)

    def identity(self) -> str:
        """Which server it is; a standby that takes its place has the same."""
        (system,) = self._one(sql.server_identity)
        return str(system)

    def flushed(self) -> str:
        """Where its log ends."""
        (lsn,) = self._one(sql.flushed_lsn)
        return str(lsn)

    def look_at(self, names: Sequence[str]) -> list[Table]:
        """The tables of these names. Raises when there is one that cannot be followed: to publish a table whose rows
        are known by nothing would make the server refuse every update of it, to everybody."""
        return [self._look_at(name) for name in names]

    def _look_at(self, name: str) -> Table:
        row = self._one(sql.find_table, name)
        if not row:
            raise SourceUnfit(f"there is no table {name!r}; write it as SQL would: schema.table")
        number, schema, table, kind, identity, key = row
        if kind not in _KINDS:
            raise SourceUnfit(f"{name} is no table: only tables can be followed")
        found = Table(number, schema, table, () if identity == _NOTHING else tuple(key), identity == _FULL)
        if not found.key and not found.is_full:
            lacks, remedy = _UNKNOWN.get(identity, _UNKNOWN[_DEFAULT])
            raise SourceUnfit(
                f"{found.shown} {lacks}, so that the server would refuse updates of it once it is followed; {remedy}"
            )
        return found

    def name_of(self, number: int) -> str:
        """What the table of a number is called now, as `Table.shown` writes it; '' when there is none."""
        row = self._one(sql.name_of_table, number)
        return str(row[0]) if row else ""

    def find_publication(self, name: str) -> Publication | None:
        """The publication, if it is there."""
        row = self._one(sql.find_publication, name)
        if not row:
            return None
        with translated():
            members = self._connected().execute(sql.published_tables, (row[0],)).fetchall()
        number, mark, is_open, is_full, is_by_root, is_own = row
        found = {table: Member(*about) for table, *about in members}
        return Publication(number, mark, is_open, is_full, is_by_root, found, is_own)

    def publish(self, name: str, tables: Sequence[Table]) -> Publication:
        """See to it that the publication tells every change of these tables and of no others."""
        found = self.find_publication(name)
        if found is None:
            with translated():
                self._run(SQL(sql.create_publication).format(Identifier(name), _listed(tables)))
        elif faults := _faults(found, tables):
            self._mend(name, found, tables, _wrong(name, tables, faults))
        found = self.find_publication(name)
        if found is None or _faults(found, tables):
            raise SourceUnfit(f"somebody else alters the publication {name} at the same time")
        return found

    def _mend(self, name: str, found: Publication, tables: Sequence[Table], wrong: str) -> None:
        """Make it right. One of all tables was made for other ends, and one that somebody made for us is his."""
        if found.is_open or not found.is_own:
            raise SourceUnfit(wrong)
        with translated():
            try:
                self._alter(Identifier(name), tables, with_options=not (found.is_full and found.is_by_root))
            except psycopg.errors.InsufficientPrivilege as error:
                raise SourceUnfit(f"{wrong} ({one_line(error)})") from error

    def _alter(self, name: Identifier, tables: Sequence[Table], *, with_options: bool) -> None:
        with self._connected().transaction():
            if with_options:
                self._run(SQL(sql.publish_every_change).format(name))
            self._run(SQL(sql.set_published_tables).format(name, _listed(tables)))

    def unpublish(self, publication: str) -> None:
        """Drop the publication, if it is there and ours: one that somebody made for us stays, also where we may."""
        found = self.find_publication(publication)
        if found is not None and not found.is_own:
            log.warning("the publication %s stays: it belongs to another user", publication)
            return
        with translated():
            self._run(SQL(sql.drop_publication).format(Identifier(publication)))

    def find_slot(self, name: str) -> Slot | None:
        """The slot, if it is there. Raises when it is one of this name that cannot be ours: another database's, or one
        that was made for other ends."""
        row = self._one(sql.find_slot, name)
        slot = Slot(*row) if row else None
        if slot is not None and (why := slot.foreign_to()):
            raise InvalidOption(f"there is a slot {name} on this server that is not ours: {why}. Take another --name")
        return slot

    def wait_for_slot(self, name: str) -> Slot | None:
        """The slot, if it is there, when nobody follows it: a server takes a moment to see that somebody hung up."""
        deadline = time.monotonic() + RELEASE_SECONDS
        while (slot := self.find_slot(name)) is not None and slot.is_active:
            if time.monotonic() > deadline:
                raise SourceBusy(f"another process follows the slot {name}")
            time.sleep(LOOK_SECONDS)
        return slot

    def drop_slot(self, name: str) -> None:
        """Drop the slot, if it is there; raises when it is another's."""
        self.wait_for_slot(name)
        with translated():
            self._connected().execute(sql.drop_slot, (name,))

    def lag(self, slot: str) -> Lag:
        """What a slot has not sent, and what it keeps."""
        row = self._one(sql.slot_lag, slot)
        return Lag(*(None if figure is None else int(figure) for figure in row)) if row else Lag()

    def _one(self, query: str, *bindings: Any) -> tuple[Any, ...]:
        """The first row of an answer, () when there is none."""
        with translated():
            return self._connected().execute(query, bindings).fetchone() or ()

    def _run(self, statement: Composed) -> None:
        self._connected().execute(statement)

    def _connected(self) -> psycopg.Connection:
        if self._open is None or self._open.closed:
            self._open = connect(self._address)
        return self._open


def _listed(tables: Sequence[Table]) -> Composed:
    return SQL(", ").join(table.quoted for table in tables)


def _faults(found: Publication, tables: Sequence[Table]) -> list[str]:
    wanted = {table.shown for table in tables}
    return list(faults_of(found, wanted, wanted))


def _wrong(name: str, tables: Sequence[Table], faults: Sequence[str]) -> str:
    made = SQL(sql.create_publication).format(Identifier(name), _listed(tables)).as_string(None)
    return f"the publication {name} does not tell all that is followed: {'; '.join(faults)}. Drop it, or make it {made}"


def connect(address: str) -> psycopg.Connection:
    """A connection whose texts are those of the stream."""
    with translated():
        return psycopg.Connection.connect(make_conninfo(address, **CONNECTION, options=SESSION), autocommit=True)


def rows_at(address: str, tables: Sequence[Table], snapshot: str) -> Iterator[tuple[Table, list[Row]]]:
    """Every row of the tables as a snapshot has it, some at a time; the snapshot must be alive when this begins."""
    with translated(), connect(address) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(snapshot)))
        for table in tables:
            columns = connection.execute(sql.list_columns, (table.quoted.as_string(connection),)).fetchall()
            listed = SQL(", ").join(Identifier(name) for name, _ in columns)
            connection.execute(SQL(sql.declare_rows).format(listed, table.quoted))
            while rows := _fetch(connection, columns):
                yield table, rows
            connection.execute("CLOSE rows")


def _fetch(connection: psycopg.Connection, columns: Sequence[tuple[str, int]]) -> list[Row]:
    """Some rows. Of a domain an answer has the type beneath it, and the stream the domain: that is what counts."""
    result = connection.execute(f"FETCH {ROWS_PER_FETCH} FROM rows").pgresult
    assert result is not None
    return [
        {
            name: None if (value := result.get_value(row, place)) is None else value_of(bytes(value), type_oid)
            for place, (name, type_oid) in enumerate(columns)
        }
        for row in range(result.ntuples)
    ]
