"""Leases: one alive for a group in a partition, tokens that only rise, and what reports do to them."""

import pytest
from msgspec import Raw

from headwater.errors import LeaseLost, QueueMissing, UnknownRecord
from headwater.log.operations import Ack, Batch, Configure, Extend, Pop, Push, Seek, Transaction
from headwater.model.cursor import Outcome
from headwater.model.names import PartitionId
from headwater.model.record import Record, decode_payload
from headwater.stores.questions import DeadLetter
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, ack, payloads, report


def decoded(letter: DeadLetter) -> object:
    return decode_payload(letter.record.data)


async def test_a_leased_partition_is_not_popped_by_its_group(log: Log) -> None:
    await log.push(1, 2)
    await log.take()
    assert await log.pop() == []


async def test_two_pops_of_one_commit_do_not_get_the_same_records(log: Log) -> None:
    await log.push(1, 2)
    first, second = await log.results(Pop(queue="orders"), Pop(queue="orders"))
    assert (len(first.batches), len(second.batches)) == (1, 0)


async def test_pops_of_one_commit_that_ask_in_different_ways_never_share_a_partition(log: Log) -> None:
    await log.run(Configure(queue="orders", namespace="shop"))
    for name in "abcdef":
        await log.push(name, partition=name)
    anywhere, named, together = Pop(queue="orders"), Pop(queue="orders", partition="c"), Pop(namespace="shop")
    popped = await log.results(anywhere, named, anywhere, together, anywhere, anywhere, anywhere, named)
    found = [payload for one in popped for batch in one.batches for payload in payloads(batch)]
    assert sorted(found) == list("abcdef")


async def test_an_ack_and_the_pop_of_its_commit_take_turns_among_partitions(log: Log, clock: FakeClock) -> None:
    await log.push("a1", "a2", partition="a")
    batch = await log.take()
    clock.advance(1)
    await log.push("b1", partition="b")
    clock.advance(1)
    _, second = await log.results(ack(batch), Pop(queue="orders"))
    assert payloads(second.batches[0]) == ["b1"]
    _, third = await log.results(ack(second.batches[0]), Pop(queue="orders"))
    assert payloads(third.batches[0]) == ["a2"]
    _, fourth = await log.results(ack(third.batches[0]), Pop(queue="orders"))
    assert (fourth.batches, fourth.ready_at) == ([], None)


async def test_a_push_of_the_same_commit_wakes_a_group_that_its_report_left_idle(log: Log) -> None:
    await log.push(1)
    batch = await log.take()
    push = Push(queue="orders", records=[Record(Raw(b"2"))])
    _, _, popped = await log.results(ack(batch), push, Pop(queue="orders"))
    assert payloads(popped.batches[0]) == [2]


async def test_what_another_process_did_to_a_group_counts_for_the_next_report(log: Log, other: Log) -> None:
    await log.push(1, 2)
    batch = await log.take()
    await other.run(Seek(queue="orders", to="beginning"))
    with pytest.raises(LeaseLost):
        await log.ack(batch)
    assert payloads(await other.take()) == [1]


async def test_a_whole_ack_ends_the_lease(log: Log) -> None:
    await log.push(1, 2, 3)
    acked = await log.ack(await log.take(2))
    assert (acked.lease_ended, acked.buried, acked.waiting) == (True, (), True)
    acked = await log.ack(await log.take(2))
    assert (acked.lease_ended, acked.waiting) == (True, False)


async def test_tokens_only_rise(log: Log, clock: FakeClock) -> None:
    await log.push(*range(6))
    tokens = []
    for seconds in (0, 1, 0, 0, 5):
        clock.advance(seconds)
        batch = await log.take()
        tokens.append(batch.token)
        await log.ack(batch)
    assert tokens == sorted(set(tokens))


