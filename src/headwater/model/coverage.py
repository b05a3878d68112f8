"""Which positions of a foreign source were taken in: sorted ranges that do not touch, each with its end left out.

A file is loaded and an archive restored in stretches that may be tried again, overlap, or come in any order; what is
covered is never taken twice.
"""

from collections.abc import Sequence

import msgspec

from headwater.errors import StoreDamaged

Ranges = tuple[tuple[int, int], ...]


def uncovered(ranges: Ranges, positions: Sequence[int]) -> list[int]:
    """The indexes of those positions (rising) that no range holds.

    >>> uncovered(((0, 3),), [1, 3, 4])
    [1, 2]
    """
    found = []
    place = 0
    for index, position in enumerate(positions):
        while place < len(ranges) and ranges[place][1] <= position:
            place += 1
        if place == len(ranges) or position < ranges[place][0]:
            found.append(index)
    return found


def cover(ranges: Ranges, begin: int, end: int) -> Ranges:
    """The ranges with `begin` to `end` added; ranges that touch become one.

    >>> cover(((0, 3), (7, 9)), 3, 5)
    ((0, 5), (7, 9))
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*ranges, (begin, end))):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        elif first < last:
            merged.append((first, last))
    return tuple(merged)


def encode_ranges(ranges: Ranges) -> str:
    """The ranges as the store keeps them."""
    return msgspec.json.encode(ranges).decode()


def decode_ranges(text: str) -> Ranges:
    """The ranges as the store kept them."""
    try:
        return msgspec.json.decode(text, type=Ranges)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the positions of a source cannot be read: {error}") from error
