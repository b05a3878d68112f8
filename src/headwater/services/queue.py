"""One queue as people hold it: the verbs of the service, bound to a database and a name."""

import os
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import structs

from headwater.config import Durability
from headwater.log.operations import (
    Pop,
    Push,
)
from headwater.model.cursor import Outcome
from headwater.model.idempotency import fingerprint, lane_key
from headwater.model.names import GROUP_DEFAULT
from headwater.services import signals
from headwater.services.checks import (
    check_durability,
    check_flag,
    check_list,
    check_messages_of,
    check_outgoing,
    check_said_name,
    check_seconds,
    check_text,
    check_time,
)
from headwater.services.consumption import Consumption
from headwater.services.life import verb
from headwater.services.messages import Message, Receipt, Receipts, in_order, receipt_of
from headwater.services.outgoing import by_target, target, target_of
from headwater.services.queue_upkeep import QueueUpkeep
from headwater.services.running import Handler, Run, check_concurrency, check_handler, check_stop_seconds

# Who holds a lease, for whoever looks at them.
_host = socket.gethostname()[:100]


class Queue(QueueUpkeep):
    """One queue. `async with headwater.open(...) as hw: orders = hw.queue("orders")`."""

    @verb
    async def push(
        self,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str = "",
        trace_id: str = "",
        type: str = "",
        headers: dict[str, str] | None = None,
        timestamp: "datetime | int | None" = None,
        durability: Durability | str | None = None,
        idempotency_key: str = "",
        ttl_seconds: float | None = None,
        delay: float | timedelta = 0,
        priority: int = 0,
    ) -> Receipt:
        """Append one message; answered when it survives power loss.

        Messages of one partition keep their order, and one consumer of a group at a time works on them. Without a
        partition many consumers work at once: the message goes to one of the queue's lanes, and the receipt says which.
        A second push with the same `transaction_id` is a duplicate of the first. With `delay`, in seconds or as a
        timedelta, it is delivered that much later, and has no offset before. With a `priority`, from 1 to 9, it is
        delivered before those of the queue with a lower one and those with none; it cannot name a partition then.

        >>> receipt = await orders.push({"id": 7}, partition="customer-42")
        """
        record = self._queues.record(
            check_outgoing(
                payload,
                transaction_id=transaction_id,
                trace_id=trace_id,
                type=type,
                headers=headers,
                timestamp=timestamp,
            )
        )
        chosen = target_of(payload, target(self.name, partition, delay, priority))
        key = check_text("idempotency_key", idempotency_key)
        push = chosen.push(self.database, (record,), key=key, ttl_seconds=ttl_seconds)
        return receipt_of(push, await self._queues.push(push, check_durability(durability)))

    @verb
    async def push_many(
        self,
        payloads: Iterable[Any],
        *,
        partition: str | None = None,
        durability: Durability | str | None = None,
        idempotency_key: str = "",
        ttl_seconds: float | None = None,
        delay: float | timedelta = 0,
        priority: int = 0,
    ) -> Sequence[Receipt]:
        """Append messages in one commit: to one partition, to those that each `Outgoing` names, or over all lanes.

        What an `Outgoing` says of itself comes before what is said here.
        """
        payloads = check_list("payloads", payloads)
        check_text("idempotency_key", idempotency_key)
        targets = by_target(payloads, target(self.name, partition, delay, priority))
        records = self._queues.records(payloads)
        if not records:
            return []
        pushes = [
            chosen.push(
                self.database,
                records if len(targets) == 1 else [records[index] for index in members],
                ttl_seconds=ttl_seconds,
            )
            for chosen, members in targets.items()
        ]
        pushes = with_keys(pushes, idempotency_key)
        answers = await self._queues.push_together(pushes, check_durability(durability))
        return in_order(zip(targets.values(), map(Receipts, pushes, answers), strict=True), len(records))

    @verb
    async def pop(
        self,
        *,
        group: str = GROUP_DEFAULT,
        batch: int = 1,
        wait: float = 0,
        partition: str | None = None,
        partitions: int = 0,
        ack: Message | Iterable[Message] = (),
        lease_seconds: float | None = None,
        auto_ack: bool = False,
        subscribe: str = "all",
        since: datetime | int | None = None,
        idempotency_key: str = "",
    ) -> list[Message]:
        """Lease up to `batch` messages; wait up to `wait` seconds for the first.

        They come from as many partitions as the batch needs, of at most `partitions` if that is given, in the order in
        which they were pushed as far as that can be told; `partition` names one of them.
        `ack` reports messages as done in the same commit: a loop that hands in its last batch with the next pop waits
        for the disk once a turn. With `auto_ack` they are done as they are delivered. A group that is new begins with
        all there is, with `subscribe="new"` with what comes, with `since` at a time.
        """
        operation = make_pop(
            database=self.database,
            queue=self.name,
            group=group,
            batch=batch,
            partition=partition,
            partitions=partitions,
            lease_seconds=lease_seconds,
            auto_ack=auto_ack,
            subscribe=subscribe,
            since=since,
            idempotency_key=idempotency_key,
        )
        return await self._queues.pop(operation, wait, check_messages_of(self.database, ack))

    @verb
    async def ack(self, messages: Message | Iterable[Message]) -> None:
        """Report messages as done. A lease that was lost raises `LeaseLost`, and nothing of it changes."""
        await self._queues.report(check_messages_of(self.database, messages), Outcome.COMPLETED)

    @verb
    async def fail(self, messages: Message | Iterable[Message], *, error: str = "", retry: bool = True) -> None:
        """Report messages as failed: they come again after the queue's retry delay, or end in the dead letters."""
        await self._queues.report(
            check_messages_of(self.database, messages), Outcome.FAILED if retry else Outcome.DEAD, error
        )

    @verb
    async def release(self, messages: Message | Iterable[Message]) -> None:
        """Give messages back untouched: others get them at once, and no attempt is counted."""
        await self._queues.report(check_messages_of(self.database, messages), Outcome.RELEASED)

    @verb
    async def extend(self, messages: Message | Iterable[Message], seconds: float | None = None) -> None:
        """Keep the lease of messages for `seconds` from now."""
        await self._queues.extend(check_messages_of(self.database, messages), seconds)

    def consume(
        self,
        *,
        group: str = GROUP_DEFAULT,
        batch: int = 1,
        partition: str | None = None,
        lease_seconds: float | None = None,
        auto_ack: bool = False,
        subscribe: str = "all",
        since: datetime | int | None = None,
        idle_seconds: float | None = None,
    ) -> Consumption:
        """Messages one after the other, for ever, or until none has come for `idle_seconds`.

        A message is acked when the next one is asked for. Leaving the block normally acks the current message, an
        exception fails it, cancelling releases it; a loop without the block releases it however it is left.

        >>> async with orders.consume(group="billing") as messages:
        ...     async for message in messages:
        ...         print(message.payload)
        """
        operation = make_pop(
            database=self.database,
            queue=self.name,
            group=group,
            batch=batch,
            partition=partition,
            lease_seconds=lease_seconds,
            auto_ack=auto_ack,
            subscribe=subscribe,
            since=since,
        )
        self._queues.check_pop(operation)
        return Consumption(self._queues, operation, check_idle_seconds(idle_seconds))

    @verb
    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        group: str = GROUP_DEFAULT,
        batch: int = 1,
        partition: str | None = None,
        lease_seconds: float | None = None,
        subscribe: str = "all",
        since: datetime | int | None = None,
        idle_seconds: float | None = None,
        stop_seconds: float = 30.0,
        stop_on_signals: bool = True,
    ) -> None:
        """Call `handler` with each message, `concurrency` of them at once, each partition in its order.

        A handler that returns acks its message, one that raises fails it, and the run goes on. `handler` is an async
        function, or a plain one, which is called in a thread. SIGINT and SIGTERM end the run in good order, unless the
        program handles them itself: no more is taken, and handlers have `stop_seconds` to finish; then, and when the
        task is cancelled, they are cancelled and their messages released. Ends, too, when nothing has come for
        `idle_seconds`.

        >>> await orders.run(send_invoice, group="billing", concurrency=8)
        """
        check_handler(handler)
        consume = partial(
            self.consume,
            group=group,
            batch=batch,
            partition=partition,
            lease_seconds=lease_seconds,
            subscribe=subscribe,
            since=since,
            idle_seconds=idle_seconds,
        )
        consume()  # What is wrong with the options is said now, and once.
        run = Run(
            consume,
            handler,
            concurrency=check_concurrency(concurrency),
            stop_seconds=check_stop_seconds(stop_seconds),
        )
        if not check_flag("stop_on_signals", stop_on_signals):
            await run.work()
            return
        with signals.listening(), signals.calling(run.stop):
            await run.work()


