"""What becomes of records that fail, are given back, or are held by a consumer that dies."""

import pytest

from headwater.log.operations import Batch
from headwater.model.cursor import Outcome
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, report

LEASE_SECONDS = 300


async def test_a_failed_record_waits_before_it_comes_again(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=5, retry_jitter=0)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    assert await log.free_at() == clock.now() + 5_000_000
    clock.advance(5)
    batch = await log.take()
    assert (payloads(batch), batch.attempts) == ([1], 2)


async def test_a_failed_record_holds_back_those_behind_it(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=5)
    await log.push(1, 2)
    await log.settle(await log.take(), Outcome.FAILED)
    assert await log.pop() == []
    clock.advance(5)
    assert await log.drain() == [1, 2]


async def test_a_failure_in_one_partition_does_not_hold_another_back(log: Log) -> None:
    await log.push("bad", partition="a")
    await log.push("good", partition="b")
    await log.settle(await log.take(partition="a"), Outcome.FAILED)
    assert await log.drain() == ["good"]


@pytest.mark.parametrize("retry_limit", [0, 1, 3])
async def test_a_failing_record_is_delivered_retry_limit_plus_one_times(log: Log, retry_limit: int) -> None:
    await log.configure(retry_limit=retry_limit, retry_delay_seconds=0)
    await log.push("bad", "good")
    deliveries = []
    while payloads(batch := await log.take()) == ["bad"]:
        deliveries.append(batch.attempts)
        acked = await log.settle(batch, Outcome.FAILED, error="boom")
    assert deliveries == list(range(1, retry_limit + 2))
    assert acked.buried == (0,)
    assert (payloads(batch), batch.attempts) == (["good"], 1)
    (letter,) = await log.dead_letters()
    assert (letter.offset, letter.attempts, letter.error) == (0, retry_limit + 1, "boom")


async def test_a_batch_that_fails_whole_is_buried_whole(log: Log) -> None:
    await log.configure(retry_limit=2, retry_delay_seconds=0)
    await log.push("a", "b", "c", "d")
    for attempt in (1, 2, 3):
        batch = await log.take(3)
        assert (payloads(batch), batch.attempts) == (["a", "b", "c"], attempt)
        acked = await log.settle(batch, Outcome.FAILED)
    assert acked.buried == (0, 1, 2)
    assert payloads(await log.take(3)) == ["d"]


async def test_only_what_failed_comes_again(log: Log, clock: FakeClock) -> None:
    await log.push(*range(5))
    batch = await log.take(5)
    outcomes = dict.fromkeys(range(5), Outcome.COMPLETED) | {1: Outcome.FAILED, 3: Outcome.FAILED}
    await log.run(report(batch, outcomes))
    clock.advance(60)
    again = await log.take(5)
    assert (payloads(again), again.attempts) == ([1, 3], 2)
    await log.ack(again, again.offsets)
    assert await log.drain() == []


async def test_records_delivered_before_are_not_mixed_with_new_ones(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2)
    await log.settle(await log.take(2), Outcome.FAILED)
    await log.push(3, 4)
    clock.advance(60)
    again = await log.take(10)
    assert (payloads(again), again.attempts) == ([1, 2], 2)
    await log.ack(again)
    fresh = await log.take(10)
    assert (payloads(fresh), fresh.attempts) == ([3, 4], 1)


async def test_a_record_is_not_buried_for_the_failures_of_its_neighbour(log: Log) -> None:
    """Consumers with batches of different sizes: the second record was delivered less often than the first."""
    await log.configure(retry_limit=3, retry_delay_seconds=0)
    await log.push("a", "b")
    await log.settle(await log.take(2), Outcome.FAILED)
    await log.settle(await log.take(1), Outcome.FAILED)
    await log.settle(await log.take(1), Outcome.FAILED)
    deliveries = {"a": 3, "b": 1}
    while batches := await log.pop(2):
        for payload in payloads(batches[0]):
            deliveries[payload] += 1
        await log.settle(batches[0], Outcome.FAILED)
    assert deliveries["a"] >= 4
    assert deliveries["b"] >= 4
    assert len(await log.dead_letters()) == 2


async def test_a_record_given_up_at_once_goes_to_the_dead_letters(log: Log) -> None:
    await log.push("bad", "good")
    acked = await log.settle(await log.take(), Outcome.DEAD, error="not JSON at all")
    assert (acked.lease_ended, acked.buried) == (True, (0,))
    (letter,) = await log.dead_letters()
    assert (letter.error, letter.attempts) == ("not JSON at all", 1)
    assert await log.drain() == ["good"]


async def test_a_queue_without_dead_letters_drops_what_failed_for_good(log: Log) -> None:
    await log.configure(dead_letters=False, retry_limit=0)
    await log.push("bad", "good")
    acked = await log.settle(await log.take(), Outcome.FAILED)
    assert acked.buried == (0,)
    assert await log.dead_letters() == []
    assert await log.drain() == ["good"]


async def test_a_group_buries_only_for_itself(log: Log) -> None:
    await log.push("a")
    await log.settle(await log.take(group="one"), Outcome.DEAD)
    assert await log.drain(group="two") == ["a"]
    assert [letter.group for letter in await log.dead_letters()] == ["one"]


