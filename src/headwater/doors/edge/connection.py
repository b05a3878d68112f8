"""One client's connection: requests in, answers out, in the order in which the requests came.

    BETWEEN ──first byte──► HEAD ──► BODY ──► arrivals ──► handler ──► answer ──► BETWEEN
       │ quiet for too long   │ too slow │ not all of it there: may they, and is there room?
       ▼                      ▼          ▼
     close                 408, 401, 503 …, linger, close

A body that does not come together with its head is not read before the handler has said, by the head, that it is
wanted: nobody who is not let in makes a server hold more than one read of its socket.

A connection that ends with an answer first stops sending, then listens for a moment: closing at once while the client
still sends would make its system throw the answer away unread.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import cast

from headwater.doors.edge.budget import Hold, has_too_much, owner_of
from headwater.doors.edge.contract import ConnectionServer
from headwater.doors.edge.reading import Arrival, Phase, Refusal, RequestReader
from headwater.doors.edge.taking import is_taken
from headwater.doors.edge.websocket import WebSocket
from headwater.doors.edge.writing import CONTINUE, LAST_CHUNK, encode_chunk, encode_response, encode_stream_head
from headwater.doors.event_stream import as_event_stream
from headwater.doors.sessions import MakeSession
from headwater.doors.websocket import accept, asks_for_websocket
from headwater.doors.wire import (
    BrokenOff,
    Handler,
    Refused,
    Request,
    Response,
    can_be_asked_again,
    no_room,
    not_delivered,
    problem_response,
    too_much_to_take,
)

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 65_536


class Connection(asyncio.Protocol):
    """Speaks HTTP/1.1 with one client. There may be thousands that only wait, so what it holds is counted."""

    __slots__ = (
        "_admission",
        "_admitted",
        "_answering",
        "_arrivals",
        "_deadline",
        "_hold",
        "_holds",
        "_input_ended",
        "_limits",
        "_linger_until",
        "_lingering",
        "_loop",
        "_parked",
        "_paused",
        "_reader",
        "_sendable",
        "_server",
        "_strikes_at",
        "_task",
        "_timed",
        "_timer",
        "_transport",
    )

    def __init__(self, server: ConnectionServer) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._arrivals: list[Arrival | Refusal | Response] = []
        # What is held by the request that is being read, by those that wait, in order, and by the one that is answered.
        self._hold: Hold | None = None
        self._holds: list[Hold | None] = []
        self._answering: Hold | None = None
        # Asks whether the body that comes is wanted; and of which request that is known.
        self._admission: asyncio.Task[None] | None = None
        self._admitted = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._strikes_at = 0.0
        self._timed: tuple[Phase, int, bool] | None = None
        # None while the client takes what is sent; otherwise done when it does again.
        self._sendable: asyncio.Future[None] | None = None
        self._paused = False
        self._input_ended = False
        self._lingering = False
        self._parked = False

    # ── what the event loop calls ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The event loop promises a stream here; uvloop's is none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._reader = RequestReader(self._limits, _address(self._transport), self._park)
        if self._server.enter(self):
            self._watch_time()
            return
        crowded = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "too many connections; come back later")
        self._take(self._reader.refuse(crowded))

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            return
        self._take(self._reader.feed(data))
        if self._reader.awaits_body:
            self._expect_body()
        self._tell_to_continue()

    def _tell_to_continue(self) -> None:
        if self._reader.continue_expected and self._admission is None and not self._is_busy():
            self._reader.continue_expected = False
            self._transport.write(CONTINUE)

    def eof_received(self) -> bool:
        """The client sends no more. It gets what is ready soon; a client that left and one that waits look the same.

        One whose request is parked has left: whatever came for it later would be lost on the way.
        """
        self._input_ended = True
        if self._lingering or self._parked or not self._is_busy() or not self._transport.can_write_eof():
            # Where one end cannot stay open alone (TLS), the other has left.
            return False
        self._set_timer(self._limits.half_closed_seconds)
        return True

    def pause_writing(self) -> None:
        self._sendable = self._loop.create_future()

    def resume_writing(self) -> None:
        sendable, self._sendable = self._sendable, None
        if sendable is not None and not sendable.done():
            sendable.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._task, self._admission):
            if task is not None:
                task.cancel()
        # A task that was cancelled knows where it was, with the answer that it was about to send: who leads to it must
        # not be led to by it, or the answer is held until garbage is collected.
        self._task = self._admission = None
        self._arrivals.clear()
        for hold in (self._hold, self._answering, *self._holds):
            if hold is not None:
                hold.release()
        self._holds.clear()
        self._server.leave(self)

    # ── requests ──

    def _take(self, arrived: Sequence[Arrival | Refusal | Response]) -> None:
        for arrival in arrived:
            self._arrivals.append(arrival)
            self._holds.append(self._hold_for(arrival))
            if self._arrivals[-1] is not arrival:
                break
        self._read_on()
        if self._arrivals and self._task is None:
            self._task = self._loop.create_task(self._answer_all())
        self._watch_time()

    # ── bodies, and the room for them ──

    def _hold_for(self, arrival: Arrival | Refusal | Response) -> Hold | None:
        """The room that a request takes; where there is none, it is refused."""
        hold, self._hold = self._hold, None
        if isinstance(arrival, Arrival) and arrival.request.body:
            hold = hold or Hold(self._server.budget, owner_of(arrival.request))
            if not hold.grow(len(arrival.request.body)):
                self._arrivals[-1] = no_room()
                self._reader.finished = True
        return hold

    def _expect_body(self) -> None:
        """More of a body is to come: ask once whether it is wanted, and see each time whether there is room."""
        number = self._reader.number
        if self._admission is not None:
            return
        if self._server.admit is not None and self._admitted != number:
            self._admission = self._loop.create_task(self._admit(self._server.admit, self._reader.head()))
            self._read_on()
            return
        self._admitted = number
        if self._hold is None:
            self._hold = Hold(self._server.budget, owner_of(self._reader.head()))
        if not self._hold.grow(self._reader.body_bytes):
            self._reader.finished = True
            self._take([no_room()])

    async def _admit(self, admit: Handler, head: Request) -> None:
        try:
            response = await admit(head)
        except Exception:
            response = self._server.failed(head)
        self._admission = None
        self._admitted = self._reader.number
        if not self._reader.awaits_body or self._transport.is_closing():
            # It took too long to arrive, or the client is gone.
            return
        if response.status == HTTPStatus.CONTINUE:
            self._expect_body()
        else:
            self._reader.finished = True
            self._take([response])
        self._read_on()
        self._tell_to_continue()

    def _is_busy(self) -> bool:
        return self._task is not None or bool(self._arrivals)

    async def _answer_all(self) -> None:
        goes_on = True
        while self._arrivals and goes_on:
            arrival = self._arrivals.pop(0)
            self._answering = self._holds.pop(0)
            if not isinstance(arrival, Arrival):
                goes_on = self._refuse(arrival)
                self._release()
                continue
            response = (
                too_much_to_take(arrival.request.id) if has_too_much(self._server.answers, arrival.request) else None
            )
            try:
                # Called here and not in a coroutine of its own: while a request is parked, each one takes its room.
                response = response or await self._server.handler(arrival.request)
            except Exception:
                response = self._server.failed(arrival.request)
            self._parked = False
            if response.session is not None and asks_for_websocket(arrival.request):
                refusal = self._upgrade(arrival.request, response.session)
                if refusal is None:
                    self._release()
                    return
                response = refusal
            goes_on = await self._deliver(arrival, response)
            self._release()
            if not self._arrivals:
                # Whatever it asked for, it goes on as HTTP or not at all.
                self._reader.behind = None
            self._read_on()
            if self._arrivals:
                # One connection with many requests must not keep the others waiting.
                await asyncio.sleep(0)
        self._task = None
        self._parked = False
        if not goes_on:
            self._linger()
        elif self._input_ended or (self._server.stopping and self._reader.phase is not Phase.BODY):
            self._close()
        else:
            self._watch_time()

    def _release(self) -> None:
        if self._answering is not None:
            self._answering.release()

    def _refuse(self, refusal: Refusal | Response) -> bool:
        if isinstance(refusal, Response):
            response = refusal
        else:
            response = problem_response(refusal.status, refusal.code, refusal.detail)
        self._transport.write(encode_response(response, keep_alive=False))
        return False

    async def _deliver(self, arrival: Arrival, response: Response) -> bool:
        """Send an answer; whether the connection goes on."""
        try:
            return await self._send(arrival, response)
        except asyncio.CancelledError:
            not_delivered(response)
            raise
        except Exception as error:
            told = log.info if isinstance(error, BrokenOff) else log.exception
            told("the answer to request %s could not be sent: %s", arrival.request.id, error)
            not_delivered(response)
            self._transport.abort()
            return False

    async def _send(self, arrival: Arrival, response: Response) -> bool:
        """Send an answer; whether the connection goes on. One that cannot be sent whole is told to whoever made it."""
        keep_alive = arrival.keep_alive and not self._server.stopping
        with_body = arrival.request.method != "HEAD"
        if response.session is not None and with_body:
            outbox_bytes_max, let_go = self._limits.outbox_bytes_max, self._transport.abort
            response = as_event_stream(response, self._server.sessions, outbox_bytes_max, let_go)
        if self._transport.is_closing():
            not_delivered(response)
            return False
        if has_too_much(self._server.answers, arrival.request) and can_be_asked_again(arrival.request, response):
            # Others were answered while this one was made.
            not_delivered(response)
            response = too_much_to_take(arrival.request.id)
        if response.chunks is not None and with_body:
            return await self._stream(response, response.chunks, keep_alive, arrival)
        self._transport.write(encode_response(response, keep_alive=keep_alive, with_body=with_body))
        if self._sendable is None:
            return keep_alive
        is_taken = await self._is_taken(arrival.request)
        if not is_taken:
            not_delivered(response)
        return is_taken and keep_alive

    async def _stream(
        self, response: Response, chunks: AsyncGenerator[bytes, None], keep_alive: bool, arrival: Arrival
    ) -> bool:
        """Send an answer that has no length: in chunks, or to a client of old until the connection ends."""
        takes_chunks = arrival.takes_chunks
        self._transport.write(encode_stream_head(response, keep_alive=keep_alive, takes_chunks=takes_chunks))
        wrap = encode_chunk if takes_chunks else bytes
        if response.body:
            self._transport.write(wrap(response.body))
        # From here on a client that sends no more has left, as one that is parked.
        self._parked = True
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk:
                    self._transport.write(wrap(chunk))
                if self._input_ended or not await self._is_taken(arrival.request):
                    return False
        self._parked = False
        if takes_chunks:
            self._transport.write(LAST_CHUNK)
        return keep_alive and takes_chunks

    def _upgrade(self, request: Request, make: MakeSession) -> Response | None:
        """Hand the socket over to a session; an answer instead when the handshake is not as it should be."""
        if self._input_ended or self._transport.is_closing():
            self._transport.abort()
            return None
        try:
            key = accept(request)
        except Refused as error:
            return problem_response(error.status, error.code, str(error), request_id=request.id, headers=error.headers)
        if self._timer is not None:
            self._timer.cancel()
        socket = WebSocket(self._server, self._transport, owner_of(request))
        self._server.hand_over(self, socket)
        socket.begin(key, make, self._reader.behind or b"")
        # A hundred thousand may come, so nothing of what spoke HTTP with them stays: the timer would hold it until it
        # strikes, and the reader, which knows this connection, until garbage is collected.
        del self._reader
        return None

    def _park(self) -> None:
        """The request under way may wait for long; the client may be gone already."""
        self._parked = True
        self._reader.rest()
        if self._timer is not None and self._deadline is None:
            self._timer.cancel()
            self._timer = None
        if self._input_ended:
            self._transport.abort()

    async def _is_taken(self, request: Request) -> bool:
        """Wait until the client has taken enough of what was sent; one that takes nothing is cut off."""
        if self._sendable is None:
            return True
        owner, answers = owner_of(request), self._server.answers
        with answers.holding(owner, self._transport.get_write_buffer_size()):
            if await is_taken(self._transport, self._sendable, self._limits, partial(answers.is_pressed, owner)):
                return True
        self._transport.abort()
        return False

    def _read_on(self) -> None:
        """Read while there is somebody to take it: not too many wait, and the body is wanted."""
        is_held = (
            len(self._arrivals) >= self._limits.pipeline_max or self._admission is not None or self._reader.holds_enough
        )
        if self._reader.unread and not is_held and not self._reader.finished:
            self.data_received(b"")
            return
        if is_held == self._paused or self._transport.is_closing():
            return
        self._paused = is_held
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # ── time ──

    def _watch_time(self) -> None:
        """Set the clock that fits what the connection waits for; one that runs for the same thing runs on."""
        waits_for = (self._reader.phase, self._reader.number, self._is_busy())
        if waits_for == self._timed or self._lingering or self._input_ended:
            return
        self._timed = waits_for
        phase, number, is_busy = waits_for
        if self._reader.finished:
            self._set_timer(None)
        elif phase is Phase.HEAD:
            self._set_timer(self._limits.head_seconds)
        elif phase is Phase.BODY:
            self._set_timer(self._limits.body_seconds)
        elif is_busy:
            self._set_timer(None)
        else:
            self._set_timer(self._limits.keep_alive_seconds if number else self._limits.head_seconds)

    def _set_timer(self, seconds: float | None) -> None:
        """Time runs out after so many seconds, or not at all.

        A clock that runs already is left to run if it does not strike too late: that costs nothing, and most of what
        is waited for comes long before.
        """
        if seconds is None:
            self._deadline = None
            return
        self._deadline = self._loop.time() + seconds
        if self._timer is not None:
            if self._strikes_at <= self._deadline:
                return
            self._timer.cancel()
        self._strike_at(self._deadline)

    def _strike_at(self, moment: float) -> None:
        # Remembered here: for a moment that has come, uvloop gives a handle that does not know its time.
        self._strikes_at = moment
        self._timer = self._loop.call_at(moment, self._strike)

    def _strike(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._strike_at(self._deadline)
        else:
            self._deadline = None
            self._out_of_time()

    def _out_of_time(self) -> None:
        if self._transport.is_closing() or self._input_ended:
            self._transport.abort()
        elif self._lingering:
            self._end_linger()
        elif self._reader.phase is Phase.BETWEEN:
            self._close()
        elif self._paused:
            # The client is not slow: nobody reads what it sends until its earlier requests are answered.
            self._timed = None
            self._watch_time()
        else:
            slow = Refusal(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "the request took too long to arrive")
            self._take(self._reader.refuse(slow))

    # ── ending ──

    def stop(self) -> None:
        """The server stops: end at once unless a request is under way."""
        if self._lingering or (not self._is_busy() and self._reader.phase is not Phase.BODY):
            self._close()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _close(self) -> None:
        """Close once everything is sent; a client that does not take it is cut off in the end."""
        self._transport.close()
        self._set_timer(self._limits.send_seconds)

    def _linger(self) -> None:
        if self._transport.is_closing():
            return
        if self._input_ended or self._server.stopping or not self._transport.can_write_eof():
            self._close()
            return
        self._lingering = True
        self._linger_until = self._loop.time() + self._limits.send_seconds
        self._transport.write_eof()
        self._set_timer(self._limits.linger_seconds)

    def _end_linger(self) -> None:
        """Close, unless the client is still taking the answer."""
        if self._transport.get_write_buffer_size() and self._loop.time() < self._linger_until:
            self._set_timer(self._limits.linger_seconds)
        else:
            self._transport.abort()


def _address(transport: asyncio.Transport) -> str:
    """Where the client is; a socket of this machine's own has no address."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
