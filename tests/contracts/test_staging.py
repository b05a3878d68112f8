"""Parts of a large commit, kept until they are committed together: whole or not at all, bounded, and not for ever."""

import pytest

from headwater.errors import Overloaded, TooLarge
from headwater.log.flow_operations import Stage, Staged, Unstage
from headwater.log.operations import Deleted
from headwater.stores.questions import ListStaged
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log

A, B = "a" * 32, "b" * 32


def part(number: int, body: bytes = b"x", upload: str = A, size: int = 10, database: str = "main") -> Stage:
    return Stage(database=database, upload=upload, part=number, size=size, body=body)


async def test_parts_come_back_in_their_order_whoever_took_them(log: Log, other: Log) -> None:
    await log.run(part(1, b"second"))
    await other.run(part(0, b"first"))
    await log.run(part(2, b"third", upload=B))
    assert await log.store.ask(ListStaged("main", A)) == [b"first", b"second"]
    # The first part of B never came.
    assert await other.store.ask(ListStaged("main", B)) == []


async def test_a_part_that_comes_again_takes_its_own_place(log: Log) -> None:
    assert await log.run(part(0, b"one")) == Staged(10)
    assert await log.run(part(0, b"one")) == Staged(10)
    assert await log.run(part(1, b"two")) == Staged(20)
    assert await log.store.ask(ListStaged("main", A)) == [b"one", b"two"]


async def test_an_upload_is_dropped_when_it_is_not_needed_any_more(log: Log) -> None:
    await log.run(part(0))
    await log.run(part(1))
    await log.run(part(0, upload=B))
    assert await log.run(Unstage(upload=A)) == Deleted(2)
    assert await log.run(Unstage(upload=A)) == Deleted(0)
    assert await log.store.ask(ListStaged("main", A)) == []
    assert await log.store.ask(ListStaged("main", B)) == [b"x"]


async def test_tenants_do_not_see_or_drop_each_others_uploads(log: Log) -> None:
    await log.run(part(0, b"theirs", database="acme"))
    assert await log.store.ask(ListStaged("main", A)) == []
    assert await log.run(Unstage(upload=A)) == Deleted(0)
    assert await log.store.ask(ListStaged("acme", A)) == [b"theirs"]


async def test_an_upload_has_a_bound_and_all_of_them_have_one(open_log: OpenLog) -> None:
    log = await open_log(staged_bytes_max=100)
    await log.run(part(0, size=90))
    with pytest.raises(TooLarge, match=r"100 bytes.*maxOffsetsPerTrigger.*staged_bytes_max"):
        await log.run(part(1, size=11))
    for number in range(3):
        await log.run(part(0, upload=f"{number}" * 32, size=100))
    with pytest.raises(Overloaded, match="other large commits"):
        await log.run(part(0, upload=B, size=20))
    await log.run(part(0, upload=B, size=20, database="acme"))
    await log.run(Unstage(upload=A))
    await log.run(part(0, upload=B, size=20))


async def test_what_nobody_committed_is_dropped_after_an_hour(log: Log, clock: FakeClock) -> None:
    await log.run(part(0))
    clock.advance(3_599)
    await log.run(part(0, upload=B))
    assert await log.store.ask(ListStaged("main", A)) == [b"x"]
    clock.advance(2)
    await log.run(part(0, upload="c" * 32))
    assert await log.store.ask(ListStaged("main", A)) == []
    assert await log.store.ask(ListStaged("main", B)) == [b"x"]
