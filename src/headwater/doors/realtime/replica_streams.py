"""What replicas live on over the realtime door: each document that is written, with the checkpoint behind it.

    stream ─► stream-event …

A replica that is cut off goes on from its last checkpoint, which is behind a document of a commit. The log has the
changes of a commit in the order in which they were made; a replica reads the documents of a commit by their ids, each
as it is at the end. So are they told.
"""

import asyncio

from headwater.clock import Timestamp
from headwater.doors.realtime.document_messages import ResyncStream, Stream, StreamEvent
from headwater.doors.realtime.documents import Follower, begin, followed_by, subscriptions_of
from headwater.doors.realtime.envelope import MessageId, tell
from headwater.doors.realtime.session import MessageHandler, RealtimeSession
from headwater.doors.sessions import Frame
from headwater.errors import InvalidOption, ResyncRequired
from headwater.model.document import Document, replica_of
from headwater.model.names import Lsn
from headwater.services.feed import Event, Known
from headwater.services.replication import Pulled, Replica
from headwater.services.subscriptions import Wanted
from headwater.services.system_collections import NO_REPLICAS, is_system


class StreamFollower(Follower):
    """What is told to one stream."""

    __slots__ = ("_replica", "_written")

    def __init__(self, session: RealtimeSession, id: MessageId, replica: Replica) -> None:
        super().__init__(session, id, None)
        self._replica = replica
        # What came in this turn of the event loop, by commit and id.
        self._written: dict[Lsn, dict[str, tuple[Document, Timestamp]]] = {}

    def tell(self, event: Event) -> None:
        """A change; it is told behind this turn of the event loop, in which all changes of its commit come. What may
        not be read any more is gone for the replica, and it does not get the fields."""
        change = event.change
        told = Document(event.collection, change.id, change.version, change.op == "delete", change.after, event.lsn)
        told = told.tombstone() if event.has_left else told
        if not self._written:
            asyncio.get_running_loop().call_soon(self._tell_written)
        self._written.setdefault(event.lsn, {})[told.id] = told, event.written_at

    def _tell_written(self) -> None:
        """In the order in which a replica reads. Whoever follows no more is told nothing more."""
        written, self._written = self._written, {}
        if self.subscription is None or self.subscription.is_over:
            return
        for commit in written.values():
            for _, (told, written_at) in sorted(commit.items()):
                self.send(Pulled([told], self._replica.reached(told)))
                subscriptions_of(self.session).watch.told(written_at)

    def send(self, pulled: Pulled) -> None:
        """Documents that were written."""
        documents = [replica_of(one) for one in pulled.documents]
        self.session.send(tell("stream-event", StreamEvent(self.id, documents, pulled.checkpoint)))

    def resync(self, reason: str) -> Frame:
        """That there is a gap."""
        return tell("resync-required", ResyncStream(self.id, reason))


async def stream(session: RealtimeSession, id: MessageId, payload: Stream) -> None:
    """Tell a replica what is written, from a checkpoint on."""
    wanted = Wanted(database=session.database, collection=payload.collection)
    if is_system(payload.collection):
        raise InvalidOption(NO_REPLICAS)
    service = subscriptions_of(session)
    replica = service.replica(wanted, session.known.permit(wanted.collection))
    await replica.identify()
    follower = StreamFollower(session, id, replica)
    subscription = await begin(follower, wanted, wanted.expression(session.known))
    try:
        if payload.checkpoint is None:
            subscription.go_live(Known(subscription.feed.position))
            return
        async for pulled in service.replicated(subscription, replica, payload.checkpoint, session.taken):
            follower.send(pulled)
    except ResyncRequired as gap:
        follower.end("resync", str(gap))
    except BaseException:
        followed_by(session).end(id)
        raise


HANDLERS = {"stream": MessageHandler(Stream, stream)}
