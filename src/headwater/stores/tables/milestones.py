"""Named work that goes on step by step: how far it is."""

from headwater.clock import Timestamp
from headwater.errors import AlreadyReached
from headwater.log.operations import Reach, Reached
from headwater.stores.questions import FindMilestone, ListMilestones, Milestone
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

# Step, what was noted with it.
StepRow = tuple[int, str]
# Name, step, what was noted with it, when it was reached.
MilestoneRow = tuple[str, int, str, Timestamp]


class Milestones(Subject):
    """All named work, under the write lock."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Reach: self.reach}

    def reach(self, operation: Reach, now: Timestamp) -> Reached:
        """Take a step, once."""
        row = self._connection.row(self._sql.find_milestone, (operation.database, operation.name), StepRow)
        if row is not None and row[0] >= operation.number:
            message = f"{operation.name!r} is at step {row[0]}; step {operation.number} was taken before"
            raise AlreadyReached(message, *row)
        step = (operation.database, operation.name, operation.number, operation.note, now)
        self._connection.run(self._sql.set_milestone, step)
        return Reached(None if row is None else row[0])


class MilestoneAnswers(SubjectAnswers):
    """Reads how far named work is."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {FindMilestone: self.milestone, ListMilestones: self.milestones}

    def milestone(self, asked: FindMilestone) -> int | None:
        """The last step that named work has reached."""
        row = self._connection.row(self._sql.find_milestone, (asked.database, asked.name), StepRow)
        return None if row is None else row[0]

    def milestones(self, asked: ListMilestones) -> list[Milestone]:
        """How far all work of a kind is."""
        prefix = (asked.database, asked.prefix, asked.prefix + "\U0010ffff")
        return [Milestone(*row) for row in self._connection.rows(self._sql.milestone_list, prefix, MilestoneRow)]
