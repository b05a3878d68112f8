"""Calls that have ended their process, or may have: it died beside others, or behind others that had left something in
it, and nobody knows which of them it was.

Each runs apart from all others when it comes again: in a process of its own, which tells who was at fault and harms no
neighbour. Where nobody knows it is given back before: what a healthy job had the bad luck to run beside is no attempt.
"""

from headwater.model.job import JobNumber

# A call for which there was no room apart, because those who are there take long, runs beside others once more.
SUSPICIONS_MAX = 5
# More are forgotten, the oldest first: somebody else had them.
SUSPECTS_MAX = 10_000


class Suspects:
    """Who they are, and how often."""

    def __init__(self) -> None:
        self._times: dict[JobNumber, int] = {}

    def __contains__(self, number: JobNumber) -> bool:
        return number in self._times

    def add(self, number: JobNumber) -> None:
        """Its process has died, and it may have been at fault."""
        self._times[number] = self._times.pop(number, 0) + 1
        if len(self._times) > SUSPECTS_MAX:
            del self._times[next(iter(self._times))]

    def shelter(self, number: JobNumber) -> None:
        """It is not at fault, but whoever was has returned: the next like it would run beside it again."""
        self._times.setdefault(number, 0)

    def clear(self, number: JobNumber) -> None:
        """It has ended by itself, or is charged with the end of its process."""
        self._times.pop(number, None)

    def is_too_often(self, number: JobNumber) -> bool:
        """Whether the next time is an attempt of it, whoever else may have been at fault."""
        return self._times.get(number, 0) >= SUSPICIONS_MAX
