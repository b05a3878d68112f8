"""Subscriptions: who in this process follows which documents, from their beginning on.

A beginning is a snapshot, or a place in the log that was reached before. Either is read while what comes meanwhile
waits, and each document of a snapshot knows the commit that wrote it: so nothing comes twice, and nothing is missed
between. Behind a place in the log everything is read from the log itself, as long as it is kept; else that is said.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import msgspec

from headwater import filters
from headwater.errors import Closed, ResyncRequired
from headwater.filters import Expression
from headwater.filters.tree import And, join
from headwater.model.document import Condition, Document, changes_queue, check_collection
from headwater.model.names import Lsn, Offset
from headwater.model.principal import Principal, Scope
from headwater.services.documents import find_all
from headwater.services.feed import Event, Feed, Subscription, changes_of, images_of, move_of
from headwater.services.queues import Queues
from headwater.services.replication import Checkpoint, place_behind
from headwater.services.resume_tokens import ResumeTokens
from headwater.stores.document_questions import DocumentQuery, ListDocumentsAfter
from headwater.stores.questions import FindIdentity, ListPartitions, PartitionStatus, ReadPartition

PAGE_DOCUMENTS = 500
PAGE_SEGMENTS = 100
# Rises when the same filter would mean other documents than before.
MATCHER_VERSION = 1
NOT_KEPT = "what came after this place is not kept, or not in this log"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to follow."""

    database: str
    collection: str
    filters: Sequence[Condition] = ()
    filter: str = ""

    def expression(self, principal: Principal) -> Expression:
        """The filter for who asks; raises when it is none."""
        parts = [filters.parse_conditions([msgspec.structs.asdict(one) for one in self.filters])]
        if self.filter:
            parts.append(filters.parse(self.filter))
        return filters.bind(join(And, parts), claims_of(principal))


def claims_of(principal: Principal) -> dict[str, object]:
    """What filters may say of who asks: `auth.sub`, `auth.database`, `auth.scopes`."""
    scopes = sorted(scope.value for scope in principal.scopes)
    return {"sub": principal.subject or None, "database": principal.database, "scopes": list(scopes)}


def may_read(principal: Principal | None, wanted: Wanted) -> bool:
    """Whether somebody may read a collection, now."""
    if principal is None or principal.database != wanted.database:
        return False
    return principal.may(Scope.READ_DOCUMENTS) and principal.may_use_collection(wanted.collection)


Tell = Callable[[Event], None]
End = Callable[[str, str], None]
# Waited for before more is told of a beginning than the follower can take.
Ready = Callable[[], Awaitable[None]]


