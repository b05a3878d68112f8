"""The rules of a cursor, by example: each line of the lifecycle once."""

import pytest

from headwater.errors import LeaseLost, UnknownRecord
from headwater.model import cursor as rules
from headwater.model.cursor import Cursor, Outcome
from headwater.model.queue import QueueOptions
from tests.model.reading import LEASE, Reading

OPTIONS = QueueOptions(retry_delay_seconds=5, retry_jitter=0)
NOW = 1_000_000


def leased(count: int = 3) -> Cursor:
    return rules.lease(Cursor(ready_at=0), count, 10, NOW)


def test_a_lease_counts_its_attempt_when_it_is_taken() -> None:
    cursor = leased()
    assert (cursor.attempts, cursor.leased_to, cursor.lease_until) == (1, 3, NOW + LEASE)
    assert cursor.ready_at == cursor.lease_until


def test_a_token_comes_from_the_clock_when_that_is_ahead() -> None:
    assert leased().token == NOW
    assert rules.lease(Cursor(token=NOW + 5), 1, 10, NOW).token == NOW + 6


def test_only_the_token_of_the_live_lease_counts() -> None:
    cursor = leased()
    rules.check_lease(cursor, cursor.token, NOW + LEASE - 1)
    for token, now in ((cursor.token, NOW + LEASE), (cursor.token - 1, NOW), (cursor.token + 1, NOW)):
        with pytest.raises(LeaseLost):
            rules.check_lease(cursor, token, now)
    with pytest.raises(LeaseLost):
        rules.check_lease(rules.settle_all(cursor, NOW), cursor.token, NOW)


def test_a_whole_report_moves_the_position_past_the_lease() -> None:
    for cursor in (
        rules.settle_all(leased(), NOW),
        rules.settle(leased(), dict.fromkeys(range(3), Outcome.COMPLETED), OPTIONS, NOW).cursor,
    ):
        assert (cursor.position, cursor.settled, cursor.failed) == (3, (), ())
        assert (cursor.lease_until, cursor.attempts, cursor.ready_at) == (None, 0, NOW)


@pytest.mark.parametrize("offsets", [[], [0, 1, 2], (0, 1, 2), range(3)])
def test_these_offsets_are_the_whole_lease(offsets: list[int]) -> None:
    assert rules.is_whole(leased(), offsets)


@pytest.mark.parametrize("offsets", [[0], [0, 1], [0, 2, 1], [0, 0, 2], [0, 7, 2], [1, 2, 3], [0, 1, 2, 3]])
def test_these_offsets_are_not_the_whole_lease(offsets: list[int]) -> None:
    assert not rules.is_whole(leased(), offsets)


def test_a_lease_that_was_reported_on_is_not_whole_any_more() -> None:
    completed = rules.settle(leased(), {1: Outcome.COMPLETED}, OPTIONS, NOW).cursor
    failed = rules.settle(leased(), {1: Outcome.FAILED}, OPTIONS, NOW).cursor
    assert not rules.is_whole(completed, [])
    assert not rules.is_whole(failed, [])


def test_a_partial_report_keeps_the_lease() -> None:
    settled = rules.settle(leased(), {1: Outcome.COMPLETED}, OPTIONS, NOW)
    assert not settled.released
    assert (settled.cursor.position, settled.cursor.settled) == (0, (1,))
    again = rules.settle(settled.cursor, {0: Outcome.COMPLETED}, OPTIONS, NOW)
    assert not again.released
    assert (again.cursor.position, again.cursor.settled) == (2, ())
    assert rules.outstanding(again.cursor) == [2]


@pytest.mark.parametrize("offset", [-1, 3, 99])
def test_a_record_outside_the_lease_is_unknown(offset: int) -> None:
    with pytest.raises(UnknownRecord):
        rules.settle(leased(), {0: Outcome.COMPLETED, offset: Outcome.COMPLETED}, OPTIONS, NOW)


