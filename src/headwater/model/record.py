"""One message, as it is pushed, kept and delivered.

A record is kept as the JSON object that the wire carries, its payload untouched under `data`. Reading a record back
decodes only this envelope; the payload stays bytes until somebody asks for it.
"""

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from headwater.errors import InvalidPayload, StoreDamaged, TooLarge
from headwater.model.json_values import why_unread


class Record(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """A payload with what its producer says about it. `timestamp` is set only when a record keeps an older time."""

    data: msgspec.Raw
    transaction_id: str = ""
    trace_id: str = ""
    type: str = ""
    headers: dict[str, str] | None = None
    producer_sub: str = ""
    timestamp: int = 0


class BareRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A record that is known to say nothing of itself; it reads as a `Record` does."""

    data: msgspec.Raw

    transaction_id: ClassVar[str] = ""
    trace_id: ClassVar[str] = ""
    type: ClassVar[str] = ""
    headers: ClassVar[None] = None
    producer_sub: ClassVar[str] = ""
    timestamp: ClassVar[int] = 0


_data, _headers = attrgetter("data"), attrgetter("headers")


def bytes_of(records: Sequence[Record | BareRecord]) -> int:
    """How large records are together, as far as that can be much."""
    size = sum(map(len, map(_data, records)))
    for headers in filter(None, map(_headers, records)):
        size += sum(map(len, headers)) + sum(map(len, headers.values()))
    return size


# A reader with little stack left must still be able to decode it.
DEPTH_MAX = 100
# Every level takes two brackets, so a text of this length cannot be too deep.
SHALLOW_BYTES_MAX = 2 * DEPTH_MAX

_texts = re.compile(rb'"(?:[^"\\]|\\.)*"')
_brackets = re.compile(rb"[\[\]{}]")
_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder().decode
_raw = msgspec.json.Decoder(msgspec.Raw)
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_record_list = msgspec.json.Decoder(list[Record])
_record_lists = msgspec.json.Decoder(list[list[Record]])
_bare_list = msgspec.json.Decoder(list[BareRecord])
_ids_only = msgspec.json.Decoder(list[msgspec.defstruct("Identity", [("transactionId", str, "")])])  # type: ignore[misc]


def encode_payload(payload: object, bytes_max: int) -> msgspec.Raw:
    """A value as JSON bytes; `msgspec.Raw` is JSON that is ready, and is kept as it is once it is shown to be that."""
    try:
        data = _ready_json(payload) if type(payload) is msgspec.Raw else _encoder.encode(payload)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"a payload must be a JSON value; {type(payload).__name__}: {error}") from error
    if len(data) > SHALLOW_BYTES_MAX or len(data) > bytes_max:
        _check_bounds(data, bytes_max)
    return msgspec.Raw(data)


def encode_payloads(payloads: Sequence[object], bytes_max: int) -> list[msgspec.Raw]:
    """The same for many plain values at once: a batch that is right as a whole is not looked at one by one."""
    try:
        texts = list(map(_encoder.encode, payloads))
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return [encode_payload(payload, bytes_max) for payload in payloads]
    if max(map(len, texts), default=0) > min(bytes_max, SHALLOW_BYTES_MAX):
        for text in texts:
            _check_bounds(text, bytes_max)
    return list(map(msgspec.Raw, texts))


def check_texts(texts: Sequence[bytes], bytes_max: int) -> None:
    """Raises when one of the texts is no payload; a batch that is right as a whole is not looked at one by one."""
    joined = b"[" + b",".join(texts) + b"]"
    try:
        joined.decode()
        lengths = list(map(len, _raw_list.decode(joined)))
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        lengths = []
    # Cut at the same places, they are the same texts: none has a comma of its own or the end of another.
    if lengths != list(map(len, texts)):
        for text in texts:
            encode_payload(msgspec.Raw(text), bytes_max)
    elif max(lengths, default=0) > min(bytes_max, SHALLOW_BYTES_MAX):
        for text in texts:
            _check_bounds(text, bytes_max)


def check_ready_json(payload: msgspec.Raw, bytes_max: int) -> None:
    """The bounds of a payload that is known to be JSON, because what it was cut out of was decoded."""
    if len(payload) > min(bytes_max, SHALLOW_BYTES_MAX):
        _check_bounds(bytes(payload), bytes_max)


def _check_bounds(data: bytes, bytes_max: int) -> None:
    """Raises when a payload is too long or too deep."""
    size = len(data)
    if size > bytes_max:
        raise TooLarge(f"a payload may have {bytes_max:,} bytes; this one has {size:,}")
    if is_too_deep(data):
        raise InvalidPayload(f"a payload may be nested {DEPTH_MAX} levels deep")


def is_too_deep(data: bytes) -> bool:
    """Whether a JSON text has more levels than everybody who reads it can follow."""
    # Most have fewer brackets than they may have levels; only the others are measured.
    return data.count(b"[") + data.count(b"{") > DEPTH_MAX and _depth(data) > DEPTH_MAX


def _ready_json(payload: msgspec.Raw) -> bytes:
    data = bytes(payload)
    try:
        _need_json(data)
    except msgspec.DecodeError as error:
        raise ValueError(why_unread(data, error)) from error
    return data


def _need_json(data: bytes) -> None:
    """Raises when these bytes are not one JSON value. Numbers may be any that JSON can write."""
    try:
        _decode(data)
    except msgspec.ValidationError:
        # A number that neither float nor int takes; what stands behind it was not looked at.
        data.decode()
        _raw.decode(data)


def _depth(data: bytes) -> int:
    """How deep a JSON text is nested."""
    depth = deepest = 0
    for bracket in _brackets.findall(_texts.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def check_json(data: bytes) -> msgspec.Raw:
    """Bytes from outside, as a payload, once they are shown to be one JSON value."""
    try:
        _need_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"the payload is not JSON: {error}") from error
    return msgspec.Raw(data)


def can_be_held(data: bytes, depth_max: int) -> bool:
    """Whether a text is JSON that a payload can have where so many levels are left to it."""
    try:
        _need_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return _depth(data) <= depth_max


def decode_payload(data: msgspec.Raw) -> Any:
    """The payload as Python values, a Decimal for a number that neither float nor int can hold: what was pushed."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        return json.loads(bytes(data), parse_int=_whole, parse_float=_real)


def _whole(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def _real(text: str) -> float | Decimal:
    number = float(text)
    return number if math.isfinite(number) else Decimal(text)


def encode_records(records: Sequence[Record]) -> bytes:
    """The body of a segment: a JSON array of records."""
    return _encoder.encode(records)


def encode_bare(payloads: Sequence[bytes]) -> bytes:
    """Payloads as records that say nothing of themselves, with commas between them, as in the body of a segment."""
    return b'{"data":' + b'},{"data":'.join(payloads) + b"}"


def split_records(body: bytes) -> list[Record]:
    """The records of a segment's body."""
    try:
        return _record_list.decode(body)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"records cannot be read: {error}") from error


def split_bodies(bodies: Sequence[bytes]) -> list[list[Record]]:
    """The records of each of some bodies."""
    try:
        found = _record_lists.decode(b"[%b]" % b",".join(bodies))
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"records cannot be read: {error}") from error
    if len(found) != len(bodies):
        raise StoreDamaged("records cannot be read: a body is none of one segment")
    return found


def split_if_bare(body: bytes) -> list[BareRecord] | None:
    """The records of a segment's body when none of them says anything of itself; None when one may."""
    try:
        return _bare_list.decode(body)
    except msgspec.MsgspecError:
        return None


def transaction_ids(body: bytes) -> list[str]:
    """The transaction ids in a segment's body, '' where a record has none; the payloads are skipped over."""
    return [identity.transactionId for identity in _ids_only.decode(body)]
