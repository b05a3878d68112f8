"""Ranges of positions that were taken in: against plain sets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import StoreDamaged
from headwater.model.coverage import Ranges, cover, decode_ranges, encode_ranges, uncovered

stretches = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair))))


def cover_all(parts: list[tuple[int, int]]) -> Ranges:
    ranges: Ranges = ()
    for begin, end in parts:
        ranges = cover(ranges, (begin, end))
    return ranges


@given(stretches)
def test_ranges_hold_what_was_covered_and_nothing_else(parts: list[tuple[int, int]]) -> None:
    ranges = cover_all(parts)
    expected = {position for begin, end in parts for position in range(begin, end)}
    assert {position for begin, end in ranges for position in range(begin, end)} == expected


@given(stretches)
def test_ranges_are_sorted_and_do_not_touch(parts: list[tuple[int, int]]) -> None:
    ranges = cover_all(parts)
    assert all(begin < end for begin, end in ranges)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))


@given(stretches, st.sets(st.integers(0, 40)))
def test_what_is_uncovered_is_what_no_stretch_held(parts: list[tuple[int, int]], wanted: set[int]) -> None:
    positions = sorted(wanted)
    covered = {position for begin, end in parts for position in range(begin, end)}
    found = [positions[index] for index in uncovered(cover_all(parts), positions)]
    assert found == [position for position in positions if position not in covered]


@given(stretches)
def test_ranges_come_back_as_they_were_kept(parts: list[tuple[int, int]]) -> None:
    ranges = cover_all(parts)
    assert decode_ranges(encode_ranges(ranges)) == ranges


def test_ranges_that_cannot_be_read_are_damage() -> None:
    with pytest.raises(StoreDamaged, match="positions of a source"):
        decode_ranges("[[1")