def test_what_failed_waits_for_the_delay_and_what_was_given_back_does_not() -> None:
    failed = rules.settle(leased(1), {0: Outcome.FAILED}, OPTIONS, NOW).cursor
    assert (failed.ready_at, failed.attempts, failed.retry_to) == (NOW + 5_000_000, 1, 1)
    released = rules.settle(leased(1), {0: Outcome.RELEASED}, OPTIONS, NOW).cursor
    assert (released.ready_at, released.attempts, released.retry_to) == (NOW, 0, 0)


def test_the_delay_counts_when_the_failure_was_reported_before_the_rest() -> None:
    failed = rules.settle(leased(2), {0: Outcome.FAILED}, OPTIONS, NOW).cursor
    for outcome in (Outcome.RELEASED, Outcome.COMPLETED):
        assert rules.settle(failed, {1: outcome}, OPTIONS, NOW).cursor.ready_at == NOW + 5_000_000


def test_what_was_given_back_before_the_rest_was_done_does_not_wait() -> None:
    released = rules.settle(leased(2), {1: Outcome.RELEASED}, OPTIONS, NOW).cursor
    done = rules.settle(released, {0: Outcome.COMPLETED}, OPTIONS, NOW).cursor
    assert (done.position, done.ready_at, done.attempts) == (1, NOW, 0)


def test_records_delivered_before_are_bounded_and_new_ones_are_not() -> None:
    assert rules.deliverable(Cursor(), 10) == (10, None)
    assert rules.deliverable(Cursor(retry_to=3), 10) == (10, 3)
    assert rules.deliverable(Cursor(retry_to=3, cautious=True), 10) == (1, 3)
    assert rules.deliverable(Cursor(position=3, retry_to=3), 10) == (10, None)


def test_a_batch_lease_that_ran_out_makes_the_cursor_cautious() -> None:
    settled = rules.expire(leased(3), OPTIONS, NOW + LEASE)
    assert settled.buried == ()
    assert (settled.cursor.cautious, settled.cursor.retry_to, settled.cursor.attempts) == (True, 3, 1)
    assert (settled.cursor.position, settled.cursor.ready_at) == (0, NOW + LEASE)


def test_a_lease_with_one_record_left_that_ran_out_does_not() -> None:
    partial = rules.settle(leased(2), {0: Outcome.COMPLETED}, OPTIONS, NOW).cursor
    cursor = rules.expire(partial, OPTIONS, NOW + LEASE).cursor
    assert (cursor.cautious, cursor.position, cursor.retry_to) == (False, 1, 2)


def test_only_part_of_what_was_delivered_before_makes_the_cursor_cautious() -> None:
    reading = Reading(count=3)
    reading.lease(3)
    reading.report_all(Outcome.FAILED)
    reading.lease(1)
    assert reading.cursor.cautious
    reading.report_all(Outcome.FAILED)
    assert reading.lease(3) == [0]


def test_what_was_done_beyond_the_lease_is_not_forgotten() -> None:
    cursor = leased(4)
    cursor = rules.settle(
        cursor,
        {0: Outcome.FAILED, 1: Outcome.FAILED, 2: Outcome.COMPLETED, 3: Outcome.COMPLETED},
        OPTIONS,
        NOW,
    ).cursor
    again = rules.lease(cursor, 2, 10, NOW)
    assert rules.settle_all(again, NOW).position == 4


def test_seeking_ends_the_lease_and_forgets_the_count() -> None:
    cursor = leased()
    moved = rules.seek(cursor, 7, NOW + 1)
    assert moved == Cursor(position=7, token=cursor.token + 1, ready_at=NOW + 1)


def test_skipping_dropped_records_begins_the_count_anew() -> None:
    suspect = rules.expire(leased(3), OPTIONS, NOW + LEASE).cursor
    skipped = rules.skip(suspect, 3)
    assert (skipped.position, skipped.attempts, skipped.cautious) == (3, 0, False)
    within = rules.skip(suspect, 1)
    assert (within.position, within.attempts, within.cautious) == (1, 1, True)


def test_skipping_goes_over_records_that_were_done() -> None:
    cursor = Cursor(position=1, settled=(2, 3, 5), retry_to=6, attempts=2)
    assert rules.skip(cursor, 3) == Cursor(position=4, settled=(5,), retry_to=6, attempts=1)
