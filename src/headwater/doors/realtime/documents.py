"""Documents over the realtime door: live queries.

    subscribe ─► subscribe_ack, [snapshot …], event …      resume ─► resume-ack, event …      unsubscribe, ack

What ends a subscription without the client's doing is said: `resync-required` when there is a gap, `error` with its id
when it may no longer read. Whether it may is asked with every event.
"""

import asyncio
from collections.abc import Callable

import msgspec

from headwater.doors.realtime.document_messages import (
    Ack,
    EventForm,
    Resume,
    ResumeAck,
    ResyncSubscription,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
    ack_frame,
    event_frame,
    mark_of,
    snapshot_frame,
)
from headwater.doors.realtime.envelope import NO_PLACE, MessageId, answer, tell
from headwater.doors.realtime.flow import Window
from headwater.doors.realtime.session import CATCH_UP_BYTES, MessageHandler, RealtimeSession
from headwater.doors.sessions import Frame
from headwater.errors import (
    Closed,
    FilterTooLarge,
    HeadwaterError,
    InvalidInput,
    InvalidOption,
    NotAllowed,
    Overloaded,
    ResyncRequired,
)
from headwater.filters import Expression
from headwater.filters.tree import ALWAYS
from headwater.model.names import Offset
from headwater.model.principal import Principal
from headwater.model.watermarks import Pressure
from headwater.services.feed import Event, Known, Subscription
from headwater.services.resume_tokens import IncludeData, Resumable
from headwater.services.subscriptions import (
    NOT_KEPT,
    OVERLOADED,
    Budget,
    Said,
    Standing,
    Subscriptions,
    Wanted,
    check_may_follow,
)
from headwater.services.system_collections import is_system, seen_by

KEPT = "documents"
LOW = "low"


class Followed:
    """Subscriptions and streams of one session, by their ids. `known` says who the session is of, now."""

    def __init__(self, known: Callable[[], Principal | None]) -> None:
        self.known = known
        self.by_id: dict[MessageId, Subscription] = {}
        self.followers: dict[MessageId, Follower] = {}
        self.is_over = False
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """The session is over."""
        self.is_over = True
        for id in list(self.by_id):
            self.end(id)
        # Nothing here leads back to the session: it goes at once, and waits for no collector.
        self.known = _nobody

    def give_up(self) -> None:
        """More waits for this client than there is room for: all it follows ends, and says to begin anew."""
        for subscription in list(self.by_id.values()):
            subscription.stop("resync", OVERLOADED)

    def go_on(self) -> None:
        """There may be room again for what waited."""
        for follower in list(self.followers.values()):
            self.release(follower)

    def release(self, follower: "Follower") -> None:
        """Go on with a subscription that waited, if it may."""
        if follower.held_from is not None and not follower.must_wait():
            task = asyncio.ensure_future(go_on_again(follower))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def look_again(self) -> None:
        """What they may read may be something else now: what they may not follow any more ends, and says so."""
        for subscription in list(self.by_id.values()):
            subscription.is_allowed()

    def end(self, id: MessageId) -> bool:
        """Follow this no more; whether it was followed."""
        follower = self.followers.pop(id, None)
        if follower is not None:
            follower.subscription = None
            follower.session.hall.release(follower.owner, follower.size)
        subscription = self.by_id.pop(id, None)
        if subscription is not None:
            subscription.close()
        return subscription is not None


def _nobody() -> None:
    return None


def followed_by(session: RealtimeSession) -> Followed:
    """What a session follows."""
    found: Followed | None = session.kept.get(KEPT)
    if found is None:
        found = session.kept[KEPT] = Followed(lambda: session.principal)
        session.at_end(found.close)
        session.at_change(found.look_again)
        session.at_pressure(found.give_up, found.go_on)
    return found


def subscriptions_of(session: RealtimeSession) -> Subscriptions:
    """The service."""
    return session.site.subscriptions


