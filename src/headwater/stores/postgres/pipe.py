"""A connection to a PostgreSQL server in libpq's pipeline mode: several statements, one round trip.

    results = pipe.run([(statement, bindings), …])

All statements of a `run` are sent together and end with one Sync, so they fail together: after an error the server
skips to the Sync. A further batch may be sent before the first is answered. Built on psycopg's `pq`, which is libpq
itself: psycopg's own pipeline costs more than the server does.

Who calls waits: a pipe belongs to one thread at a time, never to the one of an event loop.
"""

import select
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from headwater.stores.tables.connection import Value

Request = tuple[str, Sequence[Value]]

_BINARY, _TEXT = 1, 0
_READ, _WRITE = select.POLLIN, select.POLLOUT
# PostgreSQL has no zero byte in a text; this sign for it stands in its place.
_ZERO, _SIGN_FOR_ZERO = "\0", "\N{SYMBOL FOR NULL}"


class ServerError(Exception):
    """The server refused a statement; `state` is its SQLSTATE."""

    def __init__(self, state: str, message: str) -> None:
        # Servers say more in further lines: hints, the place in a statement. Ours are one.
        super().__init__(" ".join(message.split()))
        self.state = state


class ConnectionLost(ServerError):
    """The connection is gone: what became of the statements under way is not known."""

    def __init__(self, message: str) -> None:
        super().__init__("08006", message)


class PipelineResult:
    """What one statement came to."""

    __slots__ = ("changed", "rows")

    def __init__(self, rows: list[tuple[Any, ...]], changed: int) -> None:
        self.rows = rows
        self.changed = changed


class _Batch:
    """Statements up to one Sync, as far as they are answered."""

    __slots__ = ("answers", "error", "preparing", "sent")

    def __init__(self) -> None:
        # The name of a statement that is prepared, or None where one is run.
        self.sent: deque[bytes | None] = deque()
        self.preparing: list[bytes] = []
        self.answers: list[PipelineResult] = []
        self.error: ServerError | None = None


