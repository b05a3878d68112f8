"""Messages without a partition: spread over lanes, popped together, recognised again; queues that were there before."""

from random import Random
from typing import Any

import pytest

from headwater.errors import InvalidOption
from headwater.log.operations import Configure, Pop, Popped, Push, Pushed, Transacted, Transaction
from headwater.model.names import PARTITION_DEFAULT
from headwater.model.queue import LANES_DEFAULT
from headwater.model.spreading import lane_name, lane_of_id
from headwater.stores.questions import ListPartitions, ListQueues
from tests.contracts.clock import FakeClock
from tests.contracts.log import QUEUE, Log, ack, payloads, push, record
from tests.contracts.pure_model import PureReceipts

LOOSE = ""


async def partitions(log: Log) -> dict[str, int]:
    """The partitions of the queue with how many records each has."""
    return {
        status.partition: status.end - status.start for status in await log.store.ask(ListPartitions("main", QUEUE))
    }


async def test_messages_pushed_one_by_one_go_to_one_lane_after_the_other(log: Log) -> None:
    found = [await log.push(number, partition=LOOSE) for number in range(LANES_DEFAULT + 2)]
    names = [lane_name(place % LANES_DEFAULT) for place in range(LANES_DEFAULT + 2)]
    assert [pushed.partition for pushed in found] == names
    assert [pushed.first_offset for pushed in found] == [*[0] * LANES_DEFAULT, 1, 1]


async def test_a_push_of_many_is_spread_in_neighbours_and_the_answer_says_where_each_is(log: Log) -> None:
    pushed = await log.push(*range(60), partition=LOOSE)
    assert pushed.count == 60
    assert len(pushed.parts) == LANES_DEFAULT
    for part in pushed.parts:
        (segment,) = [one for one in await log.read() if one.lane.partition == part.partition]
        assert payloads(segment) == part.members
        assert part.offsets() == [segment.first_offset + place for place in range(len(part.members))]
    assert sorted(await partitions(log)) == sorted(map(lane_name, range(LANES_DEFAULT)))


async def test_pushes_of_one_commit_share_lanes_and_rows(log: Log) -> None:
    commit = await log.commit(*[push(number, partition=LOOSE) for number in range(100)])
    assert len(commit.touched) == LANES_DEFAULT
    places = {(pushed.partition, pushed.first_offset) for pushed in commit.results}
    assert len(places) == 100
    assert sorted(await log.drain(partitions=0)) == list(range(100))


async def test_a_few_pushes_of_one_commit_can_all_be_worked_on_at_once(log: Log) -> None:
    await log.commit(*[push(number, partition=LOOSE) for number in range(6)])
    held = [await log.take() for _ in range(6)]
    assert sorted(payloads(batch)[0] for batch in held) == list(range(6))


async def test_a_push_that_names_a_partition_stays_whole_and_in_order(log: Log) -> None:
    await log.push(*range(50), partition="p")
    assert await partitions(log) == {"p": 50}
    assert await log.drain() == list(range(50))


async def test_a_pop_that_is_not_bound_fills_its_batch_from_many_lanes(log: Log) -> None:
    await log.push(*range(40), partition=LOOSE)
    batches = await log.pop(10, partitions=0)
    assert sum(len(batch.offsets) for batch in batches) == 10
    assert len(batches) == 4
    rest = await log.pop(1_000, partitions=0)
    assert sum(len(batch.offsets) for batch in rest) == 28, "four lanes of three messages are leased"


async def test_a_pop_of_a_few_messages_gets_all_of_them(log: Log) -> None:
    for number in range(3):
        await log.push(number, partition=LOOSE)
    batches = await log.pop(10, partitions=0)
    assert [payloads(batch) for batch in batches] == [[0], [1], [2]]


async def test_partitions_bound_of_how_many_lanes_a_pop_takes(log: Log) -> None:
    await log.push(*range(64), partition=LOOSE)
    assert len(await log.pop(64, partitions=2)) == 2


