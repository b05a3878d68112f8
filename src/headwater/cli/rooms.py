"""Rooms: say something in one, see what is said, and who is there."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.commands import Result, command, line
from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.output import iso_time, note, print_json, print_line, print_table
from headwater.cli.session import opened, reached, run_async
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
    durability: Annotated[
        str, typer.Option(help="memory, written or synced.", show_default="as the type of the message")
    ] = "",
) -> None:
    """Say something to everybody in a room.

    Examples:
      headwater room send canvas-1 '{"id": "o1", "x": 10}' --type object-create
      headwater room send canvas-1 '{"x": 1}' --durability memory
    """
    import msgspec

    settings = settings_of(ctx)
    said = msgspec.Raw(data.encode())
    offset = run_async(_send(settings, room, said, type=type, key=key, durability=durability or None))
    if settings.json:
        promised = durability or ("memory" if offset is None else "written")
        print_json({"room": room, "offset": offset, "durability": promised})
    else:
        print_line((f"said in {room}" if offset is None else f"said in {room} at offset {offset:,}", ""))


async def _send(settings: Settings, room: str, data: Any, **options: Any) -> int | None:
    async with reached(settings, create=True) as hw:
        return await hw.room(room).send(data, **options)


def tail(
    ctx: typer.Context,
    room: RoomName,
    since: Annotated[
        str, typer.Option(help="Where to begin: now, beginning, or the last offset that was seen.")
    ] = "now",
    limit: Annotated[
        int | None, typer.Option(min=1, help="End after this many messages.", show_default="never")
    ] = None,
) -> None:
    """Show what is said in a room, as it is said. Ctrl-C ends it.

    Examples:
      headwater room tail canvas-1
      headwater room tail canvas-1 --since beginning --limit 10 --json
    """
    settings = settings_of(ctx)
    run_async(_tail(settings, room, since, limit))


async def _tail(settings: Settings, room: str, since: str, limit: int | None) -> None:
    from headwater.model.room import check_since

    check_since(since)
    shown = 0
    async with reached(settings) as hw, aclosing(hw.room(room).follow(since)) as messages:
        async for message in messages:
            _show(message, as_json=settings.json)
            shown += 1
            if shown == limit:
                return


def _show(message: "RoomMessage", *, as_json: bool) -> None:
    if as_json:
        # As it was written: a number that no program here can hold is one to whoever reads this.
        print_json({**message.document(), "data": message.data})
        return
    import msgspec

    where = "-" if message.offset is None else f"{message.offset:,}"
    sender = f" {message.sender}" if message.sender else ""
    said = msgspec.json.format(message.data_text(), indent=0)
    print_line((f"{iso_time(message.at * 1_000)} {where} {message.type}{sender} {said}", ""))


def members(ctx: typer.Context, room: RoomName) -> None:
    """Show who is in a room, on all servers.

    Examples:
      headwater room members canvas-1
    """
    settings = settings_of(ctx)
    found = run_async(_members(settings, room))
    if settings.json:
        print_json([{"member": one.member, "profile": one.profile} for one in found])
    elif found:
        print_table(("MEMBER", "PROFILE"), [[one.member, one.profile_text()] for one in found])
    else:
        note(f"nobody is in {room}")
    if not found:
        raise typer.Exit(ExitCode.NOTHING)


async def _members(settings: Settings, room: str) -> "list[Member]":
    async with reached(settings, or_empty=True) as hw:
        return await hw.room(room).members()


@command
async def queue(
    settings: Settings,
    state: Annotated[str, typer.Argument(metavar="on|off", help="Whether messages go through the log.")],
) -> Result:
    """Let messages of rooms go through the log, or pass them on in memory, while everybody stays where they are.

    Without the log, who is in a room hears those on the same server alone, and nothing is kept. Every server on the
    store goes by it within ten seconds; those who are connected stay so.

    Examples:
      headwater room queue off
      headwater room queue on
    """
    from headwater.log.operations import SetSwitch
    from headwater.services.rooms import MEMORY_SWITCH

    if state not in ("on", "off"):
        raise Misuse(f"the queue of rooms is on or off; got {state!r}")
    async with reached(settings, create=True) as hw:
        switch = SetSwitch(database=hw.name, name=MEMORY_SWITCH, is_on=state == "off")
        await hw.queues_service.run(switch)
    said = "rooms go through the log" if state == "on" else "rooms pass messages on in memory"
    return line({"use_message_queue": state == "on"}, (said, ""))


@command
async def drop(
    settings: Settings,
    room: Annotated[str, typer.Argument(metavar="[ROOM]", help="The room; --all for every one.")] = "",
    all: Annotated[bool, typer.Option("--all", help="Every room of the database.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="They and all that is kept of them are gone for good.")] = False,
) -> Result:
    """Drop rooms with everything that is kept of them. It does not come back: copy the store first if it may be needed.

    Who is in one stays, is told to begin anew, and hears what is said next.

    Examples:
      headwater room drop canvas-1 --yes
      headwater room drop --all --yes
    """
    from headwater.model.room import PREFIX, queue_of

    if bool(room) == all:
        raise Misuse("name a room, or say --all")
    if not yes:
        raise Misuse("messages that are dropped are gone for good; say --yes")
    async with reached(settings, or_empty=True) as hw:
        names = {status.queue for status in await hw.queues()}
        wanted = sorted(name for name in names if name.startswith(PREFIX)) if all else [queue_of(room)]
        dropped = [name for name in wanted if name in names]
        for name in dropped:
            await hw.queue(name).delete()
    rooms = [name.removeprefix(PREFIX) for name in dropped]
    code = ExitCode.OK if rooms else ExitCode.NOTHING
    return line(
        {"dropped": rooms}, (f"dropped {len(rooms)}: {', '.join(rooms)}" if rooms else "nothing", ""), code=code
    )


@command
async def verify(settings: Settings) -> Result:
    """Look whether rooms have the tables and indexes that people know them by, what does their work, and by which plan.

    Examples:
      headwater room verify
      headwater room verify --json
    """
    from headwater.stores.room_questions import CheckRooms

    async with opened(settings) as hw:
        parts = await hw.store.ask(CheckRooms())
    is_whole = all(part.is_there for part in parts)

    def show() -> None:
        rows = [[part.name, "yes" if part.is_there else "NO", part.by, part.plan] for part in parts]
        print_table(("NAME", "THERE", "BY", "PLAN"), rows)

    documents = [
        {"name": part.name, "kind": part.kind, "is_there": part.is_there, "by": part.by, "plan": part.plan}
        for part in parts
    ]
    return Result(documents, show, code=ExitCode.OK if is_whole else ExitCode.PROBLEMS)
