"""Payloads that fit a schema, from the JSON of a segment to columns in one pass, on the executors.

    body  ──msgspec──►  records whose payloads have the schema's own shape  ──►  Arrow columns

msgspec takes no value for one of another kind, so what it takes, Spark would read as the same. A segment with a payload
that does not fit is not taken at all: it goes the long way, where it is told what is wrong, or what is wrong is NULL.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from itertools import accumulate, chain
from operator import attrgetter, or_
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import pyarrow as pa

from headwater.errors import StoreDamaged

ENVELOPE = {
    "transaction_id": str | None,
    "trace_id": str | None,
    "type": str | None,
    "timestamp": int | None,
    "headers": dict[str, str] | None,
}

_PLAIN: dict[pa.DataType, Any] = {pa.string(): str, pa.float64(): float, pa.bool_(): bool}
for _kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
    _most = 2 ** (_kind.bit_width - 1)
    _PLAIN[_kind] = Annotated[int, msgspec.Meta(ge=-_most, le=_most - 1)]


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


class Fitting(NamedTuple):
    """The records of a segment with their payloads typed; `bare` when none of them says anything of itself."""

    records: list[Any]
    bare: bool


class Typer:
    """Decodes segments whose payloads are of one Arrow type."""

    def __init__(self, kind: pa.DataType) -> None:
        payload = _shape(kind)
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


def typer_for(kind: pa.DataType) -> Typer | None:
    """A typer for payloads of this type; None when JSON has several ways to write it, and Spark must know them."""
    return Typer(kind) if pa.types.is_struct(kind) and _known(kind) else None


def _known(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_known(field.type) for field in kind)
    if pa.types.is_list(kind):
        return kind.value_field.nullable and _known(kind.value_type)
    return kind in _PLAIN


def _shape(kind: pa.DataType) -> Any:
    """The Python type of the values of an Arrow type."""
    if pa.types.is_struct(kind):
        # Fields may have any name in a payload; here they have numbers.
        fields = [_field(_attribute(number), field) for number, field in enumerate(kind)]
        names = {_attribute(number): field.name for number, field in enumerate(kind)}
        return msgspec.defstruct("Payload", fields, rename=names, gc=False, eq=False, kw_only=True) | None
    if pa.types.is_list(kind):
        return list[_shape(kind.value_type)] | None  # type: ignore[misc]
    return _PLAIN[kind] | None


def _field(name: str, field: pa.Field) -> "tuple[str, Any] | tuple[str, Any, None]":
    """A field that may be absent, or one that must be there and be something."""
    shape = _shape(field.type)
    return (name, shape, None) if field.nullable else (name, _without_none(shape))


def _without_none(shape: Any) -> Any:
    return reduce(or_, (each for each in get_args(shape) if each is not NoneType))


def _attribute(number: int) -> str:
    return f"field_{number}"


# ── columns ──


def payload_column(payloads: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Decoded payloads, or parts of them, as a column."""
    if pa.types.is_struct(kind):
        return _structs(payloads, kind, [_attribute(number) for number in range(kind.num_fields)], payload_column)
    if pa.types.is_list(kind):
        return list_column(payloads, kind, payload_column)
    return pa.array(payloads, kind)


def envelope_column(records: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """What records say of themselves, as a column."""
    return _structs(records, kind, list(ENVELOPE), _said)


def _said(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [None if headers is None else list(headers.items()) for headers in values]
    return pa.array(values, kind)


def list_column(lists: Sequence[Sequence[Any] | None], kind: pa.DataType, make: Any) -> pa.Array:
    """Lists, each of which may be absent, as a column; `make` makes the column of all their members."""
    ends = list(accumulate((len(each or ()) for each in lists), initial=0))
    absent = pa.array([each is None for each in lists], pa.bool_())
    members = make(list(chain.from_iterable(filter(None, lists))), kind.value_type)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), members, type=kind, mask=absent)


def _structs(values: Sequence[Any], kind: pa.DataType, attributes: Sequence[str], make: Any) -> pa.Array:
    mask = None
    getters = list(map(attrgetter, attributes))
    try:
        children = [list(map(get, values)) for get in getters]
    except AttributeError:
        # Some are absent. That is rare, and looking for it first would cost all others.
        mask = pa.array([value is None for value in values], pa.bool_())
        children = [[None if value is None else get(value) for value in values] for get in getters]
    columns = [make(child, field.type) for child, field in zip(children, kind, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
