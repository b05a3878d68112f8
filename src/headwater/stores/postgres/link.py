"""A connection that is made again when it was lost, for the thread that it belongs to.

What an address names as a replica may be anything: another server with a store of the same name, or a standby that has
taken over and goes its own way. Each connection there is held against the server before anything is read.
"""

from typing import NamedTuple

from headwater.errors import ConfigError
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection, open_pipe
from headwater.stores.postgres.pipe import Pipe, ServerError


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
            self._pipe = self._open()
        return self._pipe

    def _open(self) -> Pipe:
        return open_pipe(self._address, self._lock_wait_seconds)

    def drop(self) -> None:
        """Let go of the connection, if there is one."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class Standing(NamedTuple):
    """Whose data a server has: that of a system, which a standby shares with its server; and, of one that takes
    writes, on which timeline."""

    system: str
    is_standby: bool
    timeline: str


class ReplicaLink(Link):
    """The way to a standby of a server, or to the server itself while that is away."""

    def __init__(self, address: Address, lock_wait_seconds: float) -> None:
        super().__init__(address.for_reading(), lock_wait_seconds)
        self._server = address

    def _open(self) -> Pipe:
        pipe = super()._open()
        try:
            self._refuse_another(_standing(pipe))
        except BaseException:
            pipe.close()
            raise
        return pipe

    def _refuse_another(self, there: Standing) -> None:
        """While the server is away nobody can say more than that it is a standby."""
        try:
            server = open_pipe(self._server, self._lock_wait_seconds)
        except ServerError:
            is_ours = there.is_standby
        else:
            here = _standing(server)
            server.close()
            is_ours = there.system == here.system and (there.is_standby or there.timeline == here.timeline)
        if not is_ours:
            raise ConfigError(
                f"the replica that {self._server.shown} names is no standby of its server: what it shows may be of "
                "another store, or from before a failover; name a standby, or leave `replica` out"
            )


def link_for_reading(address: Address, lock_wait_seconds: float) -> Link:
    """The way to what may be some moments old."""
    return ReplicaLink(address, lock_wait_seconds) if address.replica else Link(address, lock_wait_seconds)


def _standing(pipe: Pipe) -> Standing:
    connection = PostgresConnection(pipe)
    [row] = connection.rows(connection.sql.read_standing, (), Standing)
    return Standing._make(row)
