"""Filters as columns of Spark, over payloads as they are in the log: JSON text.

The column hands texts to Python in Arrow batches and lets the Python form decide. Spark's own functions read numbers of
JSON otherwise: its variants know `9007199254740993.0` as a decimal, and whole numbers of 39 digits as floats. A filter
means the same everywhere, so they are not asked.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.errors import InvalidFilter
from headwater.filters.cel import parse
from headwater.filters.claims import has_claims
from headwater.filters.python import predicate
from headwater.filters.tree import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

Meant = Callable[["bytes | str | memoryview | None"], bool]

_decode = msgspec.json.Decoder().decode


def parse_for_payloads(text: str) -> Expression:
    """A filter of messages; who asks is nobody here, so claims are refused."""
    expression = parse(text)
    if has_claims(expression):
        raise InvalidFilter("a filter of messages has no claims (auth.…): compare with the value that is meant")
    return expression


def judge_of(expression: Expression) -> Meant:
    """A function that says of a payload, as JSON, whether it is meant.

    One that is no object has no fields, nor has none at all.
    """
    judge = predicate(expression)

    def meant(payload: "bytes | str | memoryview | None") -> bool:
        document = _value(payload) if payload is not None else None
        return judge(document if document.__class__ is dict else {})

    return meant


def to_column(expression: Expression, payload: "Column") -> "Column":
    """Whether payloads are meant; `payload` is a column with their JSON text.

    >>> to_column(parse("size > 10"), functions.col("value"))
    """
    # Who filters documents needs no Spark.
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def judge(texts: pa.Array) -> pa.Array:
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            raise InvalidFilter(f"a filter reads payloads as JSON text; got a column of {texts.type}")
        meant = judge_of(expression)
        return pa.array([meant(text) for text in texts.to_pylist()], pa.bool_())

    # Its types want the kind named, and it warns whoever does: the annotations of `judge` say it.
    make: Callable[..., Any] = arrow_udf
    column: Column = make(judge, "boolean")(payload)
    return column


def _value(payload: "bytes | str | memoryview") -> Any:
    try:
        return _decode(payload)
    except msgspec.MsgspecError:
        # Numbers beyond all floats and halves of surrogate pairs are JSON, too.
        return json.loads(payload if isinstance(payload, str) else bytes(payload))
