"""A store as the tests hold it: operations as short calls, each in a commit of its own, at the time of a fake clock."""

from collections.abc import Sequence
from typing import Any

import msgspec

from headwater.errors import HeadwaterError
from headwater.log.operations import (
    Ack,
    Acked,
    Batch,
    Commit,
    Configure,
    Operation,
    Pop,
    Popped,
    Push,
    Pushed,
    Reap,
    Reaped,
)
from headwater.model.cursor import Outcome
from headwater.model.names import GROUP_DEFAULT, PARTITION_DEFAULT, Lsn
from headwater.model.record import Record, decode_payload
from headwater.stores.contract import RaceLost, Store
from headwater.stores.questions import (
    DeadLetter,
    GroupStatus,
    ListDeadLetters,
    ListExpired,
    ListGroups,
    ListQueues,
    QueueStatus,
    Segment,
)
from tests.contracts.clock import FakeClock

QUEUE = "orders"
LSN_MAX = Lsn(2**62)


class Log:
    """A store that is open, and its clock."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock

    async def commit(self, *operations: Operation) -> Commit:
        """All these operations in one commit. Where another may take the store over, it is one once it has landed, as
        the committer has it."""
        if not self.store.traits.answers_wait:
            return await self.store.apply(operations, self.clock.now())
        while True:
            try:
                commit = await self.store.apply(operations, self.clock.now())
                await (until_durable(self.store, 1) if commit.wrote else until_landed(self.store))
            except RaceLost:
                await self.store.recover()
            else:
                return commit

    async def results(self, *operations: Operation) -> list[Any]:
        """What each operation of one commit came to; an error stands in its place."""
        return (await self.commit(*operations)).results

    async def run(self, operation: Operation) -> Any:
        """What one operation came to."""
        (result,) = await self.results(operation)
        if isinstance(result, HeadwaterError):
            raise result
        return result

    async def configure(self, queue: str = QUEUE, **options: Any) -> None:
        """Change options of a queue."""
        await self.run(Configure(queue=queue, options=options))

    async def push(self, *payloads: Any, queue: str = QUEUE, partition: str = PARTITION_DEFAULT, **more: Any) -> Pushed:
        """Append payloads."""
        pushed: Pushed = await self.run(push(*payloads, queue=queue, partition=partition, **more))
        return pushed

    async def pop(self, batch: int = 1, *, queue: str = QUEUE, **more: Any) -> list[Batch]:
        """Lease records of a queue."""
        popped: Popped = await self.run(Pop(queue=queue, batch=batch, **more))
        return popped.batches

    async def take(self, batch: int = 1, **more: Any) -> Batch:
        """Lease records that must be there, all of one partition."""
        (found,) = await self.pop(batch, **more)
        return found

    async def free_at(self, **more: Any) -> int | None:
        """When a pop that must come back empty says that something may become free."""
        popped: Popped = await self.run(Pop(queue=QUEUE, **more))
        assert popped.batches == []
        return popped.ready_at

    async def ack(self, batch: Batch, offsets: Sequence[int] = ()) -> Acked:
        """Report records of a batch as done; all of them when no offsets are given."""
        acked: Acked = await self.run(ack(batch, offsets))
        return acked

    async def settle(self, batch: Batch, outcome: Outcome, offsets: Sequence[int] = (), error: str = "") -> Acked:
        """Say the same of some records of a batch, or of all."""
        acked: Acked = await self.run(report(batch, dict.fromkeys(offsets or batch.offsets, outcome), error))
        return acked

    async def drain(self, batch: int = 100, **more: Any) -> list[Any]:
        """The payloads that a group gets now, each acked, until there is nothing more."""
        found: list[Any] = []
        while batches := await self.pop(batch, **more):
            for one in batches:
                found.extend(payloads(one))
                await self.ack(one)
        return found

    async def reap(self, limit: int = 1_000) -> Reaped:
        """End leases that ran out."""
        leases = await self.store.ask(ListExpired(self.clock.now(), limit))
        reaped: Reaped = await self.run(Reap(leases=leases))
        return reaped

    async def queue(self, name: str = QUEUE, database: str = "main") -> QueueStatus:
        """The status of one queue that must be there."""
        (status,) = [status for status in await self.store.ask(ListQueues(database)) if status.queue == name]
        return status

    async def group(self, name: str = GROUP_DEFAULT, queue: str = QUEUE) -> GroupStatus:
        """The status of one group that must be there."""
        (status,) = [status for status in await self.store.ask(ListGroups("main", queue)) if status.group == name]
        return status

    async def dead_letters(self, queue: str = QUEUE, limit: int = 1_000, after: int = 0) -> list[DeadLetter]:
        """The dead letters of a queue."""
        return await self.store.ask(ListDeadLetters("main", queue, limit, after))

    async def read(self, after: int = 0) -> list[Segment]:
        """Everything that is kept."""
        return await self.store.read(Lsn(after), LSN_MAX, 10_000)


def record(payload: Any, transaction_id: str = "") -> Record:
    """A payload as a record."""
    return Record(msgspec.Raw(msgspec.json.encode(payload)), transaction_id)


def push(*payloads: Any, ids: Sequence[str] = (), queue: str = QUEUE, **more: Any) -> Push:
    """A push of payloads, the first of them with these transaction ids."""
    names = [*ids, *[""] * (len(payloads) - len(ids))]
    records = [record(payload, name) for payload, name in zip(payloads, names, strict=True)]
    return Push(queue=queue, records=records, **more)


def ack(batch: Batch, offsets: Sequence[int] = ()) -> Ack:
    """The report that records are done."""
    return Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, offsets=offsets)


def report(batch: Batch, outcomes: dict[Any, Outcome], error: str = "") -> Ack:
    """A report on some records of a batch, by offset or by transaction id."""
    errors: dict[int | str, str] | None = dict.fromkeys(outcomes, error) if error else None
    return Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, outcomes=outcomes, errors=errors)


def payloads(batch: Batch | Segment) -> list[Any]:
    """What the producers pushed."""
    return [decode_payload(record.data) for record in batch.records]


async def until_durable(store: Store, callers: int) -> None:
    """Wait until what was applied survives power loss, wherever the store waits for that."""
    done = store.make_durable(callers)
    if done is not None:
        await done


async def until_landed(store: Store) -> None:
    """Wait until what was seen cannot be taken back."""
    done = store.landed()
    if done is not None:
        await done
