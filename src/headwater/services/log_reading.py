"""Reading the log for programs elsewhere, without making anybody here wait.

    request ─► a place among `requests_max` ─► a thread of `readers_max` ─► short looks ─► answer, and the place is free

Looks happen on threads, each with a reader of its own, so that the event loop serves queues meanwhile. A look ends when
it has enough bytes, or when its time is over: then it says how far it came. Requests beyond the bound are told to come
back; a place is free again when the client has taken its answer, so that answers nobody takes are bounded, too.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from headwater.errors import Closed, HeadwaterError, Overloaded
from headwater.model.names import Lsn
from headwater.services.log_requests import Newest, Outline
from headwater.stores.log_reader import Body, LogReader, SegmentOutline

log = logging.getLogger(__name__)

# How much of the log is looked through at once, and for how long one request looks for something of its queues.
WINDOW_LSNS = 4_096
LOOK_SECONDS = 0.05

Result = TypeVar("Result")
Question = Callable[[LogReader], Coroutine[Any, Any, Result]]
IsOver = Callable[[], bool]


class Place:
    """The right of one request to be read for, until it is given back."""

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back: Callable[[], None] | None = give_back

    def leave(self) -> None:
        """Make room for another; a second time changes nothing."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class LogReading:
    """Readers of one store, and who may use them when."""

    def __init__(self, make_reader: Callable[[], LogReader], *, readers_max: int, requests_max: int) -> None:
        self._make_reader = make_reader
        self._readers_max = readers_max
        self._requests_max = requests_max
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[_Seat] = []
        self._closed = False
        self.requests = 0

    def enter(self) -> Place:
        """A place for a request; raises when too many are read for already."""
        if self.requests >= self._requests_max:
            raise Overloaded(f"{self._requests_max:,} requests read the log already; come back later")
        self.requests += 1
        return Place(self._leave)

    def _leave(self) -> None:
        self.requests -= 1

    async def ask(self, question: Question[Result]) -> Result:
        """The answer to a question, from a thread with a reader."""
        if self._closed:
            raise Closed("this Headwater was closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._readers_max, thread_name_prefix="headwater-log-reader")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)

    def _answer(self, question: Question[Result]) -> Result:
        """On a thread. Who failed may have lost its store: the next question gets a new reader."""
        seat = self._take() or _Seat(self._make_reader())
        try:
            answer = seat.ask(question)
        except BaseException:
            seat.close()
            raise
        self._idle.append(seat)
        return answer

    def _take(self) -> "_Seat | None":
        with suppress(IndexError):
            return self._idle.pop()
        return None

    async def close(self) -> None:
        """Finish what is asked, then let go of the readers."""
        self._closed = True
        if self._threads is not None:
            await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            await asyncio.to_thread(self._idle.pop().close)


class _Seat:
    """One reader and the loop it is asked on; used by one thread at a time."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(reader.open())
        except BaseException:
            self._loop.close()
            raise

    def ask(self, question: Question[Result]) -> Result:
        return self._loop.run_until_complete(question(self._reader))

    def close(self) -> None:
        try:
            self._loop.run_until_complete(self._reader.close())
        except HeadwaterError as error:
            log.warning("a reader of the log did not close: %s", error)
        finally:
            self._loop.close()


def time_is_over(seconds: float = LOOK_SECONDS) -> IsOver:
    """Says when a look that begins now has taken long enough."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


# ── looks that end: window after window, until there is enough or the time is over ──


class Part:
    """A part of the log that somebody may read: some queues of a database."""

    def __init__(
        self,
        reader: LogReader,
        database: str,
        queues: Sequence[str],
        is_over: IsOver,
        end: Callable[[], Awaitable[Lsn]],
    ) -> None:
        self._reader = reader
        self._database = database
        self._queues = queues
        self._is_over = is_over
        self._find_end = end

    async def newest(self, after: Lsn, through: Lsn) -> Newest:
        """The newest segment in a stretch, looked for from its end."""
        end = await self._end(after, through)
        while end > after and self._queues:
            begin = Lsn(max(after, end - WINDOW_LSNS))
            found = await self._reader.newest(begin, end, self._database, self._queues)
            if found is not None:
                return Newest(found, found)
            end = begin
            if end > after and self._is_over():
                return Newest(None, end)
        return Newest(None, after)

    async def outline(self, after: Lsn, through: Lsn, limit: int) -> Outline:
        """The first segments in a stretch, without their records."""
        found: list[SegmentOutline] = []
        end = await self._end(after, through)
        while after < end and self._queues:
            window = Lsn(min(after + WINDOW_LSNS, end))
            wanted = limit - len(found)
            found += await self._reader.outline(after, window, wanted, self._database, self._queues)
            if len(found) >= limit:
                return Outline(found, found[-1].lsn)
            after = window
            if after < end and self._is_over():
                return Outline(found, after)
        return Outline(found, through)

    async def bodies(self, after: Lsn, through: Lsn, bytes_max: int) -> tuple[list[Body], Lsn]:
        """Segments with their records until they come to `bytes_max`, and how far that is."""
        found: list[Body] = []
        end = await self._end(after, through)
        while after < end and self._queues:
            window = Lsn(min(after + WINDOW_LSNS, end))
            wanted = bytes_max - sum(len(body.records) for body in found)
            more = await self._reader.bodies(after, window, wanted, self._database, self._queues)
            found += more
            size = sum(len(body.records) for body in more)
            if size >= wanted:
                return found, more[-1].lsn
            after = window
            if after < end and self._is_over():
                return found, after
        return found, through

    async def _end(self, after: Lsn, through: Lsn) -> Lsn:
        """Where a stretch ends, within what may be read: how much others wrote behind that is not looked through, and
        cannot be told by how far a look came."""
        return through if through - after <= WINDOW_LSNS else min(through, await self._find_end())
