"""Reading from a connection and a thread of their own: questions never delay a commit.

Nothing here keeps a transaction open between calls, so readers cannot hold the write-ahead log back for long.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from headwater.clock import Clock
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.questions import Answer, FindIdentity, Question, Segment
from headwater.stores.sqlite.backup import write_backup
from headwater.stores.sqlite.connection import SqliteConnection, translated
from headwater.stores.sqlite.presence import Presence
from headwater.stores.tables.answers import Answers

Result = TypeVar("Result")


class Reads:
    """Reads through one connection in one thread."""

    def __init__(self, connection: SqliteConnection, codec: Codec, clock: Clock, presence: Presence) -> None:
        self._connection = connection
        self._answers = Answers(connection, codec, clock)
        self._presence = presence
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-reads")

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question."""
        return await self._run(self._answers.answer, question)

    async def read(self, after: Lsn, through: Lsn, limit: int, queue: tuple[str, str] | None) -> list[Segment]:
        """A stretch of the log with its records."""
        return await self._run(self._answers.read, after, through, limit, queue)

    async def backup(self, path: str) -> None:
        """Copy everything to a new file."""
        await self._run(write_backup, self._connection, path)

    async def examine(self, path: str) -> dict[str, Any]:
        """What SQLite says of the file at `path`."""
        return await self._run(self._examine, path)

    def close(self) -> None:
        """Wait for the last answer and let go."""
        self._thread.shutdown()
        self._connection.close()

    async def _run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work, *arguments)

    def _guarded(self, work: Callable[..., Result], *arguments: Any) -> Result:
        self._presence.check()
        with translated("reading"):
            return work(*arguments)

    def _examine(self, path: str) -> dict[str, Any]:
        connection = self._connection
        pragma = connection.pragma
        (version,) = connection.execute(connection.sql.get_meta, ("schema_version",)).fetchall()
        problems = [str(row[0]) for row in connection.execute("PRAGMA quick_check") if row[0] != "ok"]
        return {
            "pages": pragma("page_count"),
            "page_bytes": pragma("page_size"),
            "free_pages": pragma("freelist_count"),
            "auto_vacuum": {0: "none", 1: "full", 2: "incremental"}[int(str(pragma("auto_vacuum")))],
            "journal_mode": pragma("journal_mode"),
            "identity": self._answers.answer(FindIdentity()),
            "schema_version": version[0],
            "file_bytes": os.path.getsize(path),
            "wal_bytes": os.path.getsize(f"{path}-wal") if os.path.exists(f"{path}-wal") else 0,
            "problems": [f"the file is damaged: {problem}" for problem in problems[:10]],
        }
