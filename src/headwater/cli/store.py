"""Which store a file is, for those who keep places in its log elsewhere.

Examples:
  headwater store identity
  headwater store renew --yes
"""

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import confirm, note, print_json, print_line
from headwater.cli.session import opened, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.log.operations import Identified


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
    from headwater.log.operations import RenewIdentity

    async with opened(settings) as hw:
        renewed: Identified = (await hw.committer.submit(RenewIdentity())).result
        return renewed
