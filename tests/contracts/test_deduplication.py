"""Transaction ids: a record that was pushed before, within the queue's window, is answered and not kept twice."""

from headwater.log.operations import Configure, Retain
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


# ── transaction ids outlive what retention takes ──


async def test_an_id_is_known_for_its_window_however_soon_what_is_completed_may_go(
    log: Log, clock: FakeClock, open_log: OpenLog
) -> None:
    await log.configure(completed_retention_seconds=2, deduplication_seconds=60)
    await log.push("pay", ids=["invoice-7"])
    assert await log.drain() == ["pay"]
    clock.advance(60)
    assert (await log.run(Retain())).records == 0
    again = await open_log()
    assert (await again.push("pay", ids=["invoice-7"])).duplicates == {0: 0}
    assert await again.drain() == []
    clock.advance(0.001)
    assert (await again.run(Retain())).records == 1
    assert (await again.push("pay", ids=["invoice-7"])).offsets() == [1]


async def test_an_id_is_known_for_its_window_however_short_its_time_to_live(log: Log, clock: FakeClock) -> None:
    await log.push("short", ids=["1"], ttl_seconds=2)
    clock.advance(300)
    assert (await log.run(Retain())).records == 0
    assert await log.drain() == []
    assert (await log.push("again", ids=["1"])).duplicates == {0: 0}
    clock.advance(0.001)
    assert (await log.run(Retain())).records == 1


async def test_what_has_no_ids_or_no_window_goes_when_it_is_completed(log: Log, clock: FakeClock) -> None:
    await log.configure("none", completed_retention_seconds=2, deduplication_seconds=0)
    await log.configure(completed_retention_seconds=2)
    await log.push("with an id", ids=["1"], queue="none")
    await log.push("without")
    await log.push("with an id", ids=["1"])
    await log.push("behind it")
    await log.drain(queue="none")
    await log.drain()
    clock.advance(2)
    assert (await log.run(Retain())).records == 2
    clock.advance(298.001)
    assert (await log.run(Retain())).records == 2


async def test_an_id_is_known_as_long_as_records_are_kept_by_age_and_the_options_say_so(
    log: Log, clock: FakeClock
) -> None:
    configured = await log.run(Configure(queue="orders", options={"retention_seconds": 2}))
    assert configured.options.deduplication_seconds == 2
    assert (await log.queue()).options.deduplication_seconds == 2
    await log.push("a", ids=["1"])
    clock.advance(1.999)
    await log.run(Retain())
    assert (await log.push("a", ids=["1"])).duplicates == {0: 0}
    clock.advance(0.002)
    assert (await log.push("a", ids=["1"])).offsets() == [1], "whether or not anything was dropped meanwhile"
    configured = await log.run(Configure(queue="orders", options={"retention_seconds": 0}))
    assert configured.options.deduplication_seconds == 300


async def test_a_segment_that_does_not_open_is_kept_for_the_window_and_then_dropped(
    log: Log, clock: FakeClock, open_log: OpenLog
) -> None:
    keyed = await open_log(encryption_key="0f" * 32)
    await keyed.configure(encrypted=True, completed_retention_seconds=2)
    await keyed.push("secret", ids=["1"])
    assert await keyed.drain() == ["secret"]
    clock.advance(300)
    assert (await log.run(Retain())).records == 0
    assert (await keyed.push("secret", ids=["1"])).duplicates == {0: 0}
    clock.advance(0.001)
    assert (await log.run(Retain())).records == 1
