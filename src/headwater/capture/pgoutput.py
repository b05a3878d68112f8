"""The messages of PostgreSQL's `pgoutput` (version 1 of its protocol), from bytes to changes.

    Begin ─► Relation, Insert, Update, Delete, Truncate … ─► Commit

Whole transactions come in the order of their commits. A relation is described before its first change, and again when
it was altered, so the decoder remembers those it was told of. Nothing here waits or asks anybody.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.capture.contract import Change, Kind
from headwater.capture.postgres_values import value_of
from headwater.clock import SECOND, Timestamp
from headwater.errors import CaptureError, ResyncRequired

# PostgreSQL counts from the first day of 2000.
EPOCH = 946_684_800 * SECOND

_begin = struct.Struct("!qqi")
_commit = struct.Struct("!bqqq")
_short, _int = struct.Struct("!h"), struct.Struct("!i")


class Column(NamedTuple):
    """A column of a relation; `is_key` when it is part of what rows are known by."""

    name: str
    type_oid: int
    is_key: bool


class Relation(NamedTuple):
    """A table, as it was when the changes that follow were made."""

    name: str
    columns: tuple[Column, ...]


class Begin(NamedTuple):
    """A transaction begins: where its commit lies, and when it was."""

    commit_lsn: int
    at: Timestamp


class Commit(NamedTuple):
    """A transaction ends, and where what follows it begins."""

    end_lsn: int


Message = Begin | Commit | list[Change]
_ABSENT = object()


class Decoder:
    """Decodes one stream. `keys` says of tables what their rows are known by, which the stream does not where it tells
    whole rows; `names` what the tables of some numbers are called, and must have been called all the time."""

    def __init__(self, keys: Mapping[str, Sequence[str]] | None = None, names: Mapping[int, str] | None = None) -> None:
        self._relations: dict[int, Relation] = {}
        self._keys = keys or {}
        self._names = names or {}

    def decode(self, message: bytes) -> Message:
        """What a message says; messages that say nothing of rows are no changes."""
        try:
            return self._decode(message)
        except (struct.error, IndexError, ValueError, KeyError) as error:
            raise CaptureError(f"a message of the replication stream cannot be read: {error!r}") from error

    def _decode(self, message: bytes) -> Message:
        body = _Reader(message)
        match body.letter():
            case "B":
                commit_lsn, at, _ = body.fields(_begin)
                return Begin(commit_lsn, Timestamp(at + EPOCH))
            case "C":
                _, _, end_lsn, _ = body.fields(_commit)
                return Commit(end_lsn)
            case "R":
                self._learn(body)
            case "I":
                relation = self._relations[body.int()]
                body.letter()
                return [self._change("insert", relation, None, body.row(relation))]
            case "U":
                relation = self._relations[body.int()]
                before = body.row(relation, keys_only=mark == "K") if (mark := body.letter()) in "KO" else None
                if before is not None:
                    body.letter()
                return [self._change("update", relation, before, body.row(relation))]
            case "D":
                relation = self._relations[body.int()]
                return [self._change("delete", relation, body.row(relation, keys_only=body.letter() == "K"), None)]
            case "T":
                count = body.int()
                body.letter()
                return [Change("truncate", self._relations[body.int()].name) for _ in range(count)]
        return []

    def _learn(self, body: "_Reader") -> None:
        oid, schema, name = body.int(), body.text(), body.text()
        body.letter()
        columns = tuple(_column(body) for _ in range(body.short()))
        relation = Relation(f"{schema}.{name}", columns)
        if (known := self._names.get(oid, relation.name)) != relation.name:
            raise ResyncRequired(f"the table {known} was called {relation.name} for a time")
        self._relations[oid] = relation

    def _change(
        self, op: Kind, relation: Relation, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> Change:
        """A change; large values that were not touched are taken from the row before, where it has them."""
        unchanged: list[str] = []
        if after is not None:
            for name in [name for name, value in after.items() if value is _ABSENT]:
                if before is not None and name in before:
                    after[name] = before[name]
                else:
                    unchanged.append(name)
                    del after[name]
        row = after if after is not None else before
        assert row is not None
        names = self._keys.get(relation.name) or [column.name for column in relation.columns if column.is_key]
        key = {name: row[name] for name in names if name in row}
        return Change(op, relation.name, key or None, before, after, unchanged)


def _column(body: "_Reader") -> Column:
    flags, name, oid = body.byte(), body.text(), body.int()
    body.int()
    return Column(name, oid, bool(flags & 1))


class _Reader:
    """Takes a message apart, from its beginning on."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._place = 0

    def fields(self, shape: struct.Struct) -> tuple[Any, ...]:
        found = shape.unpack_from(self._message, self._place)
        self._place += shape.size
        return found

    def byte(self) -> int:
        self._place += 1
        return self._message[self._place - 1]

    def letter(self) -> str:
        return chr(self.byte())

    def short(self) -> int:
        return int(self.fields(_short)[0])

    def int(self) -> int:
        return int(self.fields(_int)[0])

    def text(self) -> str:
        end = self._message.index(b"\0", self._place)
        begin, self._place = self._place, end + 1
        return self._message[begin:end].decode()

    def row(self, relation: Relation, *, keys_only: bool = False) -> dict[str, Any]:
        """The values of a row by their names; of a row that is known by its key alone, those of the key."""
        if (count := self.short()) != len(relation.columns):
            raise ValueError(f"{count} values for {len(relation.columns)} columns of {relation.name}")
        row = {column.name: self._value(column) for column in relation.columns}
        if not keys_only:
            return row
        return {column.name: row[column.name] for column in relation.columns if column.is_key}

    def _value(self, column: Column) -> Any:
        match self.letter():
            case "n":
                return None
            case "u":
                return _ABSENT
            case "t":
                begin = self._place + 4
                self._place = begin + self.int()
                return value_of(self._message[begin : self._place], column.type_oid)
            case other:
                raise ValueError(f"a value of kind {other!r}")
