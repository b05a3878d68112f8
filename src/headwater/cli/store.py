"""The store as a whole: which one it is, for those who keep places in its log elsewhere, and what to do after damage.

Examples:
  headwater store identity
  headwater store renew --yes
  headwater store backup headwater-copy.db
  headwater store give-up-damaged
  headwater store grants app --store postgresql://owner@db.example/shop
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, note, plural, print_json, print_line, progress, show_bytes
from headwater.cli.session import opened, run_async
from headwater.cli.settings import Settings, settings_of
from headwater.stores.questions import FindIdentity, FindLastLsn

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
        return await hw.store.ask(FindIdentity())


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
        with progress("reading every record", await hw.store.ask(FindLastLsn()), shown=not settings.json) as tell:
            damaged = [found for found in await read_everything(hw, tell) if found.is_damaged]
        if not damaged:
            return []
        confirm(f"{plural(len(damaged), 'commit')} with messages that cannot be read: give them up for good?", yes=yes)
        return [(await hw.committer.submit(GiveUpDamaged(lsn=found.lsn))).result for found in damaged]


def back_up(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(help="The file to make.", metavar="FILE", show_default=False)],
) -> None:
    """Write a copy of the whole store to a new file, while servers and workers go on.

    The copy has everything that was committed when it began, in one file. It is a store of its own: when it is put back
    in this one's place, whoever comes with a checkpoint of this one is told `store_replaced`.

    Examples:
      headwater store backup headwater-copy.db
      headwater store backup "backups/$(date +%F).db" --store orders.db
    """
    settings = settings_of(ctx)
    place = os.path.abspath(target)
    if not os.path.isdir(os.path.dirname(place)):
        raise Misuse(f"there is no folder {os.path.dirname(place)}")
    run_async(_back_up(settings, place))
    size = os.path.getsize(place)
    if settings.json:
        print_json({"file": place, "bytes": size})
    else:
        print_line((f"wrote {show_bytes(size)} to {target}", ""))


async def _back_up(settings: Settings, place: str) -> None:
    from headwater.stores.contract import WritesBackups

    async with opened(settings) as hw:
        if not isinstance(hw.store, WritesBackups):
            raise Misuse(f"a store in {hw.store.traits.engine} is backed up with the tools of its database")
        await hw.store.backup(place)


def show_grants(
    ctx: typer.Context,
    role: Annotated[str, typer.Argument(help="The role that servers log in as.", metavar="ROLE", show_default=False)],
    read_only: Annotated[bool, typer.Option("--read-only", help="For who only reads the log: Spark, reports.")] = False,
) -> None:
    """Print the SQL that lets a role of a PostgreSQL server use the store, and do nothing else there.

    Run it as the owner of the store. The role can neither make nor change tables: open the store as its owner, with any
    command, after an upgrade.

    Examples:
      headwater store grants app --store postgresql://owner@db.example/shop
      headwater store grants spark --read-only --store postgresql://owner@db.example/shop | psql shop
    """
    settings = settings_of(ctx)
    lines = run_async(_grants(settings, role, read_only))
    if settings.json:
        print_json({"grants": lines})
    else:
        for line in lines:
            print_line((line, ""))


async def _grants(settings: Settings, role: str, read_only: bool) -> list[str]:
    from headwater.stores.contract import GrantsAccess

    async with opened(settings) as hw:
        if not isinstance(hw.store, GrantsAccess):
            raise Misuse("a store in a file is used by whoever may read and write the file: see chmod")
        return await hw.store.grants(role, reads_only=read_only)
