"""Questions about what is kept, answered from the rows of one connection, each by its subject.

Every answer is one short read transaction. Nothing here keeps one open between calls.
"""

from typing import cast

from headwater.clock import Clock
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.questions import Answer, Question, Segment
from headwater.stores.tables.access_tokens import AccessTokenAnswers
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.dead_letters import DeadLetterAnswers
from headwater.stores.tables.delayed import DelayedAnswers
from headwater.stores.tables.document_answers import DocumentAnswers
from headwater.stores.tables.document_rules import DocumentRuleAnswers
from headwater.stores.tables.flows import FlowAnswers
from headwater.stores.tables.groups import GroupAnswers
from headwater.stores.tables.job_answers import JobAnswers
from headwater.stores.tables.log_answers import LogAnswers
from headwater.stores.tables.milestones import MilestoneAnswers
from headwater.stores.tables.queues import QueueAnswers
from headwater.stores.tables.rooms import RoomAnswers
from headwater.stores.tables.staging import StagingAnswers
from headwater.stores.tables.streams import StreamAnswers
from headwater.stores.tables.subject import SubjectAnswers
from headwater.stores.tables.switches import SwitchAnswers
from headwater.stores.tables.traces import TraceAnswers


class Answers:
    """Reads through one connection."""

    def __init__(self, connection: Connection, codec: Codec, clock: Clock) -> None:
        self._log = LogAnswers(connection, codec)
        subjects: tuple[SubjectAnswers, ...] = (
            self._log,
            QueueAnswers(connection),
            GroupAnswers(connection, clock),
            DelayedAnswers(connection),
            DeadLetterAnswers(connection, codec),
            FlowAnswers(connection),
            StagingAnswers(connection),
            StreamAnswers(connection),
            TraceAnswers(connection, codec),
            SwitchAnswers(connection),
            MilestoneAnswers(connection),
            AccessTokenAnswers(connection),
            JobAnswers(connection),
            DocumentAnswers(connection),
            RoomAnswers(connection),
            DocumentRuleAnswers(connection),
        )
        self.handlers = {question: handler for subject in subjects for question, handler in subject.handlers().items()}

    def answer(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        return cast(Answer, self.handlers[type(question)](question))

    def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log."""
        return self._log.read(after, through, limit, queue)
