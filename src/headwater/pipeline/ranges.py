"""Reading ranges of LSNs where Spark calls for them: one reader, short looks, each of them bounded.

The source, the flows and the rollup all read the log through this: by address, on a loop of their own, without holding
anything between two looks, so that none of them holds the write-ahead log back.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from headwater.client.access import Access
from headwater.config import load_config
from headwater.pipeline.asking import ask
from headwater.pipeline.planning import Range
from headwater.pipeline.seeing import open_seen
from headwater.stores.log_reader import Body, SegmentOutline
from headwater.stores.open import open_reader

BYTES_PER_LOOK = 4 * 1_048_576
SEGMENTS_PER_LOOK = 10_000

Result = TypeVar("Result")


class Place(NamedTuple):
    """A database of a store."""

    store: str
    database: str
    access: Access = Access()


class RangeReader:
    """The log at a place, to be opened by `with`."""

    def __init__(self, place: Place) -> None:
        self._database = place.database
        self._reader = open_reader(place.store, load_config(), place.access)
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
        self._ask(self._reader.close())
        self._runner.close()

    def outlines(self, span: Range, queues: Iterable[str]) -> Iterator[list[SegmentOutline]]:
        """The segments of the queues in a range without their records, a bounded number a look."""
        names, after = tuple(queues), span.after
        while found := self._ask(self._reader.outline(after, span.through, SEGMENTS_PER_LOOK, self._database, names)):
            yield found
            if len(found) < SEGMENTS_PER_LOOK:
                return
            after = found[-1].lsn

    def bodies(self, span: Range, queues: Iterable[str]) -> Iterator[list[Body]]:
        """The segments of the queues in a range with their records, some megabytes a look."""
        names, after = tuple(queues), span.after
        while found := self._ask(self._reader.bodies(after, span.through, BYTES_PER_LOOK, self._database, names)):
            yield found
            after = found[-1].lsn

    def _ask(self, question: Coroutine[Any, Any, Result]) -> Result:
        return ask(self._runner, question)


def read_bodies(place: Place, queues: Sequence[str], span: Range) -> Iterator[list[Body]]:
    """What a range has of some queues, from a reader that is opened for it."""
    with RangeReader(place) as log:
        yield from log.bodies(span, queues)


def read_stretches(place: Place, queue: str, span: Range) -> Iterator[list[SegmentOutline]]:
    """The same without the records."""
    with RangeReader(place) as log:
        yield from log.outlines(span, (queue,))
