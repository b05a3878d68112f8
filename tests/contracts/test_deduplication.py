"""Transaction ids: a record that was pushed before, within the queue's window, is answered and not kept twice."""

from tests.contracts.clock import FakeClock
from tests.contracts.conftest import OpenLog
from tests.contracts.log import Log, payloads, push


async def test_an_id_that_was_pushed_before_is_a_duplicate(log: Log) -> None:
    await log.push("first", ids=["a"])
    again = await log.push("second", ids=["a"])
    assert (again.count, again.duplicates, again.offsets()) == (0, {0: 0}, [0])
    assert await log.drain() == ["first"]


async def test_new_records_beside_a_duplicate_are_kept(log: Log) -> None:
    await log.push("a", "b", ids=["1", "2"])
    mixed = await log.push("c", "again", "d", ids=["3", "1", "4"])
    assert mixed.offsets() == [2, 0, 3]
    assert mixed.duplicates == {1: 0}
    assert await log.drain() == ["a", "b", "c", "d"]


async def test_an_id_twice_in_one_push_is_kept_once(log: Log) -> None:
    pushed = await log.push("a", "b", "a again", ids=["1", "2", "1"])
    assert pushed.offsets() == [0, 1, 0]
    assert await log.drain() == ["a", "b"]


async def test_records_without_an_id_are_counted_before_a_repeated_id(log: Log) -> None:
    await log.push("zero")
    pushed = await log.push("no id", "a", "no id either", "a again", ids=["", "1", "", "1"])
    assert pushed.offsets() == [1, 2, 3, 2]
    assert await log.drain() == ["zero", "no id", "a", "no id either"]


async def test_an_id_of_another_push_in_the_same_commit_is_a_duplicate(log: Log) -> None:
    first, second, third = await log.results(
        push("a", "b", ids=["1"]), push("a again", "c", ids=["1", "3"]), push("c again", "d", ids=["3"])
    )
    assert (first.offsets(), second.offsets(), third.offsets()) == ([0, 1], [0, 2], [2, 3])
    assert await log.drain() == ["a", "b", "c", "d"]


async def test_an_id_in_another_partition_or_queue_is_another_record(log: Log) -> None:
    await log.push("a", ids=["1"], partition="one")
    assert (await log.push("b", ids=["1"], partition="two")).duplicates == {}
    assert (await log.push("c", ids=["1"], queue="bills")).duplicates == {}


async def test_records_without_an_id_are_never_duplicates(log: Log) -> None:
    await log.push("a", "a", "a")
    assert (await log.push("a")).offsets() == [3]


async def test_an_id_is_known_to_another_store_at_the_same_place(log: Log, other: Log) -> None:
    await log.push("warm", ids=["0"])
    await other.push("warm", ids=["00"])
    await log.push("a", ids=["1"])
    assert (await other.push("a", ids=["1"])).offsets() == [2]
    await other.push("b", ids=["2"])
    assert (await log.push("b", "c", ids=["2", "3"])).offsets() == [3, 4]
    assert await log.drain() == ["warm", "warm", "a", "b", "c"]


async def test_an_id_is_known_after_a_restart(log: Log, open_log: OpenLog) -> None:
    await log.push("a", ids=["1"])
    await log.store.close()
    again = await open_log()
    assert (await again.push("a", ids=["1"])).duplicates == {0: 0}


async def test_an_id_is_known_after_its_record_was_consumed(log: Log) -> None:
    await log.push("a", ids=["1"])
    assert await log.drain() == ["a"]
    assert (await log.push("a", ids=["1"])).duplicates == {0: 0}


async def test_an_id_is_forgotten_after_the_window(log: Log, clock: FakeClock) -> None:
    await log.configure(deduplication_seconds=60)
    await log.push("a", ids=["1"])
    clock.advance(60)
    assert (await log.push("a", ids=["1"])).duplicates == {0: 0}
    clock.advance(0.001)
    assert (await log.push("a", ids=["1"])).offsets() == [1]


async def test_a_longer_window_is_read_from_the_log(log: Log, clock: FakeClock, open_log: OpenLog) -> None:
    await log.configure("short", deduplication_seconds=10)
    await log.configure("long", deduplication_seconds=1_000)
    await log.push("a", ids=["1"], queue="long")
    clock.advance(500)
    later = await open_log()
    await later.push("b", ids=["2"], queue="short")
    assert (await later.push("a", ids=["1"], queue="long")).duplicates == {0: 0}


async def test_a_queue_without_a_window_keeps_everything(log: Log) -> None:
    await log.configure(deduplication_seconds=0)
    await log.push("a", "a", ids=["1", "1"])
    assert (await log.push("a", ids=["1"])).offsets() == [2]


async def test_ids_pushed_before_a_queue_got_its_window_are_known(log: Log) -> None:
    await log.push("elsewhere", ids=["0"], queue="bills")
    await log.configure(deduplication_seconds=0)
    await log.push("a", ids=["1"])
    await log.configure(deduplication_seconds=300)
    assert (await log.push("a", ids=["1"])).duplicates == {0: 0}


async def test_a_duplicate_answer_says_that_something_has_to_be_durable(log: Log) -> None:
    """The first push may not be on stable storage yet when the second is answered: nobody may be told so too early."""
    await log.push("a", ids=["1"])
    commit = await log.commit(push("a", ids=["1"]))
    assert commit.wrote


async def test_ids_beyond_the_memory_bound_are_kept_and_pushed_on(open_log: OpenLog) -> None:
    log = await open_log(deduplication_ids_max=10)
    for number in range(40):
        await log.push(number, ids=[str(number)])
    assert (await log.push("again", ids=["39"])).duplicates == {0: 39}
    assert payloads(await log.take(100)) == list(range(40))
