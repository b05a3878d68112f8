"""Dead letters: listed with the reason, pushed back, dropped."""

from typing import Any

import msgspec
import pytest

from headwater.errors import HeadwaterError, InvalidOption, QueueFull, QueueMissing
from headwater.log.operations import (
    Configure,
    DeleteGroup,
    Pop,
    Purge,
    Push,
    Reap,
    Requeue,
    Retain,
    Seek,
    Transaction,
)
from headwater.model.cursor import Outcome
from headwater.model.names import GROUP_DEFAULT
from headwater.model.record import Record
from headwater.model.spreading import priority_of, requeued_name
from headwater.stores.questions import ListExpired, ListGroups
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, push, report


async def bury(log: Log, count: int, partition: str = "Default") -> None:
    """Push records and give all of them up."""
    await log.push(*range(count), ids=[f"{partition}-{number}" for number in range(count)], partition=partition)
    await log.settle(await log.take(count, partition=partition), Outcome.DEAD, error="no good")


async def test_a_dead_letter_tells_everything_about_its_record(log: Log, clock: FakeClock) -> None:
    written_at = clock.now()
    pushed = await log.push("a", ids=["tx-1"], partition="p")
    batch = await log.take(group="billing")
    clock.advance(5)
    await log.settle(batch, Outcome.DEAD, error="no good")
    (letter,) = await log.dead_letters()
    assert (letter.queue, letter.partition, letter.partition_id) == ("orders", "p", pushed.partition_id)
    assert (letter.group, letter.offset, letter.record.transaction_id) == ("billing", 0, "tx-1")
    assert bytes(letter.record.data) == b'"a"'
    assert (letter.error, letter.attempts) == ("no good", 1)
    assert (letter.written_at, letter.failed_at) == (written_at, clock.now())


async def test_a_commit_tells_how_many_records_it_buried(log: Log, clock: FakeClock) -> None:
    """Whichever way they died: on a report, under a lease that a pop takes over, or that housekeeping ends."""
    for database in ("main", "acme"):
        options = {"retry_limit": 0, "lease_seconds": 1}
        await log.run(Configure(database=database, queue="orders", options=options))
    await log.push("a", "b", "c")
    await log.run(push("d", database="acme"))
    reported = await log.commit(report(await log.take(1), {0: Outcome.DEAD}))
    await log.take(1)
    clock.advance(2)
    taken_over = await log.commit(Pop(queue="orders"), Pop(queue="orders", database="acme"))
    clock.advance(2)
    reaped = await log.commit(Reap(leases=await log.store.ask(ListExpired(clock.now(), 10))))
    assert [reported.buried, taken_over.buried, reaped.buried] == [{"main": 1}, {"main": 1}, {"main": 1, "acme": 1}]
    assert not (await log.commit(push("e"))).buried


async def test_what_a_transaction_that_failed_would_have_buried_is_not_counted(log: Log) -> None:
    await log.push("a", "b")
    batch = await log.take(2)
    deadly = report(batch, {1: Outcome.DEAD})
    failing = Transaction(operations=[deadly, report(batch, {"no such record": Outcome.DEAD})])
    commit = await log.commit(report(batch, {0: Outcome.DEAD}), failing)
    assert isinstance(commit.results[1], HeadwaterError)
    assert commit.buried == {"main": 1}


async def test_a_reason_is_given_by_offset_or_by_transaction_id(log: Log) -> None:
    await log.push("a", "b", "c", ids=["1", "2", "3"])
    batch = await log.take(3)
    report_with_reasons = report(batch, {0: Outcome.DEAD, "2": Outcome.DEAD}, "told")
    await log.run(report_with_reasons)
    await log.run(report(batch, {2: Outcome.DEAD}))
    assert [letter.error for letter in await log.dead_letters()] == ["told", "told", "failed"]


async def test_dead_letters_are_listed_page_by_page(log: Log) -> None:
    await bury(log, 5)
    first = await log.dead_letters(limit=2)
    rest = await log.dead_letters(after=first[-1].id)
    assert [letter.offset for letter in first + rest] == [0, 1, 2, 3, 4]
    assert (await log.queue()).dead_letters == 5


