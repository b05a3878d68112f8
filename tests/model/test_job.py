"""What becomes of a job: the rules alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import SECOND, Timestamp
from headwater.model.job import (
    FINISHED,
    TRANSITIONS,
    Backoff,
    Held,
    JobOutcome,
    JobState,
    first_state,
    judge,
    may_follow,
)

NOW = Timestamp(1_750_000_000 * SECOND)


def held(attempts: int = 1, attempts_max: int = 4) -> Held:
    return Held("job1", attempts, attempts_max, Backoff(jitter=0.0))


def test_the_delays_of_base_two_are_two_four_and_eight_seconds_and_the_fourth_failure_is_the_last() -> None:
    delays = []
    for attempt in (1, 2, 3):
        verdict = judge(held(attempt), JobOutcome.FAILED, NOW)
        assert verdict.state is JobState.FAILED
        assert verdict.run_at is not None
        delays.append((verdict.run_at - NOW) / SECOND)
    assert delays == [2, 4, 8]
    assert judge(held(4), JobOutcome.FAILED, NOW).state is JobState.DEAD


def test_jitter_only_adds_and_is_another_for_another_job() -> None:
    backoff = Backoff(jitter=0.1)
    delays = {backoff.delay(f"job{number}", 3) for number in range(50)}
    assert len(delays) > 40
    assert all(8 <= delay <= 8.8 for delay in delays)


def test_a_delay_stops_at_its_cap_however_many_attempts_there_were() -> None:
    assert Backoff(base=2, max_seconds=60, jitter=0).delay("job1", 100_000) == 60


def test_a_job_that_was_released_or_snoozed_keeps_its_attempt() -> None:
    assert judge(held(2), JobOutcome.RELEASED, NOW).attempts == 1
    snoozed = judge(held(2), JobOutcome.SNOOZED, NOW, 5)
    assert (snoozed.state, snoozed.attempts, snoozed.run_at) == (JobState.SCHEDULED, 1, NOW + 5 * SECOND)


def test_a_worker_may_choose_the_delay_but_not_another_attempt() -> None:
    assert judge(held(1), JobOutcome.FAILED, NOW, 0.5).run_at == NOW + SECOND // 2
    assert judge(held(4), JobOutcome.FAILED, NOW, 0.5).state is JobState.DEAD
    assert judge(held(1), JobOutcome.BURIED, NOW).state is JobState.DEAD


@given(st.sampled_from(JobOutcome), st.integers(1, 10), st.integers(1, 10), st.none() | st.floats(0, 1e9))
def test_every_verdict_is_a_step_that_a_running_job_may_take(
    outcome: JobOutcome, attempts: int, attempts_max: int, after: float | None
) -> None:
    verdict = judge(held(attempts, attempts_max), outcome, NOW, after)
    assert may_follow(JobState.PROCESSING, verdict.state)
    assert 0 <= verdict.attempts <= attempts
    assert (verdict.run_at is not None) == (verdict.state in (JobState.FAILED, JobState.SCHEDULED))


def test_what_has_ended_stays_so_until_somebody_arms_it_again() -> None:
    assert TRANSITIONS[JobState.COMPLETED] == frozenset()
    for state in FINISHED - {JobState.COMPLETED}:
        assert JobState.PROCESSING not in TRANSITIONS[state]
    assert may_follow(JobState.DEAD, JobState.PENDING)


@pytest.mark.parametrize(
    ("run_at", "waits", "state"),
    [(NOW, False, JobState.PENDING), (NOW + 1, False, JobState.SCHEDULED), (NOW, True, JobState.WAITING)],
)
def test_the_first_state_follows_from_time_and_dependencies(run_at: int, waits: bool, state: JobState) -> None:
    assert first_state(NOW, Timestamp(run_at), waits=waits) is state
