"""Parts of a commit that is too large for one request. Nobody reads them but the request that commits them."""

from headwater.clock import SECOND, Timestamp
from headwater.errors import Overloaded, TooLarge
from headwater.log.flow_operations import Stage, Staged, Unstage
from headwater.log.operations import Deleted
from headwater.stores.questions import ListStaged
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.subject import Answering, Handlers, Subject, SubjectAnswers

# Long enough for the slowest upload; the rest is of drivers that died.
STAGED_SECONDS = 3_600
# How many uploads of full size may be under way in one database.
UPLOADS_MAX = 4


# Bytes of other uploads, and of other parts of this one.
StagedBytesRow = tuple[int, int]
# Number, body.
PartRow = tuple[int, bytes]


class Staging(Subject):
    """All uploads, under the write lock."""

    def __init__(self, connection: Connection, bytes_max: int) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._bytes_max = bytes_max

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {Stage: self.stage, Unstage: self.unstage}

    def stage(self, operation: Stage, now: Timestamp) -> Staged:
        """Keep a part; what was left lying is dropped on the way."""
        place = (operation.database, operation.upload, operation.part)
        if operation.part == 0:
            self._connection.run(self._sql.drop_old_staged, (operation.database, now - STAGED_SECONDS * SECOND))
        [(others, before)] = self._connection.rows(self._sql.staged_bytes, place, StagedBytesRow)
        size = before + operation.size
        if size > self._bytes_max:
            raise TooLarge(
                f"one commit may have {self._bytes_max:,} bytes; make micro-batches smaller with maxOffsetsPerTrigger, "
                "write a table in parts, or raise staged_bytes_max of the server"
            )
        if others + size > UPLOADS_MAX * self._bytes_max:
            raise Overloaded(f"{others:,} bytes of other large commits are under way; come back later")
        self._connection.run(self._sql.stage_part, (*place, now, operation.size, operation.body))
        return Staged(size)

    def unstage(self, operation: Unstage, now: Timestamp) -> Deleted:
        """Drop an upload."""
        before = self._connection.rows(self._sql.staged_parts, (operation.database, operation.upload), PartRow)
        self._connection.run(self._sql.unstage, (operation.database, operation.upload))
        return Deleted(len(before))


class StagingAnswers(SubjectAnswers):
    """Reads uploads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def handlers(self) -> Answering:
        """What answers which question."""
        return {ListStaged: self.staged}

    def staged(self, asked: ListStaged) -> list[bytes]:
        """The parts of an upload, from the first on as far as there is no gap."""
        rows = self._connection.rows(self._sql.staged_parts, (asked.database, asked.upload), PartRow)
        return [body for place, (part, body) in enumerate(rows) if part == place]
