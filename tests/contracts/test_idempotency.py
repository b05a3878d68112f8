"""Idempotency keys: the second operation with a key changes nothing and gets the answer of the first."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from headwater.errors import HeadwaterError, KeyReused, LeaseLost
from headwater.log.group_operations import GiveBack, LeaseName
from headwater.log.job_operations import Enqueue, NewJob
from headwater.log.operations import Ack, Batch, Configure, Operation, Pop, Popped, Push, Requeue, Retain, Transaction
from headwater.model.cursor import Outcome
from headwater.model.idempotency import scoped_key
from headwater.model.principal import OWNER, Principal
from headwater.model.record import Record
from headwater.services.queue import with_keys
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, payloads, push


async def test_the_second_push_gets_the_answer_of_the_first(log: Log) -> None:
    first = await log.push("a", "b", key="k")
    assert await log.push("a", "b", key="k") == first
    assert await log.drain() == ["a", "b"]


async def test_an_answer_with_duplicates_is_remembered_whole(log: Log) -> None:
    await log.push("a", ids=["1"])
    first = await log.push("b", "a", ids=["2", "1"], key="k")
    assert await log.push("b", "a", ids=["2", "1"], key="k") == first
    assert first.duplicates == {1: 0}


async def test_the_second_pop_gets_the_records_of_the_first(log: Log) -> None:
    await log.push("a", "b")
    first = await log.take(key="k")
    again = await log.take(key="k")
    assert (payloads(again), again.token, again.offsets) == (payloads(first), first.token, first.offsets)
    await log.ack(again)
    assert await log.drain() == ["b"]


async def test_the_second_ack_gets_the_answer_of_the_first(log: Log) -> None:
    await log.push("a")
    batch = await log.take()
    ack = Ack(partition_id=batch.partition_id, token=batch.token, key="k")
    assert await log.run(ack) == await log.run(ack)
    with pytest.raises(LeaseLost):
        await log.ack(batch)


async def test_an_operation_that_failed_may_be_tried_again_with_its_key(log: Log) -> None:
    await log.configure(size_max=1)
    await log.push("a")
    (refused,) = await log.results(push("b", key="k"))
    assert refused.code == "queue_full"
    await log.drain()
    assert (await log.push("b", key="k")).offsets() == [1]


async def test_a_key_of_another_kind_of_operation_is_refused(log: Log) -> None:
    await log.push("a", key="k")
    (refused,) = await log.results(Pop(queue="orders", key="k"))
    assert isinstance(refused, KeyReused)
    assert payloads(await log.take()) == ["a"]


async def test_the_same_key_twice_in_one_commit_counts_once(log: Log) -> None:
    first, second = await log.results(push("a", key="k"), push("a", key="k"))
    assert first == second
    assert await log.drain() == ["a"]


async def test_a_key_of_another_kind_in_the_same_commit_is_refused(log: Log) -> None:
    await log.push("old")
    pushed, refused = await log.results(push("a", key="k"), Pop(queue="orders", key="k"))
    assert pushed.offsets() == [1]
    assert isinstance(refused, KeyReused)


async def test_keys_are_known_after_a_restart_and_in_other_stores(log: Log, open_log: OpenLog) -> None:
    first = await log.push("a", key="k")
    other = await open_log()
    assert await other.push("a", key="k") == first
    await log.store.close()
    again = await open_log()
    assert await again.push("a", key="k") == first
    assert await again.drain() == ["a"]


async def test_databases_have_their_own_keys(log: Log) -> None:
    await log.push("a", key="k")
    assert (await log.push("b", key="k", database="tenant")).offsets() == [0]
    assert (await log.queue(database="tenant")).records == 1


async def test_a_transaction_is_answered_again_as_the_first_time(log: Log) -> None:
    await log.push("a")
    batch = await log.take()
    transaction = Transaction(
        key="k",
        operations=[Ack(partition_id=batch.partition_id, token=batch.token), push("b", queue="bills"), Pop(queue="x")],
    )
    first = await log.run(transaction)
    again = await log.run(transaction)
    assert again == first
    assert isinstance(again.results[2], Popped)
    assert (await log.queue("bills")).records == 1


async def test_a_transaction_of_other_steps_is_another_kind(log: Log) -> None:
    await log.run(Transaction(key="k", operations=[push("a")]))
    (refused,) = await log.results(Transaction(key="k", operations=[push("a"), push("b")]))
    assert isinstance(refused, KeyReused)
    assert await log.drain() == ["a"]


async def test_an_answer_from_memory_says_that_something_has_to_be_durable(log: Log) -> None:
    """The first commit may not be on stable storage yet: nobody may be told so too early."""
    await log.push("a", key="k")
    assert (await log.commit(push("a", key="k"))).wrote


async def test_other_operations_take_keys_too(log: Log) -> None:
    configure = Configure(queue="orders", options={"retry_limit": 5}, key="c")
    first = await log.run(configure)
    await log.configure(retry_limit=6)
    assert await log.run(configure) == first
    assert (await log.queue()).options.retry_limit == 6
    await log.push("a")
    await log.settle(await log.take(), Outcome.DEAD)
    requeue = Requeue(queue="orders", key="r")
    assert [(await log.run(requeue)).count for _ in range(2)] == [1, 1]
    assert await log.drain() == ["a"]


async def test_a_key_brings_no_records_of_another_queue(log: Log) -> None:
    await log.push("secret", queue="plans")
    await log.push("open", queue="orders")
    await log.run(Pop(queue="plans", key="once"))
    (refused,) = await log.results(Pop(queue="orders", key="once"))
    assert isinstance(refused, KeyReused)
    (again,) = (await log.run(Pop(queue="plans", key="once"))).batches
    assert payloads(again) == ["secret"]


async def test_a_key_of_a_push_to_another_queue_is_refused_also_inside_a_long_transaction(log: Log) -> None:
    def steps(last: str) -> Transaction:
        return Transaction(operations=[*(push(1, queue="q" * 100) for _ in range(9)), push(1, queue=last)], key="once")

    first = await log.run(steps("a"))
    assert await log.run(steps("a")) == first
    (refused,) = await log.results(steps("b"))
    assert isinstance(refused, KeyReused)


OTHER_REQUESTS: dict[str, tuple[Operation, Operation]] = {
    "another payload": (push("a", key="k"), push("b", key="k")),
    "one record more": (push("a", key="k"), push("a", "b", key="k")),
    "another transaction id": (push("a", ids=["1"], key="k"), push("a", ids=["2"], key="k")),
    "another partition": (push("a", partition="1", key="k"), push("a", partition="2", key="k")),
    "another time to live": (push("a", key="k"), push("a", ttl_seconds=5.0, key="k")),
    "a larger batch": (Pop(queue="orders", key="k"), Pop(queue="orders", batch=9, key="k")),
    "another group": (Pop(queue="orders", group="a", key="k"), Pop(queue="orders", group="b", key="k")),
    "other options": (
        Configure(queue="orders", options={"retry_limit": 5}, key="k"),
        Configure(queue="orders", options={"retry_limit": 6}, key="k"),
    ),
    "other steps of the same kind": (
        Transaction(operations=[push("a")], key="k"),
        Transaction(operations=[push("b")], key="k"),
    ),
    "another job": (Enqueue(jobs=[NewJob(type="a:b")], key="k"), Enqueue(jobs=[NewJob(type="a:c")], key="k")),
}


@pytest.mark.parametrize("case", OTHER_REQUESTS)
@pytest.mark.parametrize("together", [True, False], ids=["in one commit", "one after the other"])
async def test_a_repeated_key_with_another_request_is_refused_and_changes_nothing(
    log: Log, case: str, together: bool
) -> None:
    await log.push("waits", queue="orders", partition="0")
    first, other = OTHER_REQUESTS[case]
    if together:
        done, refused = await log.results(first, other)
    else:
        (done,), (refused,) = await log.results(first), await log.results(other)
    assert isinstance(refused, KeyReused)
    assert "'k'" in str(refused)
    assert not isinstance(done, HeadwaterError)
    (again,) = await log.results(first)
    assert again == done


async def test_a_push_to_several_partitions_is_refused_wholly_when_its_key_stands_for_another(log: Log) -> None:
    first = with_keys([push("a", partition="1")], "k")
    more = with_keys([push("a", partition="1"), push("b", partition="2")], "k")
    await log.results(*first)
    assert [type(result) for result in await log.results(*more)] == [KeyReused, KeyReused]
    assert await log.drain() == ["a"]
    done = await log.results(*with_keys([push("c", partition="3"), push("d", partition="4")], "l"))
    assert await log.results(*with_keys([push("c", partition="3"), push("d", partition="4")], "l")) == done
    assert sorted(await log.drain()) == ["c", "d"]


BILLING = Principal(subject="billing", queues=("orders",))
PRINCIPALS = {
    "another subject": Principal(subject="shipping", queues=("orders",)),
    "other patterns": Principal(subject="billing", queues=("orders", "bills")),
    "the owner": OWNER,
}


@pytest.mark.parametrize("who", PRINCIPALS)
async def test_principals_do_not_meet_in_their_keys(log: Log, who: str) -> None:
    """Neither answered with what another did, nor refused for it."""
    first = await log.push("a", key=scoped_key(BILLING, "k"))
    other = await log.push("b", key=scoped_key(PRINCIPALS[who], "k"))
    assert (first.offsets(), other.offsets()) == ([0], [1])
    assert await log.push("a", key=scoped_key(BILLING, "k")) == first
    assert await log.push("b", key=scoped_key(PRINCIPALS[who], "k")) == other


def test_patterns_in_another_order_are_the_same_principal() -> None:
    turned = [Principal(subject="billing", queues=queues) for queues in (("a", "b"), ("b", "a"))]
    assert len({scoped_key(principal, "k") for principal in turned}) == 1


# ── pops that are asked for again because their answer was lost ──


async def ask(log: Log, **more: Any) -> list[Batch]:
    popped: Popped = await log.run(Pop(queue="orders", key="k", **more))
    return popped.batches


@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_pop_whose_answer_was_lost_gets_the_same_again(log: Log, other: Log, auto_ack: bool) -> None:
    for partition in ("a", "b"):
        await log.push(1, 2, 3, partition=partition)
    first = await ask(log, batch=5, partitions=0, auto_ack=auto_ack)
    assert sum(len(batch.offsets) for batch in first) == 5
    assert await ask(log, batch=5, partitions=0, auto_ack=auto_ack) == first
    assert await ask(other, batch=5, partitions=0, auto_ack=auto_ack) == first


async def test_nothing_is_no_answer_yet_to_a_pop_with_a_key(log: Log) -> None:
    await log.configure()
    assert await ask(log) == []
    await log.push("a")
    (batch,) = await ask(log)
    assert payloads(batch) == ["a"]


OVER: dict[str, Callable[[Log, FakeClock, Batch], Awaitable[object]]] = {
    "given back": lambda log, clock, batch: log.settle(batch, Outcome.RELEASED),
    "failed": lambda log, clock, batch: log.settle(batch, Outcome.FAILED),
    "done": lambda log, clock, batch: log.ack(batch),
    "run out": lambda log, clock, batch: run_out(clock),
}


async def run_out(clock: FakeClock) -> None:
    clock.advance(1_000)


@pytest.mark.parametrize("how", OVER)
async def test_a_lease_that_is_over_is_not_told_again(log: Log, clock: FakeClock, how: str) -> None:
    """Others may have its records; whoever asks again gets what a new pop would."""
    await log.configure(retry_delay_seconds=0)
    await log.push("a", "b", partition="p")
    (first,) = await ask(log)
    await OVER[how](log, clock, first)
    again, same = await log.results(*[Pop(queue="orders", key="k")] * 2)
    (batch,) = again.batches
    assert batch.token > first.token
    assert payloads(batch) == (["b"] if how == "done" else ["a"])
    assert same == again, "one lease for one key, also in one commit"
    assert await ask(log) == [batch]


def leave(*batches: Batch) -> GiveBack:
    return GiveBack(pop_key="k", leases=[LeaseName(batch.partition_id, batch.group, batch.token) for batch in batches])


@pytest.mark.parametrize("together", [False, True])
async def test_what_several_got_with_one_key_goes_back_when_the_last_of_them_leaves(log: Log, together: bool) -> None:
    await log.push("a", partition="p")
    await log.push("b", partition="q")
    pops = [Pop(queue="orders", key="k", batch=10, partitions=2, lease_seconds=60) for _ in range(3)]
    if together:
        results = await log.results(*pops)
    else:
        results = [(await log.results(pop))[0] for pop in pops]
    batches = results[0].batches
    assert len(batches) == 2
    assert [result.batches for result in results] == [batches] * 3
    for _ in range(2):
        assert (await log.run(leave(*batches))).leases == 0
        assert not (await log.run(Pop(queue="orders"))).batches, "others have it still"
    (again,) = await log.results(pops[0])
    assert again.batches == batches, "whoever asks again is one more"
    assert (await log.run(leave(*batches))).leases == 0
    assert (await log.run(leave(*batches))).leases == 2
    free = (await log.run(Pop(queue="orders", batch=10, partitions=2))).batches
    assert sorted(payloads(free[0]) + payloads(free[1])) == ["a", "b"]
    assert {batch.attempts for batch in free} == {1}
    assert (await log.run(leave(*batches))).leases == 0


async def test_of_what_goes_back_only_the_rest_is_free(log: Log) -> None:
    await log.push(0, 1, 2, partition="p")
    (first,) = await ask(log, batch=3)
    await log.run(Ack(partition_id=first.partition_id, token=first.token, offsets=[0]))
    assert (await log.run(leave(first))).leases == 1
    (free,) = (await log.run(Pop(queue="orders", batch=3))).batches
    assert (payloads(free), free.attempts) == ([1, 2], 1)


async def test_nobody_gives_back_what_the_key_stands_for_by_now(log: Log, clock: FakeClock) -> None:
    await log.configure(retry_delay_seconds=0)
    await log.push("a", partition="p")
    (first,) = await ask(log)
    await run_out(clock)
    (second,) = await ask(log)
    assert second.token > first.token
    assert (await log.run(leave(first))).leases == 0
    assert await ask(log) == [second]
    await log.run(Push(queue="orders", partition="p", records=[Record(msgspec.Raw(b"1"))], key="other"))
    for key in ("other", "nobody's"):
        giving_back = GiveBack(pop_key=key, leases=[LeaseName(second.partition_id, second.group, second.token)])
        assert (await log.run(giving_back)).leases == 0
    assert not (await log.run(Pop(queue="orders"))).batches


async def test_of_a_lease_that_was_reported_on_in_part_the_rest_is_told_again(log: Log) -> None:
    await log.push(0, 1, 2, 3, partition="p")
    (first,) = await ask(log, batch=4)
    await log.run(Ack(partition_id=first.partition_id, token=first.token, offsets=[0, 2]))
    (again,) = await ask(log, batch=4)
    assert (again.token, again.offsets, payloads(again)) == (first.token, [1, 3], [1, 3])


async def test_a_lease_that_another_holds_now_is_not_told_again(log: Log) -> None:
    await log.push("a", partition="p")
    (first,) = await ask(log)
    await log.settle(first, Outcome.RELEASED)
    other = await log.take()
    assert await ask(log) == []
    await log.ack(other)
    assert await ask(log) == []


async def test_records_that_are_gone_are_not_told_again(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await log.push("old", partition="p")
    assert [payloads(batch) for batch in await ask(log, auto_ack=True)] == [["old"]]
    clock.advance(61)
    await log.run(Retain())
    await log.push("new", partition="p")
    assert [payloads(batch) for batch in await ask(log, auto_ack=True)] == [["new"]]


async def test_the_answer_to_a_pop_is_kept_whatever_its_offsets(log: Log) -> None:
    await log.push(*range(6), partition="p")
    first = await log.take(6)
    await log.run(
        Ack(partition_id=first.partition_id, token=first.token, outcomes={n: done_or_back(n) for n in range(6)})
    )
    (batch,) = await ask(log, batch=6)
    assert batch.offsets == [0, 3, 4]
    assert await ask(log, batch=6) == [batch]


def done_or_back(number: int) -> Outcome:
    return Outcome.RELEASED if number in (0, 3, 4) else Outcome.COMPLETED
