"""Connections that are kept: the one used last is used next, and those that lie idle for long are let go.

Requests that are answered soon share a bounded number of connections, in the order in which they came. One that waits
for news has its connection to itself, or waiting pops would keep pushes from being sent.
"""

import asyncio
import ssl

from headwater.client.address import Address
from headwater.client.connection import Broken, Connection, HttpResponse, Orphaned
from headwater.errors import Closed

ANSWER_BYTES_MAX = 64 * 1_024 * 1_024
# Below the time after which servers and what stands between hang up by themselves.
IDLE_SECONDS = 15.0
IDLE_MAX = 64


class Pool:
    """Connections to one server."""

    def __init__(self, address: Address, *, connections_max: int, connect_seconds: float) -> None:
        self._address = address
        self._turns = asyncio.Semaphore(connections_max)
        self._connect_seconds = connect_seconds
        self._idle: list[tuple[float, Connection]] = []
        self._open: set[Connection] = set()
        self._closed = False
        self._waits_ended = False

    async def exchange(
        self, request: bytes, seconds: float, *, waits: bool, orphaned: Orphaned | None = None
    ) -> HttpResponse:
        """The answer to a request, over a connection that is free or new."""
        if waits:
            return await self._exchange(request, seconds, orphaned)
        async with self._turns:
            return await self._exchange(request, seconds, orphaned)

    async def _exchange(self, request: bytes, seconds: float, orphaned: Orphaned | None) -> HttpResponse:
        while True:
            connection = self._take() or await self._connect()
            try:
                if self._waits_ended and orphaned is not None:
                    raise Closed("this client is closed")
                return await connection.exchange(request, seconds, orphaned)
            except Broken as broken:
                if not broken.unused or connection.exchanges < 2:
                    raise
                # A connection that was kept may be closed by the server just as it is used again: no sign of trouble.
            finally:
                self._put_back(connection)

    def _take(self) -> Connection | None:
        """The connection used last, if it is good; those that lay for too long are let go."""
        if self._closed:
            raise Closed("this client is closed")
        oldest_allowed = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and since >= oldest_allowed:
                return connection
            self._let_go(connection)
        return None

    def _put_back(self, connection: Connection) -> None:
        if connection.is_deserted:
            return
        if connection.is_usable and not self._closed and len(self._idle) < IDLE_MAX:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            self._let_go(connection)

    def _let_go(self, connection: Connection) -> None:
        connection.abort()

    async def _connect(self) -> Connection:
        address = self._address
        loop = asyncio.get_running_loop()
        name = address.host if address.tls is not None else None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(ANSWER_BYTES_MAX),
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=name,
                )
        except TimeoutError:
            raise Broken(f"no connection within {self._connect_seconds:g} seconds") from None
        except ssl.SSLCertVerificationError as error:
            # Asking again does not make anybody trust it.
            reason = f"its certificate is not trusted: {error.verify_message}"
            remedy = (
                "name a file of certificates to trust "
                "(tls=... of headwater.connect, caFile in Spark, SSL_CERT_FILE for commands)"
            )
            raise Broken(f"{reason}; {remedy}", garbled=True) from error
        except OSError as error:
            raise Broken(f"no connection: {error}") from error
        if self._closed:
            connection.abort()
            raise Closed("this client is closed")
        self._open.add(connection)
        connection.lost.add_done_callback(lambda lost: self._open.discard(connection))
        return connection

    def end_waits(self) -> None:
        """Hang up where somebody waits whose answer may be handed on; from now on nobody begins to."""
        self._waits_ended = True
        for connection in list(self._open):
            connection.end_wait(Closed("this client was closed meanwhile"))

    def close(self) -> None:
        """Cut all connections."""
        self._closed = True
        for connection in list(self._open):
            self._let_go(connection)
        self._idle.clear()
