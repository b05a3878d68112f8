"""Which store it is, and whether a place in its log is still the same place: what a checkpoint can rely on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headwater.config import load_config
from headwater.errors import StoreReplaced
from headwater.log.operations import DeleteQueue, Pop, Retain, Transaction
from headwater.log.store_operations import Identified, RenewIdentity
from headwater.model.names import Lsn
from headwater.stores.log_reader import Fingerprint, LogReader
from headwater.stores.open import open_reader, open_store
from headwater.stores.questions import FindIdentity
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.factories import another
from tests.contracts.log import Log, push


@asynccontextmanager
async def reading(address: str) -> AsyncIterator[LogReader]:
    reader = open_reader(address, load_config({}))
    await reader.open()
    try:
        yield reader
    finally:
        await reader.close()


async def reopened_identity(address: str) -> str:
    store = open_store(address, load_config({}), FakeClock())
    await store.open()
    try:
        return await store.ask(FindIdentity())
    finally:
        await store.close()


async def fingerprint_of(reader: LogReader, lsn: int) -> Fingerprint:
    found = await reader.fingerprint(Lsn(lsn))
    assert found is not None
    return found


async def test_a_store_keeps_its_identity_for_every_handle_and_every_start(log: Log, other: Log, address: str) -> None:
    identity = await log.store.ask(FindIdentity())
    assert UUID(identity).version == 4
    await log.push(1)
    assert await other.store.ask(FindIdentity()) == identity
    assert await reopened_identity(address) == identity
    async with reading(address) as reader:
        assert await reader.identity() == identity


async def test_processes_that_make_a_store_together_agree_on_its_identity(address: str) -> None:
    assert len(set(await asyncio.gather(*(reopened_identity(address) for _ in range(4))))) == 1


async def test_two_stores_have_two_identities(log: Log, address: str) -> None:
    assert await reopened_identity(another(address)) != await log.store.ask(FindIdentity())


async def test_a_new_identity_is_answered_and_kept(log: Log, address: str) -> None:
    before = await log.store.ask(FindIdentity())
    renewed: Identified = await log.run(RenewIdentity())
    assert renewed.before == before != renewed.identity
    await log.push("the handle that renewed it goes on")
    assert await log.store.ask(FindIdentity()) == await reopened_identity(address) == renewed.identity


async def test_a_renewal_that_is_undone_leaves_the_identity(log: Log) -> None:
    before = await log.store.ask(FindIdentity())
    refused = Transaction(operations=[RenewIdentity(), DeleteQueue(queue="none"), Pop(queue=""), refusal()])
    with pytest.raises(Exception, match="another one"):
        await log.run(refused)
    assert await log.store.ask(FindIdentity()) == before
    await log.push(1)


def refusal() -> Transaction:
    """What no transaction may hold."""
    return Transaction(operations=[])


async def test_handles_of_before_are_told_that_the_store_was_restored(log: Log, other: Log, open_log: OpenLog) -> None:
    await other.push("before")
    await log.run(RenewIdentity())
    for _ in range(2):
        with pytest.raises(StoreReplaced, match="open the store again"):
            await other.push("after")
    with pytest.raises(StoreReplaced):
        await other.store.touched(Lsn(0), 10)
    fresh = await open_log()
    assert await fresh.drain() == ["before"]


async def test_a_queue_that_is_made_again_has_another_number(log: Log, address: str) -> None:
    await log.commit(push(1, queue="a"), push(2, queue="b"))
    async with reading(address) as reader:
        before = await reader.queue_numbers("main")
        assert set(before) == {"a", "b"}
        await log.run(DeleteQueue(queue="a"))
        assert await reader.queue_numbers("main") == {"b": before["b"]}
        await log.push(3, queue="a")
        after = await reader.queue_numbers("main")
        assert after["b"] == before["b"]
        assert after["a"] not in before.values()
        assert await reader.queue_numbers("another") == {}


async def test_a_place_in_the_log_is_known_again(log: Log, address: str) -> None:
    async with reading(address) as reader:
        assert await reader.fingerprint(Lsn(10)) is None
        for value in range(3):
            await log.push(value)
        marks = [await fingerprint_of(reader, lsn) for lsn in (1, 2, 3)]
        assert [seen.lsn for seen in marks] == [1, 2, 3]
        assert len({seen.mark for seen in marks}) == 3
        assert await fingerprint_of(reader, 99) == marks[2]
        await log.push("more")
        assert [await reader.remembers(seen) for seen in marks] == [True, True, True]


async def test_a_place_that_retention_took_is_neither_known_nor_denied(
    log: Log, address: str, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=10)
    await log.push(1)
    async with reading(address) as reader:
        seen = await fingerprint_of(reader, 1)
        clock.advance(60)
        await log.push(2)
        await log.run(Retain())
        assert await reader.fingerprint(Lsn(1)) is None
        assert await reader.remembers(seen) is None


async def test_a_place_of_the_future_is_of_another_log(log: Log, address: str) -> None:
    await log.push(1)
    async with reading(address) as reader:
        seen = await fingerprint_of(reader, 1)
        assert await reader.remembers(Fingerprint(Lsn(2), seen.mark)) is False


async def test_the_same_pushes_after_a_backup_was_put_back_are_another_history(tmp_path: Path) -> None:
    """The same LSNs, offsets, payloads and even times: only who wrote them differs."""
    place, backup = tmp_path / "a.db", tmp_path / "backup.db"
    await written(place, "one")
    shutil.copy(place, backup)
    first = await written(place, "two")
    shutil.copy(backup, place)
    async with reading(str(place)) as reader:
        assert await reader.remembers(first) is False
    again = await written(place, "two")
    assert (again.lsn, first.lsn) == (2, 2)
    async with reading(str(place)) as reader:
        assert await reader.remembers(first) is False
        assert await reader.remembers(again) is True
        assert await reader.remembers(await fingerprint_of(reader, 1)) is True


async def written(place: Path, value: str) -> Fingerprint:
    """Push through a store of its own, closed again; where the log then ends."""
    clock = FakeClock()
    store = open_store(str(place), load_config({}), clock)
    await store.open()
    await Log(store, clock).push(value)
    await store.close()
    async with reading(str(place)) as reader:
        return await fingerprint_of(reader, 99)
