"""One connection to a server: a request out, its answer in, then the next.

Whatever a server or what stands between sends, an exchange ends: with an answer, or with `Broken` within the time that
was given. A connection that saw anything odd is not used again.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

HEAD_BYTES_MAX = 65_536
# For how long the answer to somebody who left is listened for.
DESERTED_SECONDS = 5.0
# The parser gathers an endless line without a word; feeding it a head in pieces bounds what it gathers.
FEED_BYTES = 4_096


class HttpResponse(NamedTuple):
    """A whole answer. `retry_after` is what the header of that name says."""

    status: int
    body: bytes
    content_type: str = ""
    retry_after: str = ""


# Called when the caller of an exchange leaves, with what may still come of it: an answer, or `Broken`.
Orphaned = Callable[["asyncio.Future[HttpResponse]"], None]


class Broken(Exception):
    """The connection ended, or what came over it is no answer; `unused` when nothing of an answer had come."""

    def __init__(self, reason: str, *, unused: bool = False, garbled: bool = False) -> None:
        super().__init__(reason)
        self.unused = unused
        self.garbled = garbled


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 with one server, one request at a time."""

    def __init__(self, answer_bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer_bytes_max = answer_bytes_max
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: Broken | None = None
        self._deserted: asyncio.Future[HttpResponse] | None = None
        self._orphaned: Orphaned | None = None
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.is_usable = True
        self.exchanges = 0
        self._forget()

    def _forget(self) -> None:
        """Be ready for the next answer."""
        self._bytes = 0
        self._head_bytes = 0
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._head_complete = False

    # ── what callers do ──

    async def exchange(self, request: bytes, seconds: float, orphaned: Orphaned | None = None) -> HttpResponse:
        """The answer to a request.

        Whoever is cancelled meanwhile hangs up, so that the server learns of it and gives back what it holds for them.
        `orphaned` gets what comes of it then: an answer that was on its way already, or none.
        """
        if self._ended is not None or not self.is_usable:
            raise self._ended or Broken("the server closed the connection", unused=True)
        self._forget()
        self.exchanges += 1
        self._waiting = self._loop.create_future()
        self._orphaned = orphaned
        self._timer = self._loop.call_later(seconds, self._out_of_time, seconds)
        self._transport.write(request)
        try:
            # Shielded, because an answer may come between the word that the caller leaves and its leaving.
            return await asyncio.shield(self._waiting)
        except asyncio.CancelledError:
            if not self.is_deserted:
                self._desert(self._waiting, orphaned)
            raise
        finally:
            self._timer.cancel()
            self._waiting = self._deserted

    def _desert(self, answer: asyncio.Future[HttpResponse], orphaned: Orphaned | None) -> None:
        """The caller has left. Send no more, and listen for an answer that was under way until the server hangs up."""
        if orphaned is None:
            self.abort()
        elif answer.done() and not answer.cancelled():
            orphaned(answer)
        elif self._transport.is_closing() or not self._transport.can_write_eof():
            self.abort()
        else:
            self.is_usable = False
            self._transport.write_eof()
            self._deserted = self._loop.create_future()
            self._loop.call_later(DESERTED_SECONDS, self._transport.abort)
            orphaned(self._deserted)

    def end_wait(self, error: Exception) -> None:
        """Tell whoever waits this error, as if the caller had left, if what still comes can be handed on."""
        waiting = self._waiting
        if waiting is None or waiting.done() or self._orphaned is None or self.is_deserted:
            return
        self._desert(waiting, self._orphaned)
        self._waiting = self._deserted
        waiting.set_exception(error)

    @property
    def is_deserted(self) -> bool:
        """Whether it only listens for an answer that nobody waits for."""
        return self._deserted is not None

    def abort(self) -> None:
        """Cut it."""
        self.is_usable = False
        self._transport.abort()

    # ── what the event loop calls ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The event loop promises a stream here; uvloop's is none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            # Nobody asked.
            self.abort()
            return
        try:
            self._feed(data)
        except Broken as broken:
            self._fail(broken)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            inner = error.__context__
            self._fail(inner if isinstance(inner, Broken) else Broken(f"it is no HTTP: {error}", garbled=True))

    def _feed(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > 2 * self._answer_bytes_max + HEAD_BYTES_MAX:
            raise Broken(f"an answer of more than {self._answer_bytes_max:,} bytes", garbled=True)
        start = 0
        while start < len(data):
            end = len(data) if self._head_complete else start + FEED_BYTES
            self._count_head(len(data[start:end]))
            self._parser.feed_data(data[start:end])
            start = end

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_usable = False
        if not self.lost.done():
            self.lost.set_result(None)
        if self._waiting is not None and not self._waiting.done() and self._is_ended_by_end():
            self._complete()
            return
        unused = not self._head_bytes
        reason = "the connection ended before an answer" if unused else "the connection ended within an answer"
        self._fail(Broken(f"{reason}: {error}" if error else reason, unused=unused))

    def _is_ended_by_end(self) -> bool:
        """Whether the end of the connection is the end of the answer: one without a length."""
        framed = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        return self._head_complete and not framed

    def _out_of_time(self, seconds: float) -> None:
        self._fail(Broken(f"no answer came within {seconds:g} seconds"))

    def _fail(self, broken: Broken) -> None:
        self.is_usable = False
        self._ended = broken
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(broken)
        self._transport.abort()

    # ── what the parser calls ──

    def on_message_begin(self) -> None:
        if self._waiting is None or self._waiting.done():
            # More than was asked for: whose answer would the next one be?
            self.is_usable = False

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._headers[name.lower()] = (value or b"").strip()

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > self._answer_bytes_max:
            raise Broken(f"an answer of more than {self._answer_bytes_max:,} bytes", garbled=True)
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if 100 <= self._parser.get_status_code() < 200:
            # A word on the way; the answer is still to come. The bytes count on, so that there is no end of them.
            self._headers = {}
            self._head_complete = False
            return
        if not self._parser.should_keep_alive():
            self.is_usable = False
        self._complete()

    def _count_head(self, count: int) -> None:
        """Bound what comes before the body."""
        if not self._head_complete:
            self._head_bytes += count
            if self._head_bytes > HEAD_BYTES_MAX:
                raise Broken("the head of the answer has no end", garbled=True)

    def _complete(self) -> None:
        if self._waiting is None or self._waiting.done():
            return
        self._waiting.set_result(
            HttpResponse(
                self._parser.get_status_code(),
                b"".join(self._pieces),
                self._headers.get(b"content-type", b"").decode("latin-1"),
                self._headers.get(b"retry-after", b"").decode("latin-1"),
            )
        )
