"""Moving a whole store to another place, of another kind or the same, while it is used.

    target marked as unfinished
    rounds    a snapshot of the source ──what differs──► target      others go on; each round has less to do
    switch    source under its write lock ──the rest──► target, compared ──► source sealed ──► mark taken off

All engines have the same tables with the same columns, so that a row of one is a row of the other: records as they lie
there, positions, leases, jobs, ids. Nobody opens a target that is marked, and nobody opens a source that is sealed, so
at no moment are there two stores. Whoever is killed meanwhile is repeated: what is there already is not copied again.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, Self
from uuid import uuid4

from headwater.errors import InvalidOption, StoreBusy, StoreMoved, StoreNewer
from headwater.stores.likeness import Rows, Table, make_alike, refuse_different
from headwater.stores.tables.connection import Connection, Meta
from headwater.stores.tables.identity import IDENTITY_KEY, MOVED_KEY

META = "hw_meta"
# The identity of the store that a place is being filled from.
UNFINISHED_KEY = "copy_of"
# The identity that a store had before it was moved.
WAS_KEY = "moved_identity"
# What is a place's own and not the store's: how it is laid out, and what became of it.
OWN_KEYS = frozenset({"schema_version", "is_backup", MOVED_KEY, WAS_KEY, UNFINISHED_KEY})
# Rounds go on until one is as short as the switch may be.
ROUND_SECONDS = 1.0
ROUNDS_MAX = 10

# Shows people how far something is: what it is, of how many rows, and then how many are done.
Show = Callable[[str, int], AbstractContextManager[Callable[[float], None]]]


class Place(Rows, Protocol):
    """The tables of a store, held for a transfer: within one transaction, which `close` undoes if nothing else was
    said before."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Its tables, each with its columns."""
        ...

    def keys(self) -> Mapping[str, tuple[str, ...]]:
        """What tells rows of each table apart."""
        ...

    def records(self) -> int:
        """How many records the log has: one row may have a thousand."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """The highest number that a table has ever given to a row, where that is kept."""
        ...

    def highest(self, table: str) -> int:
        """The highest number that a row of a table has, 0 where they have texts."""
        ...

    def meta(self) -> dict[str, str]:
        """What is known of the store, by name."""
        ...

    def set_meta(self, key: str, value: str) -> None:
        """Remember one fact."""
        ...

    def drop_meta(self, key: str) -> None:
        """Forget one."""
        ...

    def go_on_from(self, table: str, number: int) -> None:
        """Numbers of new rows of a table come after this one."""
        ...


class Transfer(Protocol):
    """How the tables at a place are held."""

    def hold(self, *, writes: bool) -> Place:
        """Hold them as they are now: nobody writes meanwhile if `writes`, and others go on if not."""
        ...


class Copied(NamedTuple):
    """What a transfer came to, and for how long nobody could write."""

    tables: int
    rows: int
    records: int
    switch_seconds: float = 0.0


def copy(source: Transfer, target: Place, show: Show) -> Copied:
    """Copy everything as it was at one moment. The source goes on, and the target is a store of its own."""
    with source.hold(writes=False) as held:
        tables = _begin(held, target)
        _bring_up_to_date(held, target, tables, show, "copying")
        _compare(held, target, tables)
        _complete(held, target, tables)
        _unmark(target)
        return _copied(held, tables)


def move(source: Transfer, target: Place, show: Show) -> Copied:
    """Copy everything while others go on, then let the target become the store, and close the source for good."""
    for number in range(ROUNDS_MAX):
        with source.hold(writes=False) as held:
            if MOVED_KEY in held.meta():
                return _finish_earlier(held, target)
            tables = _begin(held, target)
            begun = time.monotonic()
            _bring_up_to_date(held, target, tables, show, "catching up" if number else "copying")
            is_short = time.monotonic() - begun < ROUND_SECONDS
            _compare(held, target, tables)
        if is_short:
            break
    return _switch(source, target, tables, show)


def _switch(source: Transfer, target: Place, tables: list[Table], show: Show) -> Copied:
    # A broker that holds a bucket stops answering before its lease is waited for.
    begun = time.monotonic()
    with source.hold(writes=True) as held:
        # The others were found to be the same, row by row.
        changed = _bring_up_to_date(held, target, tables, show, "switching over")
        _compare(held, target, changed)
        _complete(held, target, tables)
        target.set_meta(IDENTITY_KEY, held.meta()[IDENTITY_KEY])
        target.commit()
        copied = _copied(held, tables)
        _seal(held, target.shown)
    _unmark(target)
    return copied._replace(switch_seconds=time.monotonic() - begun)


def _begin(source: Place, target: Place) -> list[Table]:
    """The tables that both have, once the target is known to be empty, or ours, and is marked."""
    tables = _same_tables(source, target)
    identity, known = source.meta()[IDENTITY_KEY], target.meta()
    if UNFINISHED_KEY in known:
        if known[UNFINISHED_KEY] != identity:
            raise InvalidOption(f"{target.shown} is being filled from another store; name a place that is empty")
    elif "last_lsn" in known or any(target.count(table.name) for table in tables):
        raise InvalidOption(f"{target.shown} has something in it already; name a place that is empty")
    target.set_meta(UNFINISHED_KEY, identity)
    target.commit()
    return tables


def _finish_earlier(source: Place, target: Place) -> Copied:
    """A transfer that was killed after it had sealed the source: all that is left is to take the mark off."""
    known = source.meta()
    if target.meta().get(UNFINISHED_KEY) != known.get(WAS_KEY, ""):
        raise StoreMoved(f"the store at {source.shown} was moved to {known[MOVED_KEY]}: use that one")
    _unmark(target)
    return _copied(target, _same_tables(source, target))


def _unmark(target: Place) -> None:
    target.drop_meta(UNFINISHED_KEY)
    target.commit()


def _same_tables(source: Place, target: Place) -> list[Table]:
    ours, theirs, keys = source.tables(), target.tables(), target.keys()
    if {name: set(columns) for name, columns in ours.items()} != {name: set(found) for name, found in theirs.items()}:
        raise StoreNewer(f"{source.shown} and {target.shown} have different tables: open both with the same Headwater")
    return [Table(name, columns, keys[name]) for name, columns in ours.items() if name != META]


def _bring_up_to_date(source: Place, target: Place, tables: list[Table], show: Show, what: str) -> list[Table]:
    """Make all tables of the target what they are at the source; those that were not. Each is committed: a target that
    is marked may be half full."""
    changed, done = [], 0
    with show(what, sum(source.count(table.name) for table in tables)) as tell:
        for table in tables:
            if make_alike(source, target, table, _adding(done, tell)):
                target.commit()
                changed.append(table)
            done += source.count(table.name)
            tell(done)
    return changed


def _adding(done: int, tell: Callable[[float], None]) -> Callable[[int], None]:
    """Tells of rows as they come, behind those of other tables."""

    def told(rows: int) -> None:
        nonlocal done
        done += rows
        tell(done)

    return told


def _compare(source: Place, target: Place, tables: list[Table]) -> None:
    for table in tables:
        refuse_different(source, target, table)


def _complete(source: Place, target: Place, tables: list[Table]) -> None:
    """Bring what is known of the store, and where its numbers go on."""
    numbers = source.numbers()
    for table in tables:
        if "id" in table.columns:
            target.go_on_from(table.name, max(numbers.get(table.name, 0), source.highest(table.name)))
    ours, theirs = source.meta(), target.meta()
    for key in theirs.keys() - ours.keys() - OWN_KEYS:
        target.drop_meta(key)
    for key in ours.keys() - OWN_KEYS - {IDENTITY_KEY}:
        target.set_meta(key, ours[key])


def _copied(place: Place, tables: list[Table]) -> Copied:
    return Copied(len(tables) + 1, sum(place.count(table.name) for table in tables), place.records())


def _seal(source: Place, moved_to: str) -> None:
    """Whoever has the source open meets an identity that is not the one that was opened."""
    source.set_meta(WAS_KEY, source.meta()[IDENTITY_KEY])
    source.set_meta(MOVED_KEY, moved_to)
    source.set_meta(IDENTITY_KEY, str(uuid4()))
    source.commit()


def refuse_moved(connection: Connection, shown: str) -> None:
    """Raises for a store that is another place's now, and for one that is not yet whole."""
    row = connection.row(connection.sql.get_meta, (MOVED_KEY,), Meta)
    if row is not None:
        raise StoreMoved(f"the store at {shown} was moved to {row[0]}: use that one")
    if connection.row(connection.sql.get_meta, (UNFINISHED_KEY,), Meta) is not None:
        raise StoreBusy(f"a store is being moved to {shown}: wait until that is done, or give the same command again")
