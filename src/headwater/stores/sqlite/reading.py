"""Reading the log from another process: one connection that cannot write, and short looks at stretches of it.

Executors of a data pipeline open one of these each. It takes no turn at the write lock, makes no checkpoints and keeps
no transaction open between calls, so writers never wait for it and the write-ahead log can start over.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.errors import StoreOlder
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.contract import Traits
from headwater.stores.log_reader import Body, Drops, Fingerprint, SegmentOutline
from headwater.stores.questions import PartitionStatus
from headwater.stores.sqlite.backup import is_backup
from headwater.stores.sqlite.connection import connect_to_read, translated
from headwater.stores.sqlite.migrate import read_version
from headwater.stores.sqlite.one_name import check_one_name, note_open
from headwater.stores.sqlite.place import check_contents, check_place
from headwater.stores.sqlite.presence import Presence
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.identity import read_fingerprint, read_identity, remembers
from headwater.stores.tables.log_looks import LogLooks
from headwater.stores.tables.segments import read_last_lsn, read_lsn_at


class SqliteLogReader:
    """A SQLite file, for reading only."""

    def __init__(self, path: str, config: Config) -> None:
        self._path = os.path.abspath(path)
        self._codec = Codec(config.encryption_key)
        self._presence = Presence(self._path)
        self.traits = Traits(
            name="sqlite",
            location=self._path,
            engine=f"SQLite {apsw.sqlite_lib_version()}",
            several_machines=False,
            durable_by="",
        )

    async def open(self) -> None:
        """Connect and check that the file is a store of this version."""
        check_place(self._path, adopt=False, create=False)
        with translated(f"opening {self._path}"):
            self._file = connect_to_read(self._path)
            self._connection: Connection = self._file
            self._looks = LogLooks(self._connection, self._codec)
            try:
                check_contents(self._file, self._path, adopt=False)
                check_one_name(self._path)
                self._refuse_older()
            except BaseException:
                self._file.close()
                raise
        self._presence.remember()
        note_open(self._path, 1)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """One look at the file, if it is still the one that was opened."""
        self._presence.check()
        with translated("reading"):
            yield

    def _refuse_older(self) -> None:
        version, newest = read_version(self._connection)
        if version < newest:
            raise StoreOlder(
                f"{self._path} has tables of version {version}, this Headwater reads version {newest}: "
                "open it once for writing (any `headwater` command) to bring it up to date"
            )

    async def close(self) -> None:
        """Let go."""
        note_open(self._path, -1)
        self._file.close()

    async def identity(self) -> str:
        """The UUID of the store; none of a backup that is yet to become one."""
        with self._looking():
            return "" if is_backup(self._file) else read_identity(self._connection)

    async def fingerprint(self, through: Lsn) -> Fingerprint | None:
        """The newest segment at or before `through` that is kept."""
        with self._looking():
            return read_fingerprint(self._connection, through)

    async def remembers(self, seen: Fingerprint) -> bool | None:
        """Whether this is the log that a fingerprint was taken of; None when nothing can be said."""
        with self._looking():
            return remembers(self._connection, seen, read_last_lsn(self._connection))

    async def span(self) -> tuple[Lsn, Lsn]:
        """The LSN before the oldest segment that is kept, and the newest LSN ever given out."""
        with self._looking():
            return self._looks.span()

    async def lsn_at(self, time: Timestamp) -> Lsn:
        """The LSN before the first segment written at or after `time`."""
        with self._looking():
            return read_lsn_at(self._connection, time, read_last_lsn(self._connection))

    async def queue_names(self, database: str) -> list[str]:
        """The names of a database's queues."""
        with self._looking():
            return self._looks.queue_names(database)

    async def queue_numbers(self, database: str) -> dict[str, int]:
        """The queues of a database by name, each with its number."""
        with self._looking():
            return self._looks.queue_numbers(database)

    async def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """Partitions of a queue, with where their records begin and end."""
        with self._looking():
            return self._looks.partitions(database, queue, limit, after)

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        with self._looking():
            return self._looks.newest(after, through, database, queues)

    async def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """Where the log ends for whoever may read the queues whose names fit these patterns."""
        with self._looking():
            return self._looks.end_of(database, patterns)

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        """Segments of these queues in LSN order, without their records."""
        with self._looking():
            return self._looks.outline(after, through, limit, database, queues)

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        """Segments of these queues in LSN order, until their records come to `bytes_max`."""
        with self._looking():
            return self._looks.bodies(after, through, bytes_max, database, queues)

    async def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        """How many drops there were, and which partitions lost records after `after` in drops after `since`."""
        with self._looking():
            return self._looks.drops(after, since, database, queues, partitions)
