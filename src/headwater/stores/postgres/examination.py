"""What a server says of itself and of the tables, and what is wrong with it."""

from collections.abc import Iterator

from headwater.stores.contract import Fact, Findings
from headwater.stores.postgres.migrate import VERSION_KEY
from headwater.stores.tables.connection import Connection, Meta

# What dies after a transaction began cannot be cleared away before it ends, and positions change with every pop.
LONG_SECONDS = 60.0
# Version, fsync, full page writes, synchronous commit, read only, bytes of shared buffers, bytes of the tables.
ServerRow = tuple[str, str, str, str, str, int, int]
# Process, user, application, state, seconds. Of other users' transactions not everything is told.
TransactionRow = tuple[int, str | None, str | None, str | None, int]
# Name, owner, seconds.
PreparedRow = tuple[str, str, int]


def examine(connection: Connection, identity: str) -> Findings:
    """All that there is to know."""
    [server] = connection.rows(connection.sql.describe_server, (), ServerRow)
    version, fsync, page_writes, synchronous, read_only, buffers, size = server
    [(schema_version,)] = connection.rows(connection.sql.get_meta, (VERSION_KEY,), Meta)
    facts: dict[str, str | int] = {
        "server_version": version,
        "identity": identity,
        "schema_version": int(schema_version),
        "synchronous_commit": synchronous,
        "shared_buffers_bytes": buffers,
        "table_bytes": size,
    }
    cautions = [*_judge_settings(fsync, page_writes, read_only), *_find_what_holds_up(connection)]
    return Findings([Fact(name, value) for name, value in facts.items()], [], cautions)


def _judge_settings(fsync: str, page_writes: str, read_only: str) -> Iterator[str]:
    if read_only != "off":
        yield (
            "the server takes no writes, as a standby does: nothing can be pushed or popped here; name the one that "
            "takes them, or several with target_session_attrs=read-write"
        )
    if fsync != "on":
        yield "the server runs with fsync=off: a power cut can destroy everything it holds"
    if page_writes != "on":
        yield "the server runs with full_page_writes=off: a power cut can damage pages"


def judge_replica(lag: float | None) -> Iterator[str]:
    """What is wrong with the replica that the address names."""
    if lag is None:
        yield "the replica that the address names is no standby, or is away: its server answers in its place"
    elif lag > LONG_SECONDS:
        yield f"the replica is {lag:,.0f} s behind its server: lists and whoever reads the log there show what was then"


def _find_what_holds_up(connection: Connection) -> Iterator[str]:
    """Transactions of anybody in the database that are open for long. Those of other users are seen by members of
    pg_monitor only."""
    for row in connection.rows(connection.sql.long_transactions, (LONG_SECONDS,), TransactionRow):
        yield _judge_transaction(*row)
    for name, owner, seconds in connection.rows(connection.sql.long_prepared, (LONG_SECONDS,), PreparedRow):
        yield (
            f"the prepared transaction {name!r} of {owner} has waited for {seconds:,} s to be ended: {_BECAUSE}; "
            "end it with ROLLBACK PREPARED or COMMIT PREPARED"
        )


_BECAUSE = "rows that died since then cannot be cleared away, so the tables grow and lists of them become slower"


def _judge_transaction(pid: int, user: str | None, application: str | None, state: str | None, seconds: int) -> str:
    who = f"{user}, {application}" if application else str(user)
    return (
        f"a transaction has been open for {seconds:,} s (process {pid} of {who}, {state}): {_BECAUSE}; let it end, or "
        f"end it with SELECT pg_terminate_backend({pid})"
    )
