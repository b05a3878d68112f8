"""A group that reads one partition through the rules alone: what a store does around them, without a store."""

from collections import Counter
from collections.abc import Mapping

from headwater.model import cursor as rules
from headwater.model.cursor import Cursor, Outcome
from headwater.model.queue import QueueOptions

LEASE_SECONDS = 10.0
LEASE = 10_000_000


class Reading:
    """A cursor over records 0 … count - 1, and everything that happened to them. `check` holds after every step."""

    def __init__(self, count: int, retry_limit: int = 3) -> None:
        self.count = count
        self.options = QueueOptions(retry_limit=retry_limit, retry_delay_seconds=0)
        self.cursor = Cursor(ready_at=0)
        self.now = 1_000
        self.leased: list[int] = []
        self.deliveries: Counter[int] = Counter()
        self.first_deliveries: list[int] = []
        self.completed: list[int] = []
        self.buried: list[int] = []
        self.tokens: list[int] = []

    def lease(self, batch: int) -> list[int]:
        """Pop up to `batch` records; none when all are settled."""
        limit, stop = rules.deliverable(self.cursor, batch)
        end = self.count if stop is None else min(stop, self.count)
        open_ones = [o for o in range(self.cursor.position, end) if o not in self.cursor.settled]
        self.leased = open_ones[:limit]
        if self.leased:
            self.cursor = rules.lease(self.cursor, self.leased[-1] + 1, LEASE_SECONDS, self.now)
            self.tokens.append(self.cursor.token)
            self.first_deliveries += [offset for offset in self.leased if not self.deliveries[offset]]
            self.deliveries.update(self.leased)
            self.check()
        return self.leased

    def report(self, outcomes: Mapping[int, Outcome]) -> bool:
        """Report on records of the lease; whether it ended."""
        settled = rules.settle(self.cursor, outcomes, self.options, self.now)
        self.cursor = settled.cursor
        self.buried += settled.buried
        self.completed += [offset for offset, outcome in outcomes.items() if outcome is Outcome.COMPLETED]
        self.check()
        return settled.released

    def report_all(self, outcome: Outcome) -> None:
        """Say the same of every record that is still open."""
        self.report(dict.fromkeys(rules.outstanding(self.cursor), outcome))

    def die(self) -> None:
        """The consumer is not heard of again until the lease has run out."""
        self.now += LEASE
        settled = rules.expire(self.cursor, self.options, self.now)
        self.cursor = settled.cursor
        self.buried += settled.buried
        self.check()

    def check(self) -> None:
        """What holds at every moment."""
        settled = self.completed + self.buried
        assert len(settled) == len(set(settled)), "a record was settled twice"
        assert self.tokens == sorted(set(self.tokens)), "a token did not rise"
        assert self.first_deliveries == sorted(self.first_deliveries), "a record overtook another"
        passed = set(range(self.cursor.position)) | set(self.cursor.settled)
        assert passed == set(settled), "a record was skipped or came back"
        assert self.cursor.attempts >= 0

    @property
    def is_over(self) -> bool:
        """Whether every record is settled."""
        return self.cursor.position >= self.count
