"""Telling other processes that something was committed, and hearing it from them: outside the commit, because a notice
inside one makes all commits of the server queue for its list of notices."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, NamedTuple

from headwater.errors import Closed
from headwater.outage import Outage
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection, open_pipe
from headwater.stores.postgres.errors import translated
from headwater.stores.postgres.link import Link
from headwater.stores.postgres.pipe import ConnectionLost, Pipe, ServerError

log = logging.getLogger(__name__)

# Between two notices: a notice costs the server a transaction, and whoever is woken reads all there is.
GAP_SECONDS = 0.002


class Looks(NamedTuple):
    """How to find out whether others have committed since the last look: by waiting, or on the spot."""

    wait: Callable[[], Coroutine[Any, Any, bool]]
    now: Callable[[], bool]


class Notices:
    """The notices of one store, in a thread and through connections of their own."""

    def __init__(self, address: Address, lock_wait_seconds: float, origin: int, looks: Looks, outage: Outage) -> None:
        self._address = address
        self._lock_wait_seconds = lock_wait_seconds
        self._origin = str(origin)
        self.look, self.look_now = looks
        self._outage = outage
        self._channel = f"hw_{sha256(address.schema.encode()).hexdigest()[:16]}"
        self._link = Link(address, lock_wait_seconds)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-notices")
        self._pipe: Pipe | None = None
        self._is_telling = False
        self._tell_again = False
        self._is_closed = False

    # ── telling ──

    def tell(self) -> None:
        """Tell the others soon. What is told while a notice is on its way goes with the next one."""
        if self._is_closed or self._is_telling:
            self._tell_again = self._is_telling
            return
        self._is_telling = True
        self._tell_again = False
        sent = asyncio.get_running_loop().run_in_executor(self._thread, self._notify)
        sent.add_done_callback(self._wait_for_gap)

    def _notify(self) -> None:
        try:
            self._link.pipe().run([(PostgresConnection.sql.notify, (self._channel, self._origin))])
        except ServerError as error:
            # They look at the version from time to time; a notice only saves them the wait.
            log.debug("others could not be told of a commit: %s", error)

    def _wait_for_gap(self, done: "asyncio.Future[None]") -> None:
        asyncio.get_running_loop().call_later(GAP_SECONDS, self._may_tell)

    def _may_tell(self) -> None:
        self._is_telling = False
        if self._tell_again:
            self.tell()

    # ── hearing ──

    async def listen(self) -> int:
        """Connect and listen; the descriptor that can be read when there may be a notice."""
        # Who is deaf tries to listen before anything is read: in an outage nobody else may meet it.
        with self._outage.watched():
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._listen)

    def _listen(self) -> int:
        with translated("listening"):
            pipe = open_pipe(self._address, self._lock_wait_seconds)
            try:
                pipe.run([(f"LISTEN {self._channel}", ())])
            except ServerError:
                pipe.close()
                raise
        if self._is_closed:
            pipe.close()
            raise Closed("the store is closed")
        self._pipe = pipe
        return pipe.socket

    def heard(self) -> bool:
        """Whether another process has told something."""
        if self._pipe is None:
            return False
        try:
            return any(origin != self._origin for _, origin in self._pipe.notices())
        except ConnectionLost as error:
            raise ConnectionError(str(error)) from error

    def deafen(self) -> None:
        """Let go of the connection that listens."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()

    async def close(self) -> None:
        """Tell no more, and let go of everything."""
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self.deafen()
        self._link.drop()
