"""Queue options: merged, bounded, kept as the difference from the defaults."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidOption
from headwater.model.queue import (
    OPTION_NAMES,
    QueueOptions,
    decode_options,
    encode_options,
    merge_group_options,
    merge_options,
    retry_delay,
)

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


@given(st.integers(1, 10_000), st.floats(0, 0.999))
def test_a_retry_waits_no_longer_than_the_bound_and_no_less_than_the_jitter_leaves(
    attempts: int, chance: float
) -> None:
    options = QueueOptions(retry_delay_seconds=2, retry_factor=3, retry_delay_max_seconds=50, retry_jitter=0.25)
    full = min(2 * 3 ** min(attempts - 1, 10), 50)
    assert full * 0.75 <= retry_delay(options, attempts, chance) <= full


def test_a_retry_waits_longer_each_time_by_the_factor() -> None:
    options = QueueOptions(retry_delay_seconds=2, retry_factor=3, retry_delay_max_seconds=50, retry_jitter=0)
    assert [retry_delay(options, attempt, 0.9) for attempt in range(1, 6)] == [2, 6, 18, 50, 50]


def test_a_factor_of_one_is_always_the_same_wait() -> None:
    options = QueueOptions(retry_delay_seconds=7, retry_factor=1, retry_jitter=0)
    assert {retry_delay(options, attempt, 0.5) for attempt in range(1, 200)} == {7}


def test_a_delay_above_the_bound_is_taken_as_it_was_said() -> None:
    options = QueueOptions(retry_delay_seconds=1_000, retry_delay_max_seconds=10, retry_jitter=0)
    assert retry_delay(options, 5, 0) == 1_000


@given(valid, st.fixed_dictionaries({}, optional={"lease_seconds": st.floats(1, 9), "retry_limit": st.integers(0, 9)}))
def test_a_group_differs_from_its_queue_in_what_it_names_and_in_nothing_else(
    changes: dict[str, Any], own: dict[str, Any]
) -> None:
    queue = merge_options(QueueOptions(), changes)
    assert merge_group_options(queue, {}, own) == own
    assert merge_group_options(queue, own, dict.fromkeys(own)) == {}
    assert merge_options(queue, own) == msgspec.structs.replace(queue, **own)


@pytest.mark.parametrize(
    "changes", [{"lanes": 3}, {"size_max": 1}, {"retry_limit": -1}, {"lease_seconds": "x"}, {"x": 1}]
)
def test_what_a_group_cannot_have_of_its_own_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        merge_group_options(QueueOptions(), {}, changes)


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
