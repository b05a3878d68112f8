"""Reports as the clients of queen-mq make them: one message that fails gives the rest of its lease back, and who held
it may still say that some of it is done."""

import pytest

from headwater.errors import LeaseLost, UnknownRecord
from headwater.log.group_operations import ReleaseLeases
from headwater.log.operations import Ack, Batch, Seek
from headwater.model.cursor import Outcome
from headwater.model.record import decode_payload
from headwater.stores.questions import DeadLetter
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log, payloads, report
from tests.contracts.random_operations import on_the_queen_wire


def decoded(letter: DeadLetter) -> object:
    return decode_payload(letter.record.data)


def said(batch: Batch, place: int, outcome: Outcome) -> Ack:
    """A report on one record of a batch, as it comes on their wire."""
    return on_the_queen_wire(report(batch, {batch.offsets[place]: outcome}))


@pytest.mark.parametrize(("outcome", "comes_back"), [(Outcome.FAILED, [1]), (Outcome.RELEASED, [1, 2, 3, 4])])
async def test_one_that_comes_back_gives_the_rest_of_the_lease_back(
    log: Log, clock: FakeClock, outcome: Outcome, comes_back: list[int]
) -> None:
    await log.configure(retry_delay_seconds=7, retry_jitter=0)
    await log.push(*range(5))
    batch = await log.take(5)
    assert not (await log.run(said(batch, 0, Outcome.COMPLETED))).lease_ended
    acked = await log.run(said(batch, 1, outcome))
    assert (acked.lease_ended, acked.waiting) == (True, True)
    if outcome is Outcome.FAILED:
        assert await log.free_at() == clock.now() + 7_000_000, "order holds, so all of them wait with it"
        clock.advance(7)
    assert (await log.group()).lag == 4
    again = await log.take(10)
    assert payloads(again) == comes_back
    assert again.attempts == (2 if outcome is Outcome.FAILED else 1)
    await log.ack(again)
    if outcome is Outcome.FAILED:
        behind = await log.take(10)
        assert (payloads(behind), behind.attempts) == ([2, 3, 4], 1), "nobody tried these"
        await log.ack(behind)
    assert (await log.group()).lag == 0


async def test_one_that_fails_for_good_gives_the_rest_of_the_lease_back_at_once(log: Log) -> None:
    await log.configure(retry_limit=0)
    await log.push(*range(3))
    batch = await log.take(3)
    acked = await log.run(said(batch, 0, Outcome.FAILED))
    assert (acked.lease_ended, acked.waiting, list(acked.buried)) == (True, True, [batch.offsets[0]])
    again = await log.take(3)
    assert (payloads(again), again.attempts) == ([1, 2], 1)
    assert [decoded(letter) for letter in await log.dead_letters()] == [0]


async def test_what_a_report_buries_or_completes_leaves_the_rest_of_the_lease_as_it_is(log: Log) -> None:
    await log.push(*range(3))
    batch = await log.take(3)
    for place, outcome in enumerate((Outcome.DEAD, Outcome.COMPLETED)):
        assert not (await log.run(said(batch, place, outcome))).lease_ended
    assert await log.pop() == []
    assert (await log.ack(batch)).lease_ended


async def test_a_report_that_does_not_say_so_leaves_the_rest_of_the_lease_as_it_is(log: Log) -> None:
    await log.push(*range(3))
    batch = await log.take(3)
    assert not (await log.settle(batch, Outcome.FAILED, batch.offsets[:1])).lease_ended
    assert await log.pop() == []


