"""What a commit will read is known before it begins: an engine that is far away reads it together with the lock.

Each hot operation runs on a file, on a store that knows its names (warm), on one that has to take in a commit of
another (tepid), and on one that has just begun (cold). What it reads must have been foreseen, but for what is listed
here with its reason; and what is listed must be so.
"""

import ast
import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import apsw
import msgspec
import pytest

from headwater.clock import SECOND, Timestamp
from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.log.document_operations import CreateDocument, UpdateDocument
from headwater.log.job_operations import Claim, Enqueue, JobReport, NewJob, Settle
from headwater.log.operations import Ack, Operation, Pop, Push, Transaction
from headwater.model.job import JobOutcome
from headwater.model.record import Record
from headwater.stores.codec import Codec
from headwater.stores.sqlite.connection import SqliteConnection, connect
from headwater.stores.sqlite.store import open_file
from headwater.stores.tables.subject import Read
from headwater.stores.tables.writer import Writer
from tests.contracts.clock import BEGINNING
from tests.tidy.tree import ROOT

NAMES = {text: name for name, text in vars(SqliteConnection.sql).items() if not name.startswith("_")}
WORKER = "worker"
# Their last binding is how many rows there may be: who has read more has read these.
BOUNDED = {"ready_cursors", "urgent_cursors"}

OF_A_FOUND_ROW = "its number is in a row that is foreseen: that of its name, or that of its number"
OF_A_CHOSEN_PARTITION = "which partition comes, and from where, is said by ready_cursors, which is foreseen"
OF_A_FOUND_GROUP = "the group's number is in the row of its name, which is found through that of its queue"
OF_THE_RECENT_PAST = "the ids of the last minutes are read once by each process, before its first push with ids"
OF_WHAT_IS_USED_UP = (
    "earlier pops of this commit took all that was found: it is asked for once more, beyond what they took"
)
OF_ANOTHERS_SEGMENTS = "which segments another has appended is said by segments_since, which is foreseen"

A_PARTITION = dict.fromkeys(["find_partition", "partition_end"], OF_A_FOUND_ROW)
ITS_QUEUE = dict.fromkeys(["find_queue_by_id", "find_queue"], OF_A_FOUND_ROW)
ITS_RECORDS = dict.fromkeys(["segments_from", "segment_body"], OF_A_CHOSEN_PARTITION)
CHOSEN = {**ITS_RECORDS, **dict.fromkeys(["find_partition_by_id", "find_queue_by_id"], OF_A_CHOSEN_PARTITION)}
A_GROUP = dict.fromkeys(["find_group", "has_priorities", "ready_cursors"], OF_A_FOUND_GROUP)
A_LEASE = dict.fromkeys(["find_group", "get_cursor"], OF_A_FOUND_GROUP)
ANOTHERS = dict.fromkeys(["find_partition_by_id", "find_queue_by_id", "find_queue"], OF_ANOTHERS_SEGMENTS)

