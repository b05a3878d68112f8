"""A commit that the disk refuses, or a transaction that is undone: nothing of it lives on in the store's memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from headwater import errors
from headwater.config import Config
from headwater.log import operations as op
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId
from headwater.model.record import Record
from headwater.stores.sqlite.shared_file import SharedFile
from headwater.stores.sqlite.store import SqliteStore
from tests.faults.bent_clock import START, BentClock
from tests.faults.simulated_disk import NoBarrier
from tests.faults.tables import dump, find_damage, find_faults


class RefusingDisk(apsw.VFS):
    """A disk that can be told to refuse what is written to the log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refuses: type[apsw.Error] | None = None
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file that asks before it writes."""
        return _RefusingFile(self, name, flags)


class _RefusingFile(apsw.VFSFile):
    def __init__(self, disk: RefusingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write, or say no."""
        if self._disk.refuses is not None:
            raise self._disk.refuses("the disk says no")
        super().xWrite(data, offset)


class Scene:
    """A store on a disk that may refuse."""

    def __init__(self, store: SqliteStore, disk: RefusingDisk) -> None:
        self.store = store
        self.disk = disk
        self.clock = BentClock(START)

    async def apply(self, *operations: op.Operation) -> list[Any]:
        """One commit; what each operation came to."""
        return (await self.store.apply(operations, self.clock.now())).results

    async def refuse(self, *operations: op.Operation) -> None:
        """A commit that the disk does not take, not even the second time: once more than the store expects."""
        self.disk.refuses = apsw.FullError
        try:
            for _ in range(2):
                with pytest.raises(errors.StoreFull):
                    await self.apply(*operations)
        finally:
            self.disk.refuses = None

    async def payloads(self, pop: op.Pop) -> list[Any]:
        """What a pop gets."""
        (popped,) = await self.apply(pop)
        return [msgspec.json.decode(record.data) for batch in popped.batches for record in batch.records]


@pytest.fixture
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """A fresh store."""
    disk = RefusingDisk(f"refusing-{folder.name}")
    medium = SharedFile(str(folder / "store.db"), Config(), vfs=disk.name, barrier=lambda _: NoBarrier())
    store = SqliteStore(medium, Config())
    await store.open()
    yield Scene(store, disk)
    await store.close()


def push(payload: Any, *, queue: str = "orders", partition: str = "a", identity: str = "") -> op.Push:
    """A push of one record."""
    record = Record(data=msgspec.Raw(msgspec.json.encode(payload)), transaction_id=identity)
    return op.Push(queue=queue, partition=partition, records=(record,))


LOST_LEASE = op.Ack(partition_id=PartitionId(1), group="billing", token=12345)
POP = op.Pop(queue="orders", group="billing", batch=10)


async def test_a_refused_push_leaves_its_place_to_the_next_one(scene: Scene) -> None:
    await scene.apply(push("first"))
    await scene.refuse(push("refused"), POP)
    (pushed,) = await scene.apply(push("second"))
    assert pushed.first_offset == 1
    assert await scene.payloads(POP) == ["first", "second"]


async def test_a_refused_first_push_leaves_no_queue_behind(scene: Scene) -> None:
    await scene.refuse(push("refused"), POP)
    assert dump(scene.store._connection)["hw_queues"] == []
    await scene.apply(push("other", queue="mails"))
    await scene.apply(push("kept"))
    assert await scene.payloads(POP) == ["kept"]


async def test_a_group_that_was_refused_meets_its_partitions_the_next_time(scene: Scene) -> None:
    await scene.apply(push("first"))
    await scene.refuse(POP)
    assert await scene.payloads(POP) == ["first"]


async def test_a_group_meets_a_partition_whose_first_meeting_was_refused(scene: Scene) -> None:
    await scene.apply(push("first"))
    assert await scene.payloads(POP) == ["first"]
    await scene.apply(push("second", partition="b"))
    await scene.refuse(POP)
    assert await scene.payloads(POP) == ["second"]


async def test_a_refused_push_is_no_duplicate_of_itself(scene: Scene) -> None:
    await scene.apply(push("first", identity="one"))
    await scene.refuse(push("second", identity="two"))
    (pushed,) = await scene.apply(push("second", identity="two"))
    assert not pushed.duplicates
    (again,) = await scene.apply(push("first", identity="one"))
    assert again.duplicates == {0: 0}


