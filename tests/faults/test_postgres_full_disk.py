"""A server whose disk is full: who pushes is told, nothing that was answered is lost, and with room it goes on."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.config import load_config
from headwater.errors import StoreError
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, push, until_durable
from tests.faults.small_disk import fill, mounted
from tests.postgres_server import Server

DISK_MIB = 160
PAYLOAD_BYTES = 200_000
PUSHES_MAX = 400


@pytest.fixture
def disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hwpg-disk-") as folder:
        os.chmod(folder, 0o755)
        with mounted(Path(folder), DISK_MIB) as found:
            if found is None:
                pytest.skip("nothing may be mounted here, so there is no small disk")
            yield found


async def test_a_disk_that_is_full_is_told_and_loses_nothing_that_was_answered(disk: Path) -> None:
    server = Server(disk=disk, max_wal_size="48MB", min_wal_size="32MB")
    store = open_store(server.address("shop"), load_config({}), FakeClock())
    try:
        await store.open()
        log = Log(store, FakeClock())
        await push_one(log, 0)
        filler = fill(disk)
        answered = [0]
        error: StoreError | None = None
        for number in range(1, PUSHES_MAX):
            try:
                await push_one(log, number)
            except StoreError as refused:
                error = refused
                break
            answered.append(number)
        assert error is not None, "the disk never was full"
        filler.unlink()
        if not await asyncio.to_thread(has_settled, server):
            server.crash()
            server.start()
        await until_answered(log, number)
        found = [payload["number"] for segment in await log.read() for payload in payloads(segment)]
        assert found == [*answered, number]
        await store.close()
    finally:
        server.stop()


async def push_one(log: Log, number: int) -> None:
    """It is answered when the disk has it; one that nobody knows of can be repeated."""
    message = {"number": number, "padding": Random(number).randbytes(PAYLOAD_BYTES // 2).hex()}
    await log.run(push(message, key=f"push-{number}"))
    await until_durable(log.store, 1)


async def until_answered(log: Log, number: int) -> None:
    """Whoever was refused tries again, with the same key."""
    for _ in range(100):
        try:
            await log.store.recover()
            await push_one(log, number)
        except StoreError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("the store does not go on with room on the disk")


def has_settled(server: Server) -> bool:
    """Whether it still answers: a server that cannot write its own log ends, and has to be started by its operator."""
    try:
        server.connect().close()
    except Exception:
        return False
    return server.runs
