"""Clocks in the hands of a test: one that stands still until it is moved, and one that runs and can be moved on."""

from headwater.clock import SECOND, SystemClock, Timestamp

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


class RunningClock:
    """The machine's clock, which a test moves on or stops: for what needs real time as well as the end of an hour."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self._ahead = 0
        self._set = 0
        self._stopped: tuple[Timestamp, int] | None = None

    def now(self) -> Timestamp:
        return Timestamp((self._stopped[0] if self._stopped else self._machine.now()) + self._ahead + self._set)

    def steady(self) -> int:
        return (self._stopped[1] if self._stopped else self._machine.steady()) + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self._ahead += round(seconds * SECOND)

    def set_by(self, seconds: float) -> None:
        """Somebody sets the clock, and no time passes."""
        self._set += round(seconds * SECOND)

    def stop(self) -> None:
        """From here on time passes by `advance` only."""
        self._stopped = self._machine.now(), self._machine.steady()
