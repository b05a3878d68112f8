"""Operations by chance: what the state machine draws from, and whole commits for engines that must answer alike.

`Commits` depends on its seed and on what it learns from the answers (leases, jobs that were claimed), and on nothing
else. What it learns comes back in later operations, also late and twice.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

import msgspec
from hypothesis import strategies as st

from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DropDocumentIndex,
    IndexDocuments,
    MergeDocuments,
    SetDocument,
    UpdateDocument,
)
from headwater.log.group_operations import ConfigureGroup, GiveBack, LeaseName, ReleaseLeases
from headwater.log.job_operations import (
    CancelJobs,
    Claim,
    Claimed,
    ClaimedJob,
    Depart,
    DropJobs,
    Enqueue,
    Heartbeat,
    JobReport,
    NewJob,
    PauseJobs,
    Prune,
    Rescue,
    RetryJobs,
    SetJobLimit,
    Settle,
    SweepLanes,
)
from headwater.log.operations import (
    Ack,
    Advance,
    Batch,
    Clear,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Extend,
    Forget,
    Operation,
    PassOver,
    Pop,
    Popped,
    Promote,
    Purge,
    Reach,
    Requeue,
    Retain,
    Seek,
    SetSwitch,
    Subscribe,
    Trace,
    Transacted,
    Transaction,
)
from headwater.model.cursor import Outcome
from headwater.model.document import Condition, DocumentRow
from headwater.model.job import JobOutcome
from headwater.model.names import Offset, PartitionId
from tests.contracts.clock import BEGINNING
from tests.contracts.documents import raw
from tests.contracts.log import push

QUEUE = "orders"
STORES = 2

# ── what the state machine draws from ──

which = st.integers(0, STORES - 1)
# What a message with a priority goes to: it names none.
URGENT = "Default/priority-5"
partitions = st.sampled_from(["a", "b", URGENT])
popped_partitions = st.sampled_from(
    ["a", "b", URGENT, "Default", *[f"headwater/requeued/{place}/{group}" for place in ("0", "0-5") for group in "gh"]]
)
groups = st.sampled_from(["g", "h"])
outcomes = st.sampled_from([outcome.value for outcome in Outcome])
pushes = st.lists(
    st.tuples(partitions, st.lists(st.sampled_from(["", "", "x", "y", "z"]), min_size=1, max_size=4)),
    min_size=1,
    max_size=3,
)
queue_options = st.fixed_dictionaries(
    {},
    optional={
        "retry_limit": st.integers(0, 3),
        "retry_delay_seconds": st.sampled_from([0, 1, 20]),
        "lease_seconds": st.sampled_from([5, 300]),
        "retention_seconds": st.sampled_from([0, 50]),
        "completed_retention_seconds": st.sampled_from([0, 10]),
        "deduplication_seconds": st.sampled_from([0, 10, 300]),
        "size_max": st.sampled_from([0, 0, 8]),
    },
)


def ack_of(batch: Batch, said: dict[int, str] | None) -> Ack:
    """A report on a lease by the values of its outcomes; None: all is done."""
    by_offset: dict[int | str, Outcome] | None = None
    if said is not None:
        by_offset = {offset: Outcome(outcome) for offset, outcome in said.items()}
    return Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, outcomes=by_offset)


def on_the_queen_wire(report: Ack, is_single: bool = True) -> Ack:
    """The report as clients of queen-mq hand it in: a single one gives back the rest of a lease; late ones count."""
    return msgspec.structs.replace(report, releases_rest=is_single, counts_late=True)


# ── commits for engines that must answer alike ──

QUEUES = [QUEUE, QUEUE, QUEUE, "mail"]
PARTITIONS = ["a", "b", "Default", "", ""]
GROUPS = ["g", "g", "h"]
IDS = ["", "", "", "x", "y", "z"]
KEYS = [*[""] * 40, "once", "twice", "thrice"]
WORKERS = ["one", "two"]
DOCUMENTS = ["a", "b", "c", "d"]
SECONDS = [*[0.0] * 12, 0.5, 0.5, 1.0, 1.0, 5.0, 20.0, 60.0, 301.0]
REMEMBERED = 6

Chosen = TypeVar("Chosen")


class Step(NamedTuple):
    """Time that passes (or that the clock is set back by), and then one commit through one of the open stores."""

    seconds: float
    set_back: float
    store: int
    operations: list[Operation]


class Commits:
    """Makes commits by chance."""

    def __init__(self, seed: int, stores: int = STORES) -> None:
        self._random = Random(seed)
        self._stores = stores
        self._pushed = 0
        self._added = 0
        self._batches: list[Batch] = []
        self._claimed: list[tuple[str, ClaimedJob]] = []
        self._common: list[Callable[[], Operation]] = [
            *[self._push] * 5,
            *[self._pop] * 5,
            *[self._ack] * 4,
            *[self._enqueue] * 3,
            *[self._claim] * 3,
            *[self._settle] * 3,
            *[self._document] * 3,
        ]
        self._rare: list[Callable[[], Operation]] = [
            self._configure,
            self._configure_group,
            self._advance,
            self._give_back,
            self._extend,
            self._seek,
            self._chore,
            self._remove,
            self._dead_letters,
            self._note,
            self._transaction,
            self._change_jobs,
            self._beat,
            self._limit,
            self._index,
        ]

    def step(self) -> Step:
        """The next commit."""
        count = self._choose([1, 1, 1, 2, 3, 5])
        set_back = self._choose([0.0] * 40 + [100.0])
        seconds, store = self._choose(SECONDS), self._random.randrange(self._stores)
        return Step(seconds, set_back, store, [self._operation() for _ in range(count)])

    def learn(self, operations: Sequence[Operation], answers: Sequence[Any]) -> None:
        """Remember what later operations may be about."""
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Popped):
                leased = [batch for batch in answer.batches if batch.token]
                self._batches = [*self._batches, *leased][-REMEMBERED:]
            elif isinstance(answer, Claimed) and isinstance(operation, Claim):
                claimed = [(operation.worker, job) for job in answer.jobs]
                self._claimed = [*self._claimed, *claimed][-REMEMBERED:]
            elif isinstance(answer, Transacted) and isinstance(operation, Transaction):
                self.learn(operation.operations, answer.results)

    def _choose(self, among: Sequence[Chosen]) -> Chosen:
        return among[self._random.randrange(len(among))]

    def _operation(self) -> Operation:
        return self._choose(self._rare if self._random.randrange(4) == 0 else self._common)()

    # ── records ──

    def _push(self) -> Operation:
        ids = [self._choose(IDS) for _ in range(self._choose([1, 1, 2, 4]))]
        numbers = range(self._pushed, self._pushed + len(ids))
        self._pushed += len(ids)
        partition = self._choose(PARTITIONS)
        return push(
            *numbers,
            ids=ids,
            queue=self._choose(QUEUES),
            partition=partition,
            ttl_seconds=self._choose([None, None, None, None, 30.0]),
            delay_seconds=self._choose([0.0, 0.0, 0.0, 0.0, 5.0]),
            priority=0 if partition else self._choose([0, 0, 0, 5]),
            lanes=self._choose([1, 3]),
            key=self._choose(KEYS),
        )

    def _pop(self) -> Operation:
        return Pop(
            queue=self._choose(QUEUES),
            group=self._choose(GROUPS),
            partition=self._choose(["", "", "", "a", "b"]),
            batch=self._choose([1, 2, 5, 100]),
            partitions=self._choose([0, 1, 1, 2]),
            auto_ack=self._choose([False, False, False, True]),
            lease_seconds=self._choose([None, None, 5.0]),
            subscribe=self._choose(["all", "all", "all", "new"]),
            sharers=self._choose([0, 0, 1]),
            holder=self._choose(["", "me"]),
            key=self._choose(KEYS),
        )

    def _batch(self) -> Batch | None:
        """A lease: most often the newest, which is most likely alive."""
        if not self._batches:
            return None
        return self._choose(self._batches) if self._random.randrange(3) == 0 else self._batches[-1]

    def _ack(self) -> Operation:
        batch = self._batch()
        if batch is None:
            return self._pop()
        if self._random.randrange(2):
            return ack_of(batch, None)
        said = {int(offset): self._choose(list(Outcome)).value for offset in batch.offsets if self._random.randrange(3)}
        report = ack_of(batch, said or {int(batch.offsets[-1]) + 1: Outcome.COMPLETED.value})
        return on_the_queen_wire(report, self._choose([True, False])) if self._random.randrange(2) else report

    def _advance(self) -> Operation:
        batch = self._batch()
        if batch is None:
            return self._push()
        about = {"partition_id": batch.partition_id, "group": batch.group, "token": batch.token}
        return Advance(**about, through=self._choose(batch.offsets), release=self._choose([True, False]))  # type: ignore[arg-type]

    def _extend(self) -> Operation:
        batch = self._batch()
        if batch is None:
            return self._push()
        seconds = self._choose([None, 1.0, 60.0])
        return Extend(partition_id=batch.partition_id, group=batch.group, token=batch.token, seconds=seconds)

    def _give_back(self) -> Operation:
        batch = self._batch()
        if batch is None:
            return self._pop()
        return GiveBack(pop_key=self._choose(KEYS), leases=[LeaseName(batch.partition_id, batch.group, batch.token)])

    def _seek(self) -> Operation:
        offset = self._choose([None, None, Offset(0), Offset(3)])
        partition = self._choose(["a", "b"]) if offset is not None else self._choose(["", "a"])
        return Seek(
            queue=self._choose(QUEUES),
            group=self._choose(GROUPS),
            partition=partition,
            to=self._choose(["beginning", "end"]),
            timestamp=self._choose([None, None, BEGINNING]),
            offset=offset,
            create=self._choose([True, False]),
        )

    # ── names and options ──

    def _configure(self) -> Operation:
        options = {
            "retry_jitter": 0,
            "retry_limit": self._choose([0, 1, 3]),
            "retry_delay_seconds": self._choose([0, 1, 20]),
            "lease_seconds": self._choose([5, 300]),
            "retention_seconds": self._choose([0, 50]),
            "completed_retention_seconds": self._choose([0, 10]),
            "deduplication_seconds": self._choose([0, 10, 300]),
            "delay_seconds": self._choose([0, 0, 0, 2]),
            "window_seconds": self._choose([0, 0, 0, 2]),
            "size_max": self._choose([*[0] * 9, 20]),
            "partitions_max": self._choose([*[0] * 9, 3]),
            "dead_letters": self._choose([True, True, False]),
        }
        return Configure(queue=self._choose(QUEUES), options=options, lanes=self._choose([1, 3]))

    def _configure_group(self) -> Operation:
        if self._random.randrange(2):
            return Subscribe(group=self._choose(GROUPS), timestamp=BEGINNING)
        options = {"retry_limit": self._choose([None, 0, 2]), "retry_jitter": 0}
        return ConfigureGroup(queue=self._choose(QUEUES), group=self._choose(GROUPS), options=options)

    def _remove(self) -> Operation:
        queue, group, partition = self._choose(QUEUES), self._choose(GROUPS), self._choose(["", "a"])
        removals: list[Operation] = [
            Clear(queue=queue, partition=partition),
            DeleteGroup(group=group, queue=self._choose(["", queue]), keep_beginning=self._choose([True, False])),
            ReleaseLeases(queue=queue, group=self._choose(["", group]), partition=partition),
            DeleteQueue(queue="mail"),
        ]
        return self._choose(removals)

    def _dead_letters(self) -> Operation:
        queue = self._choose(QUEUES)
        deeds: list[Operation] = [
            Requeue(queue=queue),
            Requeue(queue=queue, all_groups=True),
            Requeue(queue=QUEUE, to="mail"),
            Purge(queue=queue, limit=1),
        ]
        return self._choose(deeds)

    # ── upkeep ──

    def _chore(self) -> Operation:
        chores: list[Operation] = [
            Retain(),
            Promote(),
            Forget(before=BEGINNING),
            Rescue(),
            Prune(),
            SweepLanes(),
        ]
        return self._choose(chores)

    def _note(self) -> Operation:
        batch = self._batch()
        partition_id = PartitionId(0) if batch is None else batch.partition_id
        notes: list[Operation] = [
            Trace(partition_id=partition_id, transaction_id="x", names=["seen"]),
            PassOver(partition_id=partition_id, offset=Offset(0), bury=self._choose([True, False])),
            SetSwitch(name="light", is_on=self._choose([True, False])),
            Reach(name="work", number=self._choose([1, 2, 3])),
        ]
        return self._choose(notes)

    def _transaction(self) -> Operation:
        steps = [
            self._choose([self._push, self._ack, self._enqueue, self._settle, self._seek, self._document])()
            for _ in range(3)
        ]
        return Transaction(operations=[step for step in steps if not step.key], key=self._choose(KEYS))

    # ── documents ──

    def _document(self) -> Operation:
        name, collection = self._choose(DOCUMENTS), self._choose(["notes", "notes", "rooms/r/notes"])
        fields = {self._choose(["n", "m"]): self._choose([0, 1, 2.5, "text", None])}
        condition = Condition(self._choose(["version", "n"]), "==", self._choose([1, 2]))
        if_match = self._choose([(), (), (condition,)])
        state = {"id": name, **fields, "_deleted": self._choose([False, False, True])}
        writes: list[Operation] = [
            CreateDocument(collection=collection, id=name, data=raw(fields)),
            SetDocument(collection=collection, id=name, data=raw(fields), if_match=if_match),
            UpdateDocument(collection=collection, id=name, data=raw(fields), if_match=if_match),
            DeleteDocument(collection=collection, id=name, if_match=if_match),
            MergeDocuments(collection=collection, rows=[DocumentRow(state, self._choose([None, {"n": 1}]))]),
        ]
        return self._choose(writes)

    def _index(self) -> Operation:
        place = {"pattern": self._choose(["notes", "*"]), "field": self._choose(["n", "m"])}
        return IndexDocuments(**place, limit=3) if self._random.randrange(3) else DropDocumentIndex(**place)

    # ── jobs ──

    def _enqueue(self) -> Operation:
        return Enqueue(jobs=[self._job() for _ in range(self._choose([1, 1, 3]))])

    def _job(self) -> NewJob:
        return NewJob(
            id=self._new_name(),
            command="true",
            queue=self._choose(["", "", "mail"]),
            priority=self._choose([0, 0, 5]),
            delay=self._choose([0.0, 0.0, 5.0]),
            retries=self._choose([0, 1, 2]),
            depends_on=self._choose([(), (), (), (self._job_name(),)]),
            unique_key=self._choose(["", "", "", "u"]),
            concurrency_key=self._choose(["", "", "", "c"]),
            limit_key=self._choose(["", "", "", "l"]),
            backoff_base=1.0,
            backoff_jitter=0.0,
        )

    def _new_name(self) -> str:
        """Most often a new one."""
        if self._random.randrange(10) == 0:
            return self._job_name()
        self._added += 1
        return f"job{self._added}"

    def _job_name(self) -> str:
        return f"job{self._random.randrange(self._added + 1)}"

    def _claim(self) -> Operation:
        queues = self._choose([(), (), ("mail",)])
        return Claim(worker=self._choose(WORKERS), queues=queues, limit=self._choose([1, 2, 5]), lease_seconds=10.0)

    def _settle(self) -> Operation:
        if not self._claimed:
            return self._claim()
        worker, job = self._choose(self._claimed) if self._random.randrange(3) == 0 else self._claimed[-1]
        outcome = self._choose(list(JobOutcome))
        error = "" if outcome is JobOutcome.COMPLETED else "x"
        result = self._choose([None, None, "1"]) if outcome is JobOutcome.COMPLETED else None
        report = JobReport(number=job.number, token=job.token, outcome=outcome, error=error, result=result)
        return Settle(worker=worker, reports=[report])

    def _beat(self) -> Operation:
        worker = self._choose(WORKERS)
        return self._choose([Heartbeat(worker=worker, lease_seconds=10.0), Depart(worker=worker)])

    def _change_jobs(self) -> Operation:
        kind = self._choose([CancelJobs, RetryJobs, DropJobs])
        ids = self._choose([(), (self._job_name(),)])
        return kind(ids=ids, skip_unfit=self._choose([True, False]))

    def _limit(self) -> Operation:
        limits: list[Operation] = [
            SetJobLimit(type="shell", concurrency=self._choose([0, 1, 2]), each_key=self._choose([True, False])),
            SetJobLimit(type="shell", rate=self._choose([0.0, 1.0])),
            SetJobLimit(type="shell", clear=True),
            PauseJobs(queue="mail", paused=self._choose([True, False])),
        ]
        return self._choose(limits)