# By operation and store: the statements that are run without being foreseen, and why.
EXCEPTIONS: dict[tuple[str, str], dict[str, str]] = {
    ("push", "cold"): A_PARTITION,
    ("push spread", "cold"): A_PARTITION,
    ("create document", "tepid"): ANOTHERS,
    ("create document", "cold"): A_PARTITION,
    ("update document", "tepid"): ANOTHERS,
    ("update document", "cold"): A_PARTITION,
    ("keyed push", "cold"): A_PARTITION,
    ("push with ids", "tepid"): {"segment_body": OF_ANOTHERS_SEGMENTS},
    ("push with ids", "cold"): {
        **A_PARTITION,
        **dict.fromkeys(["clock_jumps", "next_lsn", "segments_since", "segment_body"], OF_THE_RECENT_PAST),
    },
    ("pop", "warm"): ITS_RECORDS,
    ("pop", "tepid"): ITS_RECORDS,
    ("pop", "cold"): {**A_GROUP, **CHOSEN},
    ("pop of a partition", "cold"): {**A_LEASE, "find_partition": OF_A_FOUND_ROW, "has_priorities": OF_A_FOUND_GROUP},
    ("pops alike", "warm"): {**ITS_RECORDS, "ready_cursors": OF_WHAT_IS_USED_UP},
    ("pops alike", "tepid"): {**ITS_RECORDS, "ready_cursors": OF_WHAT_IS_USED_UP},
    ("pops alike", "cold"): {**A_GROUP, **CHOSEN, "next_ready": OF_A_FOUND_GROUP},
    ("ack", "cold"): {**ITS_QUEUE, **A_LEASE},
    ("ack and pop", "warm"): ITS_RECORDS,
    ("ack and pop", "tepid"): ITS_RECORDS,
    ("ack and pop", "cold"): {**A_GROUP, **A_LEASE, **CHOSEN},
    ("transaction", "cold"): {"find_queue_by_id": OF_A_FOUND_ROW, **A_LEASE},
    ("enqueue", "tepid"): ANOTHERS,
    ("enqueue", "cold"): {**A_PARTITION, "find_lane_limits": OF_A_FOUND_ROW},
    ("claim", "tepid"): ANOTHERS,
    ("claim", "cold"): {**A_PARTITION, **dict.fromkeys(["queue_outlook", "ready_heads"], OF_A_FOUND_ROW)},
    ("settle", "tepid"): ANOTHERS,
    ("settle", "cold"): A_PARTITION,
}


