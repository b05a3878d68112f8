"""Several operations as one: pushes and reports that take effect together or not at all.

>>> async with hw.transaction() as together:
...     together.ack(messages)
...     together.push("invoices", {"order": 7})
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from headwater.errors import InvalidInput, InvalidOption
from headwater.log.job_operations import Enqueue, NewJob
from headwater.log.operations import Operation, Transaction
from headwater.log.room_operations import RoomPush
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId
from headwater.services.admission import admit
from headwater.services.checks import check_messages, check_outgoing
from headwater.services.documents import CollectionTogether, Writes
from headwater.services.jobs import Jobs
from headwater.services.messages import Message, mark_reported, reports_of
from headwater.services.outgoing import target, target_of
from headwater.services.room import Room
from headwater.services.room_requests import check_kept_type
from headwater.services.rooms import Rooms
from headwater.services.verbs import Verbs


class Together:
    """Collects operations; leaving the block hands them in, an exception inside it drops them."""

    def __init__(
        self, queues: Verbs, database: str, jobs: Jobs | None, rooms: Rooms | None, idempotency_key: str = ""
    ) -> None:
        self._queues = queues
        self._rooms = rooms
        self._jobs = jobs
        self._database = database
        self._key = idempotency_key
        self._operations: list[Operation] = []
        self._leases: list[tuple[PartitionId, str, int]] = []
        self._reported: list[tuple[list[Message], Outcome]] = []
        self._is_begun = False
        self._is_over = False
        self.results: Sequence[Any] = ()

    async def __aenter__(self) -> Self:
        if self._is_begun:
            # The end of either block would hand in what the other one has gathered.
            raise InvalidInput("a transaction has one block, and this one has begun: make another for another block")
        self._is_begun = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if error is None and (self._operations or self._leases):
            await self.commit()

    def end(self) -> None:
        """Take no more: nobody would hand it in."""
        self._is_over = True

    def _check_block(self) -> None:
        if self._is_over:
            raise InvalidInput("the block of this transaction has ended, and what is added now would be lost")

    def push(
        self,
        queue: str,
        payload: Any,
        *,
        partition: str | None = None,
        transaction_id: str = "",
        trace_id: str = "",
        type: str = "",
        headers: dict[str, str] | None = None,
        timestamp: "datetime | int | None" = None,
        ttl_seconds: float | None = None,
        delay: float | timedelta = 0,
        priority: int = 0,
    ) -> None:
        """Append a message when the block ends, or, with `delay` in seconds or as a timedelta, that long after it."""
        self._check_block()
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
        chosen = target_of(payload, target(queue, partition, delay, priority))
        push = chosen.push(self._database, (record,), ttl_seconds=ttl_seconds)
        self._queues.check_push(push)
        self._operations.append(push)

    def send(
        self,
        room: str,
        data: Any,
        *,
        type: str = "message",
        key: str = "",
        sender: str = "",
        ttl_seconds: float | None = None,
    ) -> None:
        """Say something in a room when the block ends: together with everything else, or not at all."""
        self._check_block()
        check_kept_type(type)
        said = Room(self._queues, self._database, room, self._rooms)
        push = said.push_of(data, type=type, key=key, sender=sender, ttl_seconds=ttl_seconds)
        self._queues.check_push(push)
        self._operations.append(push)

    def enqueue(self, *jobs: NewJob) -> None:
        """Add jobs when the block ends: `together.enqueue(send_email.job(to="ada@example.org"))`."""
        self._check_block()
        if self._jobs is None:
            raise InvalidOption("jobs are not served over this connection; open the store itself")
        checked = self._jobs.check_all(jobs)
        if checked:
            self._operations.append(Enqueue(database=self._database, jobs=checked))

    def collection(self, name: str) -> CollectionTogether:
        """A collection whose documents are written when the block ends: `together.collection("orders").set(…)`."""
        self._check_block()
        return CollectionTogether(Writes(self._database, name, self._queues.clock), self._add)

    def _add(self, operation: Operation) -> None:
        self._check_block()
        self._operations.append(admit(operation, self._queues.config))

    def ack(self, messages: Message | Iterable[Message]) -> None:
        """Report messages as done when the block ends; a lost lease undoes everything."""
        self._report(messages, Outcome.COMPLETED, "")

    def fail(self, messages: Message | Iterable[Message], *, error: str = "") -> None:
        """Report messages as failed when the block ends."""
        self._report(messages, Outcome.FAILED, error)

    def release(self, messages: Message | Iterable[Message]) -> None:
        """Give messages back when the block ends: no attempt is counted, and others get them at once."""
        self._report(messages, Outcome.RELEASED, "")

    def require(self, messages: Message | Iterable[Message]) -> None:
        """Everything holds only if the leases of these messages are alive then."""
        self._check_block()
        for message in self._own(messages):
            lease = (message.partition_id, message.group, message.token)
            if lease not in self._leases:
                self._leases.append(lease)

    async def commit(self) -> None:
        """Hand everything in; `results` has what each operation came to, in order."""
        if self._rooms is not None and any(isinstance(one, RoomPush) for one in self._operations):
            await self._rooms.check_kept(self._database)
        operation = Transaction(
            database=self._database, key=self._key, operations=tuple(self._operations), leases=tuple(self._leases)
        )
        reported = self._reported
        self._operations, self._leases, self._reported = [], [], []
        self.results = (await self._queues.run(operation)).results
        for messages, outcome in reported:
            mark_reported(messages, outcome)

    def _report(self, messages: Message | Iterable[Message], outcome: Outcome, error: str) -> None:
        self._check_block()
        chosen = self._own(messages)
        self._operations.extend(reports_of(chosen, outcome, error))
        self._reported.append((chosen, outcome))

    def _own(self, messages: Message | Iterable[Message]) -> list[Message]:
        chosen = check_messages(messages)
        if any(message.database != self._database for message in chosen):
            raise InvalidInput("a transaction stays within one database")
        return chosen
