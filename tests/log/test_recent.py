"""The end of the log in memory: bounded, by queue, and only what this process has written without a break."""

from collections.abc import Iterable

import pytest

from headwater.clock import Timestamp
from headwater.log.operations import Commit, Touch
from headwater.log.recent import SEGMENT_BYTES, Recent, take
from headwater.model.added import Added
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.selection import Selection, fits

BODY = b'[{"data":1}]'
ROOMY = 1_000_000
EVERYTHING = Selection("main")


def commit(*lanes: str, first: int = 1, rewrote: bool = False, bodies: bool = True) -> Commit:
    """A commit that added a segment to each of these lanes, `queue/partition`."""
    touched = []
    for lsn, name in enumerate(lanes, first):
        queue, _, partition = name.partition("/")
        lane = Lane("main", queue, "", "", partition or "Default")
        touched.append(Touch(Lsn(lsn), PartitionId(1), Offset(lsn), 1, lane))
    added = Added([BODY] * len(lanes), 1, Timestamp(7), rewrote)
    return Commit([], touched, wrote=True, added=added if bodies else None)


def lsns(recent: Recent, selection: Selection = EVERYTHING, after: int = 0) -> list[int]:
    return [kept.touch.lsn for kept in recent.after(selection, Lsn(after))]


def test_what_was_committed_is_found_by_queue_and_partition() -> None:
    recent = Recent(ROOMY, 100)
    recent.add(commit("orders/a", "mails", "orders/b"))
    recent.add(commit("rooms:1", "orders/a", first=4))
    assert lsns(recent) == [1, 2, 3, 4, 5]
    assert lsns(recent, Selection("main", ("orders",))) == [1, 3, 5]
    assert lsns(recent, Selection("main", ("orders",)), after=1) == [3, 5]
    assert lsns(recent, Selection("main", ("orders",), ("a",))) == [1, 5]
    assert lsns(recent, Selection("main", ("mails", "rooms:*"))) == [2, 4]
    assert lsns(recent, Selection("other", ("orders",))) == []


@pytest.mark.parametrize("after", [0, 5, 390, 399, 400])
def test_a_pattern_finds_the_same_however_far_behind_it_is(after: int) -> None:
    recent = Recent(ROOMY, 1_000)
    names = [f"{kind}{number % 120}/{'ab'[number % 2]}" for number in range(200) for kind in ("room", "mail")]
    recent.add(commit(*names))
    expected = [lsn for lsn, name in enumerate(names, 1) if lsn > after and name.startswith("room")]
    assert lsns(recent, Selection("main", ("room*",)), after) == expected
    of_b = [lsn for lsn in expected if names[lsn - 1].endswith("/b")]
    assert lsns(recent, Selection("main", ("room*",), ("b",)), after) == of_b
    assert lsns(recent, Selection("other", ("room*",)), after) == []


def test_who_is_near_the_end_does_not_look_at_every_queue_that_was_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def count(queue: str, patterns: Iterable[str]) -> bool:
        nonlocal looks
        looks += 1
        return fits(queue, patterns)

    monkeypatch.setattr("headwater.log.recent.fits", count)
    monkeypatch.setattr("headwater.model.selection.fits", count)
    recent = Recent(10 * ROOMY, 10_000)
    recent.add(commit(*[f"room{number}" for number in range(5_000)]))
    assert lsns(recent, Selection("main", ("room*",)), after=4_998) == [4_999, 5_000]
    assert looks <= 2


def test_a_segment_is_taken_apart_once() -> None:
    recent = Recent(ROOMY, 100)
    recent.add(commit("orders"))
    (kept,) = recent.after(EVERYTHING, Lsn(0))
    assert kept.segment() is kept.segment()
    assert (kept.segment().written_at, [bytes(record.data) for record in kept.segment().records]) == (7, [b"1"])


@pytest.mark.parametrize(("bytes_max", "segments_max"), [(ROOMY, 3), (3 * (len(BODY) + SEGMENT_BYTES), 100)])
def test_the_oldest_go_first(bytes_max: int, segments_max: int) -> None:
    recent = Recent(bytes_max, segments_max)
    for lsn in range(1, 11):
        recent.add(commit("orders" if lsn % 2 else "mails", first=lsn))
    assert (len(recent), recent.floor) == (3, 7)
    assert recent.size <= bytes_max
    assert lsns(recent, after=7) == [8, 9, 10]
    assert lsns(recent, Selection("main", ("mails",)), after=7) == [8, 10]


def test_a_commit_that_is_larger_than_all_may_be_leaves_nothing() -> None:
    recent = Recent(10, 100)
    recent.add(commit("orders"))
    assert (len(recent), recent.size, recent.floor) == (0, 0, 1)


def test_what_is_known_of_a_queue_does_not_grow_with_the_log() -> None:
    recent = Recent(ROOMY, 100)
    for lsn in range(1, 5_001):
        recent.add(commit("orders", first=lsn))
    assert sum(map(len, recent._by_queue.values())) <= 300
    recent.add(commit(*[f"q{number}" for number in range(200)], first=5_001))
    assert len(recent._by_queue) == 100


@pytest.mark.parametrize(
    "broken",
    [
        commit("orders", first=5),
        commit("orders", first=3, bodies=False),
        commit("orders", first=3, rewrote=True),
    ],
    ids=["a hole", "no records", "what was there reads otherwise"],
)
def test_behind_a_break_it_begins_anew(broken: Commit) -> None:
    recent = Recent(ROOMY, 100)
    recent.add(commit("orders", "orders"))
    recent.add(broken)
    last = broken.touched[-1].lsn
    assert (len(recent), recent.floor) == (0, last)
    recent.add(commit("orders", first=last + 1))
    assert lsns(recent, after=last) == [last + 1]


def test_nothing_is_kept_when_there_is_to_be_no_room() -> None:
    recent = Recent(0, 100)
    recent.add(commit("orders"))
    assert (len(recent), recent.floor) == (0, 1)


def test_a_step_takes_as_much_as_it_may_and_one_at_least() -> None:
    recent = Recent(ROOMY, 100)
    recent.add(commit(*["orders"] * 5))
    for segments_max, bytes_max, count, are_all in ((2, ROOMY, 2, False), (9, 1, 1, False), (5, ROOMY, 5, True)):
        found, whole = take(recent.after(EVERYTHING, Lsn(0)), segments_max, bytes_max)
        assert (len(found), whole) == (count, are_all)
