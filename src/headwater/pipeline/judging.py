"""Which rows may pass: every payload against the bounds of a record and the schema that was asked for.

A row that may not pass gets a reason, in the words a person needs to mend it: what was expected, what came, and where.
Nothing is dropped here: in = out + quarantined.
"""

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from headwater.errors import HeadwaterError, SourceUnfit
from headwater.model.record import encode_payload
from headwater.pipeline.ddl import complaint_of
from headwater.pipeline.number_texts import NumberText, reason_of

if TYPE_CHECKING:
    import pyarrow

REASON_LENGTH_MAX = 300
# The first number that is rounded to none of 32 bits any more.
FLOAT_BEYOND = 2.0**128 - 2.0**103
INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}

Judge = Callable[[str | None], str | None]


def parse_schema(text: str) -> spark_types.StructType:
    """The columns that a text like `id BIGINT NOT NULL, amount DOUBLE` names."""
    if complaint := complaint_of(text):
        raise SourceUnfit(f"the schema {text!r} cannot be used: {complaint}")
    try:
        found = spark_types.StructType.fromDDL(text)
    except PySparkException as error:
        line = str(error).strip().splitlines()[0]
        raise SourceUnfit(
            f"the schema {text!r} cannot be read: {line}; one is id BIGINT NOT NULL, name STRING"
        ) from error
    if not isinstance(found, spark_types.StructType):
        raise SourceUnfit(f"the schema {text!r} names no columns; one is id BIGINT NOT NULL, name STRING")
    payload_type(found, strict=False)
    return found


class Rules(NamedTuple):
    """What a payload must keep to. Fields that the schema does not name pass, unless `strict`."""

    schema: spark_types.StructType | None
    bytes_max: int
    strict: bool = False


def make_judge(rules: Rules) -> Judge:
    """What says of one payload (JSON text) why it may not pass; None when it may."""
    decoder = None if rules.schema is None else msgspec.json.Decoder(payload_type(rules.schema, rules.strict))

    def judge(value: str | None) -> str | None:
        if value is None:
            return "there is no value"
        try:
            data = value.encode()
            encode_payload(msgspec.Raw(data), rules.bytes_max)
            if decoder is not None:
                decoder.decode(data)
        except (HeadwaterError, msgspec.MsgspecError, UnicodeError) as error:
            return reason_of(error)[:REASON_LENGTH_MAX]
        return None

    return judge


def judge_rows(rows: DataFrame, rules: Rules) -> DataFrame:
    """The rows with their column `reason` filled in: why the row may not pass, or null. One that is there stands."""

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        judge = make_judge(rules)
        for batch in batches:
            values = zip(batch.column("reason").to_pylist(), batch.column("value").to_pylist(), strict=True)
            reasons = [reason or judge(value) for reason, value in values]
            place = batch.schema.get_field_index("reason")
            yield batch.set_column(place, "reason", pyarrow.array(reasons, pyarrow.string()))

    return rows.mapInArrow(run, rows.schema)


# ── Spark's types as those that msgspec checks ──


def payload_type(schema: spark_types.StructType, strict: bool) -> Any:
    """A type that decodes what the schema describes and nothing else."""
    fields: list[Any] = []
    for place, field in enumerate(schema.fields):
        kind = value_type(field.dataType, strict)
        name = f"field_{place}"
        if field.nullable:
            fields.append((name, kind | None, msgspec.field(name=field.name, default=None)))
        else:
            fields.append((name, kind, msgspec.field(name=field.name)))
    return msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=strict)


def value_type(kind: spark_types.DataType, strict: bool) -> Any:
    """The type of one value."""
    if isinstance(kind, spark_types.StructType):
        return payload_type(kind, strict)
    if isinstance(kind, spark_types.ArrayType):
        return list[_optional(kind.elementType, kind.containsNull, strict)]  # type: ignore[misc]
    if isinstance(kind, spark_types.MapType):
        return dict[str, _optional(kind.valueType, kind.valueContainsNull, strict)]  # type: ignore[misc]
    if kind.typeName() in INTEGERS:
        return _integer(INTEGERS[kind.typeName()])
    found = _SIMPLE.get(kind.typeName())
    if found is None:
        raise SourceUnfit(f"a schema cannot have {kind.simpleString()}; there are {', '.join(sorted(_NAMES))}")
    return found


def _optional(kind: spark_types.DataType, nullable: bool, strict: bool) -> Any:
    inner = value_type(kind, strict)
    return inner | None if nullable else inner


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_SIMPLE: dict[str, Any] = {
    "string": str,
    "double": float | NumberText,
    "float": Annotated[float, msgspec.Meta(gt=-FLOAT_BEYOND, lt=FLOAT_BEYOND)] | NumberText,
    "binary": bytes,
    "boolean": bool,
    "decimal": decimal.Decimal,
    "timestamp": datetime.datetime,
    "timestamp_ntz": datetime.datetime,
    "date": datetime.date,
    "variant": Any,
}
_NAMES = (*_SIMPLE, *INTEGERS, "array", "map", "struct")