def with_keys(pushes: list[Push], key: str) -> list[Push]:
    """The pushes of one request under its key; each knows what the whole request was."""
    if not key:
        return pushes
    if len(pushes) == 1:
        return [structs.replace(pushes[0], key=key)]
    whole = fingerprint(pushes)
    return [structs.replace(push, key=lane_key(key, place), part_of=whole) for place, push in enumerate(pushes)]


def make_pop(
    *,
    database: str,
    group: str,
    batch: int,
    queue: str = "",
    partition: str | None = None,
    namespace: str | None = None,
    task: str | None = None,
    partitions: int = 0,
    lease_seconds: float | None,
    auto_ack: bool,
    subscribe: str,
    since: datetime | int | None,
    idempotency_key: str = "",
) -> Pop:
    """The pop that these arguments ask for."""
    return Pop(
        database=database,
        queue=queue,
        partition=check_said_name("partition", partition),
        namespace=check_said_name("namespace", namespace),
        task=check_said_name("task", task),
        group=group,
        batch=batch,
        partitions=partitions,
        lease_seconds=lease_seconds,
        auto_ack=check_flag("auto_ack", auto_ack),
        subscribe=subscribe,
        since=None if since is None else check_time(since),
        key=check_text("idempotency_key", idempotency_key),
        holder=f"{_host}:{os.getpid()}",
    )


def check_idle_seconds(value: object) -> float | None:
    if value is None or value == 0:
        return None if value is None else 0.0
    check_seconds("idle_seconds", value)
    return value  # type: ignore[return-value]
