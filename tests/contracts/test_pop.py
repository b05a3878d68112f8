"""Popping: by queue, partition or namespace and task; batches; groups and where they begin; who comes first."""

import pytest

from headwater.log.operations import Batch, Configure, Pop, Retain
from headwater.model.cursor import Outcome
from headwater.stores.questions import ListQueues
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, ack, payloads, push, report


async def test_nothing_is_popped_from_a_queue_that_is_not_there(log: Log) -> None:
    assert await log.pop(queue="missing") == []
    assert await log.store.ask(ListQueues("main")) == []


async def test_nothing_is_popped_from_an_empty_queue(log: Log) -> None:
    await log.configure()
    assert await log.free_at() is None


async def test_a_batch_takes_no_more_than_it_asks_for(log: Log) -> None:
    await log.push(*range(5))
    batch = await log.take(3)
    assert (payloads(batch), batch.offsets) == ([0, 1, 2], [0, 1, 2])
    await log.ack(batch)
    assert payloads(await log.take(3)) == [3, 4]


async def test_a_batch_spans_the_segments_of_a_partition(log: Log) -> None:
    for number in range(6):
        await log.push(number)
    batch = await log.take(4)
    assert payloads(batch) == [0, 1, 2, 3]
    assert batch.lsns == sorted(set(batch.lsns))


async def test_a_batch_comes_with_its_address_and_lease(log: Log, clock: FakeClock) -> None:
    pushed = await log.push("a", partition="customer-42")
    batch = await log.take(group="billing", lease_seconds=7)
    assert (batch.queue, batch.partition, batch.group) == ("orders", "customer-42", "billing")
    assert (batch.partition_id, batch.attempts, batch.lost) == (pushed.partition_id, 1, 0)
    assert batch.lease_until == clock.now() + 7_000_000
    assert batch.token > 0


async def test_the_queue_decides_the_lease_time_unless_the_pop_does(log: Log, clock: FakeClock) -> None:
    await log.configure(lease_seconds=11)
    await log.push("a")
    assert (await log.take()).lease_until == clock.now() + 11_000_000


async def test_a_partition_is_popped_by_name(log: Log) -> None:
    for name in ("a", "b", "c"):
        await log.push(name, partition=name)
    assert payloads(await log.take(partition="b")) == ["b"]
    assert await log.pop(partition="b") == []
    assert await log.pop(partition="missing") == []


async def test_several_partitions_are_popped_at_once(log: Log) -> None:
    for name in ("a", "b", "c"):
        await log.push(1, 2, partition=name)
    batches = await log.pop(100, partitions=2)
    assert len(batches) == 2
    assert len({batch.partition for batch in batches}) == 2
    assert [payloads(batch) for batch in batches] == [[1, 2], [1, 2]]


async def test_the_batch_is_shared_between_partitions(log: Log) -> None:
    for name in ("a", "b", "c"):
        await log.push(1, 2, partition=name)
    batches = await log.pop(3, partitions=3)
    assert [len(batch.offsets) for batch in batches] == [2, 1]


async def test_the_partition_that_waited_longest_comes_first(log: Log, clock: FakeClock) -> None:
    await log.pop()
    await log.configure()
    await log.pop()
    for name in ("late", "later", "latest"):
        await log.push(name, partition=name)
        await log.pop(partition="missing")
        clock.advance(1)
    assert [(await log.take()).partition for _ in range(3)] == ["late", "later", "latest"]


async def test_a_busy_partition_does_not_starve_the_others(log: Log, clock: FakeClock) -> None:
    await log.push(*range(10), partition="busy")
    await log.push("quiet", partition="quiet")
    found = []
    for _ in range(3):
        batch = await log.take()
        found.append(batch.partition)
        clock.advance(0.001)
        await log.ack(batch)
    assert "quiet" in found


async def test_records_of_a_partition_come_in_order(log: Log) -> None:
    await log.push(*range(20))
    found = []
    for size in (1, 7, 3, 9):
        batch = await log.take(size)
        found += payloads(batch)
        await log.ack(batch)
    assert found == list(range(20))


