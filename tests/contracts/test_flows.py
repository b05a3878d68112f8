"""What flows of the pipeline keep: a source taken in once, what an archive has, rollups that add up."""

import pytest

from headwater.errors import FlowOvertaken, QueueFull, QueueMissing
from headwater.log.flow_operations import AddRollups, Load, Loaded, MarkArchived
from headwater.log.operations import DeleteQueue, Retain
from headwater.model.cursor import Outcome
from headwater.model.names import Lsn
from headwater.model.rollup import Rollup, RollupQuery
from headwater.stores.questions import FindArchived, FindRollupState, ListPositions, ListRollups
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, payloads, record


def load(begin: int, end: int, source: str = "file", **more: str) -> Load:
    """A stretch of a source whose records are their positions."""
    positions = range(begin, end)
    records = [record(position) for position in positions]
    return Load(queue=QUEUE, source=source, covers=((begin, end),), positions=positions, records=records, **more)


async def kept(log: Log) -> list[int]:
    return [payload for segment in await log.read() for payload in payloads(segment)]


# ── sources ──


async def test_a_stretch_of_a_source_is_loaded_once(log: Log) -> None:
    first: Loaded = await log.run(load(0, 3))
    again: Loaded = await log.run(load(0, 3))
    assert (first.count, first.skipped) == (3, 0)
    assert (again.count, again.skipped) == (0, 3)
    assert await kept(log) == [0, 1, 2]


async def test_only_the_new_part_of_a_stretch_is_loaded(log: Log, other: Log) -> None:
    await log.run(load(0, 3))
    await other.run(load(6, 8))
    assert (await log.run(load(1, 9))).count == 4
    assert await kept(log) == [0, 1, 2, 6, 7, 3, 4, 5, 8]


async def test_positions_that_were_left_out_are_covered_as_the_load_says(log: Log) -> None:
    covers = ((0, 6), (8, 10))
    sparse = Load(queue=QUEUE, source="file", covers=covers, positions=[2, 5], records=[record(2), record(5)])
    assert (await log.run(sparse)).count == 2
    assert (await log.run(load(0, 10))).count == 2
    assert await kept(log) == [2, 5, 6, 7]


async def test_sources_and_partitions_are_counted_apart(log: Log) -> None:
    await log.run(load(0, 2))
    assert (await log.run(load(0, 2, source="other file"))).count == 2
    assert (await log.run(load(0, 2, partition="north"))).count == 2


async def test_what_was_loaded_is_remembered_by_the_next_process(log: Log, other: Log) -> None:
    await log.run(load(0, 2))
    assert (await other.run(load(0, 2))).skipped == 2


async def test_a_queue_that_was_deleted_has_loaded_nothing(log: Log) -> None:
    await log.run(load(0, 2))
    await log.run(MarkArchived(queue=QUEUE, lsn=Lsn(1)))
    await log.run(DeleteQueue(queue=QUEUE))
    assert (await log.run(load(0, 2))).count == 2
    assert await log.store.ask(FindArchived("main", QUEUE)) == 0


async def test_a_full_queue_refuses_a_load_and_covers_nothing(log: Log) -> None:
    await log.configure(size_max=2)
    with pytest.raises(QueueFull):
        await log.run(load(0, 3))
    await log.configure(size_max=0)
    assert (await log.run(load(0, 3))).count == 3


async def test_a_load_wakes_a_group_that_was_caught_up(log: Log) -> None:
    await log.push("first")
    assert await log.drain() == ["first"]
    await log.run(load(0, 2))
    assert await log.drain() == [0, 1]


# ── archives ──


async def test_a_queue_keeps_what_no_archive_has(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60, archive_required=True)
    first = await log.push(1)
    await log.push(2)
    clock.advance(61)
    assert (await log.run(Retain())).records == 0
    await log.run(MarkArchived(queue=QUEUE, lsn=first.lsn))
    assert (await log.run(Retain())).records == 1
    assert await kept(log) == [2]


