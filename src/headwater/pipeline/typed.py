"""Payloads that fit a schema, from the JSON of a segment to columns in one pass, on the executors.

    body  ──msgspec──►  records whose payloads have the schema's own shape  ──►  Arrow columns

msgspec takes no value for one of another kind, so what it takes, Spark would read as the same. A segment with a payload
that does not fit is not taken at all: it goes the long way, where it is told what is wrong, or what is wrong is NULL.
Times and days have many spellings. Those that are written in full are taken here; a segment with any other is Spark's.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import reduce
from itertools import accumulate, chain
from operator import attrgetter, or_
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from headwater.errors import StoreDamaged

ENVELOPE = {
    "transaction_id": str | None,
    "trace_id": str | None,
    "type": str | None,
    "timestamp": int | None,
    "headers": dict[str, str] | None,
}

INTEGERS: dict[pa.DataType, Any] = {
    kind: Annotated[int, msgspec.Meta(ge=-(2 ** (kind.bit_width - 1)), le=2 ** (kind.bit_width - 1) - 1)]
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
}
_PLAIN: dict[pa.DataType, Any] = {**INTEGERS, pa.string(): str, pa.float64(): float, pa.bool_(): bool}

TIME, DAY = pa.timestamp("us", "UTC"), pa.date32()
# Spark knows a time without a zone as one of the session's, and offsets up to 18 hours.
_ONE_DAY = r"^[12]\d{3}-\d\d-\d\d$"
_LOCAL_TIME = r"^[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?$"
_TIME_IN_ZONE = _LOCAL_TIME.replace("$", r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$")


_envelopes = msgspec.json.Decoder(
    list[msgspec.defstruct("Envelope", [(name, kind, None) for name, kind in ENVELOPE.items()], rename="camel")]  # type: ignore[misc]
)


def split_envelopes(body: bytes) -> list[Any]:
    """What the records of a segment say of themselves; their payloads are skipped over."""
    try:
        envelopes: list[Any] = _envelopes.decode(body)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"records cannot be read: {error}") from error
    return envelopes


class Unspelled(ValueError):
    """A time or a day is not written in full, and only Spark knows what it means."""


class Fitting(NamedTuple):
    """The records of a segment with their payloads typed; `bare` when none of them says anything of itself."""

    records: list[Any]
    bare: bool


class Typer:
    """Decodes segments whose payloads are of one Arrow type. `utc` says that times without a zone are those of UTC.

    The field `corrupt` is for who reads: it is null in what fits, whatever a payload has under this name. The fields
    `required` must be there in what fits, also where the type has a null for what does not.
    """

    def __init__(
        self, kind: pa.DataType, *, utc: bool = False, corrupt: str = "", required: Collection[str] = ()
    ) -> None:
        self._wanted = kind
        self._kind = _without(kind, corrupt)
        # A payload that is null is none of a struct.
        payload = without_none(_shape(with_required(self._kind, required)))
        self._spellings = {TIME: (_TIME_IN_ZONE, _LOCAL_TIME)[: 1 + utc], DAY: (_ONE_DAY,)}
        # A record that says something of itself is no bare one, and is told from it by its second field.
        bare = msgspec.defstruct(
            "Bare",
            [("data", payload)],
            namespace=dict.fromkeys(ENVELOPE),
            forbid_unknown_fields=True,
            gc=False,
            eq=False,
        )
        whole = msgspec.defstruct(
            "Whole",
            [("data", payload), *((name, kind, None) for name, kind in ENVELOPE.items())],
            rename="camel",
            gc=False,
            eq=False,
        )
        self._bare = msgspec.json.Decoder(list[bare])  # type: ignore[valid-type]
        self._whole = msgspec.json.Decoder(list[whole])  # type: ignore[valid-type]

    def decode(self, body: bytes) -> Fitting | None:
        """The records of a segment; None when not all of them fit."""
        with suppress(msgspec.MsgspecError):
            return Fitting(self._bare.decode(body), bare=True)
        with suppress(msgspec.MsgspecError):
            return Fitting(self._whole.decode(body), bare=False)
        return None

    def column(self, records: Sequence[Any]) -> pa.Array:
        """The payloads of decoded records as a column; raises Unspelled when Spark must read a time among them."""
        found = self._column([record.data for record in records], self._kind)
        if self._kind.num_fields == self._wanted.num_fields:
            return found
        return pa.StructArray.from_arrays(
            [
                found.field(place) if (place := self._kind.get_field_index(field.name)) >= 0 else _nothing(found, field)
                for field in self._wanted
            ],
            fields=list(self._wanted),
        )

    def _column(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        if pa.types.is_struct(kind):
            return _structs(values, kind, self._column)
        if pa.types.is_list(kind):
            return list_column(values, kind, self._column)
        if kind in self._spellings:
            return _spelled(pa.array(values, pa.string()), kind, self._spellings[kind])
        return _integers(values, kind) if pa.types.is_integer(kind) else pa.array(values, kind)


def typer_for(
    kind: pa.DataType, *, utc: bool = False, corrupt: str = "", required: Collection[str] = ()
) -> Typer | None:
    """A typer for payloads of this type; None when only Spark knows the ways in which JSON has it."""
    known = pa.types.is_struct(kind) and _known(_without(kind, corrupt))
    return Typer(kind, utc=utc, corrupt=corrupt, required=required) if known else None


def with_required(kind: pa.DataType, required: Collection[str]) -> pa.DataType:
    """A struct in which these fields must be something."""
    return pa.struct([field.with_nullable(field.nullable and field.name not in required) for field in kind])


def _without(kind: pa.DataType, corrupt: str) -> pa.DataType:
    """A struct less the field that is for the text of what does not fit."""
    return pa.struct([field for field in kind if field.name != corrupt or field.type != pa.string()])


def _nothing(like: pa.Array, field: pa.Field) -> pa.Array:
    return pa.nulls(len(like), field.type)


def _known(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_known(field.type) for field in kind)
    if pa.types.is_list(kind):
        return kind.value_field.nullable and _known(kind.value_type)
    return kind in _PLAIN or kind in (TIME, DAY)


def _shape(kind: pa.DataType) -> Any:
    """The Python type of the values of an Arrow type."""
    if pa.types.is_struct(kind):
        # Fields may have any name in a payload; here they have numbers.
        fields = [field_shape(attribute(number), field, _shape) for number, field in enumerate(kind)]
        names = {attribute(number): field.name for number, field in enumerate(kind)}
        return msgspec.defstruct("Payload", fields, rename=names, gc=False, eq=False, kw_only=True) | None
    if pa.types.is_list(kind):
        return list[_shape(kind.value_type)] | None  # type: ignore[misc]
    return _PLAIN.get(kind, str) | None


def field_shape(
    name: str, field: pa.Field, shape_of: "Callable[[pa.DataType], Any]"
) -> "tuple[str, Any] | tuple[str, Any, None]":
    """A field that may be absent, or one that must be there and be something."""
    shape = shape_of(field.type)
    return (name, shape, None) if field.nullable else (name, without_none(shape))


def without_none(shape: Any) -> Any:
    """What is left of a type that may also be None."""
    return reduce(or_, (each for each in get_args(shape) if each is not NoneType))


def attribute(number: int) -> str:
    """The name of a field in Python: in a payload it may have any."""
    return f"field_{number}"


# ── columns ──


def envelope_column(records: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What records say of themselves, as a column."""
    columns = [
        _field_column(list(map(attrgetter(name), records)), field.type)
        for name, field in zip(ENVELOPE, kind, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _field_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [None if headers is None else list(headers.items()) for headers in values]
    return pa.array(values, kind)


def list_column(lists: Sequence[Sequence[Any] | None], kind: pa.DataType, make: Any) -> pa.Array:
    """Lists, each of which may be absent, as a column; `make` makes the column of all their members."""
    ends = list(accumulate((len(each or ()) for each in lists), initial=0))
    absent = pa.array([each is None for each in lists], pa.bool_())
    members = make(list(chain.from_iterable(filter(None, lists))), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), members, type=kind, mask=absent)


def _structs(values: Sequence[Any], kind: pa.DataType, make: Any) -> pa.Array:
    """Structs as a column of the kind they were made for: `_shape` has their fields in the same order."""
    mask = None
    width = kind.num_fields
    try:
        fields = list(chain.from_iterable(map(astuple, values)))
    except TypeError:
        # Some are absent. That is rare, and looking for it first would cost all others.
        mask = pa.array([value is None for value in values], pa.bool_())
        nothing = (None,) * width
        fields = list(chain.from_iterable(nothing if value is None else astuple(value) for value in values))
    columns = [make(fields[place::width], field.type) for place, field in enumerate(kind)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _integers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(np.fromiter(values, kind.to_pandas_dtype(), len(values)))
    except TypeError:
        # Some are absent; NumPy is quicker with those that are not.
        return pa.array(values, kind)


def _spelled(texts: pa.Array, kind: pa.DataType, spellings: Sequence[str]) -> pa.Array:
    """Times or days from their texts, if all are written in full in the same way and none is a day that never was."""
    # Arrow's functions take a while to import, and who plans a stream needs none.
    import pyarrow.compute as pc

    for spelling in spellings:
        if pc.all(pc.match_substring_regex(texts, spelling), min_count=0).as_py():
            try:
                return texts.cast(pa.timestamp("us") if spelling == _LOCAL_TIME else kind).cast(kind)
            except pa.ArrowInvalid as error:
                raise Unspelled(str(error)) from error
    raise Unspelled(f"not every {kind} is written in full")