async def test_what_came_back_can_still_be_completed_as_long_as_nobody_has_leased_it(
    log: Log, clock: FakeClock
) -> None:
    await log.push(*range(5), ids=["a", "b", "c", "d", "e"])
    batch = await log.take(5)
    await log.run(said(batch, 1, Outcome.FAILED))
    for name in ("d", "a", "c"):
        acked = await log.run(on_the_queen_wire(report(batch, {name: Outcome.COMPLETED})))
        assert (acked.lease_ended, acked.settled) == (True, 1)
    assert (await log.group()).lag == 2
    assert (await log.queue()).waiting == 2
    clock.advance(60)
    failed = await log.take(5)
    assert (payloads(failed), failed.attempts) == ([1], 2)
    await log.ack(failed)
    behind = await log.take(5)
    assert (payloads(behind), behind.attempts) == ([4], 1)
    await log.ack(behind)
    assert await log.drain() == []


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.FAILED])
async def test_the_last_late_word_leaves_a_group_idle_and_no_delay(log: Log, outcome: Outcome) -> None:
    await log.push(1, 2)
    batch = await log.take(2)
    await log.run(said(batch, 0, outcome))
    await log.run(said(batch, 0, Outcome.COMPLETED))
    assert not (await log.run(said(batch, 1, Outcome.COMPLETED))).waiting
    assert await log.free_at() is None
    await log.push(3)
    assert await log.drain() == [3]


async def test_a_late_word_counts_once(log: Log) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(3)
    await log.run(said(batch, 0, Outcome.FAILED))
    first, second = await log.results(said(batch, 2, Outcome.COMPLETED), said(batch, 2, Outcome.COMPLETED))
    assert first.settled == 1
    assert isinstance(second, UnknownRecord)


async def test_no_late_word_counts_once_another_has_leased_any_of_it(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2, 3)
    batch = await log.take(3)
    await log.run(said(batch, 0, Outcome.FAILED))
    clock.advance(60)
    other = await log.take(3)
    assert payloads(other) == [1]
    for place in range(3):
        with pytest.raises(LeaseLost):
            await log.run(said(batch, place, Outcome.COMPLETED))
    await log.ack(other)
    with pytest.raises(LeaseLost):
        await log.run(said(batch, 2, Outcome.COMPLETED))
    assert await log.drain() == [2, 3]


async def test_only_that_it_is_completed_counts_late(log: Log, clock: FakeClock) -> None:
    await log.push(1, 2)
    batch = await log.take(2)
    await log.run(said(batch, 0, Outcome.RELEASED))
    for outcome in (Outcome.FAILED, Outcome.DEAD, Outcome.RELEASED):
        with pytest.raises(UnknownRecord):
            await log.run(said(batch, 1, outcome))
    again = await log.take(2)
    assert (payloads(again), again.attempts) == ([1, 2], 1)
    assert await log.dead_letters() == []


@pytest.mark.parametrize("is_reaped", [False, True])
async def test_no_late_word_counts_once_the_lease_ran_out(log: Log, clock: FakeClock, is_reaped: bool) -> None:
    await log.push(1, 2)
    batch = await log.take(2, lease_seconds=10)
    clock.advance(10)
    if is_reaped:
        await log.reap()
    with pytest.raises(LeaseLost):
        await log.run(said(batch, 0, Outcome.COMPLETED))
    assert await log.drain() == [1, 2]


async def test_no_late_word_counts_after_a_seek_or_without_a_token_or_where_it_is_not_said_to(log: Log) -> None:
    await log.push(1, 2)
    batch = await log.take(2)
    await log.run(said(batch, 0, Outcome.RELEASED))
    unfenced = Ack(
        partition_id=batch.partition_id,
        group=batch.group,
        token=None,
        outcomes={batch.offsets[1]: Outcome.COMPLETED},
        counts_late=True,
    )
    with pytest.raises(LeaseLost):
        await log.run(unfenced)
    with pytest.raises(LeaseLost):
        await log.ack(batch, batch.offsets[1:])
    await log.run(Seek(queue="orders", to="beginning"))
    with pytest.raises(LeaseLost):
        await log.run(said(batch, 1, Outcome.COMPLETED))
    assert await log.drain() == [1, 2]


async def test_no_late_word_counts_of_a_lease_that_was_released_by_somebody_else(log: Log) -> None:
    await log.push(0, 1)
    batch = await log.take(2)
    assert (await log.run(ReleaseLeases(queue="orders"))).leases == 1
    with pytest.raises(LeaseLost):
        await log.run(said(batch, 0, Outcome.COMPLETED))
    assert payloads(await log.take(2)) == [0, 1]
