"""Values as bytes that compare as the values do: keys of indexes on documents, and places in an order.

    null or missing < false < true < numbers < texts < lists < objects

Numbers compare by their exact value, whether they are written with a fraction or not; texts by code point. Equal values
have equal keys: `1` and `1.0`.
"""

import math

import msgspec

NULL, FALSE, TRUE, NUMBER, TEXT, LIST, OBJECT, END = (bytes([tag]) for tag in range(1, 9))
# Numbers: negative, zero, positive.
_NEGATIVE, _ZERO, _POSITIVE = b"\x01", b"\x02", b"\x03"
_END_OF_NEGATIVE = b"\xff"
_EXPONENT_BYTES = 4
_EXPONENT_BIAS = 2**31
_flipped = bytes(255 - byte for byte in range(256))
_encode = msgspec.json.Encoder(order="sorted").encode


def order_key(value: object) -> bytes:
    """The key of a value of a document."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int | float):
        return NUMBER + _number(value)
    if isinstance(value, str):
        return TEXT + value.encode("utf-8", "surrogatepass")
    # Lists and objects have an order so that every document has its place; which it is does not matter.
    return (LIST if isinstance(value, list) else OBJECT) + _encode(value)


def next_key(key: bytes) -> bytes:
    """The least key above this one."""
    return key + b"\0"


def kind_end(key: bytes) -> bytes:
    """A key above all of the same kind."""
    return bytes([key[0] + 1])


def _number(value: int | float) -> bytes:
    if value == 0:
        return _ZERO
    magnitude = _magnitude(abs(value))
    if value > 0:
        return _POSITIVE + magnitude
    exponent, fraction = magnitude[:_EXPONENT_BYTES], magnitude[_EXPONENT_BYTES:]
    return _NEGATIVE + exponent.translate(_flipped) + _below_end(fraction.translate(_flipped)) + _END_OF_NEGATIVE


def _below_end(fraction: bytes) -> bytes:
    """A longer fraction that begins alike is further from zero, and less: no byte of it counts as high as an end."""
    return fraction.replace(b"\xfe", b"\xfe\x00").replace(_END_OF_NEGATIVE, b"\xfe\x01")


def _magnitude(value: int | float) -> bytes:
    """Exponent and fraction to the base of two; the fraction without zeros at its end, so that prefixes are less."""
    if isinstance(value, float):
        fraction, exponent = math.frexp(value)
        digits = int(fraction * 2**53)
        bits = 53
    else:
        digits, bits = value, value.bit_length()
        exponent = bits
    whole = -(-bits // 8)
    text = (digits << (whole * 8 - bits)).to_bytes(whole, "big").rstrip(b"\0")
    return (exponent + _EXPONENT_BIAS).to_bytes(_EXPONENT_BYTES, "big") + text
