"""What a room asks of the log, over every store."""

from msgspec import Raw

from headwater.log.operations import Configure, Pop, Pushed, Retain
from headwater.log.room_operations import RoomPush, TrimRoom
from headwater.model.names import Lsn
from headwater.model.record import Record
from headwater.stores.questions import ListPartitions, ListQueues
from headwater.stores.room_questions import CheckRooms
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log

QUEUE = "rooms/a"


async def say(log: Log, number: int, partition: str = "messages") -> Lsn:
    """One message; its LSN."""
    record = Record(Raw(b"%d" % number))
    pushed: Pushed = await log.run(RoomPush(queue=QUEUE, partition=partition, records=(record,)))
    return pushed.lsn


async def kept(log: Log) -> dict[str, tuple[int, int]]:
    return {one.partition: (one.start, one.end) for one in await log.store.ask(ListPartitions("main", QUEUE))}


async def test_what_everybody_has_got_of_a_room_is_dropped_and_nothing_else(log: Log) -> None:
    """S0-28, T0-d: up to the LSN that is said, whole segments, of the kept messages alone."""
    marks = [await say(log, number) for number in range(4)]
    await say(log, 9, "memory")
    assert (await log.run(TrimRoom(queue=QUEUE, through=marks[1]))).count == 2
    assert await kept(log) == {"messages": (2, 4), "memory": (0, 1)}
    assert (await log.run(TrimRoom(queue=QUEUE, through=marks[1]))).count == 0
    assert (await log.run(TrimRoom(queue="rooms/nobody", through=marks[1]))).count == 0
    assert (await log.run(TrimRoom(database="other", queue=QUEUE, through=marks[3]))).count == 0
    assert await kept(log) == {"messages": (2, 4), "memory": (0, 1)}


async def test_what_has_to_be_archived_first_is_kept(log: Log) -> None:
    await log.run(Configure(queue=QUEUE, options={"archive_required": True}))
    mark = await say(log, 1)
    assert (await log.run(TrimRoom(queue=QUEUE, through=mark))).count == 0
    assert await kept(log) == {"messages": (0, 1)}


async def test_messages_of_a_room_expire_when_their_time_is_over(log: Log, clock: FakeClock) -> None:
    """S0-3, S0-9, S0-25: `expires_at` is now and the time to live; what is dropped is counted."""
    await log.run(RoomPush(queue=QUEUE, partition="messages", records=(Record(Raw(b"1")),), ttl_seconds=60))
    clock.advance(59)
    assert (await log.run(Retain())).records == 0
    clock.advance(2)
    assert (await log.run(Retain())).records == 1
    assert await kept(log) == {"messages": (1, 1)}


async def test_a_room_in_which_nothing_was_said_is_gone_when_nobody_is_there_any_more(
    log: Log, clock: FakeClock
) -> None:
    """Whoever may look on makes one by joining it: made-up names would fill the store for good."""

    async def be_in(room: str, partition: str = "presence") -> None:
        record = Record(Raw(b"1"))
        await log.run(RoomPush(queue=f"rooms/{room}", partition=partition, records=(record,), ttl_seconds=300))

    async def rooms() -> list[str]:
        return [one.queue for one in await log.store.ask(ListQueues("main"))]

    for number in range(110):
        await be_in(f"made-up-{number:03d}")
    await be_in("cursors", "memory")
    for spoken in ("messages", "presence"):
        await be_in("spoken", spoken)
    await be_in("configured")
    await log.run(Configure(queue="rooms/configured", options={"retention_seconds": 60}))
    await be_in("read")
    await log.run(Pop(queue="rooms/read", group="readers", batch=1))
    await log.push("no room", partition="presence", ttl_seconds=1)
    clock.advance(200)
    await be_in("still")
    assert (await log.run(Retain())).rooms == 0
    clock.advance(101)
    while (retained := await log.run(Retain())).segments or retained.rooms:
        pass
    assert await rooms() == ["orders", "rooms/configured", "rooms/read", "rooms/spoken", "rooms/still"]
    # Where something was kept, its offsets go on; and a room that went can be made again.
    await be_in("spoken", "messages")
    await be_in("made-up-007")
    [spoken_in] = [one for one in await log.store.ask(ListPartitions("main", "rooms/spoken")) if one.end > 1]
    assert (spoken_in.partition, spoken_in.start, spoken_in.end) == ("messages", 1, 2)
    assert "rooms/made-up-007" in await rooms()


async def test_rooms_have_the_tables_and_indexes_that_people_know(log: Log) -> None:
    """S0-2, S0-3, S0-4, S0-6, S0-63: what does the work of each is named, and there; its plan is told."""
    parts = {part.name: part for part in await log.store.ask(CheckRooms())}
    assert list(parts) == [
        "message_queue",
        "canvas_watermarks",
        "idx_message_queue_canvas_id_id",
        "idx_message_queue_expires_at",
        "idx_message_queue_priority",
        "idx_canvas_watermarks_canvas_id",
    ]
    assert all(part.is_there for part in parts.values())
    for name, part in parts.items():
        assert bool(part.plan) == name.startswith("idx_")
        # Small tables are read whole by a server whatever indexes there are.
        assert "SCAN" not in part.plan, name
