"""Intervals of numbers or of texts, found by a point that lies in them.

Those that are open on one side are two sorted lists, of which a search takes a run. The others are in a tree of
points, each with the intervals around it, sorted once by where they begin and once by where they end: a search goes
down one path and takes a run of one of the two lists at each point. So it costs what it finds and the depth of the
tree, and where that grows too deep the part of it that leans is laid out anew.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
# Numbers among themselves, or texts among themselves.
Bound = Any
Key = tuple[Bound, int]  # with the number of the interval, so that each is found again
DEPTH_SPARE = 8
LEAN_MAX = 0.7  # of a part of the tree on one side


class _Point:
    """A point, and the intervals around it that lie around none above it."""

    __slots__ = ("above", "at", "begins", "below", "ends")

    def __init__(self, at: Bound) -> None:
        self.at = at
        self.begins: list[Key] = []
        self.ends: list[Key] = []
        self.below: _Point | None = None
        self.above: _Point | None = None


class Intervals(Generic[Item]):
    """Items by an interval each; None is no bound. Bounds count as inside."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[Bound | None, Bound | None, Item]] = {}
        self._from: list[Key] = []
        self._up_to: list[Key] = []
        self._root: _Point | None = None
        self._points = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, low: Bound | None, high: Bound | None, item: Item) -> int:
        """Keep an item by an interval, which has one bound at least; returns the number that it is removed by."""
        self._last += 1
        number = self._last
        self._items[number] = (low, high, item)
        if high is None:
            insort(self._from, (low, number))
        elif low is None:
            insort(self._up_to, (high, number))
        else:
            self._place(low, high, number)
        return number

    def remove(self, number: int) -> None:
        """Keep it no more."""
        low, high, _ = self._items.pop(number)
        if high is None:
            del self._from[bisect_left(self._from, (low, number))]
        elif low is None:
            del self._up_to[bisect_left(self._up_to, (high, number))]
        else:
            point = self._way_to(low, high)[-1]
            del point.begins[bisect_left(point.begins, (low, number))]
            del point.ends[bisect_left(point.ends, (high, number))]
        if not self._items:
            self._root, self._points = None, 0

    def at(self, value: Bound) -> Iterator[Item]:
        """The items whose intervals a value lies in."""
        items = self._items
        for _, number in self._from[: bisect_right(self._from, (value, self._last))]:
            yield items[number][2]
        for _, number in self._up_to[bisect_left(self._up_to, (value, 0)) :]:
            yield items[number][2]
        point = self._root
        while point is not None:
            if value < point.at:
                run = point.begins[: bisect_right(point.begins, (value, self._last))]
                point = point.below
            else:
                run = point.ends[bisect_left(point.ends, (value, 0)) :]
                point = point.above
            for _, number in run:
                yield items[number][2]

    # ── the tree ──

    def _way_to(self, low: Bound, high: Bound) -> list[_Point]:
        """The points from the root to the first that lies in an interval, or to where it would be."""
        way: list[_Point] = []
        point = self._root
        while point is not None:
            way.append(point)
            if low <= point.at <= high:
                break
            point = point.below if high < point.at else point.above
        return way

    def _place(self, low: Bound, high: Bound, number: int) -> None:
        way = self._way_to(low, high)
        if not way or not low <= way[-1].at <= high:
            self._points += 1
            point = _Point(low)
            if not way:
                self._root = point
            elif high < way[-1].at:
                way[-1].below = point
            else:
                way[-1].above = point
            way.append(point)
        insort(way[-1].begins, (low, number))
        insort(way[-1].ends, (high, number))
        if len(way) > 2 * self._points.bit_length() + DEPTH_SPARE:
            self._straighten(way)

    def _straighten(self, way: list[_Point]) -> None:
        """Lay out anew the lowest part on a way that leans to one side."""
        size = 1
        for parent, child in zip(reversed(way[:-1]), reversed(way), strict=False):
            other = parent.above if parent.below is child else parent.below
            whole = size + 1 + len(_points_of(other))
            if size > LEAN_MAX * whole:
                self._lay_out(parent, next((one for one in way if parent in (one.below, one.above)), None))
                return
            size = whole

    def _lay_out(self, top: _Point, parent: _Point | None) -> None:
        """Make a part of the tree anew, evenly. What was in it stays in it: nothing above lies in those intervals."""
        points = _points_of(top)
        places = sorted({point.at for point in points if point.begins})
        made = _evenly(places, 0, len(places))
        self._points += len(places) - len(points)
        if parent is None:
            self._root = made
        elif parent.below is top:
            parent.below = made
        else:
            parent.above = made
        for point in points:
            for low, number in point.begins:
                high = self._items[number][1]
                home = self._way_to(low, high)[-1]
                insort(home.begins, (low, number))
                insort(home.ends, (high, number))


def _points_of(top: _Point | None) -> list[_Point]:
    found: list[_Point] = []
    left = [top]
    while left:
        point = left.pop()
        if point is not None:
            found.append(point)
            left += (point.below, point.above)
    return found


def _evenly(places: list[Bound], begin: int, end: int) -> _Point | None:
    if begin >= end:
        return None
    middle = (begin + end) // 2
    point = _Point(places[middle])
    point.below = _evenly(places, begin, middle)
    point.above = _evenly(places, middle + 1, end)
    return point
