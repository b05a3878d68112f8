"""Matching finds exactly those whom a change concerns, and looks at few others."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater import filters
from headwater.filters import Expression
from headwater.services.matching import Filed, Matcher, Move
from headwater.services.matching.intervals import Intervals
from tests.filters.random_filters import documents, expressions, means

Document = dict[str, object]


def concerned(matcher: Matcher, before: Document | None, after: Document | None) -> dict[object, Move]:
    return {watcher: move for filed, move in matcher.match(before, after) for watcher in filed.watchers}


def naive(watched: dict[int, Expression], before: Document | None, after: Document | None) -> dict[object, Move]:
    """What everybody would be told by trying every filter on both images."""
    found: dict[object, Move] = {}
    for watcher, expression in watched.items():
        was = before is not None and means(expression, before)
        now = after is not None and means(expression, after)
        if was or now:
            found[watcher] = Move.CHANGED if was and now else Move.ENTERED if now else Move.LEFT
    return found


class Watching(RuleBasedStateMachine):
    """People come and go with filters, and documents change: the matcher tells whom a loop over all would tell."""

    def __init__(self) -> None:
        super().__init__()
        self.matcher = Matcher()
        self.watched: dict[int, Expression] = {}
        self.filed: dict[int, Filed] = {}

    @rule(expression=expressions, number=st.integers(1, 2))
    def come(self, expression: Expression, number: int) -> None:
        for _ in range(number):
            watcher = len(self.filed)
            self.filed[watcher] = self.matcher.add(expression, watcher)
            self.watched[watcher] = expression

    @rule(chance=st.randoms(use_true_random=False))
    def go(self, chance: random.Random) -> None:
        if self.watched:
            watcher = chance.choice(sorted(self.watched))
            del self.watched[watcher]
            self.matcher.remove(self.filed[watcher], watcher)

    @rule(before=st.none() | documents, after=st.none() | documents)
    def change(self, before: Document | None, after: Document | None) -> None:
        assert concerned(self.matcher, before, after) == naive(self.watched, before, after)

    @invariant()
    def nothing_is_kept_for_nobody(self) -> None:
        assert sum(len(filed.watchers) for filed in self.matcher) == len(self.watched)
        if not self.watched:
            assert vars(self.matcher) == vars(Matcher())


TestWatching = Watching.TestCase


@given(
    watched=st.lists(expressions, min_size=1, max_size=12),
    changes=st.lists(st.tuples(st.none() | documents, st.none() | documents), max_size=4),
)
@settings(max_examples=200)
def test_the_matcher_tells_whom_a_loop_over_all_would_tell(
    watched: list[Expression], changes: list[tuple[Document | None, Document | None]]
) -> None:
    """S3-13, T3-a: ranges and `!=` among them."""
    matcher = Matcher()
    for watcher, expression in enumerate(watched):
        matcher.add(expression, watcher)
    for before, after in changes:
        assert concerned(matcher, before, after) == naive(dict(enumerate(watched)), before, after)


OPEN = filters.parse('state == "open"')


@pytest.mark.parametrize(
    ("before", "after", "move"),
    [
        (None, {"state": "open"}, Move.ENTERED),
        ({"state": "closed"}, {"state": "open"}, Move.ENTERED),
        ({"state": "open", "n": 1}, {"state": "open", "n": 2}, Move.CHANGED),
        ({"state": "open"}, {"state": "closed"}, Move.LEFT),
        ({"state": "open"}, {}, Move.LEFT),
        ({"state": "open"}, None, Move.LEFT),
    ],
)
def test_a_change_is_told_as_what_it_is_to_the_set(before: Document | None, after: Document | None, move: Move) -> None:
    matcher = Matcher()
    matcher.add(OPEN, "ada")
    assert concerned(matcher, before, after) == {"ada": move}


@pytest.mark.parametrize(("before", "after"), [(None, {"state": "closed"}), ({"state": 5}, None), ({}, {})])
def test_whoever_is_not_concerned_is_not_told(before: Document | None, after: Document | None) -> None:
    matcher = Matcher()
    matcher.add(OPEN, "ada")
    assert concerned(matcher, before, after) == {}


class Counted:
    """How often filters are tried."""

    def __init__(self, matcher: Matcher) -> None:
        self.tries = 0
        for filed in matcher:
            filed.predicate = self._counting(filed.predicate)

    def _counting(self, predicate: filters.Predicate) -> filters.Predicate:
        def tried(document: object) -> bool:
            self.tries += 1
            return predicate(document)  # type: ignore[arg-type]

        return tried


@pytest.mark.parametrize(
    ("text", "document", "tries_max"),
    [
        ('id == "d{n}"', {"id": "d7"}, 1),
        ('room == "r{n}" && size > 3', {"room": "r7", "size": 5}, 1),
        ('open == true && owner == "u{n}"', {"open": True, "owner": "u7"}, 1),
        ('room in ["r{n}", "s{n}"]', {"room": "s7"}, 1),
        ('"l{n}" in labels', {"labels": ["l7", "l8", "other"]}, 2),
        ("size > {n} && size <= {n}.5", {"size": 7.25}, 1),
        ("at >= {n} && at < {n}.5 || id == 'd{n}'", {"at": 7.25, "id": "d9"}, 2),
        ('name.startsWith("n{n}-")', {"name": "n7-x"}, 1),
        ("size > {n}", {"size": 5}, 6),
        ("size < {n}", {"size": 1996}, 6),
    ],
)
def test_of_many_filters_few_are_tried(text: str, document: Document, tries_max: int) -> None:
    """S3-13, S3-14: what is tried in vain stays rare without a Bloom filter."""
    matcher = Matcher()
    for number in range(2_000):
        matcher.add(filters.parse(text.replace("{n}", str(number))), number)
    counted = Counted(matcher)
    assert matcher.match(None, document)
    assert counted.tries <= tries_max


def test_those_who_watch_by_one_filter_are_told_by_one_look() -> None:
    """S3-15."""
    matcher = Matcher()
    for watcher in range(500):
        matcher.add(OPEN, watcher)
    counted = Counted(matcher)
    assert len(concerned(matcher, None, {"state": "open"})) == 500
    assert counted.tries == 1


def test_filters_that_differ_in_1_and_true_alone_are_two() -> None:
    matcher = Matcher()
    matcher.add(filters.parse("a == 1"), "number")
    matcher.add(filters.parse("a == true"), "boolean")
    assert concerned(matcher, None, {"a": 1}) == {"number": Move.ENTERED}
    assert concerned(matcher, None, {"a": True}) == {"boolean": Move.ENTERED}


def test_an_or_is_found_by_each_of_its_sides() -> None:
    matcher = Matcher()
    matcher.add(filters.parse('a == 1 || "x" in b || c > 5'), "ada")
    found: list[Document] = [{"a": 1}, {"b": ["x"]}, {"c": 6}]
    assert all(concerned(matcher, None, document) for document in found)
    assert not concerned(matcher, None, {"a": 2, "b": "x", "c": 5})


@given(st.lists(st.tuples(st.none() | st.integers(-20, 20), st.none() | st.integers(-20, 20)), max_size=60), st.data())
def test_intervals_are_found_by_what_lies_in_them(
    given: list[tuple[int | None, int | None]], data: st.DataObject
) -> None:
    bounds = [(low, high) for low, high in given if (low is not None or high is not None)]
    bounds = [(low, high) for low, high in bounds if low is None or high is None or low <= high]
    intervals: Intervals[int] = Intervals()
    numbers = [intervals.add(low, high, place) for place, (low, high) in enumerate(bounds)]
    gone = data.draw(st.sets(st.integers(0, max(len(bounds) - 1, 0)))) if bounds else set()
    for place in gone:
        intervals.remove(numbers[place])
    for value in (*range(-21, 22), 0.5):
        expected = {
            place
            for place, (low, high) in enumerate(bounds)
            if place not in gone and (low is None or low <= value) and (high is None or value <= high)
        }
        found = list(intervals.at(value))
        assert sorted(found) == sorted(expected)


def test_intervals_that_come_in_order_do_not_make_a_deep_tree() -> None:
    intervals: Intervals[int] = Intervals()
    for number in range(3_000):
        intervals.add(number * 10, number * 10 + 5, number)
    assert len(intervals._way_to(29_990, 29_995)) < 40
    assert list(intervals.at(15_003)) == [1_500]
