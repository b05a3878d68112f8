"""Messages that wait in a database of your own, written there with `headwater.outbox.stage`.

Examples:
  headwater outbox drain shop.db
  headwater outbox drain shop.db --every 0.5
"""

import os
import sqlite3
from typing import Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.output import plural, print_json, print_line
from headwater.cli.session import opened, run_async
from headwater.cli.settings import Settings, settings_of


def drain(
    ctx: typer.Context,
    database: Annotated[str, typer.Argument(help="The SQLite file of your own.", metavar="FILE", show_default=False)],
    every: Annotated[
        float | None, typer.Option("--every", help="Go on for ever, and look this often (seconds).", min=0.01)
    ] = None,
) -> None:
    """Move the messages and jobs that wait in a SQLite file of your own to the log, each once and in order.

    Examples:
      headwater outbox drain shop.db
      headwater outbox drain shop.db --every 0.5 --store headwater.db
    """
    settings = settings_of(ctx)
    if not os.path.isfile(database):
        raise Misuse(f"there is no file {database}")
    count = run_async(_drain(settings, database, every))
    if settings.json:
        print_json({"moved": count})
    else:
        print_line((f"moved {plural(count, 'row')} to the log", ""))


async def _drain(settings: Settings, database: str, every: float | None) -> int:
    from headwater import outbox

    async with opened(settings, create=True) as hw:
        return await outbox.drain(hw, lambda: sqlite3.connect(database), every_seconds=every)
