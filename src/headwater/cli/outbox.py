"""Messages that wait in a database of your own, written there with `headwater.outbox.stage`.

Examples:
  headwater outbox drain shop.db
  headwater outbox drain postgresql://shop@db.example/shop --every 0.5
  headwater outbox drain shop.db --every 0.5
  headwater outbox list shop.db
  headwater outbox requeue shop.db
"""

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from headwater.cli.commands import Result, Working, command, line, nothing, table
from headwater.cli.exits import ExitCode, Misuse, StoreUnopened
from headwater.cli.output import cut, note, plural, print_line
from headwater.cli.session import opened, told_to_end
from headwater.cli.settings import Settings
from headwater.errors import InvalidInput, StoreBusy, StoreError, StoreFailed, StoreForeign

if TYPE_CHECKING:
    from headwater.model.outbox import Drained, SetAside
    from headwater.stores.outbox.table import Plain

File = Annotated[
    str,
    typer.Argument(help="The SQLite file of your own, or postgresql://…", metavar="DATABASE", show_default=False),
]
SERVERS = ("postgresql://", "postgres://")
ERROR_LENGTH_SHOWN = 80


@command
def drain(
    settings: Settings,
    file: File,
    every: Annotated[
        float | None, typer.Option("--every", help="Go on for ever, and look this often (seconds).", min=0.01)
    ] = None,
) -> Working:
    """Move the messages and jobs that wait in a database of your own to the log, each once and in order.

    With --every it waits for a database that is away. Ends with 1 when a queue refused some for now: they wait on. Ends
    with 6 when some can never be taken: see `headwater outbox list`.

    Examples:
      headwater outbox drain shop.db
      headwater outbox drain shop.db --every 0.5 --store headwater.db
    """
    from headwater.stores.outbox.table import is_away

    try:
        _check_file(file)
    except StoreError as error:
        if every is None or not is_away(error):
            raise
    return _drain(settings, file, every)


async def _drain(settings: Settings, database: str, every: float | None) -> Result:
    """What was drained; nothing is said of it when it was told to end."""
    from headwater import outbox

    told: list[signal.Signals] = []
    with told_to_end(told):
        try:
            async with opened(settings) as hw:
                drained = await outbox.drain(hw, lambda: _connect(database), every_seconds=every)
        except asyncio.CancelledError:
            if not told:
                raise
            return Result((), lambda: None)
    code = ExitCode.FAILED if drained.left else ExitCode.QUARANTINED if drained.set_aside else ExitCode.OK
    return Result([drained], lambda: _show(drained), code=code)


def _show(drained: "Drained") -> None:
    known = f", {drained.duplicates:,} of them known already" if drained.duplicates else ""
    print_line((f"moved {plural(drained.moved, 'row')} to the log{known}", ""))
    if drained.set_aside:
        note(f"set {plural(drained.set_aside, 'row')} aside: headwater outbox list DATABASE says why")
    for left in drained.left:
        note(f"left {plural(left.count, 'row')} for {left.queue}: {left.reason}")


@command
async def list_rows(settings: Settings, file: File) -> Result:
    """List the rows that a drain has set aside because they can never be taken, with the reason.

    Examples:
      headwater outbox list shop.db
      headwater outbox list shop.db --json
    """
    from headwater import outbox

    _check_file(file)
    with closing(_connect(file)) as connection:
        rows = outbox.list_set_aside(connection)
    columns = ("NUMBER", "KIND", "QUEUE", "ERROR")
    return table(rows, lambda row: row, columns, _row, empty=f"nothing is set aside in {file}")


def _row(row: "SetAside") -> tuple[object, ...]:
    return (row.number, row.kind, row.queue, cut(row.error, ERROR_LENGTH_SHOWN))


@command
async def requeue_rows(
    settings: Settings,
    file: File,
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Rows by number.", metavar="NUMBER...", show_default="all of them")
    ] = None,
) -> Result:
    """Let rows that were set aside wait again, in their old places, for the next drain.

    Examples:
      headwater outbox requeue shop.db
      headwater outbox requeue shop.db 3 4
    """
    from headwater import outbox

    _check_file(file)
    with closing(_connect(file)) as connection:
        count = outbox.requeue(connection, *(numbers or ()))
        connection.commit()
    if not count:
        return nothing({"requeued": count}, f"nothing of that is set aside in {file}")
    return line({"requeued": count}, (f"requeued {plural(count, 'row')}", ""))


def _check_file(database: str) -> None:
    """Raises, with the name of the file, when it is none that can be drained: before a store is opened for it."""
    from headwater.stores.outbox.table import Table

    if database.startswith(SERVERS):
        Table(lambda: _connect(database)).close()
        return
    if not os.path.exists(database):
        raise Misuse(f"there is no file {database}")
    if not os.path.isfile(database):
        raise Misuse(f"{database} is no file; name the SQLite file that outbox.stage writes to")
    if not os.access(database, os.R_OK | os.W_OK):
        raise StoreUnopened(f"{database} may not be read and written by this user; what was moved is dropped from it")
    try:
        Table(lambda: _connect(database)).close()
    except StoreFailed as error:
        raise StoreUnopened(f"{database}: {error}") from error
    except (InvalidInput, StoreBusy, StoreForeign) as error:
        raise type(error)(f"{database}: {error}") from error


def _connect(database: str) -> "Plain":
    """A connection that does not make a file that is missing."""
    if not database.startswith(SERVERS):
        return sqlite3.connect(f"file:{quote(os.path.abspath(database))}?mode=rw", uri=True)
    try:
        import psycopg
    except ImportError as error:
        raise Misuse(
            f"a database at postgresql:// needs psycopg: pip install 'headwater[postgres]' ({error})"
        ) from error
    return psycopg.connect(database, application_name="headwater outbox")
