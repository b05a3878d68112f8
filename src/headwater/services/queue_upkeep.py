"""One queue as people hold it: what is set, asked and mended, apart from messages going in and out."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import UNSET, UnsetType, structs

from headwater.errors import InvalidOption
from headwater.log.group_operations import ConfigureGroup, GroupConfigured, ReleaseLeases
from headwater.log.operations import Configure, Configured, DeleteGroup, DeleteQueue, Purge, Requeue, Seek, Trace
from headwater.model.names import GROUP_DEFAULT, Offset, check_name
from headwater.model.record import encode_payload
from headwater.services.checks import (
    check_flag,
    check_ids,
    check_limit,
    check_list,
    check_message,
    check_messages_of,
    check_number,
    check_said_name,
    check_time,
)
from headwater.services.life import Life, verb
from headwater.services.messages import Message
from headwater.services.verbs import Verbs
from headwater.stores.questions import (
    DeadLetter,
    GroupStatus,
    LeaseStatus,
    ListDeadLetters,
    ListGroups,
    ListLeases,
    ListQueues,
    ListTraces,
    QueueStatus,
    TraceEvent,
)

DEAD_LETTERS_AT_ONCE = 1_000

DeadLetterDeed = TypeVar("DeadLetterDeed", Requeue, Purge)


class QueueUpkeep:
    """A queue's options, groups, leases, dead letters and traces."""

    def __init__(self, queues: Verbs, database: str, name: str) -> None:
        self._queues = queues
        # Whether it may be used now.
        self.life: Life = queues.life
        self.database = database
        self.name = check_name("queue", name)

    @verb
    async def configure(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        lanes: int | UnsetType = UNSET,
        lease_seconds: float | UnsetType = UNSET,
        retry_limit: int | UnsetType = UNSET,
        retry_delay_seconds: float | UnsetType = UNSET,
        retry_factor: float | UnsetType = UNSET,
        retry_delay_max_seconds: float | UnsetType = UNSET,
        retry_jitter: float | UnsetType = UNSET,
        dead_letters: bool | UnsetType = UNSET,
        priority: int | UnsetType = UNSET,
        delay_seconds: float | UnsetType = UNSET,
        window_seconds: float | UnsetType = UNSET,
        retention_seconds: float | UnsetType = UNSET,
        completed_retention_seconds: float | UnsetType = UNSET,
        archive_required: bool | UnsetType = UNSET,
        size_max: int | UnsetType = UNSET,
        partitions_max: int | UnsetType = UNSET,
        deduplication_seconds: float | UnsetType = UNSET,
        compress_bytes_min: int | UnsetType = UNSET,
        encrypted: bool | UnsetType = UNSET,
    ) -> Configured:
        """Make the queue, or change options, which `headwater.QueueOptions` tells of; one that is not given stays."""
        options = {
            "lanes": lanes,
            "lease_seconds": lease_seconds,
            "retry_limit": retry_limit,
            "retry_delay_seconds": retry_delay_seconds,
            "retry_factor": retry_factor,
            "retry_delay_max_seconds": retry_delay_max_seconds,
            "retry_jitter": retry_jitter,
            "dead_letters": dead_letters,
            "priority": priority,
            "delay_seconds": delay_seconds,
            "window_seconds": window_seconds,
            "retention_seconds": retention_seconds,
            "completed_retention_seconds": completed_retention_seconds,
            "archive_required": archive_required,
            "size_max": size_max,
            "partitions_max": partitions_max,
            "deduplication_seconds": deduplication_seconds,
            "compress_bytes_min": compress_bytes_min,
            "encrypted": encrypted,
        }
        operation = Configure(
            database=self.database,
            queue=self.name,
            namespace=namespace,
            task=task,
            options={name: value for name, value in options.items() if value is not UNSET},
        )
        return await self._queues.run(operation)

    @verb
    async def configure_group(
        self,
        group: str,
        *,
        lease_seconds: float | UnsetType | None = UNSET,
        retry_limit: int | UnsetType | None = UNSET,
        retry_delay_seconds: float | UnsetType | None = UNSET,
        retry_factor: float | UnsetType | None = UNSET,
        retry_delay_max_seconds: float | UnsetType | None = UNSET,
        retry_jitter: float | UnsetType | None = UNSET,
    ) -> GroupConfigured:
        """Give a consumer group options of its own; None takes the queue's again, one that is not given stays.

        >>> await orders.configure_group("billing", lease_seconds=600, retry_limit=10)
        """
        options = {
            "lease_seconds": lease_seconds,
            "retry_limit": retry_limit,
            "retry_delay_seconds": retry_delay_seconds,
            "retry_factor": retry_factor,
            "retry_delay_max_seconds": retry_delay_max_seconds,
            "retry_jitter": retry_jitter,
        }
        operation = ConfigureGroup(
            database=self.database,
            queue=self.name,
            group=group,
            options={name: value for name, value in options.items() if value is not UNSET},
        )
        return await self._queues.run(operation)

    @verb
    async def leases(self, *, group: str | None = None, limit: int = 1_000) -> list[LeaseStatus]:
        """What is being worked on: which partition, by which group, who holds it as far as is known, until when; of the
        first `limit` leases."""
        chosen = check_said_name("group", group)
        return await self._queues.store.ask(ListLeases(self.database, self.name, chosen, check_limit(limit)))

    @verb
    async def release_leases(
        self, *, group: str | None = None, partition: str | None = None, token: int | None = None
    ) -> int:
        """Give what is leased back, of all groups and partitions unless one is named; how many leases that ended.

        No attempt is counted. Whoever held a lease gets `LeaseLost` for its next report. A `token`, beside the group
        and partition it is of, ends that lease and no later one.
        """
        operation = ReleaseLeases(
            database=self.database,
            queue=self.name,
            group=check_said_name("group", group),
            partition=check_said_name("partition", partition),
            token=token,
        )
        return (await self._queues.run(operation)).leases

    @verb
    async def seek(
        self,
        to: str | datetime | int = "end",
        *,
        group: str = GROUP_DEFAULT,
        partition: str | None = None,
        create: bool = False,
    ) -> int:
        """Move a group to "beginning", "end", a time, or an offset of one partition; how many it moved in.

        A group that is not there is an error, unless `create` makes it.
        """
        chosen = check_said_name("partition", partition)
        operation = Seek(database=self.database, queue=self.name, group=group, partition=chosen, create=create)
        if isinstance(to, datetime):
            operation = structs.replace(operation, timestamp=check_time(to))
        elif isinstance(to, bool) or (to not in ("beginning", "end") and not isinstance(to, int)):
            raise InvalidOption(f"seek to beginning, end, a datetime or an offset; got {to!r}")
        elif isinstance(to, int):
            operation = structs.replace(operation, offset=Offset(to))
        else:
            operation = structs.replace(operation, to=to)
        return (await self._queues.run(operation)).partitions

    @verb
    async def delete(self) -> bool:
        """Remove the queue with everything in it; whether there was one."""
        return bool((await self._queues.run(DeleteQueue(database=self.database, queue=self.name))).count)

    @verb
    async def status(self) -> QueueStatus | None:
        """The queue's size and options, None when there is no such queue."""
        found = await self._queues.store.ask(ListQueues(self.database))
        return next((status for status in found if status.queue == self.name), None)

    @verb
    async def groups(self) -> list[GroupStatus]:
        """The queue's consumer groups: how far behind each is."""
        return await self._queues.store.ask(ListGroups(self.database, self.name))

    @verb
    async def delete_group(self, group: str) -> bool:
        """Forget a consumer group; whether there was one."""
        operation = DeleteGroup(database=self.database, queue=self.name, group=group)
        return bool((await self._queues.run(operation)).count)

    @verb
    async def dead_letters(self, *, limit: int = 100, after: int = 0) -> list[DeadLetter]:
        """Records that failed for good, oldest first: the first `limit` whose id is above `after`."""
        check_number("after", after)
        found: list[DeadLetter] = []
        wanted = check_limit(limit)
        # An answer has no more than so many bytes.
        while len(found) < wanted and (page := await self._dead_letters(wanted - len(found), after)):
            found += page
            after = page[-1].id
        return found

    async def _dead_letters(self, limit: int, after: int) -> list[DeadLetter]:
        return await self._queues.store.ask(ListDeadLetters(self.database, self.name, limit, after))

    @verb
    async def requeue(
        self,
        ids: Sequence[int] | None = None,
        *,
        limit: int | None = None,
        to: str | None = None,
        all_groups: bool = False,
    ) -> int:
        """Have dead letters delivered once more: those with these ids, the oldest `limit`, or all of them; how many
        there were. An empty list of ids is none of them.

        Each goes to the group that it failed for, and to no other. `all_groups` delivers it to all of them, in the
        partition it came from; `to` pushes it to another queue. When the group of one was deleted, neither is said and
        none of them goes: name the others by their ids. All of them go a thousand at a time: an error leaves those
        before it requeued.
        """
        operation = Requeue(
            database=self.database,
            queue=self.name,
            ids=() if ids is None else check_ids(ids),
            limit=check_limit(DEAD_LETTERS_AT_ONCE if limit is None else limit),
            to=check_said_name("queue", to),
            all_groups=check_flag("all_groups", all_groups),
        )
        if ids is not None and not operation.ids:
            return 0
        return await self._of_dead_letters(operation, all_of_them=ids is None and limit is None)

    @verb
    async def purge(self, ids: Sequence[int] | None = None, *, limit: int | None = None) -> int:
        """Drop dead letters for good: those with these ids, the oldest `limit`, or all of them; how many there were. An
        empty list of ids is none of them."""
        operation = Purge(
            database=self.database,
            queue=self.name,
            ids=() if ids is None else check_ids(ids),
            limit=check_limit(DEAD_LETTERS_AT_ONCE if limit is None else limit),
        )
        if ids is not None and not operation.ids:
            return 0
        return await self._of_dead_letters(operation, all_of_them=ids is None and limit is None)

    async def _of_dead_letters(self, operation: DeadLetterDeed, *, all_of_them: bool) -> int:
        """How many it was done to. All of them are as many as there are now: a requeued one may die again meanwhile."""
        done = count = (await self._queues.run(operation)).count
        if not all_of_them or count < operation.limit:
            return done
        status = await self.status()
        end = done + (0 if status is None else status.dead_letters)
        while count and done < end:
            bite = structs.replace(operation, limit=min(operation.limit, end - done))
            count = (await self._queues.run(bite)).count
            done += count
        return done

    @verb
    async def trace(self, message: Message, event: str, data: object = None, names: Sequence[str] = ()) -> None:
        """Note an event in the life of a message."""
        check_messages_of(self.database, check_message(message))
        operation = Trace(
            database=self.database,
            partition_id=message.partition_id,
            transaction_id=message.transaction_id or str(message.offset),
            group=message.group,
            names=tuple(check_name("trace", name) for name in check_list("names", names)),
            event=event,
            data=encode_payload(data, self._queues.config.record_bytes_max),
        )
        await self._queues.run(operation)

    @verb
    async def traces(self, message: Message) -> list[TraceEvent]:
        """The events noted for a message."""
        check_messages_of(self.database, check_message(message))
        identity = message.transaction_id or str(message.offset)
        return await self._queues.store.ask(ListTraces(self.database, message.partition_id, identity))
