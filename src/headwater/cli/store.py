"""The store as a whole: which one it is, for those who keep places in its log elsewhere, and what to do after damage.

Examples:
  headwater store identity
  headwater store renew --yes
  headwater store give-up-damaged
"""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import confirm, note, plural, print_json, print_line, progress
from headwater.cli.session import opened, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.log.store_operations import GivenUp, Identified


def show_identity(ctx: typer.Context) -> None:
    """Show the identity of the store: a UUID that is made once with it, and kept by whoever reads its log.

    Examples:
      headwater store identity
      headwater store identity --store orders.db --json
    """
    settings = settings_of(ctx)
    identity = run_async(_identity(settings))
    if settings.json:
        print_json({"identity": identity})
    else:
        print_line((identity, ""))


async def _identity(settings: Settings) -> str:
    async with opened(settings) as hw:
        return await hw.store.identity()


def renew_identity(
    ctx: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False
) -> None:
    """Give the store a new identity, after a backup was put back in its place.

    The log has gone back then, and places in it that others have kept may come to mean other messages. From now on,
    whoever has the store open, or comes with a checkpoint of before, is told `store_replaced` instead of reading on as
    if nothing had happened. Messages, groups and jobs stay as they are.

    Examples:
      headwater store renew
      headwater store renew --yes --store orders.db
    """
    settings = settings_of(ctx)
    confirm("Streams with a checkpoint of this store must begin anew. Renew its identity?", yes=yes)
    renewed = run_async(_renew(settings))
    if settings.json:
        print_json({"identity": renewed.identity, "before": renewed.before})
    else:
        print_line((renewed.identity, ""))
        note(f"was {renewed.before}; servers and workers on this store must be started again")


async def _renew(settings: Settings) -> "Identified":
    from headwater.log.store_operations import RenewIdentity

    async with opened(settings) as hw:
        renewed: Identified = (await hw.committer.submit(RenewIdentity())).result
        return renewed


def give_up_damaged(
    ctx: typer.Context, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False
) -> None:
    """Pass over messages that cannot be read, so that those behind them are delivered.

    Every message is read first. Those whose bytes are not what was written are given up for good: consumers go on
    behind them, their groups count them as lost, and readers of the log find an empty message of the type
    headwater/damaged in the place of each. Keep a copy of the store before, in case a backup has them.

    Examples:
      headwater store give-up-damaged
      headwater store give-up-damaged --yes --json
    """
    settings = settings_of(ctx)
    given_up = run_async(_give_up(settings, yes))
    if not given_up:
        note("every message can be read")
    for found in given_up:
        last = found.first_offset + found.count - 1
        if settings.json:
            about = {"lsn": found.lsn, "queue": found.lane.queue, "partition": found.lane.partition}
            print_json({**about, "first_offset": found.first_offset, "last_offset": last})
        else:
            place = f"{found.lane.queue}, partition {found.lane.partition}"
            print_line((f"given up: {place}, offsets {found.first_offset:,} to {last:,}", ""))


async def _give_up(settings: Settings, yes: bool) -> "list[GivenUp]":
    from headwater.cli.examination import read_everything
    from headwater.log.store_operations import GiveUpDamaged

    async with opened(settings) as hw:
        with progress("reading every record", await hw.store.last_lsn(), shown=not settings.json) as tell:
            damaged = [found for found in await read_everything(hw, tell) if found.is_damaged]
        if not damaged:
            return []
        confirm(f"{plural(len(damaged), 'commit')} with messages that cannot be read: give them up for good?", yes=yes)
        return [(await hw.committer.submit(GiveUpDamaged(lsn=found.lsn))).result for found in damaged]
