"""The roster: which servers have realtime clients, by what each says of itself every ten seconds.

A server is on it from its first client to its last, and a lease says until when it counts as alive: one that dies is
known by its silence. Nothing is routed by it, because every server follows the log for its own clients: it is for those
who run them, and for clients who look for another one.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from secrets import token_hex

import msgspec

from headwater.config import Durability
from headwater.errors import HeadwaterError
from headwater.log.operations import Push
from headwater.model.names import DATABASE_DEFAULT
from headwater.model.record import Record
from headwater.model.server_status import BEAT_SECONDS, SERVERS_QUEUE, SHOWN_SECONDS, Figures, ServerStatus
from headwater.services.queues import Queues

log = logging.getLogger(__name__)


class Roster:
    """Says for one server that it is there."""

    def __init__(
        self, queues: Queues, figures: Callable[[], Figures], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.id = token_hex(8)
        self._queues = queues
        self._figures = figures
        self._monotonic = monotonic
        self._started_at = queues.clock.now()
        self._due = 0.0
        self._saying: set[asyncio.Task[None]] = set()

    def beat(self) -> None:
        """Called often while there are clients: says it when it is time."""
        if self._monotonic() >= self._due:
            self._due = self._monotonic() + BEAT_SECONDS
            self._say(stopping=False)

    def leave(self) -> None:
        """The last client is gone."""
        if self._due:
            self._due = 0.0
            self._say(stopping=True)

    def _say(self, *, stopping: bool) -> None:
        status = ServerStatus(
            self.id,
            socket.gethostname()[:100],
            os.getpid(),
            self._started_at,
            self._queues.clock.now(),
            **msgspec.structs.asdict(self._figures()),
            stopping=stopping,
        )
        record = Record(msgspec.Raw(msgspec.json.encode(status)), type="server")
        push = Push(database=DATABASE_DEFAULT, queue=SERVERS_QUEUE, records=(record,), ttl_seconds=SHOWN_SECONDS)
        task = asyncio.ensure_future(self._append(push))
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    async def close(self) -> None:
        """Have it said, while there is a log: that this server stops is the last that it says."""
        if self._saying:
            await asyncio.wait(self._saying)

    async def _append(self, push: Push) -> None:
        try:
            await self._queues.run(push, Durability.WRITTEN)
        except HeadwaterError as error:
            log.info("this server could not say that it is there: %s", error)
