"""Reading from a connection and a thread of their own: questions never delay a commit, nor an event loop.

A commit can be seen before it is on the server's disk. Whoever is handed records or LSNs must not meet what a crash of
the server could still take back, so an answer is given once everything that could be seen when it was read is there.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.errors import translate
from headwater.stores.postgres.link import Link
from headwater.stores.postgres.pipe import ConnectionLost, Pipe, ServerError

Result = TypeVar("Result")

# A standby ends reads of rows that its server has cleared away.
_IN_THE_WAY_OF_RECOVERY = "40001"


class LinkedConnection(PostgresConnection):
    """Reads through whatever connection there is now."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def pipe(self) -> Pipe:
        """The connection, made anew when it was lost."""
        return self._link.pipe()


class ReadThread:
    """One thread and its connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.connection = LinkedConnection(link)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-reads")

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Do some reading there; what it found is on the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work, *arguments)

    def now(self, work: Callable[..., Result], *arguments: object) -> Result:
        """The same, waited for on the spot."""
        return self._thread.submit(self._read, work, *arguments).result()

    async def close(self) -> None:
        """Wait for the last answer and let go."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._thread.shutdown()
        self._link.drop()

    def _read(self, work: Callable[..., Result], *arguments: object) -> Result:
        try:
            try:
                return self._flushed(work, *arguments)
            except ServerError as error:
                if not isinstance(error, ConnectionLost) and error.state != _IN_THE_WAY_OF_RECOVERY:
                    raise
                # Reading changes nothing: the same once more, through a new connection if that was lost.
                return self._flushed(work, *arguments)
        except ServerError as error:
            raise translate(error, "reading") from error

    def _flushed(self, work: Callable[..., Result], *arguments: object) -> Result:
        result = work(*arguments)
        sql = self.connection.sql
        # Asked after the rows were read: all that they could come from lies before this place in the server's log.
        [(is_flushed,)] = self.connection.rows(sql.is_flushed, (), tuple[bool])
        if not is_flushed:
            self.connection.run(sql.barrier)
        return result
