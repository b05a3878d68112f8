"""How well rooms are delivered: what is late, how fast it goes, and what that means."""

import pytest

from headwater.log.operations import Touch
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.services.room_lag import Lag, judge


class Watch:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def touch(lsn: int, count: int, partition: str = "messages") -> Touch:
    return Touch(Lsn(lsn), PartitionId(1), Offset(0), count, Lane("main", "rooms/a", "", "", partition))


def test_what_was_told_is_late_until_it_is_handed_out() -> None:
    watch = Watch()
    lag = Lag(watch)
    lag.told([touch(1, 3), touch(2, 4)])
    watch.seconds += 2
    lag.told([touch(3, 5)])
    assert (lag.undelivered, lag.age_seconds()) == (12, 2.0)
    lag.delivered(Lsn(2))
    assert (lag.undelivered, lag.age_seconds()) == (5, 0.0)
    assert lag.latency_ms() == 2_000
    assert lag.per_second() == 0.7
    lag.delivered(Lsn(9))
    assert (lag.undelivered, lag.age_seconds(), lag.per_second()) == (0, 0.0, 1.2)


def test_a_message_that_is_kept_is_not_late_and_presence_is_no_message() -> None:
    watch = Watch()
    lag = Lag(watch)
    lag.told([touch(1, 1), touch(2, 9, "presence")])
    lag.delivered(Lsn(2))
    watch.seconds += 3_600
    assert (lag.undelivered, lag.age_seconds(), lag.per_second()) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("undelivered", "age", "state"),
    [
        (0, 0, "healthy"),
        (999, 9.9, "healthy"),
        (1_000, 0, "warning"),
        (0, 10, "warning"),
        (5_000, 30, "warning"),
        (5_001, 0, "critical"),
        (0, 30.1, "critical"),
    ],
)
def test_the_state_goes_by_what_is_undelivered_and_for_how_long(undelivered: int, age: float, state: str) -> None:
    """S0-54, S0-55, S0-56, with T0-h: a message that is kept for a minute is no backlog."""
    assert judge(undelivered, age) == state
