"""How often which durations came up: counted in fixed steps, so that it costs a few additions and no memory."""

from bisect import bisect_left

STEPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Durations in seconds, by the step they fit under."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(STEPS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(STEPS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """How many fit under each step, the last one being endless."""
        found: list[tuple[str, float]] = []
        below = 0
        for step, count in zip((*map(str, STEPS), "+Inf"), self.counts, strict=True):
            below += count
            found.append((step, below))
        return found
