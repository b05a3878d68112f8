"""Records: any JSON value goes in, the same bytes come out; what is no JSON is refused at the door."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidPayload, TooLarge
from headwater.model.record import (
    Record,
    check_json,
    check_texts,
    decode_payload,
    encode_bare,
    encode_payload,
    encode_records,
    split_records,
    transaction_ids,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
names = st.text(max_size=8)
records = st.builds(
    Record,
    data=values.map(lambda value: msgspec.Raw(msgspec.json.encode(value))),
    transaction_id=names,
    trace_id=names,
    type=names,
    headers=st.none() | st.dictionaries(names, names, min_size=1, max_size=3),
    producer_sub=names,
    timestamp=st.integers(0, 2**60),
)


@given(values)
def test_a_payload_comes_back_as_it_was(value: Any) -> None:
    assert decode_payload(encode_payload(value, 1_000_000)) == value


@given(st.lists(records, max_size=5))
def test_records_come_back_as_they_were(sent: list[Record]) -> None:
    body = encode_records(sent)
    found = split_records(body)
    assert [bytes(record.data) for record in found] == [bytes(record.data) for record in sent]
    assert found == sent
    assert transaction_ids(body) == [record.transaction_id for record in sent]


@given(st.lists(records, min_size=1, max_size=3))
def test_a_body_is_plain_json_that_any_tool_reads(sent: list[Record]) -> None:
    for kept, record in zip(msgspec.json.decode(encode_records(sent)), sent, strict=True):
        assert kept["data"] == decode_payload(record.data)
        assert kept.get("transactionId", "") == record.transaction_id


def test_json_that_is_ready_stays_the_same_bytes() -> None:
    text = b'{"b": 1.50, "a": [ ] }'
    assert bytes(encode_payload(msgspec.Raw(text), 100)) == text


@pytest.mark.parametrize("text", [b"", b"{oops", b"1 2", b"[1,", b'{"a":1}}', b'],"x":[', b"nul"])
def test_json_that_is_not_ready_is_refused(text: bytes) -> None:
    """One such record would make the whole segment unreadable, with the records of others."""
    with pytest.raises(InvalidPayload):
        encode_payload(msgspec.Raw(text), 100)
    with pytest.raises(InvalidPayload):
        check_json(text)


@pytest.mark.parametrize("text", [b'"\\ud800"', b'{"a": "x\\uDBFF", "b": 1}', b'["\\ud800 x"]', b'"\\udc00"'])
def test_half_a_surrogate_pair_is_called_that(text: bytes) -> None:
    with pytest.raises(InvalidPayload, match="half a surrogate pair"):
        encode_payload(msgspec.Raw(text), 100)


@given(st.lists(values.map(msgspec.json.encode), max_size=5))
def test_texts_that_are_payloads_are_taken_together(texts: list[bytes]) -> None:
    check_texts(texts, 10_000)
    check_texts([b" " + text + b"\n" for text in texts], 10_000)
    if texts:
        assert [bytes(record.data) for record in split_records(b"[" + encode_bare(texts) + b"]")] == texts


@pytest.mark.parametrize(
    "texts",
    [
        [b"1,2"],
        [b"[1", b"2]"],
        [b"[1", b"2]", b"3,4"],
        [b'"a', b'b"'],
        [b'"a', b'b"', b"1,2"],
        [b"1", b""],
        [b""],
        [b"1", b"]["],
        [b'"\xff"'],
        [b'"\xc3', b'\xa4"'],
        [b"[" * 101 + b"]" * 101],
        [b"[" * 5_000 + b"]" * 5_000],
        [b'"\\ud800"'],
    ],
    ids=range(13),
)
def test_one_text_that_is_no_payload_is_found_among_others(texts: list[bytes]) -> None:
    """Joined with commas, some of them are JSON."""
    with pytest.raises(InvalidPayload):
        check_texts([b"1", *texts, b"{}"], 100_000)
    with pytest.raises(TooLarge):
        check_texts([b"1", b'"too long"'], 5)


@pytest.mark.parametrize("payload", [object(), {1, object()}, "\ud800", 1j, {"a": object()}], ids=range(5))
def test_what_json_cannot_say_is_refused(payload: object) -> None:
    with pytest.raises(InvalidPayload):
        encode_payload(payload, 1_000)


def test_a_payload_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidPayload):
        encode_payload(loop, 1_000)


def test_numbers_that_json_does_not_have_become_null() -> None:
    assert decode_payload(encode_payload([math.inf, math.nan], 100)) == [None, None]


def test_a_payload_may_be_as_large_as_the_limit() -> None:
    assert len(bytes(encode_payload("x" * 8, 10))) == 10
    for payload in ("x" * 9, msgspec.Raw(b'"xxxxxxxxx"')):
        with pytest.raises(TooLarge, match="10 bytes"):
            encode_payload(payload, 10)


def test_bytes_from_outside_are_checked_and_kept() -> None:
    assert bytes(check_json(b' {"a" : 1}')) == b' {"a" : 1}'
    for text in (b'"\xff"', b"\xff\xfe"):
        with pytest.raises(InvalidPayload):
            check_json(text)
