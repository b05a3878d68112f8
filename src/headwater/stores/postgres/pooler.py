"""Whether connections are our own: a pooler between us and the server may lend one of its own to many in turns.

Settings, prepared statements and `LISTEN` belong to a session of the server. Where sessions are lent for a transaction
each, ours would be met by whoever comes next, and theirs by us.
"""

import psycopg

from headwater.errors import ConfigError
from headwater.stores.postgres.address import Address
from headwater.stores.postgres.connection import PostgresConnection
from headwater.stores.postgres.pipe import ServerError

sql = PostgresConnection.sql


def refuse_lent_sessions(address: Address) -> None:
    """Raises when a session that is ours is somebody else's meanwhile. Nothing is set before that is known."""
    try:
        with _connect(address) as first:
            number = _session(first)
            # A pooler has a number of its own for us; the server tells its own.
            if number == first.info.backend_pid:
                return
            with _connect(address) as second, second.transaction():
                is_lent = _session(second) == number
    except psycopg.Error as error:
        raise ServerError(error.sqlstate or "08001", str(error)) from error
    if is_lent:
        raise ConfigError(
            f"{address.shown} leads to a pooler that lends a session of the server for one transaction (PgBouncer's "
            "pool_mode=transaction): settings, prepared statements and LISTEN need one of their own. Name the server "
            "itself, or a pool with pool_mode=session"
        )


def _connect(address: Address) -> psycopg.Connection:
    return psycopg.Connection.connect(address.conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)


def _session(connection: psycopg.Connection) -> int:
    found = connection.execute(sql.session_number.encode(), prepare=False).fetchone()
    assert found is not None
    return int(found[0])
