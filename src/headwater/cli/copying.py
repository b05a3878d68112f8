"""Moving a whole store to another place: from a file to a server, or back."""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command, line
from headwater.cli.output import plural, progress
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.stores.transfer import Copied

Source = Annotated[str, typer.Argument(help="The store to copy: a path, postgresql://…", metavar="FROM")]
Target = Annotated[str, typer.Argument(help="An empty place: a path, postgresql://…", metavar="TO")]


@command
async def copy(
    settings: Settings,
    source: Source,
    target: Target,
    keep: Annotated[
        bool, typer.Option("--keep", help="Let the old store go on: the new one is another store.")
    ] = False,
) -> Result:
    """Move a whole store to an empty place of any kind: messages, positions, leases, jobs, tokens, settings.

    Nobody can write to the old store meanwhile. Every table is compared before the new place counts; until then it is
    empty, whatever happens. Then the old store is sealed: whoever has it open, or opens it, is told where it is now.
    Start servers and workers again with the new address. A copy that was killed is made by the same command again.

    With --keep the old store is written to and used on, and the copy has what was committed when it began.

    Examples:
      headwater copy headwater.db postgresql://app@db.example/shop
      headwater copy postgresql://app@db.example/shop headwater.db --keep
    """
    copied = await _copy(source, target, keep=keep, shown=not settings.json)
    told = f"copied {plural(copied.rows, 'row')} of {plural(copied.tables, 'table')}, and compared them"
    # Programs are told by `kept`.
    sealed = "the old store is sealed: start servers and workers with the new address"
    return line(
        {"tables": copied.tables, "rows": copied.rows, "kept": keep},
        (told, ""),
        notes=[] if keep or settings.json else [sealed],
    )


async def _copy(source: str, target: str, *, keep: bool, shown: bool) -> "Copied":
    import asyncio

    from headwater.clock import SystemClock
    from headwater.config import load_config
    from headwater.stores.open import open_store

    config = load_config()
    # Both are brought up to date first, so that they have the same tables; the target is made.
    for address, create in ((source, False), (target, True)):
        store = open_store(address, config, SystemClock(), create=create)
        await store.open()
        await store.close()
    return await asyncio.to_thread(_move, source, target, config, keep=keep, shown=shown)


def _move(source: str, target: str, config: "Config", *, keep: bool, shown: bool) -> "Copied":
    from headwater.stores import transfer
    from headwater.stores.open import open_transfer

    with (
        open_transfer(source, config).hold(writes=not keep) as old,
        open_transfer(target, config).hold(writes=True) as new,
    ):
        total = sum(old.count(table) for table in old.tables())
        with progress("copying", total, shown=shown) as tell:
            return transfer.copy(old, new, tell, seal=not keep)
