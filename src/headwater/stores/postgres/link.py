"""A connection that is made again when it was lost, for the thread that it belongs to."""

from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import open_pipe
from headwater.stores.postgres.pipe import Pipe


class Link:
    """One place on a server; `pipe` is the way there now."""

    def __init__(self, address: Address, lock_wait_seconds: float) -> None:
        self._address = address
        self._lock_wait_seconds = lock_wait_seconds
        self._pipe: Pipe | None = None

    def pipe(self) -> Pipe:
        """The connection, made anew when there is none."""
        if self._pipe is None or self._pipe.is_lost:
            self.drop()
            self._pipe = open_pipe(self._address, self._lock_wait_seconds)
        return self._pipe

    def drop(self) -> None:
        """Let go of the connection, if there is one."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
