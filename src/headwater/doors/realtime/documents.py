"""Documents over the realtime door: live queries, and the stream that replicas live on.

    subscribe ─► subscribe_ack, [snapshot …], event …      resume ─► resume-ack, event …      unsubscribe, ack
    stream    ─► stream-event …

What ends a subscription without the client's doing is said: `resync-required` when there is a gap, `error` with its id
when it may no longer read. Whether it may is asked with every event.
"""

import msgspec

from headwater.config import KIB
from headwater.doors.realtime.document_messages import (
    Ack,
    Resume,
    ResumeAck,
    ResyncStream,
    ResyncSubscription,
    Stream,
    StreamEvent,
    Subscribe,
    SubscribeAck,
    Unsubscribe,
    Unsubscribed,
    event_frame,
    snapshot_frame,
)
from headwater.doors.realtime.envelope import MessageId, answer, tell
from headwater.doors.realtime.session import MessageHandler, RealtimeSession
from headwater.doors.sessions import Frame
from headwater.errors import Closed, InvalidInput, InvalidOption, NotAllowed, Overloaded, ResyncRequired
from headwater.filters import Expression
from headwater.filters.tree import ALWAYS
from headwater.model.document import Document, replica_of
from headwater.model.names import Offset
from headwater.services.feed import Event, Subscription
from headwater.services.replication import checkpoint_of
from headwater.services.resume_tokens import Resumable
from headwater.services.subscriptions import MATCHER_VERSION, NOT_KEPT, Subscriptions, Wanted, may_read

KEPT = "documents"
# So much may wait for a client while it catches up; what comes next is read when it has taken some.
CATCH_UP_BYTES = 256 * KIB


class Followed:
    """Subscriptions and streams of one session, by their ids."""

    def __init__(self) -> None:
        self.by_id: dict[MessageId, Subscription] = {}
        # How far the client said that it got.
        self.acked: dict[MessageId, int] = {}
        self.is_over = False

    def close(self) -> None:
        """The session is over."""
        self.is_over = True
        for id in list(self.by_id):
            self.end(id)

    def end(self, id: MessageId) -> bool:
        """Follow this no more; whether it was followed."""
        self.acked.pop(id, None)
        subscription = self.by_id.pop(id, None)
        if subscription is not None:
            subscription.close()
        return subscription is not None


def followed_by(session: RealtimeSession) -> Followed:
    """What a session follows."""
    found: Followed | None = session.kept.get(KEPT)
    if found is None:
        found = session.kept[KEPT] = Followed()
        session.at_end(found.close)
    return found


def subscriptions_of(session: RealtimeSession) -> Subscriptions:
    """The service."""
    return session.site.subscriptions


class Follower:
    """What is told to one subscription of a client."""

    def __init__(self, session: RealtimeSession, id: MessageId, include_data: bool | None) -> None:
        self.session = session
        self.id = id
        self._id_text = msgspec.json.encode(id).decode()
        self._include_data = include_data

    def tell(self, event: Event) -> None:
        """A change."""
        self.session.send(event_frame(event, self._id_text, self._include_data))

    def end(self, code: str, reason: str) -> None:
        """It is over, and why."""
        followed_by(self.session).end(self.id)
        if code == "resync":
            self.session.send(self.resync(reason))
        else:
            self.session.fail(NotAllowed(reason), self.id)

    def resync(self, reason: str) -> Frame:
        """That there is a gap."""
        return tell("resync-required", ResyncSubscription(self.id, reason))


class Replica(Follower):
    """What is told to one stream."""

    def __init__(self, session: RealtimeSession, id: MessageId, identity: str) -> None:
        super().__init__(session, id, None)
        self._identity = identity

    def tell(self, event: Event) -> None:
        """A change."""
        change = event.change
        self.send(
            [Document(event.collection, change.id, change.version, change.op == "delete", change.after, event.lsn)]
        )

    def send(self, documents: list[Document]) -> None:
        """Documents that were written."""
        behind = checkpoint_of(documents[-1], self._identity)
        self.session.send(tell("stream-event", StreamEvent(self.id, [replica_of(one) for one in documents], behind)))

    def resync(self, reason: str) -> Frame:
        """That there is a gap."""
        return tell("resync-required", ResyncStream(self.id, reason))


async def begin(follower: Follower, wanted: Wanted, expression: Expression) -> Subscription:
    """Follow documents for a session; what comes waits until the beginning is told."""
    session, id = follower.session, follower.id
    followed = followed_by(session)
    if id == "" or id in followed.by_id:
        raise InvalidInput(f"a subscription has an id that no other of the connection has; got {id!r:.80}")
    if len(followed.by_id) >= session.limits.subscriptions_per_connection_max:
        raise Overloaded(f"a connection has up to {session.limits.subscriptions_per_connection_max:,} subscriptions")
    if not may_read(session.known, wanted):
        raise NotAllowed(f"this token may not read the collection {wanted.collection!r:.260}")
    subscription = await subscriptions_of(session).open(
        wanted, expression, follower.tell, follower.end, lambda: may_read(session.principal, wanted)
    )
    if followed.is_over:
        subscription.close()
        raise Closed("the connection is closed")
    followed.by_id[id] = subscription
    return subscription