async def test_an_ack_and_the_next_pop_share_a_commit(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take()
    popped, acked = await log.results(Pop(queue="orders"), ack(batch))
    assert acked.lease_ended
    assert payloads(popped.batches[0]) == [2]


async def test_a_push_and_a_pop_share_a_commit(log: Log) -> None:
    popped, _ = await log.results(Pop(queue="orders"), push("a"))
    assert payloads(popped.batches[0]) == ["a"]


async def test_pops_of_one_commit_get_different_partitions(log: Log) -> None:
    await log.push("a", partition="a")
    await log.push("b", partition="b")
    results = await log.results(*[Pop(queue="orders")] * 3)
    assert sorted(batch.partition for popped in results for batch in popped.batches) == ["a", "b"]


# ── many partitions: a group meets them a few hundred at a time ──


async def test_a_new_group_reaches_a_record_behind_hundreds_of_empty_partitions(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=10)
    await log.commit(*[push(number, partition=f"p{number}") for number in range(600)])
    clock.advance(11)
    await log.run(Retain(limit=10_000))
    await log.push("found", partition="p590")
    assert payloads(await log.take()) == ["found"]


async def test_a_new_group_reaches_one_partition_among_hundreds_by_name(log: Log) -> None:
    await log.commit(*[push(number, partition=f"p{number}") for number in range(600)])
    assert payloads(await log.take(partition="p577")) == [577]
    assert await log.pop(partition="p577") == []
    found: list[Batch] = []
    while batches := await log.pop(1_000, partitions=100):
        found += batches
    assert sorted(number for batch in found for number in payloads(batch)) == [n for n in range(600) if n != 577]


# ── namespaces and tasks ──


async def make_queues(log: Log) -> None:
    await log.results(
        Configure(queue="low", namespace="shop", task="bill", options={"priority": 1}),
        Configure(queue="high", namespace="shop", task="bill", options={"priority": 9}),
        Configure(queue="mail", namespace="shop", task="mail", options={"priority": 5}),
        Configure(queue="elsewhere", namespace="depot", task="bill", options={"priority": 99}),
    )
    for name in ("low", "high", "mail", "elsewhere"):
        await log.push(name, queue=name)


@pytest.mark.parametrize(
    ("namespace", "task", "expected"),
    [
        ("shop", "bill", ["high", "low"]),
        ("shop", "", ["high", "mail", "low"]),
        ("", "bill", ["elsewhere", "high", "low"]),
        ("", "", ["elsewhere", "high", "mail", "low"]),
        ("depot", "mail", []),
    ],
)
async def test_queues_of_a_namespace_and_task_are_popped_by_priority(
    log: Log, namespace: str, task: str, expected: list[str]
) -> None:
    await make_queues(log)
    found = []
    while batches := await log.pop(queue="", namespace=namespace, task=task):
        found += [batch.queue for batch in batches]
    assert found == expected


async def test_one_pop_fills_its_batch_from_several_queues(log: Log) -> None:
    await make_queues(log)
    batches = await log.pop(10, queue="", namespace="shop", partitions=10)
    assert [batch.queue for batch in batches] == ["high", "mail", "low"]


# ── groups ──


async def test_every_group_gets_every_record(log: Log) -> None:
    await log.push(1, 2, 3)
    assert await log.drain(group="one") == [1, 2, 3]
    assert await log.drain(group="two") == [1, 2, 3]
    assert await log.drain(group="one") == []


async def test_a_lease_of_one_group_does_not_hold_another_back(log: Log) -> None:
    await log.push(1)
    first, second = await log.take(group="one"), await log.take(group="two")
    await log.ack(second)
    await log.ack(first)
    assert await log.drain(group="one") + await log.drain(group="two") == []


async def test_a_group_reads_everything_by_default(log: Log) -> None:
    await log.push("old")
    assert await log.drain(group="late") == ["old"]


async def test_a_group_that_wants_what_is_new_begins_at_its_first_pop(log: Log) -> None:
    await log.push("old")
    await log.push("old", partition="elsewhere")
    assert await log.pop(group="late", subscribe="new") == []
    await log.push("new")
    await log.push("new in a new partition", partition="fresh")
    await log.push("new elsewhere", partition="elsewhere")
    found = await log.drain(group="late", subscribe="new")
    assert sorted(found) == ["new", "new elsewhere", "new in a new partition"]


async def test_a_group_that_wants_what_is_new_may_come_before_the_queue(log: Log) -> None:
    assert await log.pop(group="early", subscribe="new") == []
    await log.push("first")
    assert await log.drain(group="early", subscribe="new") == ["first"]


async def test_a_group_begins_at_a_time(log: Log, clock: FakeClock) -> None:
    await log.push("before")
    since = clock.advance(10)
    await log.push("at")
    clock.advance(10)
    await log.push("after")
    assert await log.drain(group="late", since=since) == ["at", "after"]


async def test_where_a_group_begins_is_decided_once(log: Log) -> None:
    await log.push("old")
    await log.pop(group="late", subscribe="new")
    assert await log.drain(group="late", subscribe="all") == []


# ── auto_ack ──


async def test_a_pop_that_acks_leaves_no_lease(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(2, auto_ack=True)
    assert (payloads(batch), batch.token) == ([1, 2], 0)
    assert payloads(await log.take(2, auto_ack=True)) == [3]
    assert await log.free_at() is None
    assert (await log.group()).leased == 0


async def test_a_pop_that_acks_does_not_bring_back_what_was_settled_before(log: Log, clock: FakeClock) -> None:
    await log.push(*range(4))
    batch = await log.take(4)
    await log.run(report(batch, {0: Outcome.FAILED, 1: Outcome.FAILED, 2: Outcome.COMPLETED, 3: Outcome.COMPLETED}))
    clock.advance(10)
    assert payloads(await log.take(10, auto_ack=True)) == [0, 1]
    assert await log.pop(10, auto_ack=True) == []
    await log.push(4)
    assert payloads(await log.take(10, auto_ack=True)) == [4]


# ── what an empty pop says ──


async def test_an_empty_pop_says_when_a_lease_ends(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.take(lease_seconds=30)
    assert await log.free_at() == clock.now() + 30_000_000


async def test_an_empty_pop_of_one_partition_speaks_of_that_partition(log: Log, clock: FakeClock) -> None:
    await log.push(1, partition="leased")
    await log.push(2, partition="free")
    await log.take(partition="leased", lease_seconds=30)
    assert await log.free_at(partition="leased") == clock.now() + 30_000_000
    assert await log.free_at(partition="missing") is None
