"""Rooms: messages from whoever is in one to everybody who is, on this server and on others, by way of the log.

    send ─► gathered by type (`room_gathering.py`) ─► a push to `rooms/{room}` ─► the log
    the log ─► one follower of `rooms/*` (`room_followers.py`) ─► `LiveRoom` ─► whoever listens
    the log ─► what was said before (`room_history.py`) ─► whoever comes

There is no poller for each room: what others commit wakes the one tail, and is read once. Messages that are kept are
delivered from the log, and so each once, in its order. What only passes is handed to members on this server at once,
says so, and is not handed out again when the log brings it back.

Every few seconds a server says of its rooms who is there and how far it has delivered them.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import Iterable, Sequence

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.config import Durability
from headwater.errors import Closed, InvalidInput, InvalidOption
from headwater.log.committer import CommittedResult
from headwater.log.room_operations import RoomPush, TrimRoom
from headwater.model.names import Lsn, Offset
from headwater.model.record import Record
from headwater.model.room import (
    ALIVE_SECONDS,
    CONNECTED,
    CURSOR,
    DISCONNECTED,
    KEPT,
    KEY,
    MEMBERS_TOLD_MAX,
    OWN_TYPES,
    PASSING,
    PRESENCE,
    PRESENCE_SECONDS,
    SENDER,
    SNAPSHOT,
    Came,
    Coalescing,
    Member,
    Roll,
    RoomMessage,
    check_cursor,
    lowest_watermark,
    queue_of,
    room_of,
    room_record,
)
from headwater.model.room_settings import CleanupPolicy, RoomSettings
from headwater.outage import level_of
from headwater.services.live_room import LiveRoom
from headwater.services.queues import Queues
from headwater.services.room_followers import RoomFollowers
from headwater.services.room_gathering import Gathering, NewMessage, Sent
from headwater.services.room_history import RoomHistory
from headwater.services.room_lag import Lag
from headwater.services.room_presence import RoomPresence
from headwater.stores.questions import (
    Answer,
    ListSwitches,
    Question,
    Segment,
)

log = logging.getLogger(__name__)

# Turned on for a database, its rooms pass messages on in memory, on every server.
MEMORY_SWITCH = "rooms in memory"
# For so long a program goes by what it knows of that.
LOOK_SECONDS = 1.0
IN_MEMORY = "rooms pass messages on in memory now (headwater room queue off)"
ELSEWHERE = "send it alone and through the server (WebSocket, HTTP POST or headwater.connect), or turn the queue on"
# How far a room was delivered is said again after so many steps that brought it messages, but not all the time.
WATERMARK_STEPS, WATERMARK_SECONDS = 10, 1.0


class Rooms:
    """All rooms of an open store that somebody in this process is in, or sends to."""

    def __init__(self, queues: Queues, settings: RoomSettings) -> None:
        self.settings = settings
        # This process alone, for as long as it runs; the name of the server stays the same when it starts again.
        self.origin = uuid.uuid4().hex
        self.instance = settings.server_instance_id or str(uuid.uuid4())
        self._queues = queues
        queues.followers.on_clock_set.append(self._clock_set)
        self._live: dict[tuple[str, str], LiveRoom] = {}
        # Rooms that are being opened, or could not be: whoever comes before it is open waits with those who are there.
        self._opening: dict[LiveRoom, asyncio.Task[None]] = {}
        self._followers = RoomFollowers(queues.followers, self)
        # What is kept of rooms, for whoever asks.
        self.kept = RoomHistory(queues)
        self._presence = RoomPresence(queues)
        self._beat: asyncio.TimerHandle | None = None
        self._gathering = Gathering(lambda: self.settings.cursor_batch_interval / 1_000, self._pass_on)
        # Databases whose rooms were switched to memory, for every server on the store.
        self._in_memory: frozenset[str] = frozenset()
        self._looked_at = -math.inf
        self._looking: asyncio.Task[None] | None = None
        # Whether clients can be in rooms of this process: else there is nobody to pass a message on to in memory.
        self.is_served = False
        self.sent = 0
        self.delivered = 0

    @property
    def live(self) -> Sequence[LiveRoom]:
        """The rooms that somebody here is in."""
        return list(self._live.values())

    async def roll_call(self, database: str, room: str) -> tuple[list[Member], int]:
        """Who is in a room, on all servers: some by name, and how many there are. Nobody here has to be in it."""
        queue = queue_of(room)
        presence = (await self.kept.partitions(database, queue)).get(PRESENCE)
        told = await self._presence.told(database, queue, presence)
        live = self._live.get((database, queue))
        return told.attendance.roll_call(self.origin, live.here if live is not None else {})

    @property
    def followers(self) -> int:
        """How many follow the log: one for each database with a live room."""
        return self._followers.count()

    def lag_of(self, database: str) -> Lag | None:
        """How well the rooms of a database are delivered; None while nobody is in one."""
        return self._followers.lags.get(database)

    async def ask(self, question: Question[Answer]) -> Answer:
        """What is answered to a question about what is kept."""
        return await self._queues.ask(question)

    def now(self) -> Timestamp:
        """The time."""
        return self._queues.clock.now()

    # ── through the log, or within this process ──

    def goes_through_log(self, database: str) -> bool:
        """Whether messages of a database's rooms go through the log now."""
        return self.settings.use_message_queue and database not in self._in_memory

    async def look_at_switches(self) -> None:
        """Whether rooms were switched, for all servers."""
        self.take_switches(await self._queues.ask(ListSwitches()))

    async def look_lately(self) -> None:
        """The same, unless it was looked at a moment ago: for programs that are in no room, and so never look."""
        if asyncio.get_running_loop().time() - self._looked_at > LOOK_SECONDS:
            # One look for all who wait for it: what they say goes on together.
            look = self._look_later()
            await asyncio.wait({look})
            if look.cancelled():
                raise Closed("Headwater was closed before the message was taken")
            look.result()

    async def check_kept(self, database: str) -> None:
        """Raises when messages cannot be kept now: for those that take effect together with others, in the log."""
        await self.look_lately()
        if not self.goes_through_log(database):
            raise InvalidOption(f"{IN_MEMORY}, and in a transaction they are kept; {ELSEWHERE}")

    def take_switches(self, switches: Iterable[tuple[str, str]]) -> None:
        """Go by what is switched; who is here is said at once to those who could not hear."""
        self._looked_at = asyncio.get_running_loop().time()
        before = self._in_memory
        self._in_memory = frozenset(database for database, name in switches if name == MEMORY_SWITCH)
        if before != self._in_memory:
            log.info(
                "rooms of these databases pass messages on in memory: %s", ", ".join(sorted(self._in_memory)) or "none"
            )
        if before - self._in_memory:
            self.say_who_is_here()

    def _look_later(self) -> "asyncio.Task[None]":
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self.look_at_switches())
            self._looking.add_done_callback(_log_failure)
        return self._looking

    # ── sending ──

    def send(self, message: NewMessage) -> asyncio.Future[Sent] | None:
        """Pass a message on to everybody in its room; None for a cursor, which is not answered."""
        if message.type in OWN_TYPES:
            raise InvalidInput(f"messages of type {message.type} are made by the server; send another type")
        self.sent += 1
        coalescing = self.settings.of(message.type).coalescing
        if message.type == CURSOR:
            check_cursor(message.data)
            if message.at_least is not Durability.MEMORY:
                raise InvalidOption(f"{message.at_least} was asked for, and cursors are never kept; say no durability")
            self._gathering.add_cursor(message)
            return None
        if coalescing is Coalescing.EVERY:
            return self._pass_on(message)
        return self._gathering.add(message, coalescing)

    def gathers(self, database: str, type: str) -> bool:
        """Whether messages of a type that come too fast are laid over each other on their way to the log."""
        return self.settings.of(type).coalescing is not Coalescing.EVERY and self.goes_through_log(database)

    async def say(self, push: RoomPush, durability: Durability, at_least: Durability) -> Sent:
        """Send what a program says like what members say; what became of it."""
        self._queues.followers.home.check()
        await self.look_lately()
        if self.goes_through_log(push.database) and not self.gathers(push.database, push.records[0].type):
            return await _sent(self._queues.push(push, durability))
        if not self.goes_through_log(push.database) and not self.is_served:
            raise InvalidOption(f"{IN_MEMORY}, and nobody is in a room of this process; {ELSEWHERE}")
        (record,) = push.records
        headers = record.headers or {}
        message = NewMessage(
            database=push.database,
            room=room_of(push.queue),
            type=record.type,
            data=record.data,
            sender=headers.get(SENDER, ""),
            key=headers.get(KEY, ""),
            durability=durability,
            at_least=at_least,
            ttl_seconds=push.ttl_seconds,
        )
        sending = self.send(message)
        return Sent(None, Durability.MEMORY) if sending is None else await sending

    def flush(self) -> None:
        """Pass on at once what is being gathered."""
        self._gathering.flush()

    def _pass_on(self, message: NewMessage) -> asyncio.Future[Sent]:
        queue = queue_of(message.room)
        passes = message.durability is Durability.MEMORY
        live = self._live.get((message.database, queue))
        is_local = passes and self.settings.enable_local_broadcast
        through_log = self.goes_through_log(message.database)
        if not through_log and message.at_least is not Durability.MEMORY:
            return _refused(f"{message.at_least} was asked for, and {IN_MEMORY}; say no durability, or memory")
        if is_local or not through_log:
            self._hand_out(live, message)
        if not through_log:
            done: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
            done.set_result(Sent(None, Durability.MEMORY))
            return done
        origin = self.origin if is_local else ""
        record = room_record(message.type, message.data, message.sender, key=message.key, origin=origin)
        push = self._push(message.database, queue, PASSING if passes else KEPT, record, message.ttl_seconds)
        return asyncio.ensure_future(_sent(self._queues.push(push, message.durability)))

    def _hand_out(self, live: LiveRoom | None, message: NewMessage) -> None:
        """Give a message without an offset to members on this server."""
        if live is not None:
            now = self._queues.clock.now() * 1_000 // SECOND
            live.tell([RoomMessage(message.room, message.type, message.data, message.sender, now)])

    def _push(self, database: str, queue: str, partition: str, record: Record, ttl: float | None = None) -> RoomPush:
        ttl_seconds = self.settings.message_ttl if ttl is None else ttl
        return RoomPush(database=database, queue=queue, partition=partition, records=(record,), ttl_seconds=ttl_seconds)

    # ── being there ──

    async def enter(self, database: str, room: str) -> LiveRoom:
        """The room, live; whoever enters leaves it again."""
        key = (database, queue_of(room))
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = LiveRoom(database, room, key[1], self.origin)
            self._opening[live] = asyncio.ensure_future(self._open(live))
        live.users += 1
        try:
            if live in self._opening:
                await asyncio.shield(self._opening[live])
            else:
                # It may have been deleted since, which nothing in the log tells.
                live.look_at(await self.kept.outline(database, room))
        except BaseException:
            self.leave(live)
            raise
        return live

    def leave(self, live: LiveRoom) -> None:
        """One less is there; a room without anybody is let go."""
        live.users -= 1
        if live.users <= 0:
            self._live.pop((live.database, live.queue), None)
            if live in self._opening:
                self._opening.pop(live).cancel()
            if not self._live:
                self._stop()

    async def connect(self, live: LiveRoom, member: Member) -> None:
        """Somebody has come; the others hear of it, where there are too many to tell only how many they are. Once this
        is over, whoever comes on another server finds it there, unless they are too many."""
        live.here[member.member] = member
        if len(live.here) > MEMBERS_TOLD_MAX:
            self._say_count(live)
        else:
            said = self._announce(live, CONNECTED, self._came(live, member), Durability.WRITTEN)
            if said is not None:
                await asyncio.wait({said})

    def disconnect(self, live: LiveRoom, name: str) -> None:
        """Somebody has gone."""
        member = live.here.pop(name, None)
        if member is None:
            return
        if len(live.here) >= MEMBERS_TOLD_MAX:
            self._say_count(live)
        else:
            self._announce(live, DISCONNECTED, self._came(live, member))

    def _came(self, live: LiveRoom, member: Member) -> Came:
        live.is_count_unsaid = False
        return Came(self.origin, member.member, member.profile, len(live.here))

    def _roll(self, live: LiveRoom, members: list[Member]) -> Roll:
        live.is_count_unsaid = False
        return Roll(self.origin, self.instance, live.delivered, len(live.here), members)

    def _say_count(self, live: LiveRoom) -> None:
        """Say how many there are. While that is on its way to the log nothing more is said of it, and what has changed
        until it is there is said at once then: a crowd that comes costs a record for each commit, not for each of
        them."""
        live.is_count_unsaid = True
        if not live.is_count_on_its_way:
            said = self._announce(live, SNAPSHOT, self._roll(live, []), Durability.WRITTEN)
            live.is_count_on_its_way = said is not None
            if said is not None:
                said.add_done_callback(lambda _: self._count_said(live))

    def _count_said(self, live: LiveRoom) -> None:
        live.is_count_on_its_way = False
        if live.is_count_unsaid:
            self._say_count(live)

    def _announce(
        self, live: LiveRoom, type: str, said: Came | Roll, durability: Durability = Durability.MEMORY
    ) -> "asyncio.Future[CommittedResult] | None":
        """Say who is there; what to wait for, if anything, until others can know it."""
        record = Record(msgspec.Raw(msgspec.json.encode(said)), type=type)
        if not self.goes_through_log(live.database):
            changes = live.attendance.take(record, self._queues.clock.now())
            live.tell_presence(changes)
            return None
        push = self._push(live.database, live.queue, PRESENCE, record, ALIVE_SECONDS)
        try:
            pushed = self._queues.push(push, durability)
        except Closed:
            log.debug("a room was left while Headwater was closed; others learn of it when this server is silent")
            return None
        pushed.add_done_callback(_look_at)
        return pushed

    def say_who_is_here(self) -> None:
        """Tell the others, again and again: who hears nothing of a server takes its members for gone."""
        self._beat_later()
        self._look_later()
        now = self._queues.clock.now()
        for live in self.live:
            members = list(live.here.values())
            told = members if len(members) <= MEMBERS_TOLD_MAX else []
            self._announce(live, SNAPSHOT, self._roll(live, told))
            live.steps_unsaid = 0
            live.expire(now)
            if self.settings.cleanup_policy is CleanupPolicy.WATERMARK:
                self._trim(live, now)

    def _beat_later(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._beat = asyncio.get_running_loop().call_later(PRESENCE_SECONDS, self.say_who_is_here)

    def _clock_set(self, by: int) -> None:
        self._presence.clock_set()
        for live in self.live:
            live.clock_set(by)

    def _trim(self, live: LiveRoom, now: Timestamp) -> None:
        """Drop what every server has delivered. The lowest watermark counts: the highest would take what others have
        not got yet."""
        through = lowest_watermark(live.watermarks.values(), now)
        if through:
            self._queues.submit_and_forget(TrimRoom(database=live.database, queue=live.queue, through=through))

    # ── opening, and what the log brings ──

    async def _open(self, live: LiveRoom) -> None:
        """Follow first, then look what is there: what comes in between is put by, and nothing is missed."""
        if self._beat is None:
            self._beat_later()
        await self._followers.follow(live.database)
        await self.look_at_switches()
        partitions = await self.kept.partitions(live.database, live.queue)
        kept, presence = partitions.get(KEPT), partitions.get(PRESENCE)
        told = await self._presence.told(live.database, live.queue, presence)
        places = {name: status.partition_id for name, status in partitions.items()}
        live.make_ready(Offset(0) if kept is None else kept.end, told, places, await self._queues.identity())
        # A server that begins again goes on from where it said that it was.
        own = live.watermarks.get(self.instance)
        live.delivered = Lsn(max(live.delivered, own.lsn if own is not None else 0))
        live.attendance.expire(self._queues.clock.now())
        # From now on nothing is dropped that it has not delivered: a server that has said nothing is not waited for.
        self._announce_watermark(live)
        self._opening.pop(live, None)

    def hand_out(self, segments: Sequence[Segment]) -> None:
        """What the log has brought, to the rooms that it is for."""
        touched: dict[str, LiveRoom] = {}
        for segment in segments:
            live = self._live.get((segment.lane.database, segment.lane.queue))
            if live is not None:
                self._hand_on(live, segment)
                if segment.lane.partition == KEPT:
                    touched[live.queue] = live
        for live in touched.values():
            live.steps_unsaid += 1
            self._say_watermark(live)

    async def tell_what_is_lost(self, database: str) -> None:
        """Messages were dropped before they were handed out: say so now, not when somebody says something next."""
        for live in [one for one in self.live if one.database == database]:
            live.look_at(await self.kept.outline(database, live.name))

    def _hand_on(self, live: LiveRoom, segment: Segment) -> None:
        self.delivered += len(segment.records)
        try:
            live.take(segment)
        except Exception:
            # One room's trouble is its own: the others get what is behind it.
            log.exception("what was said in %s could not be handed out", live.name)

    def _say_watermark(self, live: LiveRoom) -> None:
        """Say how far this server has delivered a room, when enough was since it said so."""
        now = asyncio.get_running_loop().time()
        if live.steps_unsaid >= WATERMARK_STEPS and now - live.said_at >= WATERMARK_SECONDS:
            live.steps_unsaid, live.said_at = 0, now
            self._announce_watermark(live)

    def _announce_watermark(self, live: LiveRoom) -> None:
        self._announce(live, SNAPSHOT, Roll(self.origin, self.instance, live.delivered, only_watermark=True))

    def _stop(self) -> "list[asyncio.Task[None]]":
        """Follow no more, and say nothing more; what is still to end."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        return self._followers.stop()

    async def close(self) -> None:
        """Pass on what was gathered, and follow no more."""
        self._gathering.flush()
        pending = self._stop()
        if self._looking is not None:
            self._looking.cancel()
            pending.append(self._looking)
        await asyncio.gather(*pending, return_exceptions=True)


def _refused(reason: str) -> asyncio.Future[Sent]:
    refused: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
    refused.set_exception(InvalidOption(reason))
    return refused


async def _sent(answer: "asyncio.Future[CommittedResult]") -> Sent:
    """What became of a push of one message."""
    answered = await answer
    if answered.durability is Durability.MEMORY or answered.result is None:
        return Sent(None, answered.durability)
    return Sent(int(answered.result.first_offset), answered.durability)


def _log_failure(look: "asyncio.Task[None]") -> None:
    """A look that failed is followed by another with the next beat."""
    error = None if look.cancelled() else look.exception()
    if error is not None:
        log.log(level_of(error), "whether rooms were switched is not known: %s", error)


def _look_at(answer: "asyncio.Future[CommittedResult]") -> None:
    """A server says again who is there; that this was not taken is told by whoever refused it."""
    if not answer.cancelled():
        answer.exception()
