"""Rates and concurrency: the rules alone."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import SECOND, Timestamp
from headwater.model.limits import JobLane, allowance, next_start, started

NOW = Timestamp(1_750_000_000 * SECOND)


def lane(**about: float) -> JobLane:
    values = {
        "id": 1,
        "parent": 0,
        "concurrency": 0,
        "rate": 0.0,
        "seconds": 1.0,
        "burst": 1,
        "free_at": 0,
        "running": 0,
    }
    return JobLane(**{**values, **about})  # type: ignore[arg-type]


def test_without_a_limit_everything_may_start() -> None:
    assert allowance(lane(), NOW, 100) == 100


def test_no_more_run_at_once_than_the_limit() -> None:
    busy = started(lane(concurrency=3), NOW, 2)
    assert allowance(busy, NOW, 100) == 1
    full = started(busy, NOW, 1)
    assert allowance(full, NOW, 100) == 0
    assert next_start(full, NOW) is None


def test_a_burst_is_allowed_and_then_one_start_in_each_interval() -> None:
    limited = lane(rate=10.0, burst=3)
    assert allowance(limited, NOW, 100) == 3
    limited = started(limited, NOW, 3)
    assert allowance(limited, NOW, 100) == 0
    free_at = next_start(limited, NOW)
    assert free_at == NOW + SECOND // 10
    assert allowance(limited, Timestamp(free_at), 100) == 1


@given(
    st.floats(0.1, 1_000),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 2 * SECOND), st.integers(1, 50)), max_size=50),
)
def test_over_any_time_no_more_start_than_rate_and_burst_allow(
    rate: float, burst: int, claims: list[tuple[int, int]]
) -> None:
    limited, now, total = lane(rate=rate, burst=burst), NOW, 0
    for pause, wanted in claims:
        now = Timestamp(now + pause)
        count = allowance(limited, now, wanted)
        total += count
        limited = started(limited, now, count)
        assert total <= burst + (now - NOW) / limited.interval()
    # And nothing is held back for ever: at the time that is named, one more may start.
    later = next_start(limited, now)
    assert later is not None
    assert allowance(limited, later, 1) == 1