class Follower:
    """What is told to one subscription of a client. There may be a hundred thousand: what one holds is counted."""

    __slots__ = (
        "_form",
        "_is_optional",
        "database",
        "expression",
        "held_from",
        "id",
        "is_catching_up",
        "owner",
        "session",
        "size",
        "subscription",
        "window",
    )

    def __init__(
        self,
        session: RealtimeSession,
        id: MessageId,
        include_data: IncludeData,
        *,
        is_optional: bool = False,
        checksum: bool = False,
        mark: str = "",
    ) -> None:
        self.session = session
        # From the first ack on.
        self.window: Window | None = None
        # Behind which change it goes on, while nothing is told: the client has to ack first, or the server has to
        # get rid of what waits for others.
        self.held_from: Offset | None = None
        self.is_catching_up = False
        self.subscription: Subscription | None = None
        self.expression: Expression = ALWAYS
        # What it counts for, and for whom.
        self.owner, self.size = session.owner, 0
        self._is_optional = is_optional
        # As it was when it began: the session may be somebody else's by the time it ends.
        self.database = session.database
        self.id = id
        self._form = EventForm(_as_json(id), _as_json(session.database), include_data, checksum, mark)

    @property
    def mark(self) -> str:
        """What ids of events end with."""
        return self._form.mark

    def tell(self, event: Event) -> None:
        """A change; where it has to wait, the log keeps it."""
        if self.held_from is not None:
            return
        if self.must_wait():
            self.held_from = Offset(event.seq - 1)
            subscriptions_of(self.session).watch.count("live_held")
            return
        frame = event_frame(event, self._form)
        if self.window is not None:
            self.window.note(event.seq, len(frame.data), asyncio.get_running_loop().time())
        self.session.send(frame)
        subscriptions_of(self.session).watch.told(event.written_at)

    def ack(self, seq: int) -> None:
        """The client has everything up to here."""
        if self.window is None:
            self.window = Window()
        self.window.ack(seq)

    def about(self, collection: str) -> dict[str, object]:
        """What the audit says of it."""
        subject, member = self.session.known.subject, self.session.member
        return {"subId": self.id, "collection": collection, "subject": subject, "connection": member}

    def must_wait(self) -> bool:
        """Whether nothing may be told now."""
        if self._is_optional and self.session.is_pressed():
            return True
        return self.window is not None and self.window.is_full(asyncio.get_running_loop().time())

    def end(self, code: str, reason: str) -> None:
        """It is over, and why."""
        followed_by(self.session).end(self.id)
        if code == "resync":
            watch = subscriptions_of(self.session).watch
            watch.count("live_resyncs")
            watch.note(self.database, "resync-required", subId=self.id, reason=reason)
            self.session.begin_anew(self.resync(reason))
        else:
            error = FilterTooLarge if code == FilterTooLarge.code else NotAllowed
            self.session.fail(error(reason), self.id)

    def resync(self, reason: str) -> Frame:
        """That there is a gap."""
        return tell("resync-required", ResyncSubscription(self.id, reason), event_id=NO_PLACE)


def _as_json(name: MessageId) -> str:
    return msgspec.json.encode(name).decode()


async def begin(follower: Follower, wanted: Wanted, expression: Expression) -> Subscription:
    """Follow documents for a session; what comes waits until the beginning is told."""
    session, id = follower.session, follower.id
    followed = followed_by(session)
    if id == "":
        raise InvalidInput("a subscription has an id")
    # Some clients ask again for all that they follow once they are known: what was asked last counts.
    followed.end(id)
    if len(followed.by_id) >= session.limits.subscriptions_per_connection_max:
        raise Overloaded(f"a connection has up to {session.limits.subscriptions_per_connection_max:,} subscriptions")
    check_may_follow(session.known, wanted, is_pressed=session.is_pressed(Pressure.HARD))
    follower.size = wanted.size()
    session.hall.hold(follower.owner, follower.size)
    try:
        subscription = await subscriptions_of(session).open(
            wanted,
            expression,
            follower.tell,
            follower.end,
            Standing(wanted, followed.known),
            seen_by(followed.known, wanted.collection) if is_system(wanted.collection) else None,
            Budget(session.known.subject, session.limits.filters_cost_per_token_max),
        )
        if followed.is_over:
            subscription.close()
            raise Closed("the connection is closed")
    except BaseException:
        session.hall.release(follower.owner, follower.size)
        raise
    watch = subscriptions_of(session).watch
    watch.count("live_subscribed")
    if watch.is_auditing:
        about = follower.about(wanted.collection)
        watch.note(follower.database, "subscribed", **about)
        subscription.at_close = lambda: watch.note(follower.database, "ended", **about)
    followed.by_id[id] = subscription
    followed.followers[id] = follower
    follower.subscription, follower.expression = subscription, expression
    return subscription


async def subscribe(session: RealtimeSession, id: MessageId, payload: Subscribe) -> None:
    """Begin a live query."""
    query = payload.query
    conditions = tuple(query.filters)
    wanted = Wanted(database=session.database, collection=query.collection, filters=conditions, filter=query.filter)
    expression = wanted.expression(session.known)
    service = subscriptions_of(session)
    reading, identity = wanted.reading(session.known), await service.tokens.identity()
    token = await service.tokens.make(
        Resumable(
            session.database,
            session.known.subject,
            id,
            query.collection,
            query.filters,
            query.filter,
            payload.include_data,
            service.tokens.good_until(),
            reading,
            payload.priority,
            identity,
            payload.checksum,
        )
    )
    follower = Follower(
        session,
        id,
        payload.include_data,
        is_optional=payload.priority == LOW,
        checksum=payload.checksum,
        mark=mark_of(reading, identity),
    )
    subscription = await begin(follower, wanted, expression)
    try:
        begins_here = payload.last_seq is None and not payload.send_snapshot
        session.send(ack_frame(id, subscription.feed.seq, token, follower.mark if begins_here else None))
        if payload.last_seq is not None:
            last = Offset(payload.last_seq)
            said = Said(reading if payload.reading is None else payload.reading, payload.identity)
            gap = await service.gap_since(subscription, said, Said(reading, identity), last)
            await go_on(follower, subscription, expression, last, gap)
        elif payload.send_snapshot:
            async for documents, seq in service.snapshot(subscription, wanted, session.known, session.taken):
                session.send(snapshot_frame(id, documents, seq, follower.mark))
                del documents
        else:
            subscription.go_live(Known(subscription.feed.position))
    except BaseException:
        followed_by(session).end(id)
        raise


