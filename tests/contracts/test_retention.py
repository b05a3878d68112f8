"""Dropping what is old: by age, by age after every group has passed, or by a record's own time to live."""

from typing import Any

import pytest

from headwater.log.operations import Forget, Retain, Retained, Trace
from headwater.model.cursor import Outcome
from headwater.model.names import Lsn, PartitionId
from headwater.stores.questions import FindLastLsn, ListDeadLetters, ListGroups, ListTraces
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, push, report


async def retain(log: Log) -> Retained:
    """A whole round."""
    retained: Retained = await log.run(Retain())
    assert retained.after == 0
    return retained


async def test_records_are_dropped_at_the_age_of_the_queue(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    clock.advance(30)
    await log.push(3)
    clock.advance(29)
    assert (await retain(log)).records == 0
    clock.advance(1)
    retained = await retain(log)
    assert (retained.segments, retained.records) == (1, 2)
    assert (await log.queue()).records == 1
    assert await log.drain() == [3]


async def test_the_rest_of_a_segment_that_was_dropped_meanwhile_is_told_as_lost(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2, 3)
    await log.ack(await log.take(1))
    clock.advance(60)
    assert (await retain(log)).records == 3
    await log.push(4)
    batch = await log.take(10)
    assert (payloads(batch), batch.lost) == ([4], 2)


async def test_a_group_that_lost_all_that_waited_for_it_shows_it_before_anybody_pushes(
    log: Log, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=60)
    await log.push(0)
    await log.ack(await log.take(1))
    await log.push(*range(1, 11))
    held = await log.take(3)
    clock.advance(60)
    assert (await retain(log)).records == 11
    group = await log.group()
    assert (group.lag, group.lost) == (0, 7), "what is worked on was read"
    await log.ack(held)
    assert (await log.group()).lost == 7
    assert await log.pop() == []
    assert (await log.group()).lost == 7
    await log.push("new")
    batch = await log.take(10)
    assert (payloads(batch), batch.lost, (await log.group()).lost) == (["new"], 7, 7)


@pytest.mark.parametrize("retry_limit", [0, 3])
async def test_what_was_dropped_while_it_was_worked_on_and_fails_for_good_is_counted_as_lost(
    log: Log, clock: FakeClock, retry_limit: int
) -> None:
    await log.configure(retention_seconds=60, retry_limit=retry_limit)
    await log.push(1, 2)
    batch = await log.take(2)
    clock.advance(60)
    assert (await retain(log)).records == 2
    outcome = Outcome.DEAD if retry_limit else Outcome.FAILED
    await log.run(report(batch, {0: outcome, 1: outcome}))
    assert await log.store.ask(ListDeadLetters("main", "orders", 10)) == []
    [group] = await log.store.ask(ListGroups("main"))
    assert group.lost == 2


async def test_nothing_is_dropped_by_age_by_default(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    clock.advance(3_650 * 86_400)
    assert (await retain(log)).records == 0


async def test_records_are_dropped_some_time_after_every_group_has_passed(log: Log, clock: FakeClock) -> None:
    await log.configure(completed_retention_seconds=60)
    await log.push(1)
    await log.push(2)
    await log.drain(group="fast")
    slow = await log.take(group="slow")
    clock.advance(60)
    assert (await retain(log)).records == 0
    await log.ack(slow)
    assert (await retain(log)).records == 1
    await log.drain(group="slow")
    assert (await retain(log)).records == 1


async def test_passed_records_are_kept_until_their_time(log: Log, clock: FakeClock) -> None:
    await log.configure(completed_retention_seconds=60)
    await log.push(1)
    await log.drain()
    clock.advance(59)
    assert (await retain(log)).records == 0
    clock.advance(1)
    assert (await retain(log)).records == 1


async def test_a_group_that_has_not_met_a_partition_holds_its_records(log: Log, clock: FakeClock) -> None:
    await log.configure(completed_retention_seconds=60)
    await log.push(1)
    await log.pop(group="slow")
    await log.push(2, partition="new")
    assert sorted(await log.drain(group="fast")) == [1, 2]
    clock.advance(61)
    assert (await retain(log)).records == 0
    assert 2 in await log.drain(group="slow")


async def test_records_that_nobody_ever_read_are_not_completed(log: Log, clock: FakeClock) -> None:
    await log.configure(completed_retention_seconds=60)
    await log.push(1)
    clock.advance(61)
    assert (await retain(log)).records == 0


async def test_passed_records_are_kept_for_ever_when_the_queue_says_so(log: Log, clock: FakeClock) -> None:
    await log.configure(completed_retention_seconds=0)
    await log.push(1)
    await log.drain()
    clock.advance(3_650 * 86_400)
    assert (await retain(log)).records == 0


# ── time to live ──


async def test_records_with_a_time_to_live_are_dropped_after_it(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2, ttl_seconds=10)
    clock.advance(9.999)
    assert (await retain(log)).records == 0
    clock.advance(0.001)
    assert (await retain(log)).records == 2
    assert await log.drain() == []


async def test_a_record_without_a_time_to_live_survives_one_behind_it(log: Log, clock: FakeClock) -> None:
    await log.push("for ever")
    await log.push("short", ttl_seconds=10)
    clock.advance(11)
    await retain(log)
    assert "for ever" in await log.drain()


async def test_a_time_to_live_drops_a_record_in_front_of_others(log: Log, clock: FakeClock) -> None:
    await log.push("short", ttl_seconds=10)
    await log.push("for ever")
    clock.advance(11)
    assert (await retain(log)).records == 1
    assert await log.drain() == ["for ever"]


# ── what readers are told ──


async def test_a_group_whose_position_was_dropped_is_told(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(*range(4))
    await log.ack(await log.take(1))
    clock.advance(60)
    await retain(log)
    await log.push("new")
    batch = await log.take(10)
    assert (payloads(batch), batch.lost) == (["new"], 3)
    assert (await log.group()).lost == 3
    await log.ack(batch)
    await log.push("newer")
    assert (await log.take(10)).lost == 0


async def test_a_new_group_has_lost_nothing(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    clock.advance(60)
    await retain(log)
    await log.push(3)
    batch = await log.take(group="fresh")
    assert (batch.offsets, batch.lost) == ([2], 0)


@pytest.mark.parametrize("subscribe", ["all", "new"])
async def test_what_a_group_loses_in_partitions_that_it_has_not_met_is_told(
    log: Log, clock: FakeClock, subscribe: str
) -> None:
    await log.configure(retention_seconds=60)
    await log.push("before", partition="known")
    assert await log.pop(group="g", subscribe=subscribe) or subscribe == "new"
    await log.push(*range(5), partition="later")
    assert (await log.group("g")).lost == 0
    clock.advance(61)
    await retain(log)
    status = await log.group("g")
    assert (status.lag, status.lost) == (0, 5)
    await log.push("new", partition="later")
    batch = await log.take(10, group="g", partition="later")
    assert (payloads(batch), batch.offsets, batch.lost) == (["new"], [5], 5)
    await log.ack(batch)
    assert (await log.group("g")).lost == 5


async def test_partitions_that_were_met_before_records_went_are_not_met_again(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push("before", partition="known")
    await log.ack(await log.take(group="g"))
    for number in range(30):
        await log.push(number, partition=f"later-{number}")
    clock.advance(61)
    await retain(log)
    for number in range(30, 60):
        await log.push(number, partition=f"later-{number % 40}")
    found: list[int] = []
    while batches := await log.pop(100, group="g"):
        for batch in batches:
            found += payloads(batch)
            await log.ack(batch)
    assert sorted(found) == list(range(30, 60))
    assert (await log.group("g")).lost == 30


async def test_a_loss_is_told_though_the_next_records_are_delayed(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60, delay_seconds=10)
    await log.push(1, 2)
    assert await log.pop() == []
    clock.advance(61)
    await retain(log)
    await log.push(3)
    assert await log.pop() == []
    clock.advance(10)
    assert (await log.take()).lost == 2


async def test_records_behind_a_lost_lease_begin_their_count_anew(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2, 3)
    await log.take(3, lease_seconds=10)
    clock.advance(61)
    await retain(log)
    await log.push(4, 5)
    batch = await log.take(10)
    assert (payloads(batch), batch.attempts, batch.lost) == ([4, 5], 1, 3)


async def test_a_lease_on_dropped_records_can_still_be_acked(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    batch = await log.take(2)
    clock.advance(61)
    await retain(log)
    await log.push(3)
    assert (await log.ack(batch)).lease_ended
    assert await log.drain() == [3]


async def test_part_of_a_suspect_range_may_be_dropped(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2)
    clock.advance(30)
    await log.push(3)
    await log.take(3, lease_seconds=10)
    clock.advance(30)
    await retain(log)
    batch = await log.take(3)
    assert (payloads(batch), batch.lost) == ([3], 2)
    await log.ack(batch)
    assert await log.drain() == []


# ── numbers never come back ──


async def test_offsets_go_on_after_everything_was_dropped(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push(1, 2, 3)
    clock.advance(60)
    await retain(log)
    assert (await log.push(4)).offsets() == [3]
    assert await log.drain() == [4]


async def test_offsets_and_lsns_go_on_in_another_store_after_everything_was_dropped(
    log: Log, other: Log, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=60)
    await other.push(1)
    pushed = await log.push(2, 3)
    clock.advance(60)
    await retain(log)
    again = await other.push(4)
    assert again.offsets() == [3]
    assert again.lsn == pushed.lsn + 1
    assert await log.drain() == [4]


async def test_lsns_go_on_after_everything_was_dropped(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    pushed = await log.push(1)
    clock.advance(60)
    await retain(log)
    assert await log.store.ask(FindLastLsn()) == pushed.lsn
    assert (await log.push(2)).lsn == pushed.lsn + 1
    assert [segment.lsn for segment in await log.read()] == [Lsn(pushed.lsn + 1)]


# ── bites ──


async def test_a_round_goes_over_the_partitions_in_bites(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.commit(*[push(name, partition=name) for name in "abcde"])
    clock.advance(60)
    after, rounds, dropped = PartitionId(0), 0, 0
    while rounds == 0 or after:
        retained: Retained = await log.run(Retain(after=after, limit=2))
        after, rounds, dropped = retained.after, rounds + 1, dropped + retained.records
    assert (rounds, dropped) == (3, 5)


async def test_old_idempotency_keys_and_traces_are_forgotten(log: Log, clock: FakeClock) -> None:
    pushed = await log.push(1, key="old")
    trace = Trace(partition_id=pushed.partition_id, transaction_id="t")
    await log.run(trace)
    before = clock.advance(10)
    await log.push(2, key="new")
    await log.run(trace)
    assert (await log.run(Forget(before=before))).count == 2
    assert len(await log.store.ask(ListTraces("main", pushed.partition_id, "t"))) == 1
    assert (await log.push(1, key="old")).offsets() == [2]
    assert (await log.push(2, key="new")).offsets() == [1]


async def test_a_record_whose_time_is_over_is_not_delivered_and_not_called_lost(log: Log, clock: FakeClock) -> None:
    await log.push("short", ttl_seconds=10)
    await log.push("long")
    clock.advance(10)
    batch = await log.take(2)
    assert (payloads(batch), batch.lost) == (["long"], 0)


async def test_a_group_is_caught_up_when_the_time_of_all_that_is_left_is_over(log: Log, clock: FakeClock) -> None:
    await log.push("short", ttl_seconds=10)
    clock.advance(10)
    assert await log.free_at() is None
    assert (await log.group()).lag == 0
    await log.push("next")
    assert await log.drain() == ["next"]


async def test_a_record_in_the_middle_whose_time_is_over_parts_the_batch(log: Log, clock: FakeClock) -> None:
    await log.push("first")
    await log.push("short", ttl_seconds=10)
    await log.push("last")
    clock.advance(10)
    assert await log.drain() == ["first", "last"]


async def test_a_loss_before_records_whose_time_is_over_is_counted_and_holds_nothing_back(
    log: Log, clock: FakeClock
) -> None:
    await log.configure(retention_seconds=5)
    await log.push("read")
    await log.push("dropped")
    await log.ack(await log.take())
    clock.advance(3)
    await log.push("short", ttl_seconds=10)
    clock.advance(3)
    assert (await retain(log)).records == 2
    clock.advance(8)
    assert await log.free_at() is None
    group = await log.group()
    assert (group.lag, group.lost) == (0, 1)
    await log.push("next")
    assert payloads(await log.take()) == ["next"]


@pytest.mark.parametrize("option", ["retention_seconds", "completed_retention_seconds", "time to live"])
async def test_a_record_of_a_clock_that_was_ahead_keeps_nothing_behind_it_from_being_dropped(
    log: Log, clock: FakeClock, option: str
) -> None:
    lifetime: dict[str, Any] = {"ttl_seconds": 60} if option == "time to live" else {}
    options: dict[str, Any] = {} if lifetime else {option: 60}
    await log.configure(deduplication_seconds=1, **options)
    await log.push("before", **lifetime)
    clock.set_by(30 * 86_400)
    await log.push("ahead", **lifetime)
    clock.set_by(-30 * 86_400)
    await log.push("behind", **lifetime)
    if option != "time to live":
        assert await log.drain() == ["before", "ahead", "behind"]
    clock.advance(59)
    assert (await retain(log)).records == 0, "none of them is old enough, whatever the clock showed"
    clock.advance(1)
    assert (await retain(log)).records == 3
    assert (await log.queue()).records == 0


async def test_a_clock_that_was_set_back_by_mistake_makes_nothing_older(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=86_400)
    await log.push("before")
    clock.set_by(-30 * 86_400)
    await log.push("meanwhile")
    assert (await retain(log)).records == 0
    clock.set_by(30 * 86_400)
    await log.push("after")
    await retain(log)
    assert (await log.queue()).records == 3, "what is in front of a record that looks old is kept, and so it is"
