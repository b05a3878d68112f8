"""Filters of messages in Spark mean what they mean everywhere: as a column, and as an option where the log is read."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.errors import InvalidFilter
from headwater.filters import parse
from headwater.filters.spark import to_column
from headwater.filters.tree import Comparison as Is
from headwater.filters.tree import Equal, Expression, Field, Not, Order
from headwater.model.lane import Lane
from headwater.pipeline import matches, read, read_stream
from headwater.pipeline.options import read_options
from headwater.pipeline.sifting import Sieve
from headwater.stores.log_reader import Body
from tests.filters.random_filters import NUMBERS, TEXTS, documents, expressions, means, spelled
from tests.pipeline.store import QUERY_ERRORS, Store, collect

A = Field(("a",))
# Texts that no encoder of ours writes, and what they say.
RAW: list[tuple[str | None, Any]] = [
    ('{"a": 9007199254740993.0}', {"a": 2.0**53}),
    ('{"a": 1, "a": 2}', {"a": 2}),
    ('{"a": 1e400}', {"a": float("inf")}),
    ('{"a": 123456789012345678901234567890123456789012}', {"a": 123456789012345678901234567890123456789012}),
    ('{"a": 12345678901234567890.0}', {"a": 12345678901234567890.0}),
    ('{"a": "\\ud83d\\udca7"}', {"a": "💧"}),
    (' {"a" : null } ', {"a": None}),
    ("[1]", {}),
    ("null", {}),
    ('"a"', {}),
    ("7", {}),
    (None, {}),
]


def selected(spark: SparkSession, filters: Sequence[Expression], texts: Sequence[str | None]) -> list[list[int]]:
    """Which texts each filter selects, all asked of Spark in one query."""
    rows = spark.createDataFrame(list(enumerate(texts)), "place INT, value STRING").coalesce(1)
    columns = [to_column(each, F.col("value")).alias(f"f{number}") for number, each in enumerate(filters)]
    found = rows.select("place", *columns).orderBy("place").collect()
    return [[row.place for row in found if row[f"f{number}"]] for number in range(len(filters))]


# One query of Spark takes as long as thousands of examples: few of them, each with many filters.
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(filters=st.lists(expressions, min_size=8, max_size=20), given=st.lists(documents, min_size=6, max_size=20))
def test_a_column_selects_what_is_meant(
    spark: SparkSession, filters: list[Expression], given: list[dict[str, object]]
) -> None:
    meant = [[place for place, one in enumerate(given) if means(each, one)] for each in filters]
    assert selected(spark, filters, [msgspec.json.encode(one).decode() for one in given]) == meant


def test_a_column_tells_awkward_values_apart(spark: SparkSession) -> None:
    values: list[object] = [None, True, False, *NUMBERS, *TEXTS, [], {}, [1], {"a": 1}]
    given: list[Any] = [{}, *({"a": one} for one in values), *(said for _, said in RAW)]
    texts = [*(json.dumps(one) for one in given[: -len(RAW)]), *(text for text, _ in RAW)]
    scalars: list[Any] = [None, True, False, *NUMBERS, *TEXTS]
    filters: list[Expression] = [Equal(A, value) for value in scalars]
    filters += [Order(A, Is.GREATER_OR_EQUAL, value) for value in scalars[3:]]
    filters += [Not(each) for each in filters[:10]]
    meant = [[place for place, one in enumerate(given) if means(each, one)] for each in filters]
    assert selected(spark, filters, texts) == meant


# ── where the log is read ──


def body_of(texts: Sequence[str], first_offset: int = 5) -> Body:
    records = ",".join(f'{{"data": {text}, "type": "t"}}' for text in texts)
    lane = Lane("main", "orders", "", "", "p")
    return Body(7, lane, first_offset, len(texts), 1, f"[{records}]".encode(), 3)  # type: ignore[arg-type]


def offsets_of(bodies: Sequence[Body]) -> list[int]:
    return [body.first_offset + index for body in bodies for index in range(body.count)]


def payloads_of(bodies: Sequence[Body]) -> list[Any]:
    return [record["data"] for body in bodies for record in msgspec.json.decode(body.records)]


@given(expression=expressions, given=st.lists(documents, max_size=8))
def test_what_is_read_is_what_a_filter_means_each_at_its_offset(
    expression: Expression, given: list[dict[str, object]]
) -> None:
    text = spelled(expression)
    # `contains` of the language looks into lists, too: what is meant is what the text says.
    meant = [place for place, one in enumerate(given) if means(parse(text), one)]
    left = Sieve(text).sift([body_of([msgspec.json.encode(one).decode() for one in given])]) if given else []
    assert offsets_of(left) == [5 + place for place in meant]
    assert payloads_of(left) == [given[place] for place in meant]
    assert all(body.count == len(msgspec.json.decode(body.records)) for body in left)


def test_payloads_that_are_odd_are_no_error() -> None:
    texts = [text for text, _ in RAW if text is not None]
    for text in ("a > 1", "a == null", "has(a)", "!has(a)"):
        meant = [place for place, (_, said) in enumerate(RAW[:-1]) if means(parse(text), said)]
        assert offsets_of(Sieve(text).sift([body_of(texts, 0)])) == meant


@pytest.mark.parametrize("text", ["a >", "auth.sub == 'ada'", "a == b"])
def test_what_is_no_filter_of_messages_is_refused_before_anything_is_read(text: str) -> None:
    with pytest.raises(InvalidFilter):
        read_options({"store": "log.db", "queue": "orders", "filter": text})
    with pytest.raises(InvalidFilter):
        matches(text)


def test_a_table_and_a_stream_have_what_their_filter_means(spark: SparkSession, store: Store, tmp_path: Any) -> None:
    """What is left out need not fit the schema: one queue may hold many kinds of messages."""
    for number in range(6):
        store.push({"kind": "order", "id": number}, {"kind": "note", "id": "none"}, {"kind": "order", "id": -number})
    orders = sorted((3 * number + place, sign * number) for number in range(6) for place, sign in ((0, 1), (2, -1)))
    about: dict[str, Any] = {"store": store.address, "queue": "orders", "filter": "kind == 'order'"}
    typed = {**about, "schema": "id BIGINT"}
    assert collect(read(spark, **typed), "offset", "value.id") == orders
    format_of = spark.read.format("headwater")
    assert collect(format_of.options(**typed).load(), "offset", "value.id") == orders
    assert format_of.options(**about).load().count() == 12
    assert read(spark, **about).where(matches("id >= 4")).count() == 2
    rows = read_stream(spark, **typed, maxOffsetsPerTrigger=4).selectExpr("to_json(value) AS value")
    store.sink(rows, tmp_path / "checkpoint")
    assert sorted(value["id"] for _, _, value in store.records("copies")) == sorted(id for _, id in orders)
    with pytest.raises(QUERY_ERRORS, match=r"InvalidFilter.*expected"):
        format_of.options(**{**about, "filter": "kind =="}).load()
