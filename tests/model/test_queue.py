"""Queue options: merged, bounded, kept as the difference from the defaults."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidOption
from headwater.model.queue import OPTION_NAMES, QueueOptions, decode_options, encode_options, merge_options

valid = st.fixed_dictionaries(
    {},
    optional={
        "lease_seconds": st.floats(0.001, 604_800) | st.integers(1, 604_800),
        "retry_limit": st.integers(0, 1_000_000),
        "retry_delay_seconds": st.floats(0, 604_800),
        "dead_letters": st.booleans(),
        "priority": st.integers(-1_000_000, 1_000_000),
        "delay_seconds": st.floats(0, 1_000),
        "size_max": st.integers(0, 2**53),
        "encrypted": st.booleans(),
    },
)


@given(valid, valid)
def test_later_changes_win_and_the_rest_stays(first: dict[str, Any], second: dict[str, Any]) -> None:
    one_by_one = merge_options(merge_options(QueueOptions(), first), second)
    assert one_by_one == merge_options(QueueOptions(), {**first, **second})


@given(valid)
def test_options_come_back_as_they_were_kept(changes: dict[str, Any]) -> None:
    options = merge_options(QueueOptions(), changes)
    assert decode_options(encode_options(options)) == options


def test_only_what_differs_from_the_defaults_is_kept() -> None:
    assert encode_options(QueueOptions()) == "{}"
    assert msgspec.json.decode(encode_options(QueueOptions(retry_limit=9))) == {"retry_limit": 9}


def test_no_changes_change_nothing() -> None:
    options = QueueOptions(retry_limit=9)
    assert merge_options(options, {}) == options


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"leaseSeconds": 5}, "leaseSeconds"),
        ({"retry_limit": 1.5}, "retry_limit"),
        ({"retry_limit": True}, "retry_limit"),
        ({"retry_limit": None}, "retry_limit"),
        ({"dead_letters": 1}, "dead_letters"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"lease_seconds": -1}, "lease_seconds"),
        ({"lease_seconds": float("inf")}, "lease_seconds"),
        ({"lease_seconds": float("nan")}, "lease_seconds"),
        ({"retry_delay_seconds": 604_801}, "retry_delay_seconds"),
        ({"size_max": -1}, "size_max"),
        ({"priority": 1_000_001}, "priority"),
        ({"compress_bytes_min": -1}, "compress_bytes_min"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named_in_the_error(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        merge_options(QueueOptions(), changes)


def test_an_unknown_option_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidOption) as caught:
        merge_options(QueueOptions(), {"colour": "red"})
    assert all(name in str(caught.value) for name in OPTION_NAMES)
