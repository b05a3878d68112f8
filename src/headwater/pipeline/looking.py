"""The log as the workers of Spark see it: read by address, without async, and with what retention took from it told."""

import asyncio
import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from headwater.config import load_config
from headwater.errors import DataLost
from headwater.model.names import Lsn
from headwater.pipeline.asking import ask
from headwater.pipeline.options import LATEST, Place, ReadOptions
from headwater.pipeline.planning import Offset, Snapshot
from headwater.pipeline.seeing import open_seen
from headwater.stores.log_reader import Body, Stretch
from headwater.stores.open import open_reader

log = logging.getLogger(__name__)

LOOK_BYTES = 4 * 1_048_576
LOOK_SEGMENTS = 10_000


class Look:
    """One reader on an event loop of its own; what is asked of it is what the options say."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._reader = open_reader(options.store, load_config(), options.access)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            open_seen(self._runner, self._reader)
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ask(self._runner, self._reader.close())
        self._runner.close()

    def queues(self) -> tuple[str, ...]:
        """The queues to read."""
        return self._options.choose(ask(self._runner, self._reader.queue_names(self._options.database)))

    def find(self, place: Place) -> Offset:
        """The offset before the first segment from this place on; what was dropped before is no loss to who begins."""
        oldest, last = ask(self._runner, self._reader.span())
        number = ask(self._runner, self._reader.drops(Lsn(0), 0, self._options.database, ())).number
        if place.lsn is not None:
            return Offset(Lsn(max(place.lsn - 1, 0)), 0)
        if place.time is not None:
            return Offset(ask(self._runner, self._reader.lsn_at(place.time)), number)
        return Offset(last if place.name == "latest" else oldest, number)

    def snapshot(self) -> Snapshot:
        """The table that the options describe, as it is now."""
        queues = self.queues()
        start = self.find(self._options.starting)
        end = self._end(self._options.ending)
        return Snapshot(queues, start, end, self.drops())

    def _end(self, place: Place) -> Lsn:
        last = self.last_lsn()
        return last if place == LATEST else min(self.find(place).lsn, last)

    def last_lsn(self) -> Lsn:
        """The newest LSN ever given out."""
        return ask(self._runner, self._reader.span())[1]

    def newest(self, after: Lsn, through: Lsn, queues: tuple[str, ...]) -> Lsn | None:
        """The newest segment of the queues in a stretch of the log."""
        return ask(self._runner, self._reader.newest(after, through, self._options.database, queues))

    def outline(self, after: Lsn, through: Lsn, queues: tuple[str, ...]) -> Iterator[Stretch]:
        """The segments of the queues in a stretch of the log, a bounded number a look."""
        while True:
            found = ask(
                self._runner, self._reader.outline(after, through, LOOK_SEGMENTS, self._options.database, queues)
            )
            yield from found
            if len(found) < LOOK_SEGMENTS:
                return
            after = found[-1].lsn

    def bodies(self, after: Lsn, through: Lsn, queues: tuple[str, ...]) -> Iterator[list[Body]]:
        """The segments that are wanted of the queues with their records, some megabytes a look."""
        while found := ask(
            self._runner, self._reader.bodies(after, through, LOOK_BYTES, self._options.database, queues)
        ):
            if wanted := [body for body in found if self._options.wants(body.lane.partition)]:
                yield wanted
            after = found[-1].lsn

    def drops(self) -> int:
        """How often anything was dropped from the store."""
        return ask(self._runner, self._reader.drops(Lsn(0), 0, self._options.database, ())).number

    def check_loss(self, start: Offset, queues: tuple[str, ...]) -> None:
        """Raises, or says in the log, when retention took records behind `start` since that offset was made."""
        drops = ask(self._runner, self._reader.drops(start.lsn, start.drops, self._options.database, queues))
        if not drops.lost:
            return
        message = (
            f"retention dropped records after LSN {start.lsn} that were not read, in {drops.lost:,} partitions "
            f"({', '.join(drops.partitions)})"
        )
        if self._options.fail_on_data_loss:
            raise DataLost(f"{message}; to go on without them, set failOnDataLoss to false")
        log.warning("%s; going on without them, as failOnDataLoss says", message)
