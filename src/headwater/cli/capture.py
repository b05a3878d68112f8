"""Change data capture: what is written to tables of your own PostgreSQL, or collections of MongoDB, as messages.

Examples:
  headwater capture run postgresql://shop@db.example/shop --table public.orders --queue orders.changes
  headwater capture list
  headwater capture drop postgresql://shop@db.example/shop --table public.orders
"""

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.commands import Result, command, line, table
from headwater.cli.exits import Misuse
from headwater.cli.output import iso_time, plural
from headwater.cli.session import opened, told_to_end
from headwater.cli.settings import Settings
from headwater.clock import SECOND, SystemClock

if TYPE_CHECKING:
    from headwater.capture import Captured, Source
    from headwater.stores.questions import Milestone

Address = Annotated[
    str,
    typer.Argument(help="The database: postgresql://… or mongodb://…", metavar="SOURCE", show_default=False),
]
Tables = Annotated[
    list[str],
    typer.Option(
        "--table", "--collection", help="What to follow, as schema.table or database.collection; as often as needed."
    ),
]
Name = Annotated[
    str,
    typer.Option(
        "--name", help="What the capture, its slot and its publication are called.", show_default="the first table"
    ),
]
# A capture that runs says something every ten seconds.
STALE_SECONDS = 30
COLUMNS = ("NAME", "QUEUE", "CHANGES", "BEHIND", "KEPT FOR IT", "SEEN", "ALARM")


@command
async def run(
    settings: Settings,
    source: Address,
    tables: Tables,
    queue: Annotated[str, typer.Option("--queue", help="Where changes are pushed to.")],
    name: Name = "",
    snapshot: Annotated[
        bool, typer.Option("--snapshot/--no-snapshot", help="Begin with every row that is there.")
    ] = True,
    lanes: Annotated[int, typer.Option("--lanes", help="Partitions for each table; a row keeps to one.", min=1)] = 1,
    resync: Annotated[
        bool, typer.Option("--resync", help="Where the source has lost our place, begin anew and tell consumers.")
    ] = False,
    alarm_bytes: Annotated[
        int | None,
        typer.Option(
            "--alarm-bytes",
            help="Tell when the source keeps more than this for us.",
            min=1,
            show_default="half of what it keeps at most, or 1 GiB",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything is there that was written before.")] = False,
) -> Result:
    """Push every change of some tables to a queue, each once and in the order of commits, until Ctrl-C or SIGTERM.

    Examples:
      headwater capture run postgresql://shop@db.example/shop --table public.orders --queue orders.changes
      headwater capture run mongodb://db.example/?replicaSet=rs0 --collection shop.orders --queue orders.changes
      headwater capture run postgresql://db.example/shop --table public.orders --queue orders.changes --once
    """
    from headwater import capture

    followed = make_source(source, tables, name, snapshot)
    told: list[signal.Signals] = []
    with told_to_end(told):
        try:
            async with opened(settings, create=True) as hw:
                captured = await capture.follow(
                    hw, followed, queue, lanes=lanes, resync=resync, alarm_bytes=alarm_bytes, once=once
                )
        except asyncio.CancelledError:
            if not told:
                raise
            return Result((), lambda: None)
    return _said(captured, queue)


def _said(captured: "Captured", queue: str) -> Result:
    return line(captured, (f"pushed {plural(captured.changes, 'change')} to {queue}", ""))


@command
async def list_captures(settings: Settings) -> Result:
    """List the captures into this store: how far behind they are, what is kept for them, when they were seen.

    Examples:
      headwater capture list
      headwater capture list --json
    """
    from headwater.model.capture import STEPS, decode_state
    from headwater.stores.questions import ListMilestones

    async with opened(settings) as hw:
        noted = await hw.store.ask(ListMilestones(hw.name, STEPS))
    found = [milestone for milestone in noted if decode_state(milestone.note).is_followed]
    return table(found, _document, COLUMNS, _row, empty="nothing is captured into this store")


def _document(milestone: "Milestone") -> dict[str, object]:
    import msgspec

    from headwater.model.capture import STEPS, decode_state

    state = msgspec.structs.asdict(decode_state(milestone.note))
    # Those that were given up are not shown.
    del state["dropped"]
    return {"name": milestone.name.removeprefix(STEPS), "seen_at": milestone.reached_at, **state}


def _row(milestone: "Milestone") -> tuple[object, ...]:
    about = _document(milestone)
    behind, kept = (_bytes(about[name]) for name in ("lag_bytes", "kept_bytes"))
    what = "copying" if about["copying"] else behind
    if SystemClock().now() - milestone.reached_at > STALE_SECONDS * SECOND:
        # It does not run, and its source goes on: nobody knows here how far behind it is by now.
        what, kept = f"{what} when seen", f"{kept} when seen"
    return (
        about["name"],
        about["queue"],
        about["changes"],
        what,
        kept,
        iso_time(milestone.reached_at),
        about["alarm"],
    )


def _bytes(figure: object) -> str:
    return "-" if figure is None else f"{figure:,} bytes"


@command
async def drop(
    settings: Settings,
    source: Address,
    tables: Tables,
    name: Name = "",
    of_another_store: Annotated[
        bool,
        typer.Option(
            "--of-another-store", help="Also where this store does not know the capture: whoever follows it loses it."
        ),
    ] = False,
) -> Result:
    """Give up a capture: the source keeps nothing for it any more. What is in the log stays there.

    Examples:
      headwater capture drop postgresql://shop@db.example/shop --table public.orders
    """
    from headwater import capture
    from headwater.errors import StoreMissing

    followed = make_source(source, tables, name, snapshot=False)
    try:
        async with opened(settings) as hw:
            was_captured = await capture.drop(hw, followed, of_another_store=of_another_store)
    except StoreMissing:
        await capture.give_up(followed, of_another_store=of_another_store)
        was_captured = False
    told = "is dropped" if was_captured else "was not captured into this store, and nothing of it is kept"
    return line({"dropped": followed.name, "was_captured": was_captured}, (f"{followed.name} {told} at its source", ""))


def make_source(address: str, tables: list[str], name: str, snapshot: bool) -> "Source":
    """The source at an address, by its scheme."""
    from headwater import capture

    scheme = address.partition("://")[0]
    try:
        if scheme in ("postgresql", "postgres"):
            return capture.PostgresTables(address, tables, name=name, snapshot=snapshot)
        if scheme in ("mongodb", "mongodb+srv"):
            return capture.MongoCollections(address, tables, name=name, snapshot=snapshot)
    except ImportError as error:
        extra = "mongodb" if scheme.startswith("mongodb") else "postgres"
        raise Misuse(f"a source at {scheme}:// needs its driver: pip install 'headwater[{extra}]' ({error})") from error
    raise Misuse(f"a source is at postgresql://… or mongodb://…; got {address!r:.80}")
