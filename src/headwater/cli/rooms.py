"""Rooms: say something in one, see what is said, and who is there."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import iso_time, note, print_json, print_table
from headwater.cli.session import reached, run_async
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.model.room import Member, RoomMessage

RoomName = Annotated[str, typer.Argument(metavar="ROOM", help="The room.")]


def send(
    ctx: typer.Context,
    room: RoomName,
    data: Annotated[str, typer.Argument(metavar="JSON", help="What to say, as JSON.")],
    type: Annotated[str, typer.Option(help="The type of the message.")] = "message",
    key: Annotated[str, typer.Option(help="What it is about, for types that are coalesced.", show_default=False)] = "",
    durability: Annotated[str, typer.Option(help="memory, written or synced.")] = "written",
) -> None:
    """Say something to everybody in a room.

    Examples:
      headwater room send canvas-1 '{"id": "o1", "x": 10}' --type object-create
      headwater room send canvas-1 '{"x": 1}' --durability memory
    """
    import msgspec

    settings = settings_of(ctx)
    offset = run_async(_send(settings, room, msgspec.Raw(data.encode()), type=type, key=key, durability=durability))
    if settings.json:
        print_json({"room": room, "offset": offset, "durability": durability})
    else:
        print(f"said in {room}" if offset is None else f"said in {room} at offset {offset:,}")


async def _send(settings: Settings, room: str, data: Any, **options: Any) -> int | None:
    async with reached(settings, create=True) as hw:
        return await hw.room(room).send(data, **options)


def tail(
    ctx: typer.Context,
    room: RoomName,
    since: Annotated[
        str, typer.Option(help="Where to begin: now, beginning, or the last offset that was seen.")
    ] = "now",
    limit: Annotated[int, typer.Option(min=0, help="End after this many messages.", show_default="never")] = 0,
) -> None:
    """Show what is said in a room, as it is said. Ctrl-C ends it.

    Examples:
      headwater room tail canvas-1
      headwater room tail canvas-1 --since beginning --limit 10 --json
    """
    settings = settings_of(ctx)
    place = int(since) if since.removeprefix("-").isdecimal() else since
    if isinstance(place, str) and place not in ("now", "beginning"):
        raise Misuse(f"--since is now, beginning or an offset; got {since!r}")
    run_async(_tail(settings, room, place, limit))


async def _tail(settings: Settings, room: str, since: int | str, limit: int) -> None:
    shown = 0
    async with reached(settings, create=True) as hw, aclosing(hw.room(room).follow(since)) as messages:
        async for message in messages:
            _show(message, as_json=settings.json)
            shown += 1
            if shown == limit:
                return


def _show(message: "RoomMessage", *, as_json: bool) -> None:
    if as_json:
        print_json({**message.document(), "data": message.payload})
        return
    where = "-" if message.offset is None else f"{message.offset:,}"
    sender = f" {message.sender}" if message.sender else ""
    print(f"{iso_time(message.at * 1_000)} {where} {message.type}{sender} {message.data_text()}", flush=True)


def members(ctx: typer.Context, room: RoomName) -> None:
    """Show who is in a room, on all servers.

    Examples:
      headwater room members canvas-1
    """
    settings = settings_of(ctx)
    found = run_async(_members(settings, room))
    if settings.json:
        print_json([{"member": one.member, "profile": one.shown()} for one in found])
    elif found:
        print_table(("MEMBER", "PROFILE"), [[one.member, one.profile_text()] for one in found])
    else:
        note(f"nobody is in {room}")
    if not found:
        raise typer.Exit(ExitCode.NOTHING)


async def _members(settings: Settings, room: str) -> "list[Member]":
    async with reached(settings, or_empty=True) as hw:
        return await hw.room(room).members()
