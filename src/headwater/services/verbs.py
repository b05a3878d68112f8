"""What the interfaces (`Queue`, `Database`, `Together`, `Consumption`) ask of whoever serves them.

Two serve them: `Queues`, on an open store, and `client.remote.RemoteQueues`, on a server over HTTP. The interfaces are
written once for both; so are the checks that need nothing but the bounds.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Sequence

from msgspec import Raw, structs

from headwater.clock import Clock
from headwater.config import Config, Durability
from headwater.errors import InvalidName, InvalidOption, QueueError, TooLarge
from headwater.log.committer import CommittedPush
from headwater.log.operations import Ack, Extend, Extended, Operation, Pop, Popped, Push, Result
from headwater.log.room_operations import RoomPush
from headwater.model.cursor import Outcome
from headwater.model.idempotency import report_key
from headwater.model.names import SYSTEM_PREFIX, Lsn, check_name
from headwater.model.record import Record, encode_payloads
from headwater.model.spreading import check_priority
from headwater.services.checks import (
    check_delay,
    check_optional_name,
    check_seconds,
)
from headwater.services.follow import Steps
from headwater.services.holdings import Holdings
from headwater.services.life import Life
from headwater.services.messages import Message, Outgoing, extension_of, mark_reported, messages_of, reports_of
from headwater.services.outgoing import make_record
from headwater.services.records import check_target
from headwater.stores.contract import Answerer

_data = operator.attrgetter("data")


def check_push(push: Push, config: Config) -> None:
    """Raises when a push cannot be taken whatever the state of its queue is."""
    if not isinstance(push, RoomPush):
        check_target(push.queue, push.partition)
    if push.partition.startswith(SYSTEM_PREFIX):
        raise InvalidName(f"partitions under {SYSTEM_PREFIX} are Headwater's own; push to another name")
    count = len(push.records)
    if not 1 <= count <= config.batch_max:
        raise TooLarge(f"a push takes 1 to {config.batch_max:,} messages; got {count:,}")
    if count > 1 and sum(map(len, map(_data, push.records))) > config.batch_bytes_max:
        raise TooLarge(f"a push may have {config.batch_bytes_max:,} bytes; split it")
    if push.delay_seconds:
        check_delay(push.delay_seconds)
    if push.priority:
        check_priority(push.priority, push.partition)
    if push.ttl_seconds is not None:
        check_seconds("ttl_seconds", push.ttl_seconds)


def check_pop(operation: Pop, config: Config) -> None:
    """Raises when a pop asks for what cannot be."""
    check_name("group", operation.group)
    check_optional_name("queue", operation.queue)
    if (operation.partition, operation.namespace, operation.task) != ("", "", ""):
        check_optional_name("partition", operation.partition)
        check_optional_name("namespace", operation.namespace)
        check_optional_name("task", operation.task)
    if operation.partition and not operation.queue:
        raise InvalidOption("a partition needs its queue")
    _check_bound("batch", operation.batch, 1, config.batch_max)
    _check_bound("partitions", operation.partitions, 0, config.batch_max)
    if operation.lease_seconds is not None:
        check_seconds("lease_seconds", operation.lease_seconds)
    if operation.subscribe not in ("all", "new"):
        raise InvalidOption(f"subscribe must be all or new; got {operation.subscribe!r}")


def _check_bound(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidOption(f"{name} must be {least} to {most:,}; got {value!r:.80}")


class Verbs(ABC):
    """Takes operations and gives their answers; checks what can be checked before anything is handed in."""

    config: Config
    clock: Clock
    store: Answerer
    life: Life
    holdings: Holdings
    # Whether a server answers. What is said of Headwater itself is found there then, by what the token may see.
    is_remote = False
    _checked: Pop | None = None

    # ── what each has its own way of doing ──

    @abstractmethod
    def push(self, push: Push, durability: Durability | None) -> Awaitable[CommittedPush]:
        """Append to one partition."""

    @abstractmethod
    async def push_together(self, pushes: Sequence[Push], durability: Durability | None) -> Sequence[CommittedPush]:
        """Append to several partitions in one commit."""

    @abstractmethod
    async def pop_batches(self, operation: Pop, wait_seconds: float = 0, reports: Sequence[Ack] = ()) -> Popped:
        """Lease the next records, with reports on the last ones in the same commit; wait when there are none."""

    @abstractmethod
    async def settle(self, reports: Sequence[Ack]) -> None:
        """Hand reports in. Every lease is reported on; the first that is lost is raised at the end."""

    @abstractmethod
    async def extend_leases(self, extensions: Sequence[Extend]) -> list[Extended]:
        """Keep leases for longer; until when each holds now."""

    @abstractmethod
    async def run(self, operation: Operation[Result]) -> Result:
        """One operation, and what it came to."""

    @abstractmethod
    async def last_lsn(self) -> Lsn:
        """Where the log ends now."""

    @abstractmethod
    async def follow(self, database: str, queue: str, after: Lsn) -> Steps:
        """The log of a queue from an LSN on."""

    @abstractmethod
    def submit_and_forget(self, operation: Operation) -> None:
        """Hand in an operation whose answer nobody needs."""

    # ── pushing ──

    def record(self, message: object) -> Record:
        """A payload, or an `Outgoing` with more to say, as a record; raises when it may not be one."""
        return make_record(message, self.config.record_bytes_max)

    def records(self, messages: Sequence[object]) -> list[Record]:
        """Many at once, as records; plain payloads go together."""
        if {Outgoing, Raw}.isdisjoint(map(type, messages)):
            return list(map(Record, encode_payloads(messages, self.config.record_bytes_max)))
        return [self.record(message) for message in messages]

    def check_push(self, push: Push) -> None:
        """Raises when a push cannot be taken whatever the state of its queue is."""
        check_push(push, self.config)

    # ── popping and reporting ──

    async def pop(self, operation: Pop, wait_seconds: float = 0, done: Sequence[Message] = ()) -> list[Message]:
        """Lease the next messages; wait for some when there are none. Those that are `done` are acked on the way."""
        self.holdings.check_takes()
        if self.holdings.are_leaving:
            await self.holdings.settled()
        if not done:
            popped = await self.pop_batches(operation, wait_seconds)
        else:
            # Repeated with its key, the pop has been done, and so have they.
            reports = [
                structs.replace(report, key=report_key(operation.key, place))
                for place, report in enumerate(reports_of(done, Outcome.COMPLETED))
            ]
            popped = await self.pop_batches(operation, wait_seconds, reports)
            mark_reported(done, Outcome.COMPLETED)
        if not popped.batches:
            # Nothing is an answer of a queue that is empty, not of one that is being closed.
            self.holdings.check_takes()
            self.life.check()
        return messages_of(popped.batches, operation.database, self)

    def check_pop(self, operation: Pop) -> None:
        """Raises when a pop asks for what cannot be. A consumer asks for the same again and again."""
        if operation is not self._checked:
            check_pop(operation, self.config)
            self._checked = operation

    def check_wait(self, seconds: float) -> None:
        """Raises when a pop would wait for longer than it may."""
        if type(seconds) not in (int, float) or not 0 <= seconds <= self.config.wait_seconds_max:
            raise InvalidOption(f"wait must be 0 to {self.config.wait_seconds_max:g} seconds; got {seconds!r:.80}")

    async def report(self, messages: Iterable[Message], outcome: Outcome, error: str = "") -> None:
        """Say the same of some messages. Every lease is reported on; the first that is lost is raised at the end."""
        messages = list(messages)
        reports = reports_of(messages, outcome, error)
        try:
            await self.settle(reports)
        except QueueError:
            # The one lease is lost or the record was settled before: there is no more to say of it.
            if len(reports) == 1:
                mark_reported(messages, outcome)
            raise
        mark_reported(messages, outcome)

    async def extend(self, messages: Iterable[Message], seconds: float | None) -> None:
        """Keep the leases of some messages for longer."""
        if seconds is not None:
            check_seconds("seconds", seconds)
        batches = {id(message.batch): message for message in messages}
        await self.extend_leases([extension_of(message, seconds) for message in batches.values()])
