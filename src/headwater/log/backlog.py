"""What waits for a commit, and how much of it goes into the next one."""

from headwater.errors import HeadwaterError, Overloaded, StoreDamaged, StoreError
from headwater.log.submissions import Submission

COMMIT_OPERATIONS_MAX = 4_096


class Backlog:
    """Operations in the order in which they go in: first those that were taken back, then those that were handed in."""

    def __init__(self, pending_max: int) -> None:
        self._pending_max = pending_max
        self.pending: list[Submission] = []
        # Taken back by a lost race, or by a commit that broke: they go before all others.
        self.returned: list[Submission] = []
        # How many go into a commit: fewer after one broke, until it is known who breaks it.
        self._batch_max = COMMIT_OPERATIONS_MAX

    def __len__(self) -> int:
        return len(self.pending) + len(self.returned)

    def check_room(self, count: int) -> None:
        """Overloaded when so many more cannot be taken."""
        if len(self.pending) + count > self._pending_max:
            raise Overloaded(f"{len(self.pending):,} of {self._pending_max:,} operations wait already; try again")

    def take(self) -> list[Submission]:
        """The next commit; those that were handed in together stay together."""
        batch = self.take_all()
        if len(batch) > self._batch_max:
            cut = self._batch_max
            while cut and batch[cut].is_joined:
                cut -= 1
            # More than a commit takes were handed in together: those are as many commits as it needs.
            cut = cut or self._batch_max
            batch, self.pending = batch[:cut], batch[cut:]
        return batch

    def take_all(self) -> list[Submission]:
        """Everything that waits."""
        waiting = self.returned + self.pending if self.returned else self.pending
        self.returned, self.pending = [], []
        return waiting

    def refuse_pending(self, error: HeadwaterError) -> None:
        """Whoever handed in what no commit has taken is told."""
        waiting, self.pending = self.pending, []
        for submission in waiting:
            submission.fail(error)

    def halve(self, batch: list[Submission]) -> None:
        """A commit broke, and it may be the fault of one of them: they come again in parts."""
        self._batch_max = len(batch) // 2
        self.returned += batch

    def widen(self) -> None:
        """A commit held: more may go into the next one."""
        self._batch_max = min(2 * self._batch_max, COMMIT_OPERATIONS_MAX)


def is_of_one(error: Exception) -> bool:
    """Whether one operation may have broken a commit, and not a store that takes nothing from anybody."""
    if isinstance(error, HeadwaterError):
        return type(error) in (StoreError, StoreDamaged)
    return not isinstance(error, OSError)