class Subscriptions:
    """All of one process."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._feeds: dict[tuple[str, str], Feed] = {}
        self.tokens = ResumeTokens(queues)

    def count(self) -> int:
        """How many collections are followed."""
        return len(self._feeds)

    async def open(
        self, wanted: Wanted, expression: Expression, tell: Tell, end: End, may: Callable[[], bool]
    ) -> Subscription:
        """Begin to follow. What comes waits until `go_live`; `tell` gets it then, `end` a code and a reason when it is
        over without the follower's doing, and `may` says with every change whether it may still be told."""
        key = wanted.database, check_collection(wanted.collection)
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(self._queues, *key, on_empty=self._drop)
        subscription = Subscription(feed, tell, end, may)
        await feed.enter(subscription)
        if subscription.is_over:
            raise Closed("this server stops")
        subscription.join(expression)
        return subscription

    def _drop(self, feed: Feed) -> None:
        key = feed.database, feed.collection
        if self._feeds.get(key) is feed:
            del self._feeds[key]

    # ── beginnings ──

    async def snapshot(
        self, subscription: Subscription, wanted: Wanted, expression: Expression, ready: Ready
    ) -> AsyncGenerator[tuple[list[Document], Offset | None], None]:
        """The documents that are meant now, a page after the other; with the last one comes the place in the log behind
        which everything is told, and then the subscription is live."""
        query = self._query(wanted, expression)
        predicate = filters.predicate(expression)
        after: Lsn | None = None
        newer: dict[str, Lsn] = {}
        while True:
            await ready()
            page = await find_all(self._queues.store, wanted.database, query)
            after = page.lsn if after is None else after
            found = [document for document in page if predicate(document.flat())]
            newer.update((document.id, document.lsn) for document in found if document.lsn > after)
            if not page.next_cursor:
                yield found, subscription.reached(after, newer)
                break
            yield found, None
            query = msgspec.structs.replace(query, start_after=page.next_cursor)
        subscription.go_live(after, newer)

    @staticmethod
    def _query(wanted: Wanted, expression: Expression) -> DocumentQuery:
        """What reads the snapshot. A filter that says something of who asks is decided here, not in the store."""
        query = DocumentQuery(collection=wanted.collection, limit=PAGE_DOCUMENTS)
        parts = [filters.parse(wanted.filter)] if wanted.filter else []
        if any(filters.has_claims(part) for part in parts):
            return msgspec.structs.replace(query, filters=wanted.filters)
        return msgspec.structs.replace(query, filters=wanted.filters, filter=wanted.filter)

    async def is_kept(self, subscription: Subscription, last_seq: Offset) -> bool:
        """Whether all that came after a place in the log is still there; a place that it never reached is another's."""
        partition = await self._partition(subscription.feed)
        start, end = (0, 0) if partition is None else (partition.start, partition.end)
        return start <= last_seq + 1 <= end

    async def catch_up(
        self, subscription: Subscription, expression: Expression, last_seq: Offset, ready: Ready
    ) -> None:
        """Tell what came after a place in the log, then be live. Raises ResyncRequired when that is not kept."""
        feed = subscription.feed
        until, reached = feed.position, Lsn(0)
        partition = await self._partition(feed)
        predicate = filters.predicate(expression)
        first = Offset(last_seq + 1)
        while partition is not None and reached < until:
            segments = await self._queues.ask(ReadPartition(partition.partition_id, first, PAGE_SEGMENTS))
            if not segments and first >= partition.end:
                break
            if not segments or segments[0].first_offset > first:
                raise ResyncRequired(NOT_KEPT)
            for segment in segments:
                await ready()
                for change, place in changes_of(segment):
                    move = move_of(predicate, images_of(change)) if place[0] > last_seq else None
                    if move is not None and not subscription.is_over and subscription.may():
                        subscription.tell(Event(feed.collection, change, move, place))
                first = Offset(segment.first_offset + len(segment.records))
                reached = segment.lsn
        subscription.go_live(max(until, reached), {})

    async def replicated(
        self, subscription: Subscription, after: Lsn, after_id: str, ready: Ready
    ) -> AsyncGenerator[list[Document], None]:
        """Documents and tombstones in the order of the commits that wrote them last, from a place on; then the
        subscription is live."""
        feed = subscription.feed
        while True:
            await ready()
            question = ListDocumentsAfter(feed.database, feed.collection, after, after_id, PAGE_DOCUMENTS)
            found = await self._queues.ask(question)
            if found:
                after, after_id = found[-1].lsn, found[-1].id
                yield found
            if len(found) < PAGE_DOCUMENTS:
                break
        subscription.go_live(after, {})

    async def identity(self) -> str:
        """Whose log it is: checkpoints of another are worth nothing."""
        return await self._queues.ask(FindIdentity())

    async def place_behind(self, wanted: Wanted, checkpoint: Checkpoint, identity: str) -> tuple[Lsn, str]:
        """The commit and the document behind which a replica goes on."""
        return await place_behind(self._queues, (wanted.database, wanted.collection), checkpoint, identity)

    async def _partition(self, feed: Feed) -> PartitionStatus | None:
        queue = changes_queue(feed.collection)
        found = await self._queues.ask(ListPartitions(feed.database, queue, limit=1))
        return found[0] if found else None
