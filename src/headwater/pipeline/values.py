"""Payloads as values of a schema, one by one, where the quick way (`typed.py`) does not take a whole segment.

This is the format's own typing. It knows every spelling that Spark writes and the usual ones of others, and says of
each payload that does not fit what is wrong with it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from headwater.errors import InvalidOption
from headwater.pipeline.number_texts import NumberText, reason_of
from headwater.pipeline.typed import INTEGERS, attribute, field_shape, with_required, without_none
from headwater.pipeline.zones import in_utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
DIGITS_MAX = 76

_PLAIN: dict[pa.DataType, Any] = {
    **INTEGERS,
    pa.string(): str,
    pa.bool_(): bool,
    pa.float32(): float | NumberText,
    pa.float64(): float | NumberText,
    pa.binary(): bytes,
}
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ].*)?", re.ASCII)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d(?::?[0-5]\d(?::[0-5]\d)?)?)?)?",
    re.ASCII,
)
# Spark knows no zone that is farther from UTC.
_OFFSET_MAX = timedelta(hours=18)

Convert = Callable[[Any], Any]


class Values:
    """Reads payloads as structs of one Arrow type; `corrupt` is the field for the text of one that does not fit.

    The fields `required` must be there in what fits, also where the type has a null for what does not.
    """

    def __init__(self, kind: pa.DataType, zone: tzinfo | None, corrupt: str, required: Collection[str] = ()) -> None:
        self._kind = kind
        place = kind.get_field_index(corrupt)
        self._corrupt = corrupt if place >= 0 and kind.field(place).type == pa.string() else ""
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            without_none(_shape(with_required(kind, required)))
        )
        self._convert = _converter(kind, zone)

    def column(self, payloads: Sequence[bytes], refuse: Callable[[int, str], None]) -> pa.Array:
        """Payloads as a column. `refuse` is told the place of each that does not fit and why, and may raise."""
        return pa.array([self._value(place, text, refuse) for place, text in enumerate(payloads)], self._kind)

    def _value(self, place: int, payload: bytes, refuse: Callable[[int, str], None]) -> Any:
        try:
            value = self._convert(self._decoder.decode(payload))
            # What the payload itself has under this name says nothing about it.
            return {**value, self._corrupt: None} if self._corrupt else value
        except (msgspec.MsgspecError, ValueError, OverflowError, InvalidOperation, pa.ArrowInvalid) as error:
            refuse(place, reason_of(error))
        return {self._corrupt: payload.decode()} if self._corrupt else None


def _shape(kind: pa.DataType) -> Any:
    """The Python type that values of an Arrow type are decoded as."""
    if _is_struct(kind):
        fields = [field_shape(attribute(number), field, _shape) for number, field in enumerate(kind)]
        names = {attribute(number): field.name for number, field in enumerate(kind)}
        return msgspec.defstruct("Payload", fields, rename=names, gc=False, eq=False, kw_only=True) | None
    if pa.types.is_list(kind):
        return list[_member(kind.value_field)] | None  # type: ignore[misc]
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        return dict[str, _member(kind.item_field)] | None  # type: ignore[misc]
    if pa.types.is_decimal(kind):
        return Decimal | None
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return str | None
    if kind not in _PLAIN:
        raise InvalidOption(
            f"the format cannot read the type {kind} from JSON; headwater.pipeline.read(spark, …) can, where Spark can"
        )
    return _PLAIN[kind] | None


def _is_struct(kind: pa.DataType) -> bool:
    """Whether this is a struct of fields; a variant is one only for Arrow."""
    return pa.types.is_struct(kind) and not any(b"variant" in (field.metadata or {}) for field in kind)


def _member(field: pa.Field) -> Any:
    shape = _shape(field.type)
    return shape if field.nullable else without_none(shape)


# ── from what msgspec decodes to what Arrow takes ──


def _converter(kind: pa.DataType, zone: tzinfo | None) -> Convert:
    convert = _convert_of(kind, zone)
    return lambda value: None if value is None else convert(value)


def _convert_of(kind: pa.DataType, zone: tzinfo | None) -> Convert:
    if _is_struct(kind):
        fields = [(field.name, attribute(number), _converter(field.type, zone)) for number, field in enumerate(kind)]
        return lambda value: {name: convert(getattr(value, place)) for name, place, convert in fields}
    if pa.types.is_list(kind):
        member = _converter(kind.value_type, zone)
        return lambda value: list(map(member, value))
    if pa.types.is_map(kind):
        item = _converter(kind.item_type, zone)
        return lambda value: [(key, item(each)) for key, each in value.items()]
    if pa.types.is_timestamp(kind):
        return (lambda text: _time(text, zone)) if kind.tz else _local_time
    if pa.types.is_date32(kind):
        return _day
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    return float if pa.types.is_floating(kind) else lambda value: value


def _time(text: str, zone: tzinfo | None) -> int:
    """A time in microseconds; without a zone of its own it is one of `zone`."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r:.80} is no time; one is 2026-11-15T08:00:00Z")
    time = datetime.fromisoformat(text)
    if abs(time.utcoffset() or timedelta()) > _OFFSET_MAX:
        raise ValueError(f"{text!r:.80} has an offset of more than 18 hours")
    return (in_utc(time, zone) - EPOCH) // MICROSECOND


def _local_time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if not found or found[1]:
        raise ValueError(f"{text!r:.80} is no time without a zone; one is 2026-11-15T08:00:00")
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def _day(text: str) -> date:
    found = _DAY.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r:.80} is no day; one is 2026-11-15")
    return date.fromisoformat(found[1])


def _decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """A number with as many digits behind the point as its type has, rounded as Spark does."""
    if not value.is_finite():
        raise ValueError(f"{value} is no decimal number")
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=DIGITS_MAX))
    if len(rounded.as_tuple().digits) > precision:
        raise ValueError(f"{value} has more than {precision - scale} digits before the point")
    return rounded