async def go_on(follower: Follower, subscription: Subscription, expression: Expression, last: Offset, gap: str) -> None:
    """Tell what came after a place in the log, and then what comes; or that this cannot be done, and why."""
    try:
        if gap:
            raise ResyncRequired(gap)
        session, service = follower.session, subscriptions_of(follower.session)
        await service.catch_up(subscription, expression, last, lambda: session.taken(CATCH_UP_BYTES))
    except ResyncRequired as error:
        followed_by(follower.session).end(follower.id)
        follower.session.begin_anew(follower.resync(str(error)))


class _Held(Exception):
    """It has to wait once more."""


async def go_on_again(follower: Follower) -> None:
    """Tell from the log what came while a subscription waited, and then what comes; as often as it has to wait."""
    if follower.is_catching_up:
        return
    follower.is_catching_up = True
    try:
        while follower.held_from is not None and not follower.must_wait():
            await catch_on(follower, follower.held_from)
    finally:
        follower.is_catching_up = False


async def catch_on(follower: Follower, last: Offset) -> None:
    """Tell what came after a place in the log, until it has to wait again or is live."""
    follower.held_from = None
    subscription = follower.subscription
    if subscription is None or subscription.is_over:
        return
    session, service = follower.session, subscriptions_of(follower.session)

    async def ready() -> None:
        if follower.held_from is not None:
            raise _Held
        await session.taken(CATCH_UP_BYTES)

    subscription.wait_again()
    try:
        if not await service.is_kept(subscription, last):
            raise ResyncRequired(NOT_KEPT)
        await service.catch_up(subscription, follower.expression, last, ready)
    except _Held:
        # What waited meanwhile is in the log, behind the place where it goes on.
        subscription.go_live(Known(subscription.feed.position))
    except HeadwaterError as error:
        subscription.stop("resync", str(error))


async def resume(session: RealtimeSession, id: MessageId, payload: Resume) -> None:
    """Go on with a live query where an earlier connection was cut."""
    service = subscriptions_of(session)
    try:
        about = await service.tokens.read(payload.token)
        if (about.database, about.subject) != (session.database, session.known.subject):
            raise InvalidOption("this is no resume token of yours; subscribe anew")
    except InvalidOption as error:
        service.watch.note(session.database, "resume-failed", subject=session.known.subject, reason=str(error))
        raise
    if payload.last_seq < -1:
        raise InvalidOption(f"lastSeq is -1 or more; got {payload.last_seq}")
    wanted = Wanted(database=about.database, collection=about.collection, filters=about.filters, filter=about.filter)
    expression, last = wanted.expression(session.known), Offset(payload.last_seq)
    now = Said(wanted.reading(session.known), await service.tokens.identity())
    follower = Follower(
        session,
        about.id,
        about.include_data,
        is_optional=about.priority == LOW,
        checksum=about.checksum,
        mark=mark_of(*now),
    )
    subscription = await begin(follower, wanted, expression)
    try:
        gap = await service.gap_since(subscription, Said(about.reading, about.identity), now, last)
        service.watch.resumed(about.database, about.subject, about.collection, is_kept=not gap)
        session.send(answer("resume-ack", ResumeAck(about.id, "resync-required" if gap else "ok", last + 1), id))
        await go_on(follower, subscription, expression, last, gap)
    except BaseException:
        followed_by(session).end(about.id)
        raise


def unsubscribe(session: RealtimeSession, id: MessageId, payload: Unsubscribe) -> None:
    """End a live query or a stream."""
    was_there = followed_by(session).end(payload.id)
    session.send(answer("unsubscribe_ack", Unsubscribed("ok" if was_there else "not_found"), id))


def ack(session: RealtimeSession, id: MessageId, payload: Ack) -> None:
    """The client has dealt with everything up to here."""
    followed = followed_by(session)
    for sub_id in [payload.sub_id] if payload.sub_id != "" else list(followed.followers):
        follower = followed.followers.get(sub_id)
        if follower is not None:
            follower.ack(payload.seq)
            followed.release(follower)


HANDLERS = {
    "subscribe": MessageHandler(Subscribe, subscribe),
    "unsubscribe": MessageHandler(Unsubscribe, unsubscribe),
    "resume": MessageHandler(Resume, resume),
    "ack": MessageHandler(Ack, ack),
}
