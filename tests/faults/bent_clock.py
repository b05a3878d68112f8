"""A clock that the test moves."""

from headwater.clock import SECOND, Timestamp

START = Timestamp(1_750_000_000 * SECOND)


class BentClock:
    """Stands still until it is told to move; may go back."""

    def __init__(self, start: int = START) -> None:
        self._now = start

    def now(self) -> Timestamp:
        """Microseconds since 1970, as the test wants them."""
        return Timestamp(self._now)

    def move(self, seconds: float) -> None:
        """Jump, forward or back."""
        self._now += int(seconds * SECOND)