async def test_dead_letters_of_a_queue_that_is_not_there_are_an_error(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.dead_letters("missing")
    for operation in (Requeue(queue="missing"), Purge(queue="missing")):
        with pytest.raises(QueueMissing):
            await log.run(operation)


async def test_dead_letters_are_delivered_once_more_to_the_group_they_failed_for_alone(log: Log) -> None:
    await log.push(*range(3))
    for group in ("billing", "audit", "mail"):
        batch = await log.take(3, group=group)
        if group == "mail":
            await log.settle(batch, Outcome.DEAD, [1])
            await log.ack(batch, [0, 2])
        else:
            await log.ack(batch)
    assert (await log.run(Requeue(queue="orders"))).count == 1
    assert await log.drain(group="billing") == []
    assert await log.drain(group="audit") == []
    assert await log.drain(group="new-comer") == [0, 1, 2]
    lags = {status.group: status.lag for status in await log.store.ask(ListGroups("main", "orders"))}
    assert lags == {"billing": 0, "audit": 0, "mail": 1, "new-comer": 0}
    assert await log.drain(group="mail") == [1]
    assert await log.dead_letters() == []


async def test_many_requeued_dead_letters_can_be_worked_on_at_once(log: Log) -> None:
    await bury(log, 6)
    await log.run(Requeue(queue="orders"))
    held = [await log.take() for _ in range(6)]
    assert len({batch.partition for batch in held}) == 6
    assert {batch.attempts for batch in held} == {1}


async def test_a_requeued_record_that_fails_again_can_be_requeued_again(log: Log) -> None:
    await bury(log, 1)
    for all_groups in (False, False, True):
        await log.run(Requeue(queue="orders", all_groups=all_groups))
        if not all_groups:
            await log.settle(await log.take(), Outcome.DEAD)
    assert await log.drain(group="another") == [0, 0]
    assert await log.drain() == [0]


async def test_dead_letters_go_to_another_queue_when_asked(log: Log) -> None:
    await bury(log, 2)
    assert (await log.run(Requeue(queue="orders", to="by-hand"))).count == 2
    assert await log.dead_letters() == []
    assert await log.drain() == []
    assert sorted(await log.drain(queue="by-hand", group="anybody")) == [0, 1]


async def test_dead_letters_stay_when_the_other_queue_is_full(log: Log) -> None:
    await bury(log, 2)
    await log.configure(queue="by-hand", size_max=1)
    with pytest.raises(QueueFull, match="'by-hand' holds 0 waiting records of at most 1; 2 more do not fit"):
        await log.run(Requeue(queue="orders", to="by-hand"))
    assert len(await log.dead_letters()) == 2


async def test_what_the_other_queue_holds_is_counted_once(log: Log, other: Log) -> None:
    """Also what an earlier push or requeue has put there."""
    await bury(log, 4)
    await log.configure(queue="by-hand", size_max=4)
    await log.push("pushed", queue="by-hand")
    for letter in (await log.dead_letters())[:3]:
        # Somebody else has committed meanwhile, so everything is counted anew.
        await other.push("something", queue="elsewhere")
        await log.run(Requeue(queue="orders", to="by-hand", ids=[letter.id]))
    with pytest.raises(QueueFull, match=r"'by-hand' holds 4 waiting records of at most 4$"):
        await log.run(Requeue(queue="orders", to="by-hand"))
    assert len(await log.drain(queue="by-hand", group="anybody")) == 4


async def test_dead_letters_that_come_back_take_room(log: Log) -> None:
    await log.configure(size_max=3)
    await bury(log, 2)
    await log.push("new")
    assert (await log.run(Requeue(queue="orders"))).count == 2
    with pytest.raises(QueueFull, match="holds 3 waiting records"):
        await log.push("one more")


async def test_dead_letters_of_a_group_that_is_gone_stay_until_it_is_said_who_gets_them(log: Log) -> None:
    await bury(log, 1)
    await log.run(DeleteGroup(group=GROUP_DEFAULT))
    with pytest.raises(QueueMissing, match="all groups"):
        await log.run(Requeue(queue="orders"))
    assert len(await log.dead_letters()) == 1
    await log.run(Requeue(queue="orders", all_groups=True))
    assert await log.drain(group="another") == [0, 0]


async def test_dead_letters_of_other_groups_are_requeued_by_their_ids_when_a_group_is_gone(log: Log) -> None:
    await log.push("a")
    for group in ("gone", "here"):
        await log.settle(await log.take(group=group), Outcome.DEAD)
    await log.run(DeleteGroup(group="gone"))
    with pytest.raises(QueueMissing, match=r"no group 'gone' any more, and nothing was requeued.*by their ids"):
        await log.run(Requeue(queue="orders"))
    assert await log.drain(group="here") == []
    ids = [letter.id for letter in await log.dead_letters() if letter.group == "here"]
    assert (await log.run(Requeue(queue="orders", ids=ids))).count == 1
    assert await log.drain(group="here") == ["a"]
    assert [letter.group for letter in await log.dead_letters()] == ["gone"]


@pytest.mark.parametrize(
    ("wrong", "why"), [({"to": "orders"}, "leave `to` out"), ({"to": "other", "all_groups": True}, "not both")]
)
async def test_a_requeue_that_cannot_be_meant_is_refused(log: Log, wrong: dict[str, Any], why: str) -> None:
    await bury(log, 1)
    with pytest.raises(InvalidOption, match=why):
        await log.run(Requeue(queue="orders", **wrong))
    assert len(await log.dead_letters()) == 1


async def test_what_was_requeued_and_done_is_dropped_by_retention(log: Log, clock: FakeClock) -> None:
    # Transaction ids, which dead letters have here, would be kept for their window.
    await log.configure(completed_retention_seconds=10, deduplication_seconds=0)
    await bury(log, 1)
    await log.ack(await log.take(group="other"))
    await log.run(Requeue(queue="orders"))
    assert await log.drain() == [0]
    clock.advance(11)
    assert (await log.run(Retain())).records == 2
    assert (await log.queue()).records == 0


async def test_dead_letters_go_back_to_their_partitions(log: Log) -> None:
    await bury(log, 2, "a")
    await bury(log, 1, "b")
    assert (await log.run(Requeue(queue="orders", all_groups=True))).count == 3
    assert await log.dead_letters() == []
    assert await log.drain(partition="a") == [0, 1]
    assert await log.drain(partition="b") == [0]


async def test_a_requeued_record_begins_its_count_anew(log: Log) -> None:
    await bury(log, 1)
    await log.run(Requeue(queue="orders", all_groups=True))
    batch = await log.take()
    assert (batch.offsets, batch.attempts) == ([1], 1)


async def test_chosen_dead_letters_go_back(log: Log) -> None:
    await bury(log, 3)
    chosen = (await log.dead_letters())[1]
    assert (await log.run(Requeue(queue="orders", ids=[chosen.id]))).count == 1
    assert [letter.offset for letter in await log.dead_letters()] == [0, 2]
    assert await log.drain() == [1]


async def test_dead_letters_are_dropped(log: Log) -> None:
    await bury(log, 3)
    chosen = (await log.dead_letters())[0]
    assert (await log.run(Purge(queue="orders", ids=[chosen.id]))).count == 1
    assert (await log.run(Purge(queue="orders", limit=1))).count == 1
    assert [letter.offset for letter in await log.dead_letters()] == [2]
    assert (await log.run(Purge(queue="orders"))).count == 1
    assert (await log.run(Purge(queue="orders"))).count == 0


@pytest.mark.parametrize("kind", [Requeue, Purge])
async def test_a_dead_letter_that_is_not_there_refuses_the_whole_choice(
    log: Log, kind: type[Requeue] | type[Purge]
) -> None:
    await bury(log, 2)
    known = (await log.dead_letters())[0].id
    with pytest.raises(QueueMissing):
        await log.run(kind(queue="orders", ids=[known, 999]))
    assert len(await log.dead_letters()) == 2
    assert await log.drain() == []


@pytest.mark.parametrize("kind", [Requeue, Purge])
async def test_a_dead_letter_named_twice_counts_once(log: Log, kind: type[Requeue] | type[Purge]) -> None:
    await bury(log, 1)
    (letter,) = await log.dead_letters()
    assert (await log.run(kind(queue="orders", ids=[letter.id, letter.id]))).count == 1
    assert await log.drain() == ([0] if kind is Requeue else [])


async def test_a_dead_letter_outlives_its_record(log: Log, clock: FakeClock) -> None:
    await log.configure(retention_seconds=60)
    await bury(log, 1)
    clock.advance(60)
    assert (await log.run(Retain())).records == 1
    assert len(await log.dead_letters()) == 1
    await log.run(Requeue(queue="orders"))
    assert await log.drain() == [0]


TOLD = Record(
    data=msgspec.Raw(b'{"id": 7}'),
    transaction_id="t",
    trace_id="trace",
    type="made",
    headers={"a": "b"},
    producer_sub="ada",
)


@pytest.mark.parametrize("way", [{}, {"all_groups": True}, {"to": "by-hand"}], ids=["group", "all groups", "to"])
@pytest.mark.parametrize("kept_at", [0, 1_000_000])
async def test_a_requeued_record_keeps_all_that_was_said_of_it(
    log: Log, clock: FakeClock, way: dict[str, Any], kept_at: int
) -> None:
    """And the time of its push; only what it is delivered by, its offset and when it is dropped, begins anew."""
    pushed_at = clock.now()
    said = msgspec.structs.replace(TOLD, timestamp=kept_at)
    await log.run(Push(queue="orders", partition="customer-42", records=[said]))
    await log.settle(await log.take(), Outcome.DEAD)
    clock.advance(60)
    await log.run(Requeue(queue="orders", **way))
    batch = await log.take(queue=way.get("to", "orders"))
    assert batch.records == [msgspec.structs.replace(said, timestamp=kept_at or pushed_at)]
    assert batch.partition == ("customer-42" if way else requeued_name(GROUP_DEFAULT, 0))
    # A second failure does not make it younger, either.
    await log.settle(batch, Outcome.DEAD)
    clock.advance(60)
    await log.run(Requeue(queue=way.get("to", "orders")))
    again = await log.take(queue=way.get("to", "orders"))
    assert again.records == batch.records


@pytest.mark.parametrize("way", [{}, {"all_groups": True}, {"to": "by-hand"}], ids=["group", "all groups", "to"])
@pytest.mark.parametrize("twice", [False, True])
async def test_a_requeued_record_keeps_its_priority(log: Log, way: dict[str, Any], twice: bool) -> None:
    await log.push("urgent", partition="", priority=9)
    await log.settle(await log.take(), Outcome.DEAD)
    if twice:
        await log.run(Requeue(queue="orders"))
        await log.settle(await log.take(), Outcome.DEAD)
    queue = way.get("to", "orders")
    await log.push("plain", queue=queue, partition="")
    await log.push("high", queue=queue, partition="", priority=5)
    await log.run(Requeue(queue="orders", **way))
    found = []
    while batches := await log.pop(queue=queue):
        found += [(payloads(batch)[0], priority_of(batch.partition)) for batch in batches]
        await log.ack(batches[0])
    assert found == [("urgent", 9), ("high", 5), ("plain", 0)]


async def test_a_requeue_to_a_queue_that_has_no_room_for_a_partition_changes_nothing(log: Log) -> None:
    await bury(log, 1, partition="a")
    await bury(log, 1, partition="b")
    await log.configure(queue="by-hand", lanes=1, partitions_max=1)
    with pytest.raises(QueueFull, match="partitions_max"):
        await log.run(Requeue(queue="orders", to="by-hand"))
    assert len(await log.dead_letters()) == 2
    assert await log.drain(queue="by-hand") == []


async def test_a_requeued_id_is_known_in_the_other_queue(log: Log) -> None:
    await log.push(1, ids=["t"], partition="")
    await log.settle(await log.take(), Outcome.DEAD)
    await log.run(Requeue(queue="orders", to="by-hand"))
    assert (await log.push(1, ids=["t"], queue="by-hand", partition="")).count == 0


@pytest.mark.parametrize("priority", [0, 7])
@pytest.mark.parametrize("has_read", [True, False], ids=["has read it", "has not read it"])
async def test_a_requeued_record_goes_to_no_other_group_whatever_its_priority(
    log: Log, other: Log, priority: int, has_read: bool
) -> None:
    await log.configure(retry_limit=0)
    await log.pop(group="other")
    await log.push("a", partition="", priority=priority)
    if has_read:
        assert await log.drain(group="other") == ["a"]
    await log.settle(await log.take(group="billing"), Outcome.DEAD)
    await log.run(Requeue(queue="orders"))
    assert await log.drain(group="other") == ([] if has_read else ["a"])
    assert await log.drain(group="later") == ["a"]
    assert await log.drain(group="from-now-on", subscribe="new") == []
    assert {group: (await other.group(group)).lag for group in ("other", "later", "billing")} == {
        "other": 0,
        "later": 0,
        "billing": 1,
    }
    assert await other.drain(group="billing") == ["a"]


async def test_a_group_is_not_moved_where_it_does_not_read(log: Log) -> None:
    """A position that is only remembered would let it pop what was requeued for another."""
    await log.push("a")
    await log.drain(group="other")
    await log.settle(await log.take(group="billing"), Outcome.DEAD)
    await log.run(Requeue(queue="orders"))
    place = requeued_name("billing", 0)
    with pytest.raises(QueueMissing, match="group 'other' does not read partition"):
        await log.run(Seek(queue="orders", group="other", partition=place))
    assert await log.pop(group="other", partition=place) == []
    assert await log.drain(group="billing") == ["a"]


async def test_a_deleted_group_leaves_nothing_that_was_requeued_for_it(log: Log, other: Log) -> None:
    await log.configure(size_max=3, retry_limit=0)
    await log.push(1, 2, 3)
    await log.settle(await log.take(3, group="old"), Outcome.DEAD)
    assert await log.drain(group="live") == [1, 2, 3]
    await log.run(Requeue(queue="orders"))
    assert (await log.queue()).waiting == 3
    with pytest.raises(QueueFull):
        await log.push(4)
    await log.run(DeleteGroup(queue="orders", group="old"))
    status = await other.queue()
    assert (status.waiting, status.records) == (0, 3)
    await other.push(4)
    assert await other.drain(group="live") == [4]
    assert await other.drain(group="old") == [1, 2, 3, 4]


async def test_a_group_that_only_loses_its_positions_keeps_what_was_requeued_for_it(log: Log) -> None:
    await bury(log, 1)
    await log.run(Requeue(queue="orders"))
    await log.run(DeleteGroup(queue="orders", group=GROUP_DEFAULT, keep_beginning=True))
    assert await log.drain() == [0, 0]


async def test_a_group_that_is_deleted_everywhere_leaves_the_requeued_of_others(log: Log) -> None:
    for queue in ("orders", "mail"):
        await log.push("a", queue=queue)
        for group in ("old", "live"):
            await log.settle(await log.take(queue=queue, group=group), Outcome.DEAD)
        await log.run(Requeue(queue=queue))
    await log.run(DeleteGroup(group="old"))
    for queue in ("orders", "mail"):
        assert (await log.queue(queue)).waiting == 1
        assert await log.drain(queue=queue, group="live") == ["a"]


async def test_partitions_for_one_group_do_not_count_against_the_bound_of_a_queue(log: Log) -> None:
    await log.configure(lanes=1, partitions_max=2)
    await bury(log, 1, "a")
    await log.run(Requeue(queue="orders"))
    await log.push(1, partition="b")
    with pytest.raises(QueueFull, match="has 2 partitions"):
        await log.push(1, partition="c")
