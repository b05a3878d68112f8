"""One queue as people hold it: the verbs of the service, bound to a database and a name."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from headwater.config import Durability
from headwater.errors import InvalidOption
from headwater.log.operations import (
    Configure,
    Configured,
    DeleteGroup,
    DeleteQueue,
    Pop,
    Purge,
    Push,
    Requeue,
    Seek,
    Trace,
)
from headwater.model.cursor import Outcome
from headwater.model.idempotency import fingerprint, lane_key
from headwater.model.names import GROUP_DEFAULT, Offset, check_name
from headwater.model.record import encode_payload
from headwater.services.checks import (
    check_durability,
    check_ids,
    check_lane,
    check_limit,
    check_list,
    check_message,
    check_messages,
    check_number,
    check_optional_name,
    check_outgoing,
    check_text,
    check_time,
)
from headwater.services.consumption import Consumption
from headwater.services.messages import Message, Outgoing, Receipt, Receipts, in_order
from headwater.services.verbs import Verbs
from headwater.stores.contract import DeadLetter, GroupStatus, QueueStatus, TraceEvent

_pop_options = {"lease_seconds", "auto_ack", "subscribe", "since", "idempotency_key"}


class Queue:
    """One queue. `async with headwater.open(...) as hw: orders = hw.queue("orders")`."""

    def __init__(self, queues: Verbs, database: str, name: str) -> None:
        self._queues = queues
        self.database = database
        self.name = check_name("queue", name)

    async def push(
        self,
        /,
        payload: Any,
        *,
        partition: str = "",
        durability: Durability | str | None = None,
        idempotency_key: str = "",
        ttl_seconds: float | None = None,
        **about: Any,
    ) -> Receipt:
        """Append one message; answered when it survives power loss.

        Messages of one partition keep their order, and one consumer of a group at a time works on them. Without a
        partition many consumers work at once: the message goes to one of the queue's lanes, and the receipt says which.
        `about` may name transaction_id (a second push with the same one is a duplicate), trace_id, type, headers.

        >>> receipt = await orders.push({"id": 7}, partition="customer-42")
        """
        record = self._queues.record(check_outgoing(payload, about))
        push = Push(
            database=self.database,
            key=check_text("idempotency_key", idempotency_key),
            queue=self.name,
            partition=check_lane(payload, self.name, partition),
            records=(record,),
            ttl_seconds=ttl_seconds,
        )
        return Receipts(push, await self._queues.push(push, check_durability(durability)))[0]

    async def push_many(
        self,
        payloads: Iterable[Any],
        *,
        partition: str = "",
        durability: Durability | str | None = None,
        idempotency_key: str = "",
        ttl_seconds: float | None = None,
    ) -> Sequence[Receipt]:
        """Append messages in one commit: to one partition, to those that each `Outgoing` names, or over all lanes."""
        payloads = check_list("payloads", payloads)
        check_optional_name("partition", partition)
        check_text("idempotency_key", idempotency_key)
        lanes: dict[str, list[int]] = {partition: list(range(len(payloads)))}
        if Outgoing in set(map(type, payloads)):
            lanes = by_partition(payloads, self.name, partition)
        records = self._queues.records(payloads)
        if not records:
            return []
        pushes = [
            Push(
                database=self.database,
                queue=self.name,
                partition=lane,
                records=records if len(lanes) == 1 else [records[index] for index in members],
                ttl_seconds=ttl_seconds,
            )
            for lane, members in lanes.items()
        ]
        pushes = with_keys(pushes, idempotency_key)
        answers = await self._queues.push_together(pushes, check_durability(durability))
        return in_order(zip(lanes.values(), map(Receipts, pushes, answers), strict=True), len(records))

    async def pop(
        self,
        /,
        *,
        group: str = GROUP_DEFAULT,
        batch: int = 1,
        wait: float = 0,
        partition: str = "",
        partitions: int = 0,
        ack: Message | Iterable[Message] = (),
        **options: Any,
    ) -> list[Message]:
        """Lease up to `batch` messages; wait up to `wait` seconds for the first.

        They come from as many partitions as the batch needs, of at most `partitions` if that is given, in the order in
        which they were pushed as far as that can be told. `ack` reports messages as done in the same commit: a loop
        that hands in its last batch with the next pop waits for the disk once a turn. `options` may name lease_seconds,
        auto_ack, subscribe ("all", or "new" for a group that begins now), since, and idempotency_key.
        """
        operation = self.pop_operation(group, batch, partition, partitions, options)
        return await self._queues.pop(operation, wait, check_messages(ack))

    def pop_operation(self, group: str, batch: int, partition: str, partitions: int, options: dict[str, Any]) -> Pop:
        """The pop that these arguments ask for."""
        return Pop(
            database=self.database,
            queue=self.name,
            group=group,
            batch=batch,
            partition=partition,
            partitions=partitions,
            **pop_options(options),
        )

    async def ack(self, messages: Message | Iterable[Message]) -> None:
        """Report messages as done. A lease that was lost raises `LeaseLost`, and nothing of it changes."""
        await self._queues.report(check_messages(messages), Outcome.COMPLETED)

    async def fail(self, messages: Message | Iterable[Message], *, error: str = "", retry: bool = True) -> None:
        """Report messages as failed: they come again after the queue's retry delay, or end in the dead letters."""
        await self._queues.report(check_messages(messages), Outcome.FAILED if retry else Outcome.DEAD, str(error))

    async def release(self, messages: Message | Iterable[Message]) -> None:
        """Give messages back untouched: others get them at once, and no attempt is counted."""
        await self._queues.report(check_messages(messages), Outcome.RELEASED)

    async def extend(self, messages: Message | Iterable[Message], seconds: float | None = None) -> None:
        """Keep the lease of messages for `seconds` from now."""
        await self._queues.extend(check_messages(messages), seconds)

    def consume(
        self, *, group: str = GROUP_DEFAULT, batch: int = 1, partition: str = "", **options: Any
    ) -> Consumption:
        """Messages one after the other, for ever: acked when the loop's body ends, failed and retried when it raises.

        >>> async for message in orders.consume(group="billing"):
        ...     print(message.payload)
        """
        operation = self.pop_operation(group, batch, partition, 1, options)
        self._queues.check_pop(operation)
        return Consumption(self._queues, operation)

    async def configure(
        self, /, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> Configured:
        """Make the queue, or change options; those not named stay as they are."""
        for kind, name in (("namespace", namespace), ("task", task)):
            if name is not None:
                check_optional_name(kind, name)
        operation = Configure(database=self.database, queue=self.name, namespace=namespace, task=task, options=options)
        configured: Configured = await self._queues.run(operation)
        return configured

    async def seek(
        self,
        to: str | datetime | int = "end",
        *,
        group: str = GROUP_DEFAULT,
        partition: str = "",
    ) -> int:
        """Move a group to "beginning", "end", a time, or an offset of one partition; how many it moved in."""
        check_name("group", group)
        check_optional_name("partition", partition)
        operation = Seek(database=self.database, queue=self.name, group=group, partition=partition)
        if isinstance(to, datetime):
            operation = structs.replace(operation, timestamp=check_time(to))
        elif isinstance(to, bool) or (to not in ("beginning", "end") and not isinstance(to, int)):
            raise InvalidOption(f"seek to beginning, end, a datetime or an offset; got {to!r}")
        elif isinstance(to, int):
            operation = structs.replace(operation, offset=Offset(check_number("offset", to)))
        else:
            operation = structs.replace(operation, to=to)
        return int((await self._queues.run(operation)).partitions)

    async def delete(self) -> bool:
        """Remove the queue with everything in it; whether there was one."""
        return bool((await self._queues.run(DeleteQueue(database=self.database, queue=self.name))).count)

    async def status(self) -> QueueStatus | None:
        """The queue's size and options, None when there is no such queue."""
        found = await self._queues.store.queues(self.database)
        return next((status for status in found if status.queue == self.name), None)

    async def groups(self) -> list[GroupStatus]:
        """The queue's consumer groups: how far behind each is."""
        return await self._queues.store.groups(self.database, self.name)

    async def delete_group(self, group: str) -> bool:
        """Forget a consumer group; whether there was one."""
        operation = DeleteGroup(database=self.database, queue=self.name, group=check_name("group", group))
        return bool((await self._queues.run(operation)).count)

    async def dead_letters(self, *, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """Records that failed for good, oldest first."""
        check_number("after", after)
        return await self._queues.store.dead_letters(self.database, self.name, check_limit(limit), after)

    async def requeue(self, ids: Sequence[int] = (), *, limit: int = 1_000) -> int:
        """Push dead letters back: those with these ids, or the oldest `limit`."""
        operation = Requeue(database=self.database, queue=self.name, ids=check_ids(ids), limit=check_limit(limit))
        return int((await self._queues.run(operation)).count)

    async def purge(self, ids: Sequence[int] = (), *, limit: int = 1_000) -> int:
        """Drop dead letters for good: those with these ids, or the oldest `limit`."""
        operation = Purge(database=self.database, queue=self.name, ids=check_ids(ids), limit=check_limit(limit))
        return int((await self._queues.run(operation)).count)

    async def trace(self, message: Message, event: str, data: Any = None, names: Sequence[str] = ()) -> None:
        """Note an event in the life of a message."""
        check_message(message)
        operation = Trace(
            database=self.database,
            partition_id=message.partition_id,
            transaction_id=message.transaction_id or str(message.offset),
            group=message.group,
            names=tuple(check_name("trace", name) for name in check_list("names", names)),
            event=check_text("event", event),
            data=encode_payload(data, self._queues.config.record_bytes_max),
        )
        await self._queues.run(operation)

    async def traces(self, message: Message) -> list[TraceEvent]:
        """The events noted for a message."""
        identity = check_message(message).transaction_id or str(message.offset)
        return await self._queues.store.traces(self.database, message.partition_id, identity)


def with_keys(pushes: list[Push], key: str) -> list[Push]:
    """The pushes of one request under its key; each knows what the whole request was."""
    if not key:
        return pushes
    if len(pushes) == 1:
        return [structs.replace(pushes[0], key=key)]
    whole = fingerprint(pushes)
    return [structs.replace(push, key=lane_key(key, place), part_of=whole) for place, push in enumerate(pushes)]


def pop_options(options: dict[str, Any]) -> dict[str, Any]:
    """The rarer options of a pop, checked and as the operation names them."""
    if unknown := sorted(set(options) - _pop_options):
        known = ", ".join(sorted(_pop_options))
        raise InvalidOption(f"no such option of pop: {', '.join(unknown)}; there are {known}")
    found = dict(options)
    if type(found.get("auto_ack", False)) is not bool:
        raise InvalidOption(f"auto_ack must be true or false; got {found['auto_ack']!r:.80}")
    if found.get("since") is not None:
        found["since"] = check_time(found["since"])
    if "idempotency_key" in found:
        found["key"] = check_text("idempotency_key", found.pop("idempotency_key"))
    return found


def by_partition(payloads: Sequence[Any], queue: str, partition: str) -> dict[str, list[int]]:
    """Which payloads go to which partition: those that name none go to `partition`."""
    lanes: dict[str, list[int]] = {}
    for index, payload in enumerate(payloads):
        lanes.setdefault(check_lane(payload, queue, partition), []).append(index)
    return lanes
