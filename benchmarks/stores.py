"""How fast is a store on PostgreSQL: beside other queues, from several processes, beside a long transaction?"""

from functools import partial

from benchmarks.goals import AtMost, Times, Within
from benchmarks.job_workloads import drain
from benchmarks.store_workloads import (
    claim_beside_a_transaction,
    pop_beside_a_transaction,
    push_from_connections,
    push_from_processes,
)
from benchmarks.suite import Contestant, Question
from benchmarks.workloads import push_batches, push_concurrently, push_singly, take_batches, wake_a_consumer

OURS = "headwater-postgres"
JOBS = "headwater-jobs-postgres"
PEERS = ("pgmq", "pgqueuer-messages", "skip-locked")
PROCESSES = (1, 2, 4, 8)
SPARE_SECONDS = 180.0

NOTES = (
    "One private PostgreSQL server for each measure, with its own settings, so fsync on; a Unix socket.",
    "pgmq is the SQL that its package carries. pgqueuer-messages are pgqueuer's own queries without its workers. "
    "skip-locked is a table with UPDATE … FOR UPDATE SKIP LOCKED and DELETE.",
    "Producers that are tasks of one process share Headwater's connection; the others have one each.",
    "Beside a transaction: the last 500 turns of so many are looked at, while somebody else has one open all along.",
)


def questions(quick: bool) -> tuple[Question, ...]:
    """All questions; `quick` makes what waits ten times smaller."""
    scale = 10 if quick else 1
    return (
        single_pushes(),
        batched_pushes(),
        concurrent_pushes(),
        batched_takes(50_000 // scale),
        *(pushes_by_processes(size) for size in (1, 100)),
        drained(10_000 // scale),
        waking(1_000 // scale),
        *beside_a_transaction(5_000 // scale),
    )


def single_pushes() -> Question:
    return Question(
        "push",
        "One producer, one message per commit",
        OURS,
        tuple(Contestant(side, side, push_singly) for side in (OURS, *PEERS)),
        (),
    )


def batched_pushes() -> Question:
    return Question(
        "push-batches",
        "One producer, batches of 100",
        OURS,
        tuple(Contestant(side, side, partial(push_batches, 100)) for side in (OURS, *PEERS)),
        (Times(OURS, 1.3, "pgmq"), Times(OURS, 3, "pgqueuer-messages")),
    )


def concurrent_pushes() -> Question:
    return Question(
        "push-from-16",
        "16 producers in one process, one message each",
        OURS,
        (
            Contestant(OURS, OURS, partial(push_concurrently, 16, 1)),
            *(Contestant(side, side, partial(push_from_connections, 16)) for side in PEERS),
        ),
        (Times(OURS, 3, "pgmq"), Times(OURS, 6, "pgqueuer-messages")),
    )


def batched_takes(waiting: int) -> Question:
    return Question(
        "take-batches",
        "Pop and acknowledge by 100, one consumer",
        OURS,
        tuple(Contestant(side, side, partial(take_batches, 100, waiting)) for side in (OURS, *PEERS)),
        (Times(OURS, 2, "pgmq"), Times(OURS, 5, "pgqueuer-messages")),
    )


def pushes_by_processes(size: int) -> Question:
    names = {count: f"{OURS}, {count} process{'es' if count > 1 else ''}" for count in PROCESSES}
    three = f"{OURS}, 3 processes"
    rows = {1: names[1], 2: names[2], 3: three, 4: names[4], 8: names[8]}
    return Question(
        f"push-by-{size}-from-processes",
        f"Pushes by {size} from 1 to 8 processes",
        three,
        tuple(Contestant(label, OURS, partial(push_from_processes, count, size)) for count, label in rows.items()),
        (Times(three, 1.5 if size == 1 else 2.5, rows[1]),),
    )


def drained(count: int) -> Question:
    return Question(
        "drain",
        f"{count:,} jobs that wait, four worker processes",
        JOBS,
        tuple(Contestant(side, side, partial(drain, count)) for side in (JOBS, "pgqueuer", "procrastinate")),
        (Times(JOBS, 1.5, "pgqueuer"),),
    )


def waking(messages: int) -> Question:
    return Question(
        "waking",
        f"Producer process to waiting consumer process, 2 ms apart, {messages:,} messages",
        OURS,
        (Contestant(OURS, OURS, partial(wake_a_consumer, messages)),),
        (Within(OURS, "p50_ms", 1),),
    )


def beside_a_transaction(turns: int) -> tuple[Question, ...]:
    asked = (("pop", pop_beside_a_transaction), ("claim", claim_beside_a_transaction))
    found = []
    for name, work in asked:
        few, many = (f"{OURS}, after {count:,} turns" for count in (turns // 10, turns))
        found.append(
            Question(
                f"{name}-beside-a-transaction",
                f"A {name} while somebody has a transaction open",
                many,
                (Contestant(few, OURS, partial(work, turns // 10)), Contestant(many, OURS, partial(work, turns))),
                (AtMost(many, "p50_ms", 1.5, few),),
            )
        )
    return tuple(found)
