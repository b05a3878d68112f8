"""Seeded random work on a store over the simulated disk: what was done, what was answered, and when.

Several workers hand operations of every kind to a real committer over a real store. The journal gets a note for each
commit, with a digest of the whole state after it, and for each answer. A power cut may leave the state after any commit
not older than the newest answered one, and no other state: that one rule is what `judge` holds a file against.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from headwater.clock import Timestamp
from headwater.config import Config, Durability
from headwater.errors import HeadwaterError
from headwater.log import operations as op
from headwater.log.committer import CommittedResult, Committer
from headwater.model.cursor import Outcome
from headwater.model.record import Record, split_records
from headwater.stores.codec import Codec
from headwater.stores.sqlite.shared_file import SharedFile
from headwater.stores.sqlite.store import SqliteStore
from tests.faults.bent_clock import BentClock
from tests.faults.simulated_disk import Journal, NoBarrier, PowerCutDisk, barrier_factory
from tests.faults.tables import digest, dump, find_damage, find_faults

QUEUES = ("orders", "mails")
PARTITIONS = ("a", "b")
GROUPS = ("billing", "search")
NOTHING = -1
CONFIG = Config(wal_bytes_max=192 * 1_024, cache_bytes=512 * 1_024)


class Committed(NamedTuple):
    """A commit ended; `state` is the digest of everything after it, `faults` the rules it breaks."""

    number: int
    state: bytes
    faults: list[str]


class Answered(NamedTuple):
    """A caller was told success, which rests on the commit of this number."""

    commit: int
    operation: op.Operation
    result: Any


class ObservedStore(SqliteStore):
    """The real store, with a note in the journal after each commit."""

    journal: Journal
    commits = 0
    applied_in: dict[int, int]

    def _commit(self, operations: Sequence[op.Operation], now: Timestamp) -> op.Commit:
        """Commit, then say what the state is."""
        commit = super()._commit(operations, now)
        self.commits += 1
        self.note_state()
        self.applied_in.update((id(operation), self.commits) for operation in operations)
        return commit

    def note_state(self) -> None:
        """Put the state after this commit into the journal."""
        faults = find_faults(self._connection)
        self.journal.note(Committed(self.commits, digest(dump(self._connection)), faults))


class Run(NamedTuple):
    """A finished workload: its journal, and the event at which the store was open."""

    journal: Journal
    opened: int
    submitted: list[op.Operation]


Durable = str  # "barrier", as the store does it; "none" and "full" to compare


class Workers:
    """Hands in random operations until each worker has done its share."""

    def __init__(
        self,
        store: ObservedStore,
        medium: SharedFile,
        committer: Committer,
        clock: BentClock,
        chance: random.Random,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._chance = chance
        self._batches: list[op.Batch] = []
        self._count = 0
        self.submitted: list[op.Operation] = []
        self._makers: list[tuple[int, Callable[[], op.Operation | None]]] = [
            (30, self._push),
            (22, self._pop),
            (16, self._report),
            (4, self._extend),
            (5, self._transaction),
            (3, self._configure),
            (3, lambda: op.Retain()),
            (2, self._reap),
            (2, lambda: op.Requeue(queue=self._pick(QUEUES))),
            (1, lambda: op.Purge(queue=self._pick(QUEUES))),
            (1, lambda: op.Seek(queue=self._pick(QUEUES), group=self._pick(GROUPS), to="beginning", create=True)),
            (1, lambda: op.DeleteQueue(queue=self._pick(QUEUES))),
            (1, lambda: op.DeleteGroup(group=self._pick(GROUPS))),
            (1, lambda: op.Forget(before=Timestamp(clock.now() - 1_000_000_000))),
        ]
        self._upkeep: list[Callable[[], Awaitable[object]]] = [
            medium.checkpoint,
            medium.checkpoint,
            lambda: medium.compact(20),
        ]

    async def run(self, workers: int, operations: int) -> None:
        """Everything, side by side."""
        await asyncio.gather(*(self._work(operations) for _ in range(workers)))

    async def _work(self, operations: int) -> None:
        weights = [weight for weight, _ in self._makers]
        for _ in range(operations):
            self._clock.move(self._chance.choice((0, 0.001, 0.1, 2, 2, 30)))
            if self._chance.random() < 0.06:
                await self._tend()
            (chosen,) = self._chance.choices(self._makers, weights)
            operation = chosen[1]()
            if operation is not None:
                await self._hand_in(operation)

    async def _tend(self) -> None:
        try:
            await self._chance.choice(self._upkeep)()
        except HeadwaterError:
            return

    async def _hand_in(self, operation: op.Operation) -> None:
        """Wait for the answer. One that asked for less than the disk is told apart: nothing rests on it."""
        synced = self._chance.random() < 0.75
        self.submitted.append(operation)
        try:
            answer = await self._committer.submit(operation, Durability.SYNCED if synced else Durability.WRITTEN)
        except HeadwaterError:
            return
        if isinstance(answer.result, op.Popped):
            self._batches.extend(answer.result.batches)
        if answer.durability is Durability.SYNCED and _says_something(answer):
            commit = self._store.applied_in[id(operation)]
            self._store.journal.note(Answered(commit, operation, answer.result))

    # ── one operation of each kind ──

    def _push(self) -> op.Operation:
        chance = self._chance
        return op.Push(
            queue=self._pick(QUEUES),
            partition=self._pick(PARTITIONS),
            key=f"key-{chance.randrange(8)}" if chance.random() < 0.2 else "",
            records=[self._record() for _ in range(chance.randint(1, 4))],
            ttl_seconds=60.0 if chance.random() < 0.05 else None,
        )

    def _record(self) -> Record:
        self._count += 1
        known = self._chance.random() < 0.3
        # Some records are larger than a page, so that a commit is many writes.
        filling = "x" * self._chance.choice((0, 50, 200, 6_000))
        data = msgspec.Raw(msgspec.json.encode({"number": self._count, "filling": filling}))
        return Record(data=data, transaction_id=f"id-{self._chance.randrange(60)}" if known else "")

    def _pop(self) -> op.Operation:
        return op.Pop(
            queue=self._pick(QUEUES),
            group=self._pick(GROUPS),
            batch=self._chance.randint(1, 6),
            partitions=self._chance.randint(1, 2),
            lease_seconds=self._chance.choice((5.0, 60.0)),
            auto_ack=self._chance.random() < 0.1,
        )

    def _report(self) -> op.Operation | None:
        batch = self._take_batch()
        if batch is None:
            return None
        if self._chance.random() < 0.5:
            return op.Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, offsets=batch.offsets)
        outcomes: dict[int | str, Outcome] = {offset: self._chance.choice(list(Outcome)) for offset in batch.offsets}
        return op.Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, outcomes=outcomes)

    def _extend(self) -> op.Operation | None:
        batch = self._take_batch()
        if batch is None:
            return None
        self._batches.append(batch)
        return op.Extend(partition_id=batch.partition_id, group=batch.group, token=batch.token, seconds=20.0)

    def _reap(self) -> op.Operation:
        return op.Reap(leases=[(batch.partition_id, batch.group) for batch in self._batches])

    def _transaction(self) -> op.Operation:
        steps = [self._push(), self._push()]
        report = self._report()
        return op.Transaction(operations=[*steps, *([report] if report else [])])

    def _configure(self) -> op.Operation:
        options = self._chance.choice(
            (
                {"retry_limit": 0},
                {"retention_seconds": 120},
                {"completed_retention_seconds": 5},
                {"compress_bytes_min": 500},
                {"retry_delay_seconds": 0.5},
            )
        )
        return op.Configure(queue=self._pick(QUEUES), options=options)

    def _take_batch(self) -> op.Batch | None:
        held = [batch for batch in self._batches if batch.token]
        if not held:
            return None
        batch = self._chance.choice(held)
        self._batches.remove(batch)
        return batch

    def _pick(self, names: Sequence[str]) -> str:
        return self._chance.choice(names)


def _says_something(answer: CommittedResult) -> bool:
    """Whether a state rests on this answer: "nothing was there" may be said of a state that goes away."""
    return all(getattr(answer.result, name, True) for name in ("batches", "count", "segments", "leases", "partitions"))


async def run_workload(
    seed: int, folder: Path, durable: Durable = "barrier", operations: int = 25, refusals: float = 0
) -> Run:
    """One seeded run, from the first open to the moment before the store would be closed."""
    chance = random.Random(seed)
    disk = PowerCutDisk(f"power-cut-{seed}-{durable}", str(folder / "store.db"))
    clock = BentClock()
    medium = SharedFile(
        disk.path,
        CONFIG,
        vfs=disk.name,
        barrier=barrier_factory(disk, chance, refusals) if durable == "barrier" else lambda _: NoBarrier(),
    )
    store = ObservedStore(medium, CONFIG, clock=clock)
    store.journal, store.applied_in = disk.journal, {}
    await store.open()
    disk.sync_folder()
    if durable == "full":
        store._connection.execute("PRAGMA synchronous = FULL")
    opened = len(disk.journal)
    store.note_state()
    committer = Committer(store, clock, pending_max=10_000)
    committer.start()
    workers = Workers(store, medium, committer, clock, chance)
    try:
        await workers.run(chance.randint(1, 4), operations)
    finally:
        disk.journal.recording = False
        disk.journal.refusals = 0
        await committer.close()
        await store.close()
    return Run(disk.journal, opened, workers.submitted)


class Verdict(NamedTuple):
    """What a power cut left: faults, and how many answered commits are missing."""

    faults: list[str]
    lost: int


class Judge:
    """Follows the notes of a run and judges the state that a cut has left."""

    def __init__(self, run: Run) -> None:
        commits = [event for event in run.journal.events if isinstance(event, Committed)]
        # Nothing was promised before the first answer, not even the tables.
        self._states = {digest({}): NOTHING, **{commit.state: commit.number for commit in commits}}
        self._deleted = {item.queue for item in run.submitted if isinstance(item, op.DeleteQueue)}
        self._pushed: list[tuple[str, op.Pushed, op.Push]] = []
        self._tokens: dict[tuple[str, int], int] = {}
        self.newest_answered = NOTHING

    def take(self, note: Any) -> None:
        """Learn what was answered before the cut."""
        if not isinstance(note, Answered):
            return
        self.newest_answered = max(self.newest_answered, note.commit)
        # With a key, the answer may speak of an earlier push; the state as a whole covers that one.
        if isinstance(note.operation, op.Push) and not note.operation.key:
            self._pushed.append((note.operation.queue, note.result, note.operation))
        for batch in note.result.batches if isinstance(note.result, op.Popped) else ():
            lease = (batch.group, batch.partition_id)
            self._tokens[lease] = max(self._tokens.get(lease, 0), batch.token)

    def judge(self, connection: apsw.Connection) -> Verdict:
        """Everything that must hold for a file after a cut at this point."""
        damage = find_damage(connection)
        if damage:
            return Verdict(damage, 0)
        number = self._states.get(digest(dump(connection)))
        if number is None:
            return Verdict(["the file holds a state that was never committed"], 0)
        if number < self.newest_answered or number == NOTHING:
            return Verdict([], self.newest_answered - number)
        return Verdict([*self._missing_records(connection), *self._fallen_tokens(connection)], 0)

    def _missing_records(self, connection: apsw.Connection) -> list[str]:
        """Answered records that are neither there nor dropped by somebody who was asked to."""
        starts = dict(list(connection.execute("SELECT id, start_offset FROM hw_partitions")))
        kept = _kept_records(connection)
        faults = []
        for queue, pushed, push in self._pushed:
            if pushed.partition_id not in starts:
                faults += [] if queue in self._deleted else [f"partition {pushed.partition_id} is gone"]
                continue
            for index, offset in enumerate(pushed.offsets()):
                if offset >= starts[pushed.partition_id]:
                    found = kept.get((pushed.partition_id, offset))
                    same = found == push.records[index].data or (found and index in pushed.duplicates)
                    faults += [] if same else [f"record {offset} of partition {pushed.partition_id} is {found!r:.60}"]
        return faults

    def _fallen_tokens(self, connection: apsw.Connection) -> list[str]:
        rows = connection.execute(
            "SELECT g.name, c.partition_id, c.token FROM hw_cursors c JOIN hw_groups g ON g.id = c.group_id"
        )
        return [
            f"the token of {name}/{partition} fell to {token}"
            for name, partition, token in rows
            if token < self._tokens.get((name, partition), 0)
        ]


def _kept_records(connection: apsw.Connection) -> dict[tuple[int, int], msgspec.Raw]:
    """The payloads that are there, by partition and offset."""
    rows = connection.execute("SELECT partition_id, first_offset, codec, records FROM hw_segments")
    return {
        (partition, first + index): record.data
        for partition, first, codec, body in rows
        for index, record in enumerate(split_records(Codec().unpack(codec, body, b"")))
    }
