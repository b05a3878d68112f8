"""How the engines say what a leaf of a filter needs: where a field is, of which kind its value is, what is bound."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from headwater.filters.tree import Field, Scalar

Number = int | float


class Dialect(StrEnum):
    """The engines that a clause can be written for; its parameters are `?` in one, `$1`, `$2`, … in the other."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Column(NamedTuple):
    """A field that has a column of its own, which is never null: of numbers, or else of texts."""

    name: str
    is_number: bool


class Place(NamedTuple):
    """A field as SQL: its value as a text and as a number, and tests of what it is. A test that always holds is empty
    where it stands beside another, and FALSE is one that never does."""

    text: str
    number: str
    is_text: str
    is_number: str
    is_list: str
    is_null: str
    is_true: str
    is_false: str
    is_present: str
    is_column: bool = False


def _column_place(column: Column, text: str) -> Place:
    no = "FALSE"
    is_text, is_number = (no, "") if column.is_number else ("", no)
    return Place(text, column.name, is_text, is_number, no, no, no, no, "TRUE", is_column=True)


class Writing(ABC):
    """Writes clauses for one engine, and gathers what is bound to them."""

    def __init__(self, document: str, columns: Mapping[str, Column], first: int) -> None:
        self.values: list[object] = []
        self._document = document
        self._columns = columns
        self._first = first

    def place(self, field: Field) -> Place:
        """Where a field is."""
        column = self._columns.get(field.path[0]) if len(field.path) == 1 else None
        return self._in_document(field) if column is None else _column_place(column, self._bytewise(column.name))

    @abstractmethod
    def _in_document(self, field: Field) -> Place:
        """Where a field of the document is."""

    @abstractmethod
    def _bytewise(self, name: str) -> str:
        """A column of texts that compares by its bytes, which is by code point."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text that is bound."""

    @abstractmethod
    def number(self, place: Place, value: Number) -> str:
        """A number that is bound, to be compared with one of this place."""

    @abstractmethod
    def has_text(self, place: Place, part: str) -> str:
        """A text that has this part."""

    @abstractmethod
    def holds(self, place: Place, value: Scalar) -> str:
        """A list that holds a value."""


class SqliteWriting(Writing):
    """JSON as text, read with `json_extract` and `json_type`. Lists and objects come out as text, and booleans as
    numbers, so the type decides."""

    def _in_document(self, field: Field) -> Place:
        path = "'$" + "".join(f'."{name}"' for name in field.path) + "'"
        value, kind = f"json_extract({self._document}, {path})", f"json_type({self._document}, {path})"
        return Place(
            text=value,
            number=value,
            is_text=f"{kind} = 'text'",
            is_number=f"{kind} IN ('integer', 'real')",
            is_list=f"{kind} = 'array'",
            is_null=f"{value} IS NULL",
            is_true=f"{kind} = 'true'",
            is_false=f"{kind} = 'false'",
            is_present=f"{kind} IS NOT NULL",
        )

    def _bytewise(self, name: str) -> str:
        return f"{name} COLLATE BINARY"

    def text(self, value: str) -> str:
        self.values.append(value)
        return "?"

    def number(self, place: Place, value: Number) -> str:
        # Beyond 64 bits SQLite has floats only; what it compares with is one, too, or lies far below.
        fits = isinstance(value, float) or -(2**63) <= value < 2**63
        self.values.append(value if fits else float(value))
        return "?"

    def has_text(self, place: Place, part: str) -> str:
        return f"instr({place.text}, {self.text(part)}) > 0"

    def holds(self, place: Place, value: Scalar) -> str:
        listed = place.text.replace("json_extract", "json_each", 1)
        if value is None or isinstance(value, bool):
            test = f"type = '{json.dumps(value)}'"
        elif isinstance(value, str):
            test = f"type = 'text' AND value = {self.text(value)}"
        else:
            test = f"type IN ('integer', 'real') AND value = {self.number(place, value)}"
        return f"EXISTS (SELECT 1 FROM {listed} WHERE {test})"


class PostgresWriting(Writing):
    """jsonb, whose own comparisons tell kinds apart and never fail on what a document holds."""

    def _in_document(self, field: Field) -> Place:
        # By name alone: `#>` would take '0' for a place in a list.
        value = self._document + "".join(f" -> '{name}'" for name in field.path)
        text = self._document + "".join(f" -> '{name}'" for name in field.path[:-1]) + f" ->> '{field.path[-1]}'"
        kind = f"jsonb_typeof({value})"
        return Place(
            text=f'({text}) COLLATE "C"',
            number=f"({value})",
            is_text=f"{kind} = 'string'",
            is_number=f"{kind} = 'number'",
            is_list=f"{kind} = 'array'",
            is_null=f"({text}) IS NULL",
            is_true=f"({value}) = 'true'::jsonb",
            is_false=f"({value}) = 'false'::jsonb",
            is_present=f"({value}) IS NOT NULL",
        )

    def _bytewise(self, name: str) -> str:
        return f'{name} COLLATE "C"'

    def _bound(self, value: str, kind: str) -> str:
        self.values.append(value)
        return f"${self._first + len(self.values) - 1}::{kind}"

    def text(self, value: str) -> str:
        return self._bound(value, "text")

    def number(self, place: Place, value: Number) -> str:
        return self._bound(json.dumps(value), "numeric" if place.is_column else "jsonb")

    def has_text(self, place: Place, part: str) -> str:
        return f"strpos({place.text}, {self.text(part)}) > 0"

    def holds(self, place: Place, value: Scalar) -> str:
        return f"{place.number} @> {self._bound(json.dumps(value), 'jsonb')}"


_writings: dict[Dialect, Callable[[str, Mapping[str, Column], int], Writing]] = {
    Dialect.SQLITE: SqliteWriting,
    Dialect.POSTGRESQL: PostgresWriting,
}


def writing_for(dialect: Dialect) -> Callable[[str, Mapping[str, Column], int], Writing]:
    """What writes clauses for an engine."""
    return _writings[dialect]