class Pipe:
    """One connection, open from the beginning."""

    def __init__(self, conninfo: str, settings: Sequence[str] = ()) -> None:
        # By psycopg, which waits so that other threads go on: libpq's own way would stop the whole process meanwhile.
        try:
            self._opened = psycopg.Connection.connect(conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error).strip()) from error
        self._connection = self._opened.pgconn
        self._names: dict[str, bytes] = {}
        self._prepared: set[bytes] = set()
        self._batches: deque[_Batch] = deque()
        self._load = Transformer()
        self._is_lost = False
        self._heard_at = time.monotonic()
        for text in settings:
            self.run_script(text)
        self._connection.nonblocking = 1
        self._connection.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._connection.socket, _READ)

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be sent through it any more."""
        return self._is_lost

    @property
    def waits(self) -> bool:
        """Whether something that was sent is not answered yet."""
        return bool(self._batches)

    @property
    def quiet_seconds(self) -> float:
        """How long ago the server has answered something."""
        return time.monotonic() - self._heard_at

    @property
    def server_version(self) -> int:
        """The server's version as a number: 180001 is 18.1."""
        return int(self._connection.server_version)

    @property
    def socket(self) -> int:
        """The descriptor that can be read when the server has said something."""
        return int(self._connection.socket)

    def close(self) -> None:
        """Let go."""
        self._is_lost = True
        self._connection.finish()

    def is_there(self) -> bool:
        """Whether the server has not hung up, as far as can be told without asking it."""
        if self._is_lost or self._batches:
            return not self._is_lost
        # Until there is no more: who hangs up says so first.
        while not self._is_lost and self._poll.poll(0):
            try:
                self._connection.consume_input()
            except psycopg.OperationalError as error:
                self._lose(str(error))
            else:
                self._is_lost = self._connection.status != pq.ConnStatus.OK
        return not self._is_lost

    def run_script(self, text: str) -> None:
        """Run several statements that are fixed texts; before the first `run` only."""
        result = self._connection.exec_(text.encode())
        if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY):
            raise self._error_of(result)

    def run(self, requests: Sequence[Request]) -> list[PipelineResult]:
        """Send all of these and wait: what each came to. The first error of them is raised."""
        self.send(requests)
        answers: list[PipelineResult] = []
        while self._batches:
            answers = self.receive()
        return answers

    def send(self, requests: Sequence[Request]) -> None:
        """Send all of these, with one Sync behind them."""
        if self._is_lost:
            raise ConnectionLost("the connection to the server was lost before")
        batch = _Batch()
        try:
            for text, bindings in requests:
                self._send_one(batch, text, bindings)
            self._connection.pipeline_sync()
            self._batches.append(batch)
            self._flush()
        except psycopg.OperationalError as error:
            raise self._lose(str(error)) from error

    def receive(self) -> list[PipelineResult]:
        """Wait for the answers to the oldest batch that was sent."""
        if not self._batches:
            raise ConnectionLost("the connection to the server was lost before it answered")
        batch = self._batches[0]
        try:
            while not self._take(batch):
                pass
        except psycopg.OperationalError as error:
            raise self._lose(str(error)) from error
        self._batches.popleft()
        self._heard_at = time.monotonic()
        self._prepared.difference_update(batch.preparing)
        if batch.error is not None:
            raise batch.error
        return batch.answers

    def notices(self) -> list[tuple[str, str]]:
        """Channel and payload of the notices that have come, without waiting for any."""
        try:
            self._connection.consume_input()
        except psycopg.OperationalError as error:
            raise self._lose(str(error)) from error
        found = []
        while (notice := self._connection.notifies()) is not None:
            found.append((_text(notice.relname), _text(notice.extra)))
        return found

    def _send_one(self, batch: _Batch, text: str, bindings: Sequence[Value]) -> None:
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = b"hw%d" % len(self._names)
        if name not in self._prepared:
            self._connection.send_prepare(name, text.encode())
            self._prepared.add(name)
            batch.preparing.append(name)
            batch.sent.append(name)
        values = [encode(value) for value in bindings]
        formats = [_BINARY if type(value) is bytes else _TEXT for value in bindings]
        self._connection.send_query_prepared(name, values, formats, _BINARY)
        batch.sent.append(None)

    def _flush(self) -> None:
        """Hand everything to the kernel. Meanwhile the server may have to be read from, or both would wait."""
        while self._connection.flush():
            self._poll.modify(self._connection.socket, _READ | _WRITE)
            try:
                ready = self._poll.poll()
            finally:
                self._poll.modify(self._connection.socket, _READ)
            if any(event & ~_WRITE for _, event in ready):
                self._connection.consume_input()

    def _take(self, batch: _Batch) -> bool:
        """Take one result in; whether it was the last of the batch."""
        while self._connection.is_busy():
            self._poll.poll()
            self._connection.consume_input()
        result = self._connection.get_result()
        if result is None:
            return False
        status = result.status
        if status == pq.ExecStatus.PIPELINE_SYNC:
            return True
        if status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            prepared = batch.sent.popleft()
            if prepared is None:
                batch.answers.append(PipelineResult(self._rows(result), result.command_tuples or 0))
            else:
                batch.preparing.remove(prepared)
        elif status != pq.ExecStatus.PIPELINE_ABORTED:
            error = self._error_of(result)
            if self._connection.status != pq.ConnStatus.OK:
                raise self._lose(str(error))
            batch.error = batch.error or error
        return False

    def _rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        count = result.ntuples
        if not count:
            return []
        self._load.set_pgresult(result)
        return self._load.load_rows(0, count, tuple)

    def _error_of(self, result: pq.abc.PGresult) -> ServerError:
        state = _text(result.error_field(pq.DiagnosticField.SQLSTATE) or b"08006")
        return ServerError(state, _text(result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message))

    def _lose(self, message: str) -> ConnectionLost:
        self._is_lost = True
        self._batches.clear()
        return ConnectionLost(message.strip() or "the server closed the connection")


def encode(value: Any) -> bytes | None:
    """A value as the server takes it: bytes as they are, all else as its text."""
    kind = type(value)
    if value is None or kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return b"%d" % value
    if kind is bool:
        return b"1" if value else b"0"
    text = str(value)
    return (text.replace(_ZERO, _SIGN_FOR_ZERO) if _ZERO in text else text).encode()


def _text(message: bytes) -> str:
    return message.decode(errors="replace").strip()
