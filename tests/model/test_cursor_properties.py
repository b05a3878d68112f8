"""The rules of a cursor, by property: whatever consumers do, every record is settled once, in order, and in the end.

`Reading.check` holds after every step of every test here: no record is settled twice, skipped or brought back (I3),
tokens rise (I4), first deliveries keep the order (I5).
"""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model import cursor as rules
from headwater.model.cursor import Outcome
from tests.model.reading import Reading

counts = st.integers(1, 8)
batches = st.integers(1, 6)
limits = st.integers(0, 3)


def expect_finished(reading: Reading) -> None:
    """Every consumer from now on does its work."""
    while reading.lease(3):
        reading.report_all(Outcome.COMPLETED)
    assert reading.is_over
    assert sorted(reading.completed + reading.buried) == list(range(reading.count))


@given(counts, limits, st.data())
def test_every_record_is_settled_exactly_once_whatever_happens(count: int, limit: int, data: st.DataObject) -> None:
    reading = Reading(count, limit)
    for _ in range(data.draw(st.integers(0, 12), label="leases")):
        reading.now += data.draw(st.sampled_from([-5_000_000, 0, 1, 3_000_000]), label="time")
        if not reading.lease(data.draw(batches, label="batch")):
            break
        act(reading, data)
    expect_finished(reading)


def act(reading: Reading, data: st.DataObject) -> None:
    """A consumer reports on some records at a time, until it has spoken of all of them or dies."""
    while left := rules.outstanding(reading.cursor):
        if data.draw(st.integers(0, 3), label="dies") == 0:
            reading.die()
            return
        chosen = data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True), label="about")
        outcomes = {offset: data.draw(st.sampled_from(Outcome), label="outcome") for offset in chosen}
        if reading.report(outcomes):
            return


@given(counts, limits, st.data())
def test_records_that_always_fail_are_buried_in_the_end(count: int, limit: int, data: st.DataObject) -> None:
    """Nothing loops for ever: each failure is a step nearer to the dead letters, whatever the sizes of the batches."""
    reading = Reading(count, limit)
    leases = 0
    while reading.lease(data.draw(batches, label="batch")):
        leases += 1
        reading.report_all(Outcome.FAILED)
        assert leases <= 2 * count * (limit + 1)
    assert reading.buried == sorted(reading.buried)
    assert len(reading.buried) == count


@given(counts, limits, batches)
def test_equal_batches_are_buried_after_the_limit_and_one_more(count: int, limit: int, batch: int) -> None:
    reading = Reading(count, limit)
    while reading.lease(batch):
        reading.report_all(Outcome.FAILED)
    assert set(reading.deliveries.values()) == {limit + 1}


@given(counts, limits, st.data())
def test_no_record_is_buried_before_its_own_attempts_are_used_up(count: int, limit: int, data: st.DataObject) -> None:
    reading = Reading(count, limit)
    for _ in range(60):
        if not reading.lease(data.draw(batches, label="batch")):
            break
        known = len(reading.buried)
        outcomes = st.sampled_from([Outcome.COMPLETED, Outcome.FAILED])
        reading.report({offset: data.draw(outcomes, label="outcome") for offset in reading.leased})
        for offset in reading.buried[known:]:
            assert reading.deliveries[offset] >= limit + 1


@given(counts, limits, batches, st.sets(st.integers(0, 7)), st.booleans())
def test_only_records_that_kill_their_consumers_are_buried(
    count: int, limit: int, batch: int, killers: set[int], one_by_one: bool
) -> None:
    reading = Reading(count, limit)
    guilty = {offset for offset in killers if offset < count}
    while reading.lease(batch):
        work(reading, guilty, one_by_one)
    assert set(reading.buried) == guilty
    assert set(reading.completed) == set(range(count)) - guilty
    assert all(reading.deliveries[offset] <= max(limit, 1) + 1 for offset in guilty), reading.deliveries


def work(reading: Reading, guilty: set[int], one_by_one: bool) -> None:
    """A consumer that a guilty record kills: before it could report anything, or after those in front of it."""
    for offset in list(reading.leased):
        if offset in guilty:
            reading.die()
            return
        if one_by_one:
            reading.report({offset: Outcome.COMPLETED})
    if not one_by_one:
        reading.report_all(Outcome.COMPLETED)


@given(counts, batches, st.integers(1, 20))
def test_giving_back_burns_no_attempt(count: int, batch: int, times: int) -> None:
    reading = Reading(count, retry_limit=0)
    for _ in range(times):
        reading.lease(batch)
        assert reading.cursor.attempts == 1
        reading.report_all(Outcome.RELEASED)
    expect_finished(reading)
    assert reading.buried == []


@given(counts, st.data())
def test_a_poison_record_is_buried_though_its_neighbours_are_given_back(count: int, data: st.DataObject) -> None:
    """Giving back what was not touched must not give the failure back too, in one report or in several."""
    reading = Reading(count, retry_limit=2)
    poison = data.draw(st.integers(0, count - 1), label="poison")
    for _ in range(20 * count):
        if not reading.lease(count):
            break
        outcomes = {o: Outcome.FAILED if o == poison else Outcome.RELEASED for o in reading.leased}
        if poison not in outcomes:
            reading.report_all(Outcome.COMPLETED)
        elif data.draw(st.booleans(), label="in one report"):
            reading.report(outcomes)
        else:
            for offset in data.draw(st.permutations(list(outcomes)), label="order"):
                reading.report({offset: outcomes[offset]})
    assert poison in reading.buried


@given(counts, limits, st.data())
def test_a_lease_never_mixes_what_was_delivered_before_with_what_is_new(
    count: int, limit: int, data: st.DataObject
) -> None:
    reading = Reading(count, limit)
    while True:
        seen = set(reading.deliveries)
        retry_to = reading.cursor.retry_to
        if not reading.lease(data.draw(batches, label="batch")):
            return
        if reading.leased[0] < retry_to:
            assert set(reading.leased) <= seen
        outcomes = st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.DEAD])
        reading.report({offset: data.draw(outcomes, label="outcome") for offset in reading.leased})
