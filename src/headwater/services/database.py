"""A database (tenant) of an open store: its queues, by name and together, and its jobs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headwater.config import Durability
from headwater.errors import InvalidOption
from headwater.log.document_operations import SetDocumentRules
from headwater.log.operations import DeleteGroup
from headwater.model.document_rules import DocumentRule
from headwater.model.names import GROUP_DEFAULT, check_name
from headwater.services.checks import check_durability, check_limit, check_list, check_said_name, check_text
from headwater.services.document_checks import as_rules
from headwater.services.documents import Collection
from headwater.services.job_verbs import JobVerbs
from headwater.services.jobs import Jobs
from headwater.services.life import Life, verb
from headwater.services.messages import Message, Outgoing, Receipt, Receipts, in_order
from headwater.services.outgoing import Target, target_of
from headwater.services.queue import Queue, make_pop
from headwater.services.room import Room
from headwater.services.rooms import Rooms
from headwater.services.transaction import Together
from headwater.services.verbs import Verbs
from headwater.stores.document_questions import ListDocumentRules
from headwater.stores.questions import GroupStatus, LeaseStatus, ListGroups, ListLeases, ListQueues, QueueStatus


class Database:
    """The queues and jobs of one tenant."""

    def __init__(self, queues: Verbs, name: str, jobs: JobVerbs | None = None, rooms: Rooms | None = None) -> None:
        self.queues_service = queues
        self.name = check_name("database", name)
        self._jobs = None if jobs is None else Jobs(jobs, self.name)
        self._rooms = rooms

    @property
    def life(self) -> Life:
        """Whether it may be used now."""
        return self.queues_service.life

    @property
    def jobs(self) -> Jobs:
        """The jobs of this database."""
        self.life.check()
        if self._jobs is None:
            raise InvalidOption("jobs are not served over this connection; open the store itself")
        return self._jobs

    def room(self, name: str) -> Room:
        """The room of this name; it is there as soon as somebody says something or comes."""
        return Room(self.queues_service, self.name, name, self._rooms)

    def queue(self, name: str) -> Queue:
        """The queue of this name; it is made when it is first pushed to or configured."""
        return Queue(self.queues_service, self.name, name)

    def collection(self, name: str) -> Collection:
        """The collection of documents of this name: `rooms/r1/messages`."""
        return Collection(self.queues_service, self.name, name)

    @verb
    async def document_rules(self) -> list[DocumentRule]:
        """The access rules of the documents, in the order in which they were given."""
        return await self.queues_service.store.ask(ListDocumentRules(self.name))

    @verb
    async def set_document_rules(self, rules: Sequence[DocumentRule | Mapping[str, str]]) -> int:
        """Have these access rules and no others; how many there are then.

        >>> await hw.set_document_rules([headwater.DocumentRule(pattern="notes", read="owner == auth.sub")])
        >>> await hw.set_document_rules([{"pattern": "notes", "read": "owner == auth.sub"}])
        """
        return (await self.queues_service.run(SetDocumentRules(database=self.name, rules=as_rules(rules)))).count

    @verb
    async def push_all(
        self, messages: Iterable[Any], *, durability: Durability | str | None = None
    ) -> Sequence[Receipt]:
        """Append messages to several queues and partitions in one commit; each `Outgoing` names its queue."""
        messages = check_list("messages", messages)
        targets: dict[Target, list[int]] = {}
        for index, message in enumerate(messages):
            if not isinstance(message, Outgoing) or not message.queue:
                raise InvalidOption("push_all takes headwater.Outgoing values that name their queue")
            chosen = target_of(message, Target(check_name("queue", message.queue)))
            targets.setdefault(chosen, []).append(index)
        pushes = [
            chosen.push(self.name, [self.queues_service.record(messages[index]) for index in members])
            for chosen, members in targets.items()
        ]
        if not pushes:
            return []
        answers = await self.queues_service.push_together(pushes, check_durability(durability))
        return in_order(zip(targets.values(), map(Receipts, pushes, answers), strict=True), len(messages))

    @verb
    async def pop(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        group: str = GROUP_DEFAULT,
        batch: int = 1,
        wait: float = 0,
        partitions: int = 0,
        lease_seconds: float | None = None,
        auto_ack: bool = False,
        subscribe: str = "all",
        since: datetime | int | None = None,
        idempotency_key: str = "",
    ) -> list[Message]:
        """Lease messages of any queue with this namespace and task, the queue of the highest priority first."""
        operation = make_pop(
            database=self.name,
            namespace=namespace,
            task=task,
            group=group,
            batch=batch,
            partitions=partitions,
            lease_seconds=lease_seconds,
            auto_ack=auto_ack,
            subscribe=subscribe,
            since=since,
            idempotency_key=idempotency_key,
        )
        return await self.queues_service.pop(operation, wait)

    def transaction(self, *, idempotency_key: str = "") -> Together:
        """Pushes and reports that take effect together: `async with hw.transaction() as together: …`."""
        key = check_text("idempotency_key", idempotency_key)
        return Together(self.queues_service, self.name, self._jobs, self._rooms, key)

    @verb
    async def queues(self) -> list[QueueStatus]:
        """All queues with their sizes."""
        return await self.queues_service.store.ask(ListQueues(self.name))

    @verb
    async def groups(self, queue: str | None = None) -> list[GroupStatus]:
        """All consumer groups, or those of one queue."""
        return await self.queues_service.store.ask(ListGroups(self.name, check_said_name("queue", queue)))

    @verb
    async def leases(
        self, queue: str | None = None, *, group: str | None = None, limit: int = 1_000
    ) -> list[LeaseStatus]:
        """What is being worked on, in all queues or in one: who holds which partition, and until when."""
        names = (check_said_name("queue", queue), check_said_name("group", group))
        return await self.queues_service.store.ask(ListLeases(self.name, *names, check_limit(limit)))

    @verb
    async def delete_group(self, group: str) -> int:
        """Forget a consumer group in all queues; in how many it was."""
        operation = DeleteGroup(database=self.name, group=group)
        return int((await self.queues_service.run(operation)).count)
