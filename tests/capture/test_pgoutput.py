"""Values and messages of PostgreSQL's replication stream, without a server."""

from typing import Any

import msgspec
import pytest

from headwater.capture.pgoutput import Decoder
from headwater.capture.postgres_values import value_of
from headwater.errors import CaptureError, SourceUnfit

INT4, INT8, NUMERIC, FLOAT8, BOOL, JSONB, TEXT, TIMESTAMPTZ = 23, 20, 1700, 701, 16, 3802, 25, 1184


@pytest.mark.parametrize(
    ("text", "oid", "value"),
    [
        ("7", INT4, 7),
        ("9223372036854775807", INT8, 2**63 - 1),
        ("0.1", FLOAT8, 0.1),
        ("NaN", FLOAT8, "NaN"),
        ("-Infinity", FLOAT8, "-Infinity"),
        ("0.10000000000000000000001", NUMERIC, "0.10000000000000000000001"),
        ("t", BOOL, True),
        ("f", BOOL, False),
        ("äöü\t", TEXT, "äöü\t"),
        ("2026-11-17 04:00:00+00", TIMESTAMPTZ, "2026-11-17 04:00:00+00"),
        ('{1,NULL,"3"}', 1007, [1, None, 3]),
        ("{{1,2},{3,4}}", 1007, [[1, 2], [3, 4]]),
        ("[0:1]={1,2}", 1007, [1, 2]),
        ("{}", 1009, []),
        (r'{a,"b c","d\"e","f\\g",NULL,"NULL",""}', 1009, ["a", "b c", 'd"e', "f\\g", None, "NULL", ""]),
        ("{t,f}", 1000, [True, False]),
        ("(1,2)", 16_500, "(1,2)"),
    ],
)
def test_a_value_is_what_json_has_or_the_servers_text(text: str, oid: int, value: Any) -> None:
    assert value_of(text.encode(), oid) == value


def test_a_text_in_an_unknown_encoding_is_told() -> None:
    with pytest.raises(SourceUnfit, match="not UTF-8"):
        value_of(b"\xe4", TEXT)


def test_numbers_in_json_stay_as_they_were_written() -> None:
    text = '{"big": 123456789012345678901234567890, "exact": 0.10000000000000000000001}'
    assert msgspec.json.encode({"data": value_of(text.encode(), JSONB)}) == b'{"data":' + text.encode() + b"}"


@pytest.mark.parametrize("message", [b"I\0\0\0\1N\0\1", b"B\0", b"R\0\0", b"U", b"T\0\0\0\1\0\0\0\0\7"])
def test_a_message_that_cannot_be_read_is_an_error_of_ours(message: bytes) -> None:
    with pytest.raises(CaptureError):
        Decoder().decode(message)


@pytest.mark.parametrize("message", [b"Y\0\0\0\1", b"O\0\0\0\0", b"M\0", b"?"])
def test_messages_that_say_nothing_of_rows_are_passed_over(message: bytes) -> None:
    assert Decoder().decode(message) == []
