"""Messages with a priority: delivered before those with a lower one, in lanes of their own, in order within a lane."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config import load_config
from headwater.log.operations import Clear, Pop, Popped, Pushed, Requeue, Seek, Transacted, Transaction
from headwater.model.cursor import Outcome
from headwater.model.spreading import PRIORITY_MAX, lane_name, priority_of
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, ack, payloads, push

LOOSE = ""


async def test_a_higher_priority_is_delivered_first_whenever_it_was_pushed(log: Log) -> None:
    for priority in (0, 3, 9, 1, 0, 9):
        await log.push(priority, partition=LOOSE, priority=priority)
    assert [payloads(await log.take()) for _ in range(6)] == [[9], [9], [3], [1], [0], [0]]


async def test_a_priority_overtakes_named_partitions_and_lanes_that_are_ready_longer(
    log: Log, clock: FakeClock
) -> None:
    for number in range(40):
        await log.push("named", partition=f"p{number}")
    await log.push(*["plain"] * 40, partition=LOOSE)
    assert payloads(await log.take()) == ["named"], "the group has met its partitions"
    clock.advance(1)
    await log.push("urgent", partition=LOOSE, priority=1)
    assert payloads(await log.take()) == ["urgent"]


async def test_a_batch_begins_with_the_highest_priority_and_is_filled_with_the_next(log: Log) -> None:
    await log.push(*["plain"] * 4, partition=LOOSE)
    await log.push(*["high"] * 3, partition=LOOSE, priority=9)
    await log.push(*["low"] * 2, partition=LOOSE, priority=2)
    found = [payload for batch in await log.pop(7, partitions=0) for payload in payloads(batch)]
    assert found == ["high"] * 3 + ["low"] * 2 + ["plain"] * 2


async def test_order_holds_within_a_lane_of_a_priority(log: Log) -> None:
    await log.configure(lanes=1)
    for number in range(20):
        await log.push((number % 3, number), partition=LOOSE, priority=number % 3)
    found = [tuple(payload) for payload in await log.drain(batch=1)]
    assert [priority for priority, _ in found] == sorted((priority for priority, _ in found), reverse=True)
    assert all(before < after for (first, before), (second, after) in pairwise(found) if first == second)


async def test_messages_of_one_priority_are_worked_on_at_the_same_time(log: Log) -> None:
    await log.push(*range(6), partition=LOOSE, priority=5)
    held = [await log.take() for _ in range(6)]
    assert {batch.partition for batch in held} == {lane_name(lane, 5) for lane in range(6)}
    assert all(priority_of(batch.partition) == 5 for batch in held)


async def test_what_is_leased_is_not_taken_away_and_what_failed_waits_its_time(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=10, retry_jitter=0)
    await log.push("plain", partition=LOOSE)
    held = await log.take()
    await log.push("urgent", partition=LOOSE, priority=9)
    urgent = await log.take()
    await log.settle(urgent, Outcome.FAILED)
    await log.ack(held)
    await log.push("next", partition=LOOSE)
    assert payloads(await log.take()) == ["next"], "the urgent one waits until it is tried again"
    clock.advance(10)
    await log.push("last", partition=LOOSE)
    assert payloads(await log.take()) == ["urgent"]


async def test_a_group_that_begins_late_gets_the_priority_before_thousands_of_partitions(log: Log) -> None:
    await log.commit(*[push(number, partition=f"p{number}") for number in range(600)])
    await log.push("urgent", partition=LOOSE, priority=1)
    for group in ("from-the-beginning", "again"):
        assert payloads(await log.take(group=group)) == ["urgent"]
    assert (await log.group("again")).lag == 601
    assert len(await log.drain(group="again")) == 600
    assert (await log.group("again")).lag == 1, "the one that is leased"


async def test_a_group_that_reads_from_now_on_does_not_get_what_was_urgent_before(log: Log) -> None:
    await log.push("before", partition=LOOSE, priority=9)
    assert await log.pop(group="new", subscribe="new") == []
    await log.push("after", partition=LOOSE, priority=9)
    assert await log.drain(group="new") == ["after"]


async def test_another_process_sees_the_first_priority_of_a_queue_at_once(log: Log, clock: FakeClock) -> None:
    other = open_store(log.store.traits.location, clock=clock, config=load_config({}))
    await other.open()
    there = Log(other, clock)
    await log.push(1, 2, 3, partition=LOOSE)
    assert len(await there.pop()) == 1
    await log.push("urgent", partition=LOOSE, priority=1)
    assert payloads(await there.take()) == ["urgent"]
    await other.close()


async def test_pops_of_one_commit_share_what_is_ready_by_priority(log: Log) -> None:
    await log.push(*["plain"] * 16, partition=LOOSE)
    await log.push("high", "high", partition=LOOSE, priority=9)
    found: list[Popped] = await log.results(*[Pop(queue=QUEUE, batch=1) for _ in range(4)])
    assert [payloads(popped.batches[0])[0] for popped in found] == ["high", "high", "plain", "plain"]


async def test_an_ack_and_the_next_pop_in_one_commit_go_by_priority(log: Log) -> None:
    await log.configure(lanes=1)
    await log.push("a", "b", partition=LOOSE)
    held = await log.take()
    await log.push("x", "y", partition=LOOSE, priority=1)
    urgent = await log.take()
    assert payloads(urgent) == ["x"]
    _, popped = await log.results(ack(urgent), Pop(queue=QUEUE, batch=1))
    assert payloads(popped.batches[0]) == ["y"]
    _, popped = await log.results(ack(popped.batches[0]), Pop(queue=QUEUE, batch=1))
    assert popped.batches == []
    _, popped = await log.results(ack(held), Pop(queue=QUEUE, batch=1))
    assert payloads(popped.batches[0]) == ["b"]


async def test_a_priority_is_kept_by_a_message_for_later(log: Log, clock: FakeClock) -> None:
    await log.push("urgent later", partition=LOOSE, priority=4, delay_seconds=10)
    clock.advance(10)
    await log.push("plain", partition=LOOSE)
    assert await log.drain(batch=1) == ["urgent later", "plain"]


async def test_a_transaction_id_is_recognised_among_messages_of_its_priority(log: Log) -> None:
    first = await log.push("a", ids=["order-1"], partition=LOOSE, priority=2)
    again = await log.push("a", ids=["order-1"], partition=LOOSE, priority=2)
    assert again.duplicates == {0: first.first_offset}
    assert (await log.push("a", ids=["order-1"], partition=LOOSE, priority=3)).count == 1


async def test_a_key_repeats_the_answer_and_a_priority_in_a_transaction_counts(log: Log) -> None:
    urgent = push(1, partition=LOOSE, priority=7, key="k")
    first: Pushed = await log.run(urgent)
    assert await log.run(urgent) == first
    done: Transacted = await log.run(Transaction(operations=(push(2, partition=LOOSE, priority=7),)))
    assert priority_of(done.results[0].partition) == 7


async def test_lanes_of_priorities_do_not_count_as_partitions_that_somebody_named(log: Log) -> None:
    await log.configure(partitions_max=16)
    for priority in range(1, PRIORITY_MAX + 1):
        await log.push(1, 2, partition=LOOSE, priority=priority)
    assert (await log.push(1, partition="mine")).count == 1


async def test_clearing_seeking_and_the_dead_letters_know_lanes_of_a_priority(log: Log) -> None:
    await log.push(*range(4), partition=LOOSE, priority=6)
    assert len(await log.drain()) == 4
    await log.run(Seek(queue=QUEUE, to="beginning"))
    batch = await log.take()
    await log.settle(batch, Outcome.DEAD)
    (letter,) = await log.dead_letters()
    await log.run(Requeue(queue=QUEUE, ids=(letter.id,), all_groups=True))
    assert (await log.group()).lag == 4
    assert (await log.run(Clear(queue=QUEUE))).count == 5
    assert await log.pop() == []


@pytest.mark.parametrize(
    ("name", "priority"),
    [
        ("Default", 0),
        ("Default/3", 0),
        ("Default/priority-5", 5),
        ("Default/priority-9/15", 9),
        ("Default/priority-0", 0),
        ("Default/priority-10", 0),
        ("Default/priority-5/0", 0),
        ("Default/priority-5/x", 0),
        ("Default/priority-5/", 0),
        ("mine/priority-5", 0),
    ],
)
async def test_only_a_lane_of_a_priority_has_one(log: Log, name: str, priority: int) -> None:
    assert priority_of(name) == priority
    await log.push("plain", partition="a")
    await log.push("named", partition=name)
    first = payloads(await log.take())
    assert first == (["named"] if priority else ["plain"])


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, PRIORITY_MAX), st.integers(0, 40)), min_size=1, max_size=12))
def test_the_name_of_a_lane_says_its_priority(lanes: list[tuple[int, int]]) -> None:
    for priority, lane in lanes:
        assert priority_of(lane_name(lane, priority)) == priority
    assert len({lane_name(lane, priority) for priority, lane in lanes}) == len(set(lanes))
