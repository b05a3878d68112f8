"""How fast are live queries: trying a filter, finding whom a change concerns?"""

import random
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.goals import Goal, Reaches, Times, Within
from benchmarks.peers import Context
from benchmarks.suite import Contestant, Question
from benchmarks.timing import Sample, now_ns, summarise
from headwater import filters
from headwater.services.matching import Matcher

PEER = "headwater"
Document = dict[str, Any]

BATCH = 1_000  # evaluations, or changes, between two looks at the clock
FILTER = 'state == "open" && size > 10 && owner == "ada"'
DOCUMENT: Document = {"id": "m1", "state": "open", "size": 11, "owner": "ada", "at": 1_700_000_000_000}
EVALUATIONS_PER_SECOND = 1 / 0.3e-6
SUBSCRIBERS_PER_ROOM = 12
ROUNDS = 1

NOTES = (
    f"A filter of three comparisons: {FILTER}. By hand: the same as a Python lambda, with no care for kinds.",
    f"Matching: each filter is watched by one subscriber of {SUBSCRIBERS_PER_ROOM} in a room, and adds a size of its "
    "own. A change concerns a document of one room, as it was and as it is; it is matched, not delivered.",
    "Ranges: each filter is an interval of its own; a change lies in about ten of them.",
    "Tried one after the other: the same filters and changes, without an index.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` leaves out the million."""
    counts = (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    return (evaluation(), matching(counts))


def evaluation() -> Question:
    ours, by_hand = "compiled filter", "by hand"
    contestants = (
        Contestant(ours, PEER, partial(evaluate, filters.predicate(filters.parse(FILTER)))),
        Contestant(by_hand, PEER, partial(evaluate, _by_hand)),
    )
    goals = (Reaches(ours, EVALUATIONS_PER_SECOND), Times(ours, 0.5, by_hand))
    return Question("filter", "Evaluations of a filter of three comparisons", ours, contestants, goals)


def _by_hand(document: Document) -> bool:
    return bool(document["state"] == "open" and document["size"] > 10 and document["owner"] == "ada")


def matching(counts: tuple[int, ...]) -> Question:
    contestants = [Contestant(f"{count:,} by value", PEER, partial(match, by_room, count)) for count in counts]
    contestants += [Contestant(f"{count:,} by range", PEER, partial(match, by_range, count)) for count in counts[:3]]
    contestants.append(Contestant("1,000 one after the other", PEER, partial(match_naively, 1_000)))
    goals: list[Goal] = [Reaches("100,000 by value", 50_000), Within("100,000 by value", "p99_ms", 10)]
    if 1_000_000 in counts:
        goals += [Reaches("1,000,000 by value", 10_000), Within("1,000,000 by value", "p99_ms", 10)]
    return Question(
        "matching", "Changes matched with subscriptions", "100,000 by value", tuple(contestants), tuple(goals)
    )


# ── workloads ──


async def evaluate(predicate: Callable[[Document], bool], peer: str, context: Context) -> Sample:
    """How often a second a filter is tried on a document that it holds for."""

    def batch() -> int:
        for _ in range(BATCH):
            predicate(DOCUMENT)
        return BATCH

    return timed(batch, context.seconds)


def by_room(number: int) -> str:
    """Twelve to a room, each with a size of its own to look at."""
    return f'room == "r{number // SUBSCRIBERS_PER_ROOM}" && size > {number % SUBSCRIBERS_PER_ROOM}'


def by_range(number: int) -> str:
    """Ten around each point."""
    return f"size >= {number} && size < {number + 10}"


async def match(text: Callable[[int], str], count: int, peer: str, context: Context) -> Sample:
    """How many changes a second are matched with so many filters; a latency is that of one change."""
    matcher = Matcher()
    for number in range(count):
        matcher.add(filters.parse(text(number)), number)
    changes = make_changes(count)
    latencies = array("Q")
    started = before = now_ns()
    finish = started + int(context.seconds * 1e9)
    told = 0
    while before < finish:
        for was, now in changes:
            told += len(matcher.match(was, now))
            after = now_ns()
            latencies.append(after - before)
            before = after
    sample = summarise(latencies, len(latencies), before - started)
    assert told, "changes that concern nobody measure nothing"
    return sample


async def match_naively(count: int, peer: str, context: Context) -> Sample:
    """The same by trying every filter on both images."""
    tried = [filters.predicate(filters.parse(by_room(number))) for number in range(count)]
    changes = make_changes(count)[:50]

    def batch() -> int:
        for was, now in changes:
            for one in tried:
                one(was), one(now)
        return len(changes)

    return timed(batch, context.seconds)


def make_changes(count: int) -> list[tuple[Document, Document]]:
    """Documents as they were and as they are: of one room, larger by one."""
    chance = random.Random(7)
    changes = []
    for _ in range(BATCH):
        size = chance.randrange(max(count - 20, 1))
        was: Document = {
            **DOCUMENT,
            "room": f"r{chance.randrange(max(count // SUBSCRIBERS_PER_ROOM, 1))}",
            "size": size,
        }
        changes.append((was, {**was, "size": size + 1}))
    return changes


def timed(batch: Callable[[], int], seconds: float) -> Sample:
    """Batches until the time is over."""
    batch()
    latencies = array("Q")
    moved = 0
    started = before = now_ns()
    while before < started + int(seconds * 1e9):
        moved += batch()
        after = now_ns()
        latencies.append(after - before)
        before = after
    return summarise(latencies, moved, before - started)
