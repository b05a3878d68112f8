"""How often which durations came up: counted in fixed steps, so that it costs a few additions and no memory."""

from bisect import bisect_left

STEPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# For what is over in less than the first of those, as a rule.
FINE_STEPS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0)


class Histogram:
    """Durations in seconds, by the step they fit under."""

    __slots__ = ("counts", "steps", "total")

    def __init__(self, steps: tuple[float, ...] = STEPS) -> None:
        self.steps = steps
        self.counts = [0] * (len(steps) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.steps, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """How many fit under each step, the last one being endless."""
        found: list[tuple[str, float]] = []
        below = 0
        for step, count in zip((*map(str, self.steps), "+Inf"), self.counts, strict=True):
            below += count
            found.append((step, below))
        return found
