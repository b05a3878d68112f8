"""Following the log: what is new after an LSN, in LSN order, and who could pop it."""

from headwater.log.operations import Configure
from headwater.model.names import Lsn, PartitionId
from headwater.stores.questions import FindLane, FindLastLsn, ListReady
from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import LSN_MAX, Log, payloads, push


async def test_an_empty_log_ends_at_zero(log: Log) -> None:
    assert await log.store.ask(FindLastLsn()) == 0
    assert await log.store.touched(Lsn(0), 10) == []
    assert await log.read() == []


async def test_lsns_rise_by_one_with_every_segment(log: Log) -> None:
    commits = [await log.commit(push(number, partition=f"p{number % 3}")) for number in range(6)]
    lsns = [touch.lsn for commit in commits for touch in commit.touched]
    assert lsns == list(range(lsns[0], lsns[0] + 6))
    assert await log.store.ask(FindLastLsn()) == lsns[-1]


async def test_touched_segments_are_told_in_order_without_their_records(log: Log) -> None:
    commits = [
        await log.commit(push(1, partition="a"), push(2, 3, partition="b")),
        await log.commit(push(4, partition="b")),
    ]
    told = [touch for commit in commits for touch in commit.touched]
    assert await log.store.touched(Lsn(0), 10) == told
    assert await log.store.touched(told[0].lsn, 1) == told[1:2]
    assert await log.store.touched(told[-1].lsn, 10) == []


async def test_a_stretch_of_the_log_is_read_in_order(log: Log, clock: FakeClock) -> None:
    await log.commit(push("a", partition="one"), push("b", "c", partition="two"))
    clock.advance(1)
    pushed = await log.push("d", partition="one")
    segments = await log.read()
    assert [payloads(segment) for segment in segments] == [["a"], ["b", "c"], ["d"]]
    assert [segment.first_offset for segment in segments] == [0, 0, 1]
    assert segments[2].partition_id == pushed.partition_id
    assert segments[2].written_at == clock.now()
    assert [segment.lane.partition for segment in segments] == ["one", "two", "one"]
    first = segments[0].lsn
    bounded = await log.store.read(first, Lsn(first + 1), 10)
    assert [segment.lsn for segment in bounded] == [first + 1]
    assert len(await log.store.read(Lsn(0), LSN_MAX, 2)) == 2


async def test_one_queue_is_read_by_name(log: Log) -> None:
    await log.commit(push(1, queue="a"), push(2, queue="b"), push(3, queue="a", partition="p"))
    await log.push(4, queue="a", database="tenant")
    segments = await log.store.read(Lsn(0), LSN_MAX, 10, ("main", "a"))
    assert sorted(payloads(segment)[0] for segment in segments) == [1, 3]
    assert await log.store.read(Lsn(0), LSN_MAX, 10, ("main", "missing")) == []


async def test_a_segment_names_the_store_that_wrote_it(log: Log, other: Log) -> None:
    await log.push(1)
    await other.push(2)
    await log.push(3)
    origins = [segment.origin for segment in await log.read()]
    assert origins[0] == origins[2] != origins[1]


async def test_the_address_of_a_partition_follows_the_queue(log: Log, other: Log) -> None:
    pushed = await log.push(1, partition="p")
    await other.run(Configure(queue="orders", namespace="shop", task="bill"))
    await log.store.touched(Lsn(0), 1)
    lane = await log.store.ask(FindLane(pushed.partition_id))
    assert lane is not None
    assert (lane.database, lane.queue, lane.partition) == ("main", "orders", "p")
    assert (lane.namespace, lane.task) == ("shop", "bill")
    assert await log.store.ask(FindLane(PartitionId(999))) is None


async def test_a_commit_elsewhere_is_noticed_once(log: Log, other: Log) -> None:
    wakeup = log.store.wakeup()
    wakeup.changed()
    assert not wakeup.changed()
    await other.push(1)
    assert wakeup.changed()
    assert not wakeup.changed()
    await log.push(2)
    assert not wakeup.changed()
    wakeup.close()


async def test_a_commit_elsewhere_before_ours_is_noticed(log: Log, other: Log) -> None:
    await log.push(0)
    wakeup = log.store.wakeup()
    wakeup.changed()
    await other.push(1)
    await log.push(2)
    assert wakeup.changed()
    wakeup.close()


async def test_groups_that_a_pop_could_serve_are_told(log: Log, clock: FakeClock) -> None:
    names = [("main", "orders", group) for group in ("idle", "leased", "unknown")]
    await log.push(1)
    assert await log.drain(group="idle") == [1]
    await log.take(group="leased", lease_seconds=10)
    assert await log.store.ask(ListReady(names, clock.now())) == []
    clock.advance(10)
    assert await log.store.ask(ListReady(names, clock.now())) == [names[1]]
    await log.push(2)
    assert await log.store.ask(ListReady(names, clock.now())) == names[:2]


async def test_a_partition_that_a_group_has_not_met_makes_it_ready(log: Log, clock: FakeClock) -> None:
    await log.push(1)
    await log.drain(group="g")
    await log.push(2, partition="new")
    assert await log.store.ask(ListReady([("main", "orders", "g")], clock.now())) == [("main", "orders", "g")]


async def test_a_log_is_read_by_a_store_opened_later(log: Log, open_log: OpenLog) -> None:
    await log.push(1, 2)
    later = await open_log()
    assert await later.store.ask(FindLastLsn()) == await log.store.ask(FindLastLsn())
    assert [payloads(segment) for segment in await later.read()] == [[1, 2]]