async def test_a_transaction_id_is_recognised_whichever_lane_is_next(log: Log) -> None:
    first = await log.push("a", ids=["order-1"], partition=LOOSE)
    for number in range(5):
        await log.push(number, partition=LOOSE)
    again = await log.push("a", ids=["order-1"], partition=LOOSE)
    assert first.partition == again.partition == lane_name(lane_of_id("order-1", LANES_DEFAULT))
    assert again.duplicates == {0: first.first_offset}
    assert again.count == 0


async def test_a_push_with_and_without_ids_answers_for_every_message(log: Log) -> None:
    ids = [f"id-{number}" if number % 2 else "" for number in range(20)]
    first = await log.push(*range(20), ids=ids, partition=LOOSE)
    again = await log.push(*range(20), ids=ids, partition=LOOSE)
    assert first.duplicates == {}
    assert sorted(again.duplicates) == list(range(1, 20, 2))
    before, after = first.offsets(), again.offsets()
    assert [after[number] for number in range(1, 20, 2)] == [before[number] for number in range(1, 20, 2)]
    assert len({part.partition for part in again.parts if any(ids[member] == "" for member in part.members)}) > 5
    assert len(await log.drain(partitions=0)) == 30


def places_in(pushed: Pushed) -> list[tuple[str, int]]:
    """Partition and offset that each message of a push is told, in the order of the push."""
    if not pushed.parts:
        return [(pushed.partition, offset) for offset in pushed.offsets()]
    names = {member: part.partition for part in pushed.parts for member in part.members}
    return [(names[index], offset) for index, offset in enumerate(pushed.offsets())]


async def kept_at(log: Log) -> dict[tuple[str, int], Any]:
    """What the log holds, by its place."""
    return {
        (segment.lane.partition, offset): payload
        for segment in await log.read()
        for offset, payload in enumerate(payloads(segment), segment.first_offset)
    }


async def test_a_lane_that_gets_a_whole_push_answers_for_each_message_with_and_without_an_id(log: Log) -> None:
    """The message with an id comes last, and all of them go to the lane of that id: there is no other."""
    await log.configure(lanes=2)
    name = next(name for name in map(str, range(100)) if lane_of_id(name, 2) == 1)
    first = await log.push("first", ids=[name], partition=LOOSE)
    again = await log.push("new", "known", ids=["", name], partition=LOOSE)
    assert (first.partition, again.partition, again.parts) == (lane_name(1), lane_name(1), [])
    assert again.duplicates == {1: first.first_offset}
    assert (await kept_at(log))[places_in(again)[0]] == "new"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lanes", [1, 2, 16])
async def test_every_message_of_a_push_is_told_its_own_place(log: Log, lanes: int, seed: int) -> None:
    await log.configure(lanes=lanes)
    random, model, numbers = Random(seed), PureReceipts(), iter(range(1_000))
    for _ in range(10):
        chosen = [
            [(next(numbers), random.choice(["", "", *map(str, range(8))])) for _ in range(random.randint(1, 5))]
            for _ in range(random.randint(1, 2))
        ]
        pushes = [
            push(*[payload for payload, _ in entries], ids=[name for _, name in entries], partition=LOOSE)
            for entries in chosen
        ]
        for entries, pushed in zip(chosen, await log.results(*pushes), strict=True):
            model.check(entries, places_in(pushed), set(pushed.duplicates))
            assert pushed.count == len(entries) - len(pushed.duplicates)
    assert await kept_at(log) == model.kept


@pytest.mark.parametrize("lanes", [1, 2, 16])
async def test_which_message_of_a_later_push_is_known_already_is_told_of_the_right_one(
    log: Log, clock: FakeClock, lanes: int
) -> None:
    await log.configure(lanes=lanes)
    names = [str(number) for number in range(8)]
    await log.push(*names, ids=names, partition=LOOSE, delay_seconds=60)
    for name in names:
        pushed = await log.push(f"new {name}", f"known {name}", ids=["", name], partition=LOOSE, delay_seconds=60)
        assert (list(pushed.duplicates), list(pushed.due)) == ([1], [1])
    clock.advance(60)
    assert sorted(await log.drain(partitions=0)) == sorted([*names, *(f"new {name}" for name in names)])


