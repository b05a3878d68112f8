"""A bucket fills at its rate, up to its burst, and never otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.allowance import Level, Rate, refill, wait_seconds

RATE = Rate(per_second=2.0, burst=4.0)


def test_it_fills_with_time_and_not_beyond_its_burst() -> None:
    assert refill(Level(0.0, 10.0), RATE, 11.0) == Level(2.0, 11.0)
    assert refill(Level(0.0, 10.0), RATE, 100.0) == Level(4.0, 100.0)


def test_a_clock_that_goes_back_brings_nothing_and_takes_nothing() -> None:
    assert refill(Level(1.5, 10.0), RATE, 5.0) == Level(1.5, 5.0)


def test_whoever_has_less_than_one_waits_for_the_rest() -> None:
    assert wait_seconds(Level(1.0, 0.0), RATE) == 0
    assert wait_seconds(Level(0.0, 0.0), RATE) == pytest.approx(0.5)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=50))
def test_no_more_is_taken_than_the_burst_and_the_rate_allow(pauses: list[float]) -> None:
    level, now, taken = Level(RATE.burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        level = refill(level, RATE, now)
        if wait_seconds(level, RATE) == 0:
            level = Level(level.left - 1.0, level.at)
            taken += 1
    assert taken <= RATE.burst + RATE.per_second * now + 1e-6