# ── giving back ──


async def test_a_record_given_back_comes_again_at_once_and_burns_no_attempt(log: Log) -> None:
    await log.push(1, 2)
    for _ in range(10):
        batch = await log.take(2)
        assert (payloads(batch), batch.attempts) == ([1, 2], 1)
        acked = await log.settle(batch, Outcome.RELEASED)
        assert (acked.lease_ended, acked.waiting) == (True, True)


async def test_records_given_back_one_by_one_burn_no_attempt(log: Log) -> None:
    await log.push(1, 2, 3)
    for _ in range(3):
        batch = await log.take(3)
        assert batch.attempts == 1
        for offset in batch.offsets:
            await log.settle(batch, Outcome.RELEASED, [offset])


async def test_a_retried_record_given_back_keeps_its_count(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    await log.settle(await log.take(), Outcome.RELEASED)
    assert (await log.take()).attempts == 2


async def test_what_is_given_back_behind_a_failure_is_not_counted_as_failed(log: Log) -> None:
    await log.configure(retry_limit=1, retry_delay_seconds=0)
    await log.push("bad", "good", "better")
    for _ in range(2):
        batch = await log.take(3)
        outcomes = dict.fromkeys(batch.offsets, Outcome.RELEASED) | {0: Outcome.FAILED}
        await log.run(report(batch, outcomes))
    fresh = await log.take(3)
    assert (payloads(fresh), fresh.attempts) == (["good", "better"], 1)


async def test_done_then_failed_then_given_back_in_one_report(log: Log) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push("done", "bad", "untouched")
    outcomes: dict[int, Outcome] = {0: Outcome.COMPLETED, 1: Outcome.FAILED, 2: Outcome.RELEASED}
    await log.run(report(await log.take(3), outcomes))
    again = await log.take(3)
    assert (payloads(again), again.attempts) == (["bad"], 2)
    await log.ack(again)
    rest = await log.take(3)
    assert (payloads(rest), rest.attempts) == (["untouched"], 1)


# ── consumers that die ──


async def die(log: Log, clock: FakeClock) -> Batch:
    """A consumer takes a batch and is never heard of again."""
    batch = await log.take(5)
    clock.advance(LEASE_SECONDS)
    return batch


async def test_after_a_batch_lease_ran_out_records_come_one_at_a_time(log: Log, clock: FakeClock) -> None:
    await log.push(*range(6))
    await die(log, clock)
    sizes = []
    while batches := await log.pop(5):
        sizes.append(len(batches[0].offsets))
        await log.ack(batches[0])
    assert sizes == [1, 1, 1, 1, 1, 1]


async def test_after_the_suspects_are_through_batches_are_full_again(log: Log, clock: FakeClock) -> None:
    await log.push(*range(12))
    await die(log, clock)
    for _ in range(5):
        await log.ack(await log.take(5))
    fresh = await log.take(5)
    assert (payloads(fresh), fresh.attempts) == ([5, 6, 7, 8, 9], 1)


async def test_a_lease_on_one_record_that_ran_out_makes_nobody_cautious(log: Log, clock: FakeClock) -> None:
    await log.push(*range(3))
    await log.take(1)
    clock.advance(LEASE_SECONDS)
    await log.ack(await log.take(1))
    assert payloads(await log.take(5)) == [1, 2]


async def test_only_the_record_that_kills_its_consumers_is_buried(log: Log, clock: FakeClock) -> None:
    await log.push("good", "good", "poison", "good", "good", "good")
    done, deliveries = [], 0
    while batches := await log.pop(5):
        found = payloads(batches[0])
        if "poison" in found:
            deliveries += 1
            clock.advance(LEASE_SECONDS)
        else:
            done += found
            await log.ack(batches[0])
    assert done == ["good"] * 5
    assert deliveries == 4
    (letter,) = await log.dead_letters()
    assert (letter.offset, letter.attempts, letter.error) == (2, 4, "the lease ran out")


async def test_the_reaper_buries_a_record_whose_last_lease_ran_out(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_limit=0)
    await log.push("poison", "good")
    await log.take()
    clock.advance(LEASE_SECONDS)
    reaped = await log.reap()
    assert (reaped.leases, reaped.buried) == (1, 1)
    assert [letter.offset for letter in await log.dead_letters()] == [0]
    assert await log.drain() == ["good"]


async def test_an_expired_lease_counts_the_attempt(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    attempts = []
    while batches := await log.pop():
        attempts.append(batches[0].attempts)
        clock.advance(LEASE_SECONDS)
    assert attempts == [1, 2, 3, 4]
    assert len(await log.dead_letters()) == 1


async def test_failures_and_expiries_count_together(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    await log.take()
    clock.advance(LEASE_SECONDS)
    await log.settle(await log.take(), Outcome.FAILED)
    batch = await log.take()
    assert batch.attempts == 4
    assert (await log.settle(batch, Outcome.FAILED)).buried == (0,)


async def test_a_changed_retry_limit_counts_for_records_on_their_way(log: Log) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push(1)
    await log.settle(await log.take(), Outcome.FAILED)
    batch = await log.take()
    await log.configure(retry_limit=1)
    assert (await log.settle(batch, Outcome.FAILED)).buried == (0,)
