"""Where to begin to look for what is ready: past the rows that died.

The index of positions by the time at which they are ready holds every version that a position had, that of jobs every
job that was pending. While anybody has a transaction open none of them can be cleared away, and they all lie before
those that live. So a floor is kept for each group, and for each lane of jobs: nothing is ready before it. Whoever has
the append lock and finds nothing before some place may raise it; the server itself lowers it when something is written
that comes earlier (0005_version_positions.sql, 0006_version_job_counts.sql).
"""

from collections import Counter
from collections.abc import Iterator

from headwater.clock import Timestamp
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.foreseen import Foreseen
from headwater.stores.postgres.pipe import Request

# To raise one costs a row, to pass over a dead row costs little: this many pops or claims leave some.
LOOKS_MAX = 32
PLACES_MAX = 4_096

_sql = PostgresConnection.sql


class Floors:
    """Counts how often this process has looked past a floor that could be higher."""

    def __init__(self) -> None:
        self._looks: Counter[tuple[int, ...]] = Counter()
        self._due: list[tuple[int, ...]] = []

    def to_raise(self, foreseen: Foreseen, now: Timestamp) -> list[Request]:
        """What raises floors to what was found under the lock; it has to come before what the commit writes."""
        if len(self._looks) > PLACES_MAX:
            self._looks.clear()
        self._due = []
        return [*self._of_groups(foreseen, now), *self._of_lanes(foreseen)]

    def _of_groups(self, foreseen: Foreseen, now: Timestamp) -> Iterator[Request]:
        for group, floor in foreseen.floors.items():
            ready_at = foreseen.first_ready(group)
            first = now if ready_at is None else ready_at
            if first <= floor:
                self._looks.pop((group,), None)
            elif self._is_time((group,)):
                yield _sql.raise_ready_floor, (group, first, now)

    def _of_lanes(self, foreseen: Foreseen) -> Iterator[Request]:
        """Of lanes whose first job has no priority below 0: where it has, new ones come before it."""
        for (queue, lane, _), rows in foreseen.answers_to(_sql.ready_heads):
            if rows and rows[0][0] <= 0 and self._is_time((queue, lane)):
                yield _sql.raise_job_floor, (queue, lane, -rows[0][0], rows[0][1])

    def _is_time(self, place: tuple[int, ...]) -> bool:
        self._looks[place] += 1
        if self._looks[place] < LOOKS_MAX:
            return False
        self._due.append(place)
        return True

    def raised(self) -> None:
        """They were raised with a commit that wrote. One that found nothing to write leaves them to the next."""
        for place in self._due:
            self._looks.pop(place, None)

    def forget(self) -> None:
        """Groups come and go."""
        self._looks.clear()
