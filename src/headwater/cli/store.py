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

from headwater.cli.commands import Result, Working, command, line
from headwater.cli.exits import Misuse
from headwater.cli.output import confirm, note, plural, print_line, progress, show_bytes
from headwater.cli.session import opened
from headwater.cli.settings import Settings
from headwater.stores.questions import FindIdentity, FindLastLsn

if TYPE_CHECKING:
    from headwater.log.store_operations import GivenUp

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]


@command
async def show_identity(settings: Settings) -> Result:
    """Show the identity of the store: a UUID that is made once with it, and kept by whoever reads its log.

    Examples:
      headwater store identity
      headwater store identity --store orders.db --json
    """
    async with opened(settings) as hw:
        identity = await hw.store.ask(FindIdentity())
    return line({"identity": identity}, (identity, ""))


@command
def renew_identity(settings: Settings, yes: Yes = False) -> Working:
    """Give the store a new identity, after a backup was put back in its place.

    The log has gone back then, and places in it that others have kept may come to mean other messages. From now on,
    whoever has the store open, or comes with a checkpoint of before, is told `store_replaced` instead of reading on as
    if nothing had happened. Messages, groups and jobs stay as they are.

    Examples:
      headwater store renew
      headwater store renew --yes --store orders.db
    """
    confirm("Streams with a checkpoint of this store must begin anew. Renew its identity?", yes=yes)
    return _renew(settings)


async def _renew(settings: Settings) -> Result:
    from headwater.log.store_operations import RenewIdentity

    async with opened(settings) as hw:
        renewed = (await hw.committer.submit(RenewIdentity())).result

    def show() -> None:
        print_line((renewed.identity, ""))
        note(f"was {renewed.before}; servers and workers on this store must be started again")

    return Result([{"identity": renewed.identity, "before": renewed.before}], show)


@command
async def give_up_damaged(settings: Settings, yes: Yes = False) -> Result:
    """Pass over messages that cannot be read, so that those behind them are delivered.

    Every message is read first. Those whose bytes are not what was written are given up for good: consumers go on
    behind them, their groups count them as lost, and readers of the log find an empty message of the type
    headwater/damaged in the place of each. Keep a copy of the store before, in case a backup has them.

    Examples:
      headwater store give-up-damaged
      headwater store give-up-damaged --yes --json
    """
    given_up = await _give_up(settings, yes)
    found = [
        {
            "lsn": one.lsn,
            "queue": one.lane.queue,
            "partition": one.lane.partition,
            "first_offset": one.first_offset,
            "last_offset": one.first_offset + one.count - 1,
        }
        for one in given_up
    ]
    words = "given up: {queue}, partition {partition}, offsets {first_offset:,} to {last_offset:,}"

    def show() -> None:
        for one in found:
            print_line((words.format(**one), ""))

    return Result(found, show, notes=() if found else ["every message can be read"])


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


@command
def back_up(
    settings: Settings,
    target: Annotated[str, typer.Argument(help="The file to make.", metavar="FILE", show_default=False)],
) -> Working:
    """Write a copy of the whole store to a new file, while servers and workers go on.

    The copy has everything that was committed when it began, in one file. It is a store of its own: when it is put back
    in this one's place, whoever comes with a checkpoint of this one is told `store_replaced`.

    Examples:
      headwater store backup headwater-copy.db
      headwater store backup "backups/$(date +%F).db" --store orders.db
    """
    place = os.path.abspath(target)
    if not os.path.isdir(os.path.dirname(place)):
        raise Misuse(f"there is no folder {os.path.dirname(place)}")
    return _back_up(settings, place, target)


async def _back_up(settings: Settings, place: str, target: str) -> Result:
    from headwater.stores.contract import WritesBackups

    async with opened(settings) as hw:
        if not isinstance(hw.store, WritesBackups):
            raise Misuse(f"a store in {hw.store.traits.engine} is backed up with the tools of its database")
        await hw.store.backup(place)
    return _written(place, target)


def _written(place: str, target: str) -> Result:
    size = os.path.getsize(place)
    return line({"file": place, "bytes": size}, (f"wrote {show_bytes(size)} to {target}", ""))


@command
async def show_grants(
    settings: Settings,
    role: Annotated[str, typer.Argument(help="The role that servers log in as.", metavar="ROLE", show_default=False)],
    read_only: Annotated[bool, typer.Option("--read-only", help="For who only reads the log: Spark, reports.")] = False,
) -> Result:
    """Print the SQL that lets a role of a PostgreSQL server use the store, and do nothing else there.

    Run it as the owner of the store. The role can neither make nor change tables: open the store as its owner, with any
    command, after an upgrade.

    Examples:
      headwater store grants app --store postgresql://owner@db.example/shop
      headwater store grants spark --read-only --store postgresql://owner@db.example/shop | psql shop
    """
    from headwater.stores.contract import GrantsAccess

    async with opened(settings) as hw:
        if not isinstance(hw.store, GrantsAccess):
            raise Misuse("a store in a file is used by whoever may read and write the file: see chmod")
        grants = await hw.store.grants(role, reads_only=read_only)

    def show() -> None:
        for grant in grants:
            print_line((grant, ""))

    return Result([{"grants": grants}], show)
