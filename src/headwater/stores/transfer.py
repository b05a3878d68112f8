"""Moving a whole store to another place, of another kind or the same: every row of every table, and a check of them.

    source, under its write lock ──rows──► target, in one transaction ──► both are compared ──► COMMIT ──► source sealed

All engines have the same tables with the same columns, so that a row of one is a row of the other: records as they lie
there, positions, leases, jobs, ids. The target gets everything or nothing, whoever is killed meanwhile. A source that
is sealed is opened no more, and whoever has it open is told so: the store is the target from then on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

from headwater.errors import InvalidOption, StoreDamaged, StoreNewer, StoreReplaced
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.identity import IDENTITY_KEY

META = "hw_meta"
MOVED_KEY = "moved_to"
# What is a place's own and not the store's: how it is laid out, and what became of it.
OWN_KEYS = frozenset({"schema_version", "is_backup", MOVED_KEY})
ROWS_AT_ONCE = 1_000
_DIGEST_BYTES = 8
_ZERO, _SIGN_FOR_ZERO = "\0", "\N{SYMBOL FOR NULL}"

Row = tuple[Any, ...]
Tables = Mapping[str, tuple[str, ...]]


class Place(Protocol):
    """The tables of a store, held for one transfer: within one transaction, which `close` undoes if nothing else was
    said before."""

    shown: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def tables(self) -> Tables:
        """Its tables, each with its columns."""
        ...

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ...

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        """All rows, some at a time, as every engine has them: texts, numbers, bytes."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """The highest number that a table has ever given to a row, where that is kept."""
        ...

    def meta(self) -> dict[str, str]:
        """What is known of the store, by name."""
        ...

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        ...

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        ...

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows of a table come after this one."""
        ...

    def commit(self) -> None:
        """Make it so, and make it survive power loss."""
        ...


class Transfer(Protocol):
    """How the tables at a place are held."""

    def hold(self, *, writes: bool) -> Place:
        """Hold them as they are now: nobody writes meanwhile if `writes`, and others go on if not."""
        ...


class Copied(NamedTuple):
    """What a transfer came to."""

    tables: int
    rows: int


class Digest(NamedTuple):
    """Rows as a set: how many they are, and a sum that is another one when any of them is."""

    rows: int
    total: int


def copy(source: Place, target: Place, tell: Callable[[int], None], *, seal: bool) -> Copied:
    """Copy everything. With `seal` the target becomes the store, and the source is closed for good."""
    tables = _same_tables(source, target)
    identity = source.meta()[IDENTITY_KEY]
    if not _is_empty(target, tables):
        if not seal or target.meta()[IDENTITY_KEY] != identity:
            raise InvalidOption(f"{target.shown} has something in it already; name a place that is empty")
        # A transfer that was killed before it could seal the source: all that is left is to look, and to do that.
        digests = {table: digest(source.rows(table, columns)) for table, columns in tables.items() if table != META}
    else:
        digests = _fill(source, target, tables, tell)
        if seal:
            target.set_meta(IDENTITY_KEY, identity)
    _compare(digests, target, tables)
    target.commit()
    if seal:
        _seal(source, target.shown)
    return Copied(len(tables), sum(found.rows for found in digests.values()))


def _seal(source: Place, moved_to: str) -> None:
    """Whoever has the source open meets an identity that is not the one that was opened."""
    source.set_meta(MOVED_KEY, moved_to)
    source.set_meta(IDENTITY_KEY, str(uuid4()))
    source.commit()


def refuse_moved(connection: Connection, shown: str) -> None:
    """Raises for a store that is another place's now."""
    row = connection.execute(connection.sql.get_meta, (MOVED_KEY,)).fetchone()
    if row is not None:
        raise StoreReplaced(f"the store at {shown} was moved to {row[0]}: use that one")


def _same_tables(source: Place, target: Place) -> Tables:
    ours, theirs = source.tables(), target.tables()
    if {name: set(columns) for name, columns in ours.items()} != {name: set(found) for name, found in theirs.items()}:
        raise StoreNewer(f"{source.shown} and {target.shown} have different tables: open both with the same Headwater")
    return ours


def _is_empty(target: Place, tables: Tables) -> bool:
    return not any(target.count(table) for table in tables if table != META) and "last_lsn" not in target.meta()


def _fill(source: Place, target: Place, tables: Tables, tell: Callable[[int], None]) -> dict[str, Digest]:
    """Copy all rows; what each table was."""
    done = 0
    digests = {}
    numbers = source.numbers()
    for table, columns in tables.items():
        if table == META:
            continue
        seen = _Watched(source.rows(table, columns), columns)
        target.add(table, columns, seen.rows(done, tell))
        digests[table] = Digest(seen.count, seen.total)
        done += seen.count
        if "id" in columns:
            target.go_on_from(table, max(numbers.get(table, 0), seen.highest))
    for key, value in source.meta().items():
        if key not in OWN_KEYS and key != IDENTITY_KEY:
            target.set_meta(key, value)
    return digests


class _Watched:
    """Rows on their way: what they are, and the highest number among them."""

    def __init__(self, batches: Iterator[list[Row]], columns: Sequence[str]) -> None:
        self._batches = batches
        self._id = columns.index("id") if "id" in columns else -1
        self.count = self.total = self.highest = 0

    def rows(self, before: int, tell: Callable[[int], None]) -> Iterator[Row]:
        """Each of them; how many they are by now, with those of other tables, is told."""
        for batch in self._batches:
            for row in batch:
                self.total = (self.total + _weigh(row)) % 2 ** (8 * _DIGEST_BYTES)
                if self._id >= 0 and isinstance(row[self._id], int):
                    self.highest = max(self.highest, row[self._id])
                yield row
            self.count += len(batch)
            tell(before + self.count)


def digest(batches: Iterable[list[Row]]) -> Digest:
    """What a set of rows is, whatever their order."""
    count = total = 0
    for batch in batches:
        count += len(batch)
        total += sum(map(_weigh, batch))
    return Digest(count, total % 2 ** (8 * _DIGEST_BYTES))


def _weigh(row: Row) -> int:
    """A number for a row. A zero byte of a text, which not every engine can hold, counts as the sign for it."""
    plain = [value.replace(_ZERO, _SIGN_FOR_ZERO) if type(value) is str else value for value in row]
    return int.from_bytes(blake2b(repr(plain).encode(), digest_size=_DIGEST_BYTES).digest())


def _compare(digests: Mapping[str, Digest], target: Place, tables: Tables) -> None:
    for table, expected in digests.items():
        found = digest(target.rows(table, tables[table]))
        if found != expected:
            raise StoreDamaged(
                f"nothing was copied: {table} is not at {target.shown} as it is at its source "
                f"({found.rows:,} and {expected.rows:,} rows)"
            )
