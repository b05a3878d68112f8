"""A replication connection to a PostgreSQL server: the stream of a slot, and what we confirm of it.

    server ─► XLogData (a message of pgoutput) · keepalive (how far the server has sent)
    server ◄─ status (up to where everything is in the log)

Built on psycopg's `pq`, which is libpq itself: psycopg has no replication of its own. What waits for the server beyond
the stream itself (connecting, making a slot) is for a thread.
"""

import asyncio
import struct
import time
from typing import NamedTuple

from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from headwater.capture.pgoutput import EPOCH
from headwater.capture.postgres_errors import translated
from headwater.capture.postgres_values import SESSION
from headwater.errors import CaptureError, HeadwaterError, ResyncRequired, SourceBusy, SourceUnreachable

_data = struct.Struct("!cqqq")
_keepalive = struct.Struct("!cqqB")
_status = struct.Struct("!cqqqqB")
_OBJECT_IN_USE = b"55006"
_UNDEFINED = b"42704"
# Texts come in the encoding of the database unless another is asked for.
CONNECTION = {
    "connect_timeout": "10",
    "application_name": "headwater capture",
    "keepalives_idle": "15",
    "client_encoding": "UTF8",
}


class Arrived(NamedTuple):
    """A message of the slot's plugin, or a keepalive without one; `sent` is how far the server has come. A server that
    `asks` wants to hear how far the log is, and takes silence for a lost connection."""

    message: bytes | None
    sent: int
    asks: bool = False


class Slot(NamedTuple):
    """A slot that was made: what happens after `lsn` comes through it, what was before is seen by `snapshot`."""

    lsn: int
    snapshot: str


class ReplicationLink:
    """One replication connection. Its constructor connects, and waits for that."""

    def __init__(self, conninfo: str) -> None:
        text = make_conninfo(conninfo, **CONNECTION, replication="database", options=SESSION)
        self._connection = pq.PGconn.connect(text.encode())
        if self._connection.status != pq.ConnStatus.OK:
            message = _text(self._connection.error_message)
            self._connection.finish()
            raise SourceUnreachable(f"the server of the source cannot be reached for replication: {message}")

    def close(self) -> None:
        """Hang up; the slot stays."""
        self._connection.finish()

    def create_slot(self, name: str, *, export: bool) -> Slot:
        """Make a slot. The snapshot that it exports can be used until the next command."""
        use = "export" if export else "nothing"
        row = self._rows(f"CREATE_REPLICATION_SLOT {_name(name)} LOGICAL pgoutput (SNAPSHOT '{use}')")
        return Slot(parse_lsn(_text(row[1])), _text(row[2]))

    def start(self, slot: str, lsn: int, publication: str) -> None:
        """Let the stream begin after an LSN."""
        options = f"proto_version '1', publication_names {_literal(_name(publication))}"
        text = f"START_REPLICATION SLOT {_name(slot)} LOGICAL {show_lsn(lsn)} ({options})"
        result = self._execute(text)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _refused(result, "the stream cannot begin")

    async def receive(self, seconds: float) -> Arrived | None:
        """The next thing that the server says; None when it is silent for so long."""
        deadline = time.monotonic() + seconds
        while True:
            with translated():
                size, data = self._connection.get_copy_data(1)
            if size > 0:
                return _arrived(bytes(data))
            if size < 0:
                raise self._ended()
            if not await self._readable(deadline - time.monotonic()):
                return None

    def _ended(self) -> HeadwaterError:
        """Why the stream is over. A publication that was dropped and made again was none in between, and the server
        cannot go on through that time."""
        with translated():
            result = self._connection.get_result()
        message = _text(self._connection.error_message if result is None else result.error_message)
        if result is not None and result.error_field(pq.DiagnosticField.SQLSTATE) == _UNDEFINED:
            return ResyncRequired(f"the server cannot tell what happened since: {message}")
        return SourceUnreachable(f"the stream has ended: {message or 'closed'}")

    def confirm(self, lsn: int, *, ask: bool = False) -> None:
        """Say up to where everything is in the log; with `ask` the server tells where it is."""
        now = time.time_ns() // 1_000 - EPOCH
        with translated():
            self._connection.put_copy_data(_status.pack(b"r", lsn, lsn, lsn, now, ask))
            self._connection.flush()

    async def _readable(self, seconds: float) -> bool:
        if seconds <= 0:
            return False
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._connection.socket, arrived.set)
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._connection.socket)
        with translated():
            self._connection.consume_input()
        return True

    def _execute(self, text: str) -> pq.abc.PGresult:
        with translated():
            return self._connection.exec_(text.encode())

    def _rows(self, text: str) -> list[bytes]:
        result = self._execute(text)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise _refused(result, "the slot cannot be made")
        return [result.get_value(0, place) or b"" for place in range(result.nfields)]


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def show_lsn(lsn: int) -> str:
    """A number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _arrived(data: bytes) -> Arrived:
    if data[:1] == b"w":
        _, _, sent, _ = _data.unpack_from(data)
        return Arrived(data[_data.size :], sent)
    _, sent, _, asks = _keepalive.unpack_from(data)
    return Arrived(None, sent, bool(asks))


def _refused(result: pq.abc.PGresult, doing: str) -> CaptureError:
    message = _text(result.error_message)
    if result.error_field(pq.DiagnosticField.SQLSTATE) == _OBJECT_IN_USE:
        return SourceBusy(f"{doing}: another process follows this slot ({message})")
    return SourceUnreachable(f"{doing}: {message}")


def _text(message: bytes | None) -> str:
    return (message or b"").decode(errors="replace").strip()


def _name(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def _literal(text: str) -> str:
    return sql.Literal(text).as_string(None)