async def test_tokens_rise_when_a_lease_expires_and_when_a_group_is_moved(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    first = await log.take(lease_seconds=10)
    clock.advance(10)
    second = await log.take(lease_seconds=10)
    await log.run(Seek(queue="orders", to="beginning"))
    third = await log.take()
    assert first.token < second.token < third.token


# ── late, foreign and double reports ──


async def test_a_report_without_a_token_counts_for_the_live_lease_and_for_no_other(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    unfenced = Ack(partition_id=batch.partition_id, group=batch.group, token=None)
    clock.advance(10)
    with pytest.raises(LeaseLost):
        await log.run(unfenced)
    await log.take()
    assert (await log.run(unfenced)).lease_ended
    with pytest.raises(LeaseLost):
        await log.run(unfenced)


async def test_an_ack_after_the_lease_ran_out_is_refused_and_changes_nothing(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    clock.advance(10)
    with pytest.raises(LeaseLost):
        await log.ack(batch)
    assert payloads(await log.take()) == [1]


async def test_an_ack_in_the_last_moment_counts(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    clock.advance(9.999999)
    await log.ack(batch)
    assert await log.drain() == []


async def test_the_token_of_an_older_lease_is_refused(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    older = await log.take(lease_seconds=10)
    clock.advance(10)
    newer = await log.take()
    with pytest.raises(LeaseLost):
        await log.ack(older)
    await log.ack(newer)


async def test_a_token_that_was_never_given_is_refused(log: Log) -> None:
    await log.push(1)
    batch = await log.take()
    for token in (0, batch.token - 1, batch.token + 1):
        with pytest.raises(LeaseLost):
            await log.run(Ack(partition_id=batch.partition_id, group=batch.group, token=token))


async def test_a_second_ack_is_refused(log: Log) -> None:
    await log.push(1)
    batch = await log.take()
    await log.ack(batch)
    with pytest.raises(LeaseLost):
        await log.ack(batch)


async def test_of_two_acks_in_one_commit_one_counts(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take()
    first, second = await log.results(ack(batch), ack(batch))
    assert first.lease_ended
    assert isinstance(second, LeaseLost)
    assert await log.drain() == [2]


async def test_a_group_that_holds_nothing_cannot_ack(log: Log) -> None:
    await log.push(1)
    batch = await log.take(group="holder")
    await log.drain(group="idle")
    for group in ("idle", "unknown"):
        with pytest.raises(LeaseLost):
            await log.run(Ack(partition_id=batch.partition_id, group=group, token=batch.token))


async def test_a_partition_that_is_not_there_cannot_be_acked(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.run(Ack(partition_id=PartitionId(999), token=1))


async def test_a_refused_ack_leaves_its_neighbours_alone(log: Log) -> None:
    await log.push(1, partition="a")
    await log.push(2, partition="b")
    first, second = await log.take(partition="a"), await log.take(partition="b")
    await log.ack(first)
    refused, acked = await log.results(ack(first), ack(second))
    assert isinstance(refused, LeaseLost)
    assert acked.lease_ended


# ── reports on some of the records ──


async def test_a_lease_lives_until_its_last_record_is_reported(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(3)
    assert not (await log.ack(batch, [1])).lease_ended
    assert not (await log.ack(batch, [0])).lease_ended
    assert await log.pop() == []
    assert (await log.ack(batch, [2])).lease_ended
    assert await log.drain() == []


async def test_a_record_is_acked_once(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take(2)
    await log.ack(batch, [0])
    with pytest.raises(UnknownRecord):
        await log.ack(batch, [0])
    with pytest.raises(UnknownRecord):
        await log.settle(batch, Outcome.FAILED, [0])
    await log.ack(batch, [1])


async def test_a_record_outside_the_lease_cannot_be_acked(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(2)
    for offsets in ([2], [0, 1, 2], [0, 7]):
        with pytest.raises(UnknownRecord):
            await log.ack(batch, offsets)
    await log.ack(batch)
    assert await log.drain() == [3]


async def test_offsets_that_only_look_like_the_whole_lease_ack_what_they_name(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(3)
    assert not (await log.ack(batch, [0, 0, 2])).lease_ended
    assert (await log.ack(batch, [1])).lease_ended


async def test_unknown_offsets_between_the_ends_of_a_lease_are_refused(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(3)
    with pytest.raises(UnknownRecord):
        await log.ack(batch, [0, 7, 2])
    assert (await log.ack(batch)).lease_ended


async def test_records_that_were_done_do_not_come_back_when_the_lease_runs_out(log: Log, clock: FakeClock) -> None:
    await log.push(*range(4))
    batch = await log.take(4, lease_seconds=10)
    await log.ack(batch, [0, 2])
    clock.advance(10)
    assert await log.drain(1) == [1, 3]


async def test_an_ack_without_offsets_completes_what_is_left_of_the_lease(log: Log) -> None:
    await log.push(*range(3))
    batch = await log.take(3)
    await log.ack(batch, [1])
    assert (await log.ack(batch)).lease_ended
    assert await log.drain() == []


async def test_an_ack_without_offsets_does_not_undo_a_failure_that_was_reported(log: Log, clock: FakeClock) -> None:
    await log.push(*range(3))
    batch = await log.take(3)
    await log.settle(batch, Outcome.FAILED, [1])
    assert (await log.ack(batch)).lease_ended
    clock.advance(60)
    assert await log.drain() == [1]


async def test_an_ack_without_offsets_does_not_bring_back_what_was_done_before(log: Log, clock: FakeClock) -> None:
    await log.push(*range(4))
    first = await log.take(4)
    await log.run(report(first, {0: Outcome.FAILED, 1: Outcome.FAILED, 2: Outcome.COMPLETED, 3: Outcome.COMPLETED}))
    clock.advance(60)
    second = await log.take(10)
    assert payloads(second) == [0, 1]
    await log.ack(second)
    assert await log.drain() == []


# ── reports by transaction id ──


async def test_records_are_reported_by_transaction_id(log: Log, clock: FakeClock) -> None:
    await log.push("a", "b", "c", ids=["1", "2", "3"])
    batch = await log.take(3)
    acked = await log.run(report(batch, {"3": Outcome.COMPLETED, "1": Outcome.COMPLETED}))
    assert not acked.lease_ended
    acked = await log.run(report(batch, {"2": Outcome.FAILED}))
    assert acked.lease_ended
    clock.advance(60)
    assert await log.drain() == ["b"]


async def test_an_unknown_transaction_id_is_refused_with_the_whole_report(log: Log) -> None:
    await log.push("a", "b", ids=["1", "2"])
    batch = await log.take(2)
    with pytest.raises(UnknownRecord):
        await log.run(report(batch, {"1": Outcome.COMPLETED, "9": Outcome.COMPLETED}))
    await log.run(report(batch, {"1": Outcome.COMPLETED, "2": Outcome.COMPLETED}))


async def push_ids_again(log: Log, clock: FakeClock) -> None:
    """Two messages of one id, which the queue's window lies between, and others around them."""
    await log.configure(deduplication_seconds=60)
    await log.push("zero", "first", ids=["W", "X"])
    clock.advance(61)
    await log.push("second", "third", ids=["X", "Y"])


async def test_a_lease_never_has_one_transaction_id_twice(log: Log, clock: FakeClock) -> None:
    await push_ids_again(log, clock)
    batch = await log.take(10)
    assert payloads(batch) == ["zero", "first"]
    await log.run(report(batch, {"X": Outcome.COMPLETED, "W": Outcome.COMPLETED}))
    again = await log.take(10)
    assert payloads(again) == ["second", "third"]
    await log.run(report(again, {"X": Outcome.DEAD, "Y": Outcome.COMPLETED}))
    assert [decoded(letter) for letter in await log.dead_letters()] == ["second"]


async def test_an_id_that_fails_and_is_there_again_is_never_taken_for_the_later_message(
    log: Log, clock: FakeClock
) -> None:
    await push_ids_again(log, clock)
    batch = await log.take(10)
    await log.run(report(batch, {"W": Outcome.COMPLETED, "X": Outcome.FAILED}))
    clock.advance(3600)
    assert await log.drain() == ["first", "second", "third"]


async def test_a_settled_record_is_not_taken_for_a_later_one_of_its_id(log: Log, clock: FakeClock) -> None:
    await log.push("zero", "one", "two", ids=["A", "B", "C"])
    batch = await log.take(10)
    await log.run(report(batch, {"B": Outcome.COMPLETED, "A": Outcome.RELEASED, "C": Outcome.RELEASED}))
    clock.advance(10_000_000)
    await log.push("one again", ids=["B"])
    again = await log.take(10)
    assert payloads(again) == ["zero", "two", "one again"]
    await log.run(report(again, {"B": Outcome.DEAD, "A": Outcome.COMPLETED, "C": Outcome.COMPLETED}))
    assert [decoded(letter) for letter in await log.dead_letters()] == ["one again"]


async def test_a_second_report_by_transaction_id_is_refused(log: Log) -> None:
    await log.push("a", "b", ids=["1", "2"])
    batch = await log.take(2)
    await log.run(report(batch, {"1": Outcome.FAILED}))
    with pytest.raises(UnknownRecord):
        await log.run(report(batch, {"1": Outcome.COMPLETED}))
    with pytest.raises(UnknownRecord):
        await log.run(report(batch, {"": Outcome.COMPLETED}))


async def test_a_transaction_settles_the_message_that_was_delivered_under_the_id(log: Log, clock: FakeClock) -> None:
    await push_ids_again(log, clock)
    batch = await log.take(10)
    await log.run(Transaction(operations=(report(batch, {"W": Outcome.COMPLETED, "X": Outcome.COMPLETED}),)))
    assert await log.drain() == ["second", "third"]


async def test_offsets_and_transaction_ids_mix_in_one_report(log: Log) -> None:
    await log.push("a", "b", ids=["1", "2"])
    batch = await log.take(2)
    acked = await log.run(report(batch, {0: Outcome.COMPLETED, "2": Outcome.COMPLETED}))
    assert acked.lease_ended


# ── extending ──


def extend(batch: Batch, seconds: float | None = None) -> Extend:
    return Extend(partition_id=batch.partition_id, group=batch.group, token=batch.token, seconds=seconds)


async def test_a_lease_is_kept_for_longer(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    clock.advance(9)
    assert (await log.run(extend(batch, 20))).lease_until == clock.now() + 20_000_000
    clock.advance(19)
    assert await log.pop() == []
    await log.ack(batch)


async def test_an_extension_takes_the_lease_time_of_the_queue_by_default(log: Log, clock: FakeClock) -> None:
    await log.configure(lease_seconds=77)
    await log.push(1)
    batch = await log.take(lease_seconds=1)
    assert (await log.run(extend(batch))).lease_until == clock.now() + 77_000_000


async def test_a_lease_that_ran_out_cannot_be_extended(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    clock.advance(10)
    with pytest.raises(LeaseLost):
        await log.run(extend(batch, 20))
    assert payloads(await log.take()) == [1]


async def test_an_extension_counts_no_attempt(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    await log.run(extend(batch, 20))
    clock.advance(20)
    assert (await log.take()).attempts == 2


# ── running out ──


async def test_an_expired_lease_goes_to_another_consumer(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2)
    first = await log.take(lease_seconds=10)
    clock.advance(10)
    second = await log.take()
    assert (payloads(first), payloads(second)) == ([1], [1])
    assert (first.attempts, second.attempts) == (1, 2)


async def test_the_reaper_ends_leases_that_ran_out(log: Log, clock: FakeClock) -> None:
    for name in "abc":
        await log.push(name, partition=name)
    await log.pop(10, partitions=2, lease_seconds=10)
    await log.take(lease_seconds=20)
    clock.advance(10)
    reaped = await log.reap()
    assert (reaped.leases, reaped.buried) == (2, 0)
    assert (await log.group()).leased == 1
    assert (await log.reap()).leases == 0


async def test_the_reaper_takes_bites(log: Log, clock: FakeClock) -> None:
    for name in "abc":
        await log.push(name, partition=name)
    await log.pop(10, partitions=3, lease_seconds=10)
    clock.advance(10)
    assert [(await log.reap(2)).leases for _ in range(3)] == [2, 1, 0]


async def test_the_clock_turned_back_does_not_hold_back_what_is_ready(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2)
    await log.ack(await log.take())
    clock.advance(-3_600)
    assert payloads(await log.take()) == [2]


async def test_the_clock_turned_back_keeps_a_lease_alive_and_loses_nothing(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    batch = await log.take(lease_seconds=10)
    clock.advance(-3_600)
    await log.push(2)
    assert await log.pop() == []
    await log.ack(batch)
    assert await log.drain() == [2]


async def test_a_handle_that_saw_a_later_time_notices_the_clock_turned_back_whoever_wrote_since(
    log: Log, other: Log, clock: FakeClock
) -> None:
    await log.push(1)
    await log.take(lease_seconds=300)
    clock.advance(200)
    # It looks, and leaves nothing of its time in the store.
    assert await other.pop() == []
    clock.advance(-150)
    await log.configure(retry_limit=9)
    assert await other.pop() == []
    clock.advance(101)
    assert payloads(await other.take()) == [1]