async def test_a_key_repeats_the_answer_of_a_push_that_was_spread(log: Log) -> None:
    spread = push(*range(30), partition=LOOSE, key="k")
    first: Pushed = await log.run(spread)
    again: Pushed = await log.run(spread)
    assert again == first
    assert sum((await partitions(log)).values()) == 30


async def test_a_push_inside_a_transaction_is_spread_too(log: Log) -> None:
    done: Transacted = await log.run(Transaction(operations=(push(*range(20), partition=LOOSE),)))
    assert len(done.results[0].parts) == LANES_DEFAULT


async def test_a_queue_can_have_more_or_fewer_lanes(log: Log) -> None:
    await log.configure(lanes=3)
    await log.push(*range(9), partition=LOOSE)
    assert await partitions(log) == {"Default": 3, "Default/1": 3, "Default/2": 3}
    await log.configure(lanes=1)
    await log.push(*range(5), partition=LOOSE)
    assert (await partitions(log))["Default"] == 8
    assert len(await log.drain(partitions=0)) == 14


@pytest.mark.parametrize("lanes", [0, -1, 257, 1.5, "many"])
async def test_lanes_out_of_bounds_are_refused(log: Log, lanes: object) -> None:
    with pytest.raises(InvalidOption):
        await log.configure(lanes=lanes)


async def test_whoever_makes_a_queue_says_how_many_lanes_it_has(log: Log) -> None:
    await log.run(Push(queue="a", records=[record(1)], lanes=1))
    await log.run(Configure(queue="b", lanes=1))
    await log.run(Configure(queue="b", lanes=5, options={"retry_limit": 1}))
    await log.run(Pop(queue="c", subscribe="new", lanes=1))
    await log.run(Push(queue="d", records=[record(1)]))
    lanes = {status.queue: status.options.lanes for status in await log.store.ask(ListQueues("main"))}
    assert lanes == {"a": 1, "b": 1, "c": 1, "d": LANES_DEFAULT}
    for number in range(3):
        pushed = await log.push(number, queue="a", partition=LOOSE)
        assert pushed.partition == PARTITION_DEFAULT


# ── T4-g: one pop does not take every partition while others wait ──


async def test_pops_that_come_together_share_what_is_ready(log: Log) -> None:
    await log.push(*range(160), partition=LOOSE)
    found: list[Popped] = await log.results(*[Pop(queue=QUEUE, batch=1_000, partitions=0) for _ in range(6)])
    assert [len(popped.batches) for popped in found] == [2] * 6


async def test_a_pop_leaves_their_share_to_those_who_wait(log: Log) -> None:
    await log.push(*range(160), partition=LOOSE)
    assert len(await log.pop(1_000, partitions=0, sharers=3)) == LANES_DEFAULT // 4
    assert len(await log.pop(1_000, partitions=9, sharers=2)) == 12 // 3


async def test_each_of_many_who_wait_may_take_one(log: Log) -> None:
    await log.push(*range(3), partition=LOOSE)
    for _ in range(3):
        (batch,) = await log.pop(10, partitions=0, sharers=500)
        assert len(batch.offsets) == 1


async def test_what_is_left_is_there_for_the_next(log: Log) -> None:
    await log.push(*range(32), partition=LOOSE)
    first = await log.pop(1_000, partitions=0, sharers=1)
    rest = await log.pop(1_000, partitions=0)
    assert len(first) == len(rest) == LANES_DEFAULT // 2
    for batch in (*first, *rest):
        await log.run(ack(batch))
    assert await log.pop(partitions=0) == []
