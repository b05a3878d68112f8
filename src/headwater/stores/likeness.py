"""What differs between a table at two places, and how the second is made like the first.

Both are read side by side in the order of their keys. Records that have a checksum beside them are left out of that:
rows are told by the rest, those that differ are fetched, and read again where they were put. So a second look at a log
of any length reads no records but those that are new.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from headwater.errors import StoreDamaged

ROWS_AT_ONCE = 1_000
# Of rows with records, which may be large, so many at a time, and one commit for so many bytes.
BODIES_AT_ONCE = 200
COMMIT_BYTES = 64 * 1_048_576
_DIGEST_BYTES = 8
_ZERO, _SIGN_FOR_ZERO = "\0", "\N{SYMBOL FOR NULL}"

Row = tuple[Any, ...]
Key = tuple[Any, ...]


class Table(NamedTuple):
    """A table that both places have."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def has_bodies(self) -> bool:
        """Whether its records are told by their checksum."""
        return {"checksum", "records"} <= set(self.columns)

    @property
    def telling(self) -> tuple[str, ...]:
        """The columns that tell whether two rows are the same."""
        return tuple(name for name in self.columns if name != "records") if self.has_bodies else self.columns


class Rows(Protocol):
    """The rows of a place."""

    shown: str

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ...

    def rows(self, table: str, columns: Sequence[str], key: Sequence[str]) -> Iterator[list[Row]]:
        """All rows in the order of their keys, some at a time, as every engine has them: texts, numbers, bytes."""
        ...

    def some(self, table: str, columns: Sequence[str], key: str, numbers: Sequence[int]) -> list[Row]:
        """The rows with these numbers as their key."""
        ...

    def add(self, table: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Put rows into a table."""
        ...

    def remove(self, table: str, key: Sequence[str], keys: Sequence[Key]) -> None:
        """Take the rows with these keys out of a table."""
        ...

    def commit(self) -> None:
        """Make it so, and make it survive power loss. What follows is the next transaction."""
        ...


class Difference(NamedTuple):
    """Keys of rows that are not as they are at the source, and the rows of the source that are not there."""

    gone: list[Key]
    new: list[Row]


class Digest(NamedTuple):
    """Rows as a set: how many they are, and a sum that is another one when any of them is."""

    rows: int
    total: int


def make_alike(source: Rows, target: Rows, table: Table, tell: Callable[[int], None]) -> int:
    """Make a table at the target what it is at the source; how many rows that took. `tell` is told as rows are."""
    if not table.has_bodies and not target.count(table.name):
        return _add_all(source, target, table, tell)
    columns = table.telling
    ours, theirs = (chain.from_iterable(place.rows(table.name, columns, table.key)) for place in (source, target))
    found = find_difference(ours, theirs, [columns.index(name) for name in table.key])
    target.remove(table.name, table.key, found.gone)
    if table.has_bodies:
        _fetch(source, target, table, [row[columns.index(table.key[0])] for row in found.new], tell)
    else:
        target.add(table.name, columns, found.new)
        tell(len(found.new))
    return len(found.gone) + len(found.new)


def find_difference(ours: Iterator[Row], theirs: Iterator[Row], key: Sequence[int]) -> Difference:
    """Walk both in the order of their keys. Where an engine orders keys differently more seems to differ, and what
    follows from that is the same: what is gone is taken out before what is new is put in."""
    found = Difference([], [])
    mine, other = next(ours, None), next(theirs, None)
    while mine is not None and other is not None:
        here, there = _key(mine, key), _key(other, key)
        if here < there:
            found.new.append(mine)
            mine = next(ours, None)
            continue
        if there < here or not _same(mine, other):
            found.gone.append(tuple(other[place] for place in key))
        if here == there:
            if not _same(mine, other):
                found.new.append(mine)
            mine = next(ours, None)
        other = next(theirs, None)
    found.new.extend([] if mine is None else [mine])
    found.new.extend(ours)
    rest = chain([] if other is None else [other], theirs)
    found.gone.extend(tuple(row[place] for place in key) for row in rest)
    return found


def _add_all(source: Rows, target: Rows, table: Table, tell: Callable[[int], None]) -> int:
    count = 0

    def told() -> Iterator[Row]:
        nonlocal count
        for batch in source.rows(table.name, table.columns, table.key):
            yield from batch
            count += len(batch)
            tell(len(batch))

    target.add(table.name, table.columns, told())
    return count


def _fetch(source: Rows, target: Rows, table: Table, numbers: list[int], tell: Callable[[int], None]) -> None:
    """Rows with their records, looked at once more where they were put."""
    (key,), waiting, rest = table.key, 0, iter(numbers)
    records = table.columns.index("records")
    while chosen := list(islice(rest, BODIES_AT_ONCE)):
        rows = source.some(table.name, table.columns, key, chosen)
        target.add(table.name, table.columns, rows)
        if digest([rows]) != digest([target.some(table.name, table.columns, key, chosen)]):
            raise StoreDamaged(f"nothing was moved: {table.name} is not at {target.shown} as it was put there")
        waiting += sum(len(row[records]) for row in rows)
        if waiting > COMMIT_BYTES:
            target.commit()
            waiting = 0
        tell(len(rows))


def refuse_different(source: Rows, target: Rows, table: Table) -> None:
    """Raises when the table is not the same set of rows at both places."""
    expected, found = (digest(place.rows(table.name, table.telling, table.key)) for place in (source, target))
    if found != expected:
        raise StoreDamaged(
            f"nothing was moved: {table.name} is not at {target.shown} as it is at its source "
            f"({found.rows:,} and {expected.rows:,} rows)"
        )


def digest(batches: Iterable[list[Row]]) -> Digest:
    """What a set of rows is, whatever their order."""
    count = total = 0
    for batch in batches:
        count += len(batch)
        total += sum(map(_weigh, batch))
    return Digest(count, total % 2 ** (8 * _DIGEST_BYTES))


def _weigh(row: Row) -> int:
    return int.from_bytes(blake2b(repr([*map(_plain, row)]).encode(), digest_size=_DIGEST_BYTES).digest())


def _same(mine: Row, other: Row) -> bool:
    return mine == other or [*map(_plain, mine)] == [*map(_plain, other)]


def _key(row: Row, places: Sequence[int]) -> Key:
    return tuple([_plain(row[place]) for place in places])


def _plain(value: Any) -> Any:
    """A zero byte of a text, which not every engine can hold, counts as the sign for it."""
    return value.replace(_ZERO, _SIGN_FOR_ZERO) if type(value) is str and _ZERO in value else value
