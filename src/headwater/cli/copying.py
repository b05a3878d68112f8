"""Moving a whole store to another place: a file, a server, a bucket, from any to any."""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command, line
from headwater.cli.output import plural, progress
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.stores.transfer import Copied

Source = Annotated[str, typer.Argument(help="The store to copy: a path, postgresql://…, s3://…", metavar="FROM")]
Target = Annotated[str, typer.Argument(help="An empty place: a path, postgresql://…, s3://…", metavar="TO")]


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

    Servers and workers go on meanwhile. What they write is caught up with; then, for a moment, nobody can write, every
    table is compared, and the old store is sealed: whoever has it open, or opens it, is told where it is now. Start
    servers and workers with the new address. Until then nobody can open the new place. A copy that was killed is made
    by the same command again, and goes on where it was.

    With --keep the old store is used on, and the copy, a store of its own, has what was committed when it began.

    Examples:
      headwater copy headwater.db postgresql://app@db.example/shop
      headwater copy postgresql://app@db.example/shop headwater.db --keep
      headwater copy headwater.db s3://bucket/shop.sqlite
    """
    copied = await _copy(source, target, keep=keep, shown=not settings.json)
    tables = f"{plural(copied.rows, 'row')} of {plural(copied.tables, 'table')}"
    told = f"copied {plural(copied.records, 'record')} with all else ({tables}), and compared them"
    # Programs are told by `kept`.
    sealed = (
        f"nobody could write for {copied.switch_seconds:.1f} s; "
        "the old store is sealed: start servers and workers with the new address"
    )
    return line(
        {
            "tables": copied.tables,
            "rows": copied.rows,
            "records": copied.records,
            "kept": keep,
            "switch_seconds": round(copied.switch_seconds, 3),
        },
        (told, ""),
        notes=[] if keep or settings.json else [sealed],
    )


async def _copy(source: str, target: str, *, keep: bool, shown: bool) -> "Copied":
    import asyncio

    from headwater.config import load_config

    config = load_config()
    await _prepare(source, target, config)
    return await asyncio.to_thread(_move, source, target, config, keep=keep, shown=shown)


async def _prepare(source: str, target: str, config: "Config") -> None:
    """Both are brought up to date first, so that they have the same tables; the target is made. One that may be held by
    another is left alone, and so is what an earlier transfer has left: both are looked at again."""
    from headwater.clock import SharedClock
    from headwater.errors import StoreBusy, StoreMissing, StoreReplaced
    from headwater.stores.contract import HeldByOne
    from headwater.stores.open import open_store

    moved: StoreReplaced | None = None
    for address, is_target in ((source, False), (target, True)):
        store = open_store(address, config, SharedClock(), create=is_target and moved is None)
        if isinstance(store, HeldByOne) and not is_target:
            continue
        try:
            await store.open()
        except StoreReplaced as error:
            moved = moved or error
            continue
        except StoreBusy:
            continue
        except StoreMissing:
            # Where an earlier transfer has sealed the source, its target is there. No other is made in vain.
            if moved is None:
                raise
            raise moved from None
        await store.close()


def _move(source: str, target: str, config: "Config", *, keep: bool, shown: bool) -> "Copied":
    from functools import partial

    from headwater.stores import transfer
    from headwater.stores.open import open_transfer

    with open_transfer(target, config).hold(writes=True) as new:
        show = partial(progress, shown=shown)
        return (transfer.copy if keep else transfer.move)(open_transfer(source, config), new, show)
