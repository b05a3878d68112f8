"""A store that does what the test says: when commits go through, when the disk is done, what it refuses."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError, QueueFull
from headwater.log.operations import Commit, Operation, Push, Touch
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.stores.contract import Store, Traits
from headwater.stores.questions import FindLastLsn

LANE = Lane("main", "orders", "", "", "Default")


def touch(lsn: int) -> Touch:
    """A segment with this LSN."""
    return Touch(Lsn(lsn), PartitionId(1), Offset(lsn), 1, LANE)


def commit_of(*lsns: int) -> Commit:
    """A commit that added these segments."""
    return Commit([], [touch(lsn) for lsn in lsns], wrote=True)


class FakeStore:
    """As much of a store as the committer and the tail use. `history` tells what was asked of it, in order."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.commits: list[list[Operation]] = []
        self.barriers: list[asyncio.Future[None]] = []
        self.callers: list[int] = []
        self.free = asyncio.Event()
        self.free.set()
        self.error: Exception | None = None
        # What a commit that holds a push to this queue breaks with.
        self.broken: dict[str, Exception] = {}
        self.recover_error: Exception | None = None
        self.lost: HeadwaterError | None = None
        self.wrote = True
        self.quick_disk = False
        # Where another may take the store over.
        self.landings: list[asyncio.Future[None]] | None = None
        self.traits = Traits("fake", "nowhere", "none", several_machines=False, durable_by="the test")
        # For the tail.
        self.segments: list[Touch] = []
        self.changed = False
        self.looks: list[int] = []
        self.answers_at_once = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.last_seen: Lsn | None = None

    def as_store(self) -> Store:
        """Itself, as what it stands for."""
        return cast(Store, self)

    # ── committing ──

    def apply_now(self, operations: Sequence[Operation], now: Timestamp) -> Commit | None:
        return self._apply(operations) if self.free.is_set() else None

    async def apply(self, operations: Sequence[Operation], now: Timestamp) -> Commit:
        await self.free.wait()
        return self._apply(operations)

    def _apply(self, operations: Sequence[Operation]) -> Commit:
        self.history.append("apply")
        if self.error is not None:
            raise self.error
        for asked in operations:
            if isinstance(asked, Push) and asked.queue in self.broken:
                raise self.broken[asked.queue]
        self.commits.append(list(operations))
        return Commit([_result(operation) for operation in operations], [], self.wrote)

    def make_durable(self, callers: int) -> asyncio.Future[None]:
        self.history.append("make_durable")
        self.callers.append(callers)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.quick_disk:
            done.set_result(None)
        self.barriers.append(done)
        return done

    def landed(self) -> asyncio.Future[None] | None:
        if self.lost is not None:
            raise self.lost
        if self.landings is None:
            return None
        self.history.append("landed")
        self.landings.append(asyncio.get_running_loop().create_future())
        return self.landings[-1]

    async def recover(self) -> None:
        self.history.append("recover")
        if self.recover_error is not None:
            raise self.recover_error

    # ── following ──

    async def ask(self, question: FindLastLsn) -> Lsn:
        last = self.segments[-1].lsn if self.segments else Lsn(0)
        await self.may_answer.wait()
        return last

    def touched_now(self, after: Lsn, limit: int) -> list[Touch] | None:
        return self._touched(after, limit) if self.answers_at_once else None

    async def touched(self, after: Lsn, limit: int) -> list[Touch]:
        found = self._touched(after, limit)
        await self.may_answer.wait()
        return found

    def _touched(self, after: Lsn, limit: int) -> list[Touch]:
        self.looks.append(after)
        if self.error is not None:
            raise self.error
        return [segment for segment in self.segments if segment.lsn > after][:limit]


def operation(name: str = "orders") -> Operation:
    """An operation; the queue `full` refuses it."""
    return Push(queue=name, records=())


def _result(asked: Operation) -> Any:
    name = asked.queue if isinstance(asked, Push) else ""
    refused: HeadwaterError | None = QueueFull("no room") if name == "full" else None
    return refused or f"done: {name}"
