"""A registry of waiting pops whose pops the test answers, one by one."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from headwater.clock import Timestamp
from headwater.config import Durability
from headwater.errors import HeadwaterError
from headwater.log.committer import CommittedResult
from headwater.log.operations import Batch, Pop, Popped, Touch
from headwater.log.tail import Tail
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.record import Record
from headwater.services.follow import Followers
from headwater.services.intentions import Intentions
from headwater.stores.contract import Store
from headwater.stores.questions import ListReady
from tests.contracts.clock import FakeClock

LONG = 60.0


class Desk:
    """`calls` are the pops that were asked for together; `answer` answers the oldest of them that waits."""

    def __init__(self, waiters_max: int = 10_000) -> None:
        self.clock = FakeClock()
        self.calls: list[list[Pop]] = []
        self.returned: list[Any] = []
        self.refusal: HeadwaterError | None = None
        self.ready_groups: list[tuple[str, str, str]] = []
        self.questions = 0
        self._open: list[list[asyncio.Future[CommittedResult]]] = []
        store = cast(Store, self)
        self.followers = Followers(store, Tail(store))
        self.intentions = Intentions(self._pop, self.returned.append, store, self.followers, self.clock, waiters_max)

    def _pop(self, pops: Sequence[Pop]) -> list[asyncio.Future[CommittedResult]]:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append(list(pops))
        answers = [asyncio.get_running_loop().create_future() for _ in pops]
        self._open.append(answers)
        return answers

    async def ask(self, question: ListReady) -> list[tuple[str, str, str]]:
        """What the store would say of groups."""
        self.questions += 1
        return [names for names in question.groups if names in self.ready_groups]

    def access_version(self) -> int:
        """Nobody's rights change here."""
        return 0

    def wait(self, seconds: float = LONG, *, queue: str = "orders", **selection: Any) -> asyncio.Task[Popped]:
        """A pop that waits."""
        operation = Pop(queue=queue, **selection)
        return asyncio.get_running_loop().create_task(self.intentions.wait(operation, seconds))

    async def answer(self, *found: Popped | HeadwaterError) -> None:
        """Answer the pops that were asked for together: these first, the others with nothing."""
        await self.turn()
        answers = self._open.pop(0)
        for place, future in enumerate(answers):
            one = found[place] if place < len(found) else Popped()
            if isinstance(one, HeadwaterError):
                future.set_exception(one)
            else:
                future.set_result(CommittedResult(one, Durability.SYNCED))
        await self.turn()

    async def answer_with_nothing(self) -> None:
        """Until no pop is under way: nothing is there."""
        await self.turn()
        while self._open:
            await self.answer()

    def touch(self, queue: str = "orders", partition: str = "Default", namespace: str = "", task: str = "") -> None:
        """A segment was added."""
        lane = Lane("main", queue, namespace, task, partition)
        tail = self.followers.tail
        tail.position = Lsn(tail.position + 1)
        self.followers.touched([Touch(tail.position, PartitionId(1), Offset(0), 1, lane)])

    @staticmethod
    async def turn() -> None:
        """Let everything happen that waits for nobody."""
        for _ in range(10):
            await asyncio.sleep(0)


def found(*offsets: int, token: int = 7) -> Popped:
    """A pop's answer with one batch."""
    record = Record(msgspec.Raw(b"1"))
    batch = Batch(
        queue="orders",
        partition="Default",
        partition_id=PartitionId(1),
        group="g",
        token=token,
        lease_until=Timestamp(0),
        attempts=1,
        offsets=[Offset(offset) for offset in offsets],
        written_at=[Timestamp(0)] * len(offsets),
        lsns=[Lsn(1)] * len(offsets),
        records=[record] * len(offsets),
    )
    return Popped([batch])
