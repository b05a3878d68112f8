"""Which positions of a foreign source were taken in: sorted ranges that do not touch, each with its end left out.

A file is loaded and an archive restored in stretches that may be tried again, overlap, or come in any order; what is
covered is never taken twice.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from headwater.errors import InvalidOption, StoreDamaged

Ranges = tuple[tuple[int, int], ...]


def uncovered(ranges: Ranges, positions: Sequence[int]) -> list[int]:
    """The indexes of those positions (rising) that no range holds.

    >>> uncovered(((0, 3),), [1, 3, 4])
    [1, 2]
    """
    if not positions or all(end <= positions[0] or positions[-1] < begin for begin, end in ranges):
        return list(range(len(positions)))
    found = []
    place = 0
    for index, position in enumerate(positions):
        while place < len(ranges) and ranges[place][1] <= position:
            place += 1
        if place == len(ranges) or position < ranges[place][0]:
            found.append(index)
    return found


def cover(ranges: Ranges, *added: tuple[int, int]) -> Ranges:
    """The ranges with others added; ranges that touch become one.

    >>> cover(((0, 3), (7, 9)), (3, 5))
    ((0, 5), (7, 9))
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, *added)):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        elif first < last:
            merged.append((first, last))
    return tuple(merged)


def check_positions(positions: Sequence[int], covers: Sequence[tuple[int, int]], count: int) -> None:
    """Raises unless there is a position for each record, they rise, and they lie in what will be covered."""
    if len(positions) != count:
        raise InvalidOption(f"a load has a position for each record; got {len(positions):,} for {count:,}")
    if any(after <= before for before, after in pairwise(positions)):
        raise InvalidOption("the positions of a load rise from record to record")
    for begin, end in covers:
        if begin >= end:
            raise InvalidOption(f"a range that a load covers begins before its end; got {begin} and {end}")
    missing = uncovered(cover((), *covers), positions)
    if missing:
        raise InvalidOption(f"position {positions[missing[0]]} lies in no range that the load covers")


def encode_ranges(ranges: Ranges) -> str:
    """The ranges as the store keeps them."""
    return msgspec.json.encode(ranges).decode()


def decode_ranges(text: str) -> Ranges:
    """The ranges as the store kept them."""
    try:
        return msgspec.json.decode(text, type=Ranges)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the positions of a source cannot be read: {error}") from error