async def subscribe(session: RealtimeSession, id: MessageId, payload: Subscribe) -> None:
    """Begin a live query."""
    query = payload.query
    wanted = Wanted(database=session.database, collection=query.collection, filters=query.filters, filter=query.filter)
    expression = wanted.expression(session.known)
    service = subscriptions_of(session)
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
        )
    )
    follower = Follower(session, id, payload.include_data)
    subscription = await begin(follower, wanted, expression)
    try:
        session.send(answer("subscribe_ack", SubscribeAck(id, MATCHER_VERSION, subscription.feed.seq, token), id))
        if payload.last_seq is not None:
            last = Offset(payload.last_seq)
            await go_on(follower, subscription, expression, last, await service.is_kept(subscription, last))
        elif payload.send_snapshot:
            async for documents, seq in service.snapshot(subscription, wanted, expression, session.taken):
                session.send(snapshot_frame(id, documents, seq))
        else:
            subscription.go_live(subscription.feed.position, {})
    except BaseException:
        followed_by(session).end(id)
        raise


async def go_on(
    follower: Follower, subscription: Subscription, expression: Expression, last: Offset, is_kept: bool
) -> None:
    """Tell what came after a place in the log, and then what comes; or that this cannot be done."""
    try:
        if not is_kept:
            raise ResyncRequired(NOT_KEPT)
        session = follower.session
        service = subscriptions_of(session)
        await service.catch_up(subscription, expression, last, lambda: session.taken(CATCH_UP_BYTES))
    except ResyncRequired as error:
        followed_by(follower.session).end(follower.id)
        follower.session.send(follower.resync(str(error)))


async def resume(session: RealtimeSession, id: MessageId, payload: Resume) -> None:
    """Go on with a live query where an earlier connection was cut."""
    service = subscriptions_of(session)
    about = await service.tokens.read(payload.token)
    if (about.database, about.subject) != (session.database, session.known.subject):
        raise InvalidOption("this is no resume token of yours; subscribe anew")
    if payload.last_seq < -1:
        raise InvalidOption(f"lastSeq is -1 or more; got {payload.last_seq}")
    wanted = Wanted(database=about.database, collection=about.collection, filters=about.filters, filter=about.filter)
    expression, last = wanted.expression(session.known), Offset(payload.last_seq)
    follower = Follower(session, about.id, about.include_data)
    subscription = await begin(follower, wanted, expression)
    try:
        kept = await service.is_kept(subscription, last)
        session.send(answer("resume-ack", ResumeAck(about.id, "ok" if kept else "resync-required", last + 1), id))
        await go_on(follower, subscription, expression, last, kept)
    except BaseException:
        followed_by(session).end(about.id)
        raise


async def stream(session: RealtimeSession, id: MessageId, payload: Stream) -> None:
    """Tell a replica what is written, from a checkpoint on."""
    wanted = Wanted(database=session.database, collection=payload.collection)
    service = subscriptions_of(session)
    identity = await service.identity()
    replica = Replica(session, id, identity)
    subscription = await begin(replica, wanted, ALWAYS)
    try:
        if payload.checkpoint is None:
            subscription.go_live(subscription.feed.position, {})
            return
        place = await service.place_behind(wanted, payload.checkpoint, identity)
        async for documents in service.replicated(subscription, *place, session.taken):
            replica.send(documents)
    except BaseException:
        followed_by(session).end(id)
        raise


def unsubscribe(session: RealtimeSession, id: MessageId, payload: Unsubscribe) -> None:
    """End a live query or a stream."""
    was_there = followed_by(session).end(payload.id)
    session.send(answer("unsubscribe_ack", Unsubscribed("ok" if was_there else "not_found"), id))


def ack(session: RealtimeSession, id: MessageId, payload: Ack) -> None:
    """The client has dealt with everything up to here."""
    followed = followed_by(session)
    for sub_id in [payload.sub_id] if payload.sub_id != "" else list(followed.by_id):
        if sub_id in followed.by_id:
            followed.acked[sub_id] = max(payload.seq, followed.acked.get(sub_id, -1))


HANDLERS = {
    "subscribe": MessageHandler(Subscribe, subscribe),
    "unsubscribe": MessageHandler(Unsubscribe, unsubscribe),
    "resume": MessageHandler(Resume, resume),
    "ack": MessageHandler(Ack, ack),
    "stream": MessageHandler(Stream, stream),
}