class Watched:
    """A writer on a file, with what it reads."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(str(path), cache_bytes=1_000_000)
        self.connection.exec_trace = self._note
        self.writer = Writer(self.connection, load_config({}), Codec(), 7, lose)
        self.read: list[Read] = []
        self.now = BEGINNING

    def _note(self, cursor: apsw.Cursor, statement: str, bindings: Any) -> bool:
        name = NAMES.get(statement)
        if name is not None and cursor.is_readonly:
            self.read.append(Read(name, tuple(bindings or ())))
        return True

    def commit(self, *operations: Operation) -> list[Any]:
        """What the operations came to; `read` is what was read for them."""
        self.now = Timestamp(self.now + SECOND)
        self.connection.execute("BEGIN IMMEDIATE")
        self.read.clear()
        commit = self.writer.apply(operations, self.now)
        self.connection.execute("COMMIT")
        self.writer.committed()
        assert not any(isinstance(result, HeadwaterError) for result in commit.results), commit.results
        return commit.results

    def unforeseen(self, *operations: Operation) -> set[str]:
        """Commit; the statements that were run without being foreseen."""
        foreseen = self.writer.foresee(operations, Timestamp(self.now + SECOND))
        self.commit(*operations)
        return {read.statement for read in self.read if not is_covered(read, foreseen)}


def is_covered(read: Read, foreseen: Sequence[Read]) -> bool:
    if read.statement not in BOUNDED:
        return read in foreseen
    *place, limit = read.bindings
    limits = [known.bindings[-1] for known in foreseen if known[0] == read[0] and list(known.bindings[:-1]) == place]
    return any(int(known or 0) >= int(limit or 0) for known in limits)


def lose(reason: str, kind: type[Exception] = AssertionError) -> NoReturn:
    raise AssertionError(reason)


def records(count: int, prefix: str = "") -> list[Record]:
    return [Record(msgspec.Raw(b"1"), f"{prefix}{number}" if prefix else "") for number in range(count)]


class Case(NamedTuple):
    """An operation, made once everything that it needs was done by `prepare`, through the store that is watched."""

    prepare: Callable[[Watched], list[Any]]
    make: Callable[[list[Any]], list[Operation]]


def push_some(watched: Watched) -> list[Any]:
    return watched.commit(
        Push(queue="q", lanes=2, records=records(3)), Push(queue="q", partition="", records=records(4))
    )


def push_with_ids(watched: Watched) -> list[Any]:
    return watched.commit(Push(queue="q", records=records(3, "a")))


def pop_one(watched: Watched) -> list[Any]:
    push_some(watched)
    return watched.commit(Pop(queue="q", partition="Default"))


def add_jobs(watched: Watched) -> list[Any]:
    return watched.commit(Enqueue(jobs=[NewJob(command="true") for _ in range(4)]))


def claim_jobs(watched: Watched) -> list[Any]:
    add_jobs(watched)
    return watched.commit(Claim(worker=WORKER, limit=2))


def create_document(watched: Watched) -> list[Any]:
    return watched.commit(CreateDocument(collection="notes", id="a", data=msgspec.Raw(b"{}")))


def ack_of(answers: list[Any]) -> list[Operation]:
    (batch,) = answers[0].batches
    return [Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token)]


def settle_of(answers: list[Any]) -> list[Operation]:
    reports = [JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED) for job in answers[0].jobs]
    return [Settle(worker=WORKER, reports=reports)]


CASES = {
    "push": Case(push_some, lambda _: [Push(queue="q", records=records(1))]),
    "push spread": Case(push_some, lambda _: [Push(queue="q", partition="", records=records(3))]),
    "push with ids": Case(push_with_ids, lambda _: [Push(queue="q", records=records(3, "b"))]),
    "pop": Case(pop_one, lambda _: [Pop(queue="q", batch=10)]),
    "pop of a partition": Case(pop_one, lambda _: [Pop(queue="q", partition="Default", batch=10)]),
    "pops alike": Case(pop_one, lambda _: [Pop(queue="q", batch=10)] * 3),
    "ack": Case(pop_one, ack_of),
    "ack and pop": Case(pop_one, lambda answers: [*ack_of(answers), Pop(queue="q", batch=10)]),
    "transaction": Case(
        pop_one, lambda answers: [Transaction(operations=[*ack_of(answers), Push(queue="q", records=records(1))])]
    ),
    "keyed push": Case(push_some, lambda _: [Push(queue="q", records=records(1), key="k")]),
    "enqueue": Case(add_jobs, lambda _: [Enqueue(jobs=[NewJob(command="true", id="one", unique_key="u")])]),
    "claim": Case(claim_jobs, lambda _: [Claim(worker=WORKER, limit=2)]),
    "settle": Case(claim_jobs, settle_of),
    "create document": Case(
        create_document, lambda _: [CreateDocument(collection="notes", id="b", data=msgspec.Raw(b"{}"))]
    ),
    "update document": Case(
        create_document, lambda _: [UpdateDocument(collection="notes", id="a", data=msgspec.Raw(b'{"n":1}'))]
    ),
}


@pytest.fixture
def watch(path: Path) -> Iterator[Callable[[], Watched]]:
    """Opens stores that are watched, one after the other in time."""
    opened: list[Watched] = []

    def open_one() -> Watched:
        watched = Watched(path)
        watched.now = max((other.now for other in opened), default=BEGINNING)
        opened.append(watched)
        return watched

    yield open_one
    for watched in opened:
        watched.connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def make() -> None:
        store = open_file(str(tmp_path / "log.db"), load_config({}))
        await store.open()
        await store.close()

    asyncio.run(make())
    return tmp_path / "log.db"


@pytest.mark.parametrize("store", ["warm", "tepid", "cold"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_commit_reads_was_foreseen(watch: Callable[[], Watched], name: str, store: str) -> None:
    watched = watch()
    answers = CASES[name].prepare(watched)
    if store == "tepid":
        watch().commit(Push(queue="q", records=records(1)))
    elif store == "cold":
        watched = watch()
    expected = EXCEPTIONS.get((name, store), {})
    assert watched.unforeseen(*CASES[name].make(answers)) == set(expected)
    assert all(expected.values())


def test_what_is_foreseen_is_a_statement_that_there_is() -> None:
    for file in sorted((ROOT / "src/headwater/stores/tables").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Read":
                statement = node.args[0]
                assert isinstance(statement, ast.Constant)
                assert statement.value in SqliteConnection.sql.names(), f"{file.name}:{node.lineno}"