async def test_a_time_to_live_waits_for_the_archive_too(log: Log, clock: FakeClock) -> None:
    await log.configure(archive_required=True)
    pushed = await log.push(1, ttl_seconds=10)
    clock.advance(11)
    assert (await log.run(Retain())).records == 0
    await log.run(MarkArchived(queue=QUEUE, lsn=pushed.lsn))
    assert (await log.run(Retain())).records == 1


async def test_a_queue_that_needs_no_archive_drops_as_before(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1)
    clock.advance(61)
    assert (await log.run(Retain())).records == 1


async def test_the_mark_of_an_archive_never_falls(log: Log) -> None:
    await log.push(1)
    await log.run(MarkArchived(queue=QUEUE, lsn=Lsn(7)))
    assert (await log.run(MarkArchived(queue=QUEUE, lsn=Lsn(3)))).lsn == 7
    assert await log.store.ask(FindArchived("main", QUEUE)) == 7


async def test_a_queue_that_is_not_there_cannot_be_archived(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.run(MarkArchived(queue="nowhere", lsn=Lsn(1)))
    with pytest.raises(QueueMissing):
        await log.store.ask(FindArchived("main", "nowhere"))


# ── rollups ──


def rollup(bucket: int, pushed: int, **more: int | str) -> Rollup:
    return Rollup(queue=QUEUE, bucket=bucket, pushed=pushed, **more)  # type: ignore[arg-type]


async def test_rollups_of_the_same_bucket_are_added(log: Log) -> None:
    await log.run(AddRollups(number=0, state="one", rows=[rollup(60, 2), rollup(120, 1)]))
    await log.run(AddRollups(number=1, state="two", rows=[rollup(60, 3, lag_max=4), rollup(60, 1)]))
    found = await log.store.ask(ListRollups("main", RollupQuery()))
    assert [(row.bucket, row.pushed, row.lag_max) for row in found] == [(60, 6, 4), (120, 1, 0)]
    assert await log.store.ask(FindRollupState("main")) == (2, "two")


async def test_a_rollup_that_was_overtaken_changes_nothing(log: Log, other: Log) -> None:
    await log.run(AddRollups(number=0, state="one", rows=[rollup(60, 2)]))
    with pytest.raises(FlowOvertaken):
        await other.run(AddRollups(number=0, state="late", rows=[rollup(60, 2)]))
    assert [row.pushed for row in await other.store.ask(ListRollups("main", RollupQuery()))] == [2]
    assert await other.store.ask(FindRollupState("main")) == (1, "one")


async def test_rollups_are_asked_for_by_time_queue_and_resolution(log: Log) -> None:
    rows = [rollup(60, 1), rollup(120, 2), rollup(0, 3, resolution="hour"), Rollup(queue="mails", bucket=60)]
    await log.run(AddRollups(number=0, state="", rows=rows))
    assert [row.pushed for row in await log.store.ask(ListRollups("main", RollupQuery(resolution="hour")))] == [3]
    assert [row.bucket for row in await log.store.ask(ListRollups("main", RollupQuery(since=61, until=121)))] == [120]  # type: ignore[arg-type]
    assert [row.queue for row in await log.store.ask(ListRollups("main", RollupQuery(queue="mails")))] == ["mails"]
    assert await log.store.ask(ListRollups("elsewhere", RollupQuery())) == []


async def test_positions_of_groups_are_told(log: Log) -> None:
    await log.push(1, 2, 3)
    await log.ack(await log.take(2, group="billing"))
    (position,) = await log.store.ask(ListPositions("main"))
    assert (position.queue, position.group, position.position, position.since) == (QUEUE, "billing", 2, 0)


async def test_retries_and_dead_letters_of_a_group_are_counted(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=1, retry_delay_seconds=0)
    await log.push(1, 2)
    await log.settle(await log.take(2), Outcome.FAILED)
    assert (await log.group()).retried == 0
    await log.settle(await log.take(2), Outcome.FAILED)
    status = await log.group()
    assert (status.retried, status.buried) == (2, 2)


async def test_what_is_dropped_without_dead_letters_is_counted(log: Log) -> None:
    await log.configure(retry_limit=0, dead_letters=False)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    assert (await log.group()).buried == 1
