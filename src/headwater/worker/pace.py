"""How soon a worker looks when others commit: whoever got the last job first, so that one job wakes one worker."""

from headwater.log.tail import Tail

BUSY_SECONDS = 0.05
LATE_SECONDS = (0.0, 0.001, 0.002, 0.005)


class Pace:
    """Not at once while there is something to do, nor when looking was in vain lately."""

    def __init__(self, tail: Tail, concurrency: int) -> None:
        self._tail = tail
        self._concurrency = concurrency
        self._vain = 0
        self._deferred_seconds = 0.0

    def looked(self, *, in_vain: bool) -> None:
        """A look has found something, or nothing."""
        self._vain = self._vain + 1 if in_vain else 0

    def suit(self, held: int) -> None:
        """Look as soon as suits a worker that holds so many jobs."""
        if held >= self._concurrency:
            self._defer(BUSY_SECONDS)
        elif held:
            self._defer(LATE_SECONDS[2])
        else:
            self._defer(LATE_SECONDS[min(self._vain, len(LATE_SECONDS) - 1)])

    def rest(self) -> None:
        """Look late: what others do meanwhile, an answer will tell that is waited for."""
        self._defer(BUSY_SECONDS)

    def _defer(self, seconds: float) -> None:
        if seconds != self._deferred_seconds:
            self._deferred_seconds = seconds
            self._tail.defer(seconds)
