"""A clock that stands still until a test moves it."""

from headwater.clock import SECOND, Timestamp

BEGINNING = Timestamp(1_750_000_000 * SECOND)


class FakeClock:
    """Tells the time that it was told."""

    def __init__(self, now: Timestamp = BEGINNING) -> None:
        self._now = now
        self._steady = 0

    def now(self) -> Timestamp:
        return self._now

    def advance(self, seconds: float) -> Timestamp:
        """Let time pass; a negative number turns the clock back."""
        self._steady += max(round(seconds * SECOND), 0)
        return self.set_by(seconds)

    def set_by(self, seconds: float) -> Timestamp:
        """Somebody sets the clock, and no time passes."""
        self._now = Timestamp(self._now + round(seconds * SECOND))
        return self._now

    def steady(self) -> int:
        return self._steady
