"""How well rooms are delivered: what this process was told of and has not handed out yet, and for how long it waited.

A message that is a minute old is none that is late: it is kept for those who come back. Late is what nobody has got.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from headwater.log.operations import Touch
from headwater.model.names import Lsn
from headwater.model.room import PRESENCE

WARNING_COUNT, CRITICAL_COUNT = 1_000, 5_000
WARNING_SECONDS, CRITICAL_SECONDS = 10.0, 30.0
# Rates and means are of the last so many seconds.
WINDOW_SECONDS = 10


class RoomState(StrEnum):
    """How rooms are."""

    HEALTHY = "healthy"
    WARNING = "warning"
    CRITICAL = "critical"


def judge(undelivered: int, age_seconds: float) -> RoomState:
    """The state that so many undelivered messages mean, the oldest of which waits for so long."""
    if undelivered > CRITICAL_COUNT or age_seconds > CRITICAL_SECONDS:
        return RoomState.CRITICAL
    if undelivered >= WARNING_COUNT or age_seconds >= WARNING_SECONDS:
        return RoomState.WARNING
    return RoomState.HEALTHY


class _Told(msgspec.Struct, gc=False):
    lsn: Lsn
    count: int
    at: float


class Lag:
    """What was told and not handed out, of the rooms of one database."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._waiting: deque[_Told] = deque()
        # Of each of the last seconds: messages that were handed out, and how long they had waited together.
        self._seconds: deque[tuple[int, int, float]] = deque()
        self.undelivered = 0

    def told(self, touches: Sequence[Touch]) -> None:
        """Something is new."""
        now = self._now()
        for touch in touches:
            if touch.lane.partition != PRESENCE:
                self._waiting.append(_Told(touch.lsn, touch.count, now))
                self.undelivered += touch.count

    def delivered(self, through: Lsn) -> None:
        """Everything up to an LSN was handed out."""
        now = self._now()
        while self._waiting and self._waiting[0].lsn <= through:
            told = self._waiting.popleft()
            self.undelivered -= told.count
            self._count(int(now), told.count, (now - told.at) * told.count)

    def age_seconds(self) -> float:
        """For how long the oldest waits that was not handed out."""
        return self._now() - self._waiting[0].at if self._waiting else 0.0

    def per_second(self) -> float:
        """How many messages were handed out in a second."""
        return sum(count for _, count, _ in self._recent()) / WINDOW_SECONDS

    def latency_ms(self) -> float:
        """How long it took on average from learning of a message to handing it out."""
        recent = self._recent()
        count = sum(count for _, count, _ in recent)
        return sum(waited for _, _, waited in recent) / count * 1_000 if count else 0.0

    def _count(self, second: int, count: int, waited: float) -> None:
        if self._seconds and self._seconds[-1][0] == second:
            _, before, waited_before = self._seconds.pop()
            count, waited = count + before, waited + waited_before
        self._seconds.append((second, count, waited))
        while len(self._seconds) > WINDOW_SECONDS + 1:
            self._seconds.popleft()

    def _recent(self) -> list[tuple[int, int, float]]:
        oldest = int(self._now()) - WINDOW_SECONDS
        return [one for one in self._seconds if one[0] > oldest]