async def test_a_refused_key_is_free_again(scene: Scene) -> None:
    keyed = msgspec.structs.replace(push("first"), key="once")
    await scene.refuse(keyed)
    (pushed,) = await scene.apply(keyed)
    (again,) = await scene.apply(keyed)
    assert (pushed.first_offset, again.first_offset) == (0, 0)
    assert await scene.payloads(POP) == ["first"]


async def test_a_refused_ack_can_be_given_again(scene: Scene) -> None:
    await scene.apply(push("first"), push("second"))
    (popped,) = await scene.apply(POP)
    batch = popped.batches[0]
    ack = op.Ack(partition_id=batch.partition_id, group="billing", token=batch.token, offsets=batch.offsets)
    await scene.refuse(ack)
    (acked,) = await scene.apply(ack)
    assert acked.lease_ended


async def test_a_refused_push_still_wakes_the_idle_group_the_next_time(scene: Scene) -> None:
    await scene.apply(push("first"))
    assert await scene.payloads(msgspec.structs.replace(POP, auto_ack=True)) == ["first"]
    await scene.refuse(push("refused"))
    await scene.apply(push("second"))
    assert await scene.payloads(POP) == ["second"]


async def test_refused_options_are_not_in_force(scene: Scene) -> None:
    await scene.apply(push("first"))
    await scene.refuse(op.Configure(queue="orders", options={"lease_seconds": 5}))
    (popped,) = await scene.apply(POP)
    assert popped.batches[0].lease_until == START + 300_000_000


async def test_a_refused_delete_leaves_the_queue(scene: Scene) -> None:
    await scene.apply(push("first"))
    await scene.refuse(op.DeleteQueue(queue="orders"))
    assert await scene.payloads(POP) == ["first"]


async def test_records_of_an_undone_transaction_are_never_delivered(scene: Scene) -> None:
    """A repeated id makes the store read the segment it has just written; undone, its LSN goes to another segment."""
    await scene.apply(push("first", identity="one"))
    steps = [push("ghost", identity="two"), push("ghost", identity="two"), LOST_LEASE]
    (undone,) = await scene.apply(op.Transaction(operations=steps))
    assert isinstance(undone, errors.HeadwaterError)
    await scene.apply(push("second"))
    assert await scene.payloads(POP) == ["first", "second"]


async def test_a_group_made_in_an_undone_transaction_meets_its_partitions_later(scene: Scene) -> None:
    await scene.apply(push("first"))
    (undone,) = await scene.apply(op.Transaction(operations=[POP, LOST_LEASE]))
    assert isinstance(undone, errors.HeadwaterError)
    assert await scene.payloads(POP) == ["first"]


async def test_an_undone_transaction_leaves_its_neighbours_in_the_commit(scene: Scene) -> None:
    before, undone, after = await scene.apply(
        push("before"), op.Transaction(operations=[push("ghost"), LOST_LEASE]), push("after", partition="b")
    )
    assert isinstance(undone, errors.HeadwaterError)
    assert isinstance(before, op.Pushed)
    assert isinstance(after, op.Pushed)
    assert sorted(await scene.payloads(msgspec.structs.replace(POP, partitions=5))) == ["after", "before"]


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError])
async def test_after_refusals_of_every_kind_the_file_keeps_the_rules(scene: Scene, error: type[apsw.Error]) -> None:
    await scene.apply(*(push(number, identity=f"id-{number}") for number in range(10)))
    (popped,) = await scene.apply(POP)
    batch = popped.batches[0]
    outcomes: dict[int | str, Outcome] = dict.fromkeys(batch.offsets, Outcome.FAILED)
    report = op.Ack(partition_id=batch.partition_id, group="billing", token=batch.token, outcomes=outcomes)
    for operation in (push("x"), report, POP, op.Retain(), op.Seek(queue="orders", group="billing", to="beginning")):
        scene.disk.refuses = error
        if error is apsw.FullError and isinstance(operation, op.Retain):
            # What makes room is done on a full disk; what comes with it is refused by itself.
            assert isinstance((await scene.apply(operation, push("beside")))[1], errors.StoreFull)
        else:
            with pytest.raises(errors.StoreError):
                await scene.apply(operation, push("beside"))
        scene.disk.refuses = None
        assert find_damage(scene.store._connection) == []
        assert find_faults(scene.store._connection) == []
        assert not isinstance((await scene.apply(operation))[0], Exception)
