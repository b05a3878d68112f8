"""Reading from a connection and a thread of their own: questions never delay a commit.

Nothing here keeps a transaction open between calls, so readers cannot hold the write-ahead log back for long.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headwater.clock import Clock
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.contract import Fact, Findings
from headwater.stores.questions import Answer, FindIdentity, Question, Segment
from headwater.stores.sqlite.backup import write_backup
from headwater.stores.sqlite.connection import SqliteConnection, translated
from headwater.stores.sqlite.presence import Presence
from headwater.stores.sqlite.reader_thread import ReaderThread
from headwater.stores.tables.answers import Answers
from headwater.stores.tables.connection import Meta, Text

AUTO_VACUUM = {0: "none", 1: "full", 2: "incremental"}

Result = TypeVar("Result")


class Reads:
    """Reads through one connection in one thread."""

    def __init__(self, connection: SqliteConnection, codec: Codec, clock: Clock, presence: Presence) -> None:
        self._connection = connection
        self._answers = Answers(connection, codec, clock)
        self._presence = presence
        self._thread = ReaderThread()

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        work = partial(self._guarded, self._answers.answer, question)
        return await self._thread.run(work, getattr(question, "database", ""))

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._run(self._answers.read, after, through, limit, queue)

    async def backup(self, path: str) -> None:
        """Copy everything to a new file."""
        await self._run(write_backup, self._connection, path)

    async def examine(self) -> Findings:
        """What SQLite says of the file."""
        return await self._run(self._examine)

    def close(self) -> None:
        """Wait for the last answer and let go."""
        self._thread.close()
        self._connection.close()

    async def _run(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await self._thread.run(partial(self._guarded, work, *arguments))

    def _guarded(self, work: Callable[..., Result], *arguments: object) -> Result:
        self._presence.check()
        with translated("reading"):
            return work(*arguments)

    def _examine(self) -> Findings:
        connection = self._connection
        [(version,)] = connection.rows(connection.sql.get_meta, ("schema_version",), Meta)
        problems = [said for (said,) in connection.rows("PRAGMA quick_check", (), Text) if said != "ok"]
        facts = [
            Fact("pages", self._number("page_count")),
            Fact("page_bytes", self._number("page_size")),
            Fact("free_pages", self._number("freelist_count")),
            Fact("auto_vacuum", AUTO_VACUUM[self._number("auto_vacuum")]),
            Fact("journal_mode", str(connection.pragma("journal_mode"))),
            Fact("identity", self._answers.answer(FindIdentity())),
            Fact("schema_version", int(version)),
        ]
        return Findings(facts, [f"the file is damaged: {problem}" for problem in problems[:10]])

    def _number(self, pragma: str) -> int:
        return int(str(self._connection.pragma(pragma)))
