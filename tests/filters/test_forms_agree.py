"""Every form of a filter selects the same documents: Python, SQLite, PostgreSQL, and what is written and parsed."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import msgspec
import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater import filters
from headwater.filters import Column, Dialect
from headwater.filters.tree import And, Equal, Expression, Field, HasText, Holds, Not, OneOf, Or, Order, StartsWith
from headwater.filters.tree import Comparison as Is
from tests.filters.random_filters import NUMBERS, TEXTS, documents, expressions, means, spelled
from tests.postgres_server import server

Document = dict[str, object]
A = Field(("a",))
COLUMNS = {"version": Column("version", is_number=True), "id": Column("id", is_number=False)}


class Sqlite:
    """Documents in a table of SQLite."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute("CREATE TABLE documents (version INTEGER, id TEXT, data TEXT)")

    def select(self, expression: Expression, given: Sequence[Document]) -> list[int]:
        """The numbers of the documents that a clause selects."""
        clause, bound = filters.to_sql(expression, Dialect.SQLITE, columns=COLUMNS)
        self._connection.execute("DELETE FROM documents")
        rows = [(one.get("version", 0), one.get("id", ""), msgspec.json.encode(one).decode()) for one in given]
        self._connection.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
        query = f"SELECT rowid - 1 FROM documents WHERE {clause} ORDER BY rowid"
        return [row[0] for row in self._connection.execute(query, bound)]

    def close(self) -> None:
        self._connection.close()


class Postgres:
    """Documents handed to a server of PostgreSQL with the question."""

    def __init__(self) -> None:
        self._connection = server().connect()

    def select(self, expression: Expression, given: Sequence[Document]) -> list[int]:
        """The numbers of the documents that a clause selects."""
        clause, bound = filters.to_sql(expression, Dialect.POSTGRESQL, columns=COLUMNS, first=4)
        source = "unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS given (version, id, text, place)"
        typed = f"SELECT version, id, text::jsonb AS data, place FROM {source}"
        query = f"SELECT place - 1 FROM ({typed}) AS documents WHERE {clause} ORDER BY place"
        columns = [one.get("version", 0) for one in given], [one.get("id", "") for one in given]
        texts = [msgspec.json.encode(one).decode() for one in given]
        with psycopg.RawCursor(self._connection) as cursor:
            rows: list[Any] = cursor.execute(query.encode(), [*columns, texts, *bound]).fetchall()
        return [row[0] for row in rows]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[Dialect, Sqlite | Postgres]]:
    opened: dict[Dialect, Sqlite | Postgres] = {Dialect.SQLITE: Sqlite(), Dialect.POSTGRESQL: Postgres()}
    yield opened
    for engine in opened.values():
        engine.close()


def check(expression: Expression, given: list[Document], engines: dict[Dialect, Sqlite | Postgres]) -> None:
    """Every form selects what is meant; a clause that is not exact may select more."""
    meant = [place for place, one in enumerate(given) if means(expression, one)]
    predicate = filters.predicate(expression)
    assert [place for place, one in enumerate(given) if predicate(one)] == meant
    for dialect, engine in engines.items():
        selected = engine.select(expression, given)
        if filters.is_exact(expression, dialect):
            assert selected == meant, dialect
        else:
            assert set(meant) <= set(selected), dialect


@given(expression=expressions, given=st.lists(documents, max_size=6))
def test_all_forms_select_the_same_documents(
    engines: dict[Dialect, Sqlite | Postgres], expression: Expression, given: list[Document]
) -> None:
    check(expression, given, engines)


AWKWARD: list[object] = [*NUMBERS, *TEXTS, None, True, False, [], {}, [1], [True], [None], ["a"], [[1]], {"a": 1}]


@pytest.mark.parametrize("value", [None, True, False, *NUMBERS, *TEXTS], ids=repr)
def test_every_awkward_value_is_told_apart_by_all_forms(
    engines: dict[Dialect, Sqlite | Postgres], value: bool | int | float | str | None
) -> None:
    values = [*AWKWARD, *([0, one] for one in AWKWARD)]
    given: list[Document] = [{}, *({"a": one} for one in values)]
    leaves: list[Expression] = [Equal(A, value), OneOf(A, (value, "zz")), Holds(A, value)]
    if value is not None and not isinstance(value, bool):
        leaves += [Order(A, comparison, value) for comparison in Is]
    if isinstance(value, str):
        leaves += [HasText(A, value), StartsWith(A, value)]
    for leaf in leaves:
        check(leaf, given, engines)
        check(Not(leaf), given, engines)
        check(Not(Or((leaf, Equal(A, 5)))), given, engines)


def test_fields_with_columns_of_their_own_mean_what_they_mean_in_the_document(
    engines: dict[Dialect, Sqlite | Postgres],
) -> None:
    given: list[Document] = [
        {"version": version, "id": id} for version in (0, 1, 7, 2**62) for id in ("", "1", "a", "ab", "é", "💧")
    ]
    chance = random.Random(3)
    version, id = Field(("version",)), Field(("id",))
    values: list[bool | int | float | str | None] = [
        None,
        True,
        0,
        1,
        1.0,
        0.5,
        7,
        2**62,
        2**62 + 1,
        2**65,
        "1",
        "a",
        "",
    ]
    for _ in range(200):
        subject = chance.choice([version, id])
        value = chance.choice(values)
        leaves: list[Expression] = [Equal(subject, value), OneOf(subject, (value, "ab", 7)), Holds(subject, value)]
        if value is not None and not isinstance(value, bool):
            leaves.append(Order(subject, chance.choice(list(Is)), value))
        if isinstance(value, str):
            leaves += [HasText(subject, value), StartsWith(subject, value)]
        leaf = chance.choice(leaves)
        check(leaf, given, engines)
        check(Not(leaf), given, engines)


@given(expression=expressions, given=st.lists(documents, max_size=4))
@example(expression=And((Equal(A, 1), Not(Equal(A, True)))), given=[{"a": 1}, {"a": True}])
def test_what_is_written_and_parsed_again_means_the_same(expression: Expression, given: list[Document]) -> None:
    parsed = filters.predicate(filters.parse(spelled(expression)))
    for one in given:
        # `contains` in a text of the language looks into lists, too.
        held = expression if "contains" not in spelled(expression) else _looking_into_lists(expression)
        assert parsed(one) is means(held, one)


def _looking_into_lists(expression: Expression) -> Expression:
    match expression:
        case HasText():
            return Or((expression, Holds(expression.subject, expression.value)))
        case Not():
            return Not(_looking_into_lists(expression.part))
        case And() | Or():
            return type(expression)(tuple(map(_looking_into_lists, expression.parts)))
        case _:
            return expression


def test_a_clause_may_stand_behind_other_parameters() -> None:
    clause, bound = filters.to_sql(filters.parse('a == "x" && b > 3'), Dialect.POSTGRESQL, document="body", first=3)
    assert "$3::text" in clause
    assert "$4::jsonb" in clause
    assert "body -> 'b'" in clause
    assert bound == ["x", "3"]


def test_a_range_of_one_field_is_answered_by_an_index_in_sqlite() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE documents (data TEXT)")
    connection.execute("""CREATE INDEX by_size ON documents (json_extract(data, '$."size"'))""")
    for text in ("size > 10 && size < 20", 'size == "x"', 'size.startsWith("x")', "size in [1, 2]"):
        clause, bound = filters.to_sql(filters.parse(text), Dialect.SQLITE)
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT * FROM documents WHERE {clause}", bound)
        assert "by_size" in str(list(plan))
    connection.close()
