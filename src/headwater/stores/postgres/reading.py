"""Reading the log from another process, on any machine: one connection, and short looks at stretches of the log.

Where the address names a replica it is read there: an older part of the same log, without a hole, because a standby
repeats the server's commits in their order.
"""

from collections.abc import Iterable, Sequence

from headwater.clock import Timestamp
from headwater.config import Config
from headwater.errors import StoreMissing, StoreOlder
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.log_reader import Body, Drops, Fingerprint, SegmentOutline
from headwater.stores.postgres.address import parse_address
from headwater.stores.postgres.link import link_for_reading
from headwater.stores.postgres.migrate import migrations, read_version, refuse_newer
from headwater.stores.postgres.read_thread import ReadThread
from headwater.stores.postgres.traits import traits_of
from headwater.stores.questions import PartitionStatus
from headwater.stores.tables.identity import read_fingerprint, read_identity, remembers
from headwater.stores.tables.log_looks import BodyRow, LogLooks
from headwater.stores.tables.segments import read_last_lsn, read_lsn_at


class _ServerLooks(LogLooks):
    """Looks at a server, which answers with all rows that were asked for: large ones are asked for some at a time."""

    def _body_rows(self, after: Lsn, through: Lsn, database: str, names: str) -> Iterable[BodyRow]:
        while rows := self._connection.rows(self._sql.bodies, (after, through, database, names), BodyRow):
            yield from rows
            after = rows[-1][0]


class PostgresLogReader:
    """A schema of a server's database, for reading only."""

    def __init__(self, address: str, config: Config) -> None:
        self._address = parse_address(address)
        self._codec = Codec(config.encryption_key)
        self._link = link_for_reading(self._address, config.lock_wait_seconds)
        self.traits = traits_of(self._address)

    async def open(self) -> None:
        """Connect and check that there is a store of this version."""
        self._thread = ReadThread(self._link)
        self._connection = self._thread.connection
        self._looks = _ServerLooks(self._connection, self._codec)
        try:
            await self._thread.run(self._check)
        except BaseException:
            await self._thread.close()
            raise

    def _check(self) -> None:
        version, newest = read_version(self._connection, self._address.schema), migrations()[-1].number
        if not version:
            raise StoreMissing(f"there is no store at {self._address.shown}")
        refuse_newer(self._connection, self._address)
        if version < newest:
            raise StoreOlder(
                f"{self._address.shown} has tables of version {version}, this Headwater reads version {newest}: "
                "open it once for writing (any `headwater` command) to bring it up to date"
            )
        self.traits = traits_of(self._address, self._connection.pipe.server_version)

    async def close(self) -> None:
        """Let go."""
        await self._thread.close()

    async def identity(self) -> str:
        """The UUID of the store."""
        return await self._thread.run(read_identity, self._connection)

    async def fingerprint(self, through: Lsn) -> Fingerprint | None:
        """The newest segment at or before `through` that is kept."""
        return await self._thread.run(read_fingerprint, self._connection, through)

    async def remembers(self, seen: Fingerprint) -> bool | None:
        """Whether this is the log that a fingerprint was taken of; None when nothing can be said."""
        return await self._thread.run(self._remembers, seen)

    def _remembers(self, seen: Fingerprint) -> bool | None:
        return remembers(self._connection, seen, read_last_lsn(self._connection))

    async def span(self) -> tuple[Lsn, Lsn]:
        """The LSN before the oldest segment that is kept, and the newest LSN ever given out."""
        return await self._thread.run(self._looks.span)

    async def lsn_at(self, time: Timestamp) -> Lsn:
        """The LSN before the first segment written at or after `time`."""
        return await self._thread.run(self._lsn_at, time)

    def _lsn_at(self, time: Timestamp) -> Lsn:
        return read_lsn_at(self._connection, time, read_last_lsn(self._connection))

    async def queue_names(self, database: str) -> list[str]:
        """The names of a database's queues."""
        return await self._thread.run(self._looks.queue_names, database)

    async def queue_numbers(self, database: str) -> dict[str, int]:
        """The queues of a database by name, each with its number."""
        return await self._thread.run(self._looks.queue_numbers, database)

    async def partitions(self, database: str, queue: str, limit: int, after: int) -> list[PartitionStatus]:
        """Partitions of a queue, with where their records begin and end."""
        return await self._thread.run(self._looks.partitions, database, queue, limit, after)

    async def newest(self, after: Lsn, through: Lsn, database: str, queues: Sequence[str]) -> Lsn | None:
        """The newest segment of these queues in a stretch of the log, None when it has none."""
        return await self._thread.run(self._looks.newest, after, through, database, queues)

    async def end_of(self, database: str, patterns: Sequence[str]) -> Lsn:
        """Where the log ends for whoever may read the queues whose names fit these patterns."""
        return await self._thread.run(self._looks.end_of, database, patterns)

    async def outline(
        self, after: Lsn, through: Lsn, limit: int, database: str, queues: Sequence[str]
    ) -> list[SegmentOutline]:
        """Segments of these queues in LSN order, without their records."""
        return await self._thread.run(self._looks.outline, after, through, limit, database, queues)

    async def bodies(
        self, after: Lsn, through: Lsn, bytes_max: int, database: str, queues: Sequence[str]
    ) -> list[Body]:
        """Segments of these queues in LSN order, until their records come to `bytes_max`."""
        return await self._thread.run(self._looks.bodies, after, through, bytes_max, database, queues)

    async def drops(
        self, after: Lsn, since: int, database: str, queues: Sequence[str], partitions: Sequence[str] = ()
    ) -> Drops:
        """How many drops there were, and which partitions lost records after `after` in drops after `since`."""
        return await self._thread.run(self._looks.drops, after, since, database, queues, partitions)
