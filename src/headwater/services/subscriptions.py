"""Subscriptions: who in this process follows which documents, from their beginning on.

A beginning is a snapshot, or a place in the log that was reached before. Either is read while what comes meanwhile
waits, and each document of a snapshot knows the commit that wrote it: so nothing comes twice, and nothing is missed
between. Behind a place in the log everything is read from the log itself, as long as it is kept; else that is said.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from hashlib import blake2s
from typing import NamedTuple

import msgspec

from headwater import filters
from headwater.config import KIB
from headwater.errors import Closed, NotAllowed, Overloaded, ResyncRequired
from headwater.filters import Expression
from headwater.model.document import Condition, Document, DocumentChange, changes_queue, check_collection
from headwater.model.document_rules import Permit, digest_of
from headwater.model.names import Lsn, Offset
from headwater.model.principal import Principal, Scope
from headwater.services.documents import find_all
from headwater.services.feed import (
    CHANGE_COST,
    Event,
    Feed,
    Known,
    May,
    Subscription,
    Withdrawn,
    changes_of,
    is_too_much,
    move_of,
    size_of,
    too_much,
)
from headwater.services.live_watch import LiveWatch
from headwater.services.matching import Move
from headwater.services.own_records import Images
from headwater.services.queues import Queues
from headwater.services.replication import Checkpoint, Pulled, Replica
from headwater.services.resume_tokens import ResumeTokens
from headwater.services.system_collections import Sees, document_of, is_system, may_see
from headwater.services.system_feed import SystemFeed
from headwater.services.turns import Spending, Turns
from headwater.stores.document_questions import DocumentQuery, QueryDocuments
from headwater.stores.questions import ListPartitions, PartitionStatus, ReadPartition

# So many documents, or segments, are read at once, and no more than are so large together, but for the last of them.
PAGE_DOCUMENTS = 500
PAGE_SEGMENTS = 100
PAGE_BYTES = 512 * KIB
# About what a subscription takes, and each character of its filter: as a tree, compiled, and filed.
SUBSCRIPTION_BYTES = 2 * KIB
CHARACTER_BYTES = 26
# Rises when the same filter would mean other documents than before.
MATCHER_VERSION = 1
WITHDRAWN = Withdrawn("not_allowed", "the right to read this collection was withdrawn")
OTHER_DOCUMENTS = "other documents are meant than before: the access rules, or what is known of who asks, are others"
OTHERS_MEANT = Withdrawn("resync", OTHER_DOCUMENTS)
OVERLOADED = "more waits for clients than this server has room for; come back in a moment"
NOT_KEPT = "what came after this place is not kept, or not in this log"


class Wanted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What somebody wants to follow."""

    database: str
    collection: str
    filters: Sequence[Condition] = ()
    filter: str = ""

    def expression(self, principal: Principal) -> Expression:
        """The filter for who asks, of what the access rules let them read; raises when it is none."""
        bound = filters.whole_filter(self.filters, self.filter, principal.claims_text())
        return filters.readable(principal.permit(self.collection), bound)

    def size(self) -> int:
        """About how much memory following it takes."""
        characters = len(self.filter) + (len(msgspec.json.encode(self.filters)) if self.filters else 0)
        return SUBSCRIPTION_BYTES + CHARACTER_BYTES * characters

    def reading(self, principal: Principal) -> str:
        """What the access rules, and what the filter says of who asks, come to, in short: for who has to know later
        whether the same documents are meant. '' where there are no rules and the filter says nothing of them."""
        rules = digest_of(principal.permit(self.collection))
        if "auth" not in self.filter or not filters.has_claims(filters.parse(self.filter)):
            return rules
        bound = filters.whole_filter(self.filters, self.filter, principal.claims_text())
        return f"{rules}.{blake2s(repr(bound).encode(), digest_size=8).hexdigest()}"


def may_read(principal: Principal | None, wanted: Wanted) -> bool:
    """Whether somebody may read a collection, or some of it, now."""
    if principal is None or principal.database != wanted.database:
        return False
    if not principal.may(Scope.READ_DOCUMENTS) or not principal.may_use_collection(wanted.collection):
        return False
    if is_system(wanted.collection) and not may_see(principal, wanted.collection):
        return False
    return not filters.reads_nothing(principal.permit(wanted.collection))


def check_may_follow(principal: Principal, wanted: Wanted, *, is_pressed: bool) -> None:
    """Raises when somebody may not begin to follow documents now."""
    if is_pressed:
        raise Overloaded(OVERLOADED)
    if not may_read(principal, wanted):
        raise NotAllowed(f"this token may not read the collection {wanted.collection!r:.260}")


class Standing:
    """Whether somebody may be told of a collection as they were when they began: asked with every change.

    What they may read is part of the filter that they follow by, and so is what it says of who asks. When the rules, or
    their claims, say otherwise, there is another filter, and they have to begin anew.
    """

    __slots__ = ("_began", "_found", "_looked_at", "_principal", "_wanted")

    def __init__(self, wanted: Wanted, principal: Callable[[], Principal | None]) -> None:
        self._wanted = wanted
        self._principal = principal
        self._looked_at = principal()
        self._began = self._reading()
        self._found = self._judge()

    def __call__(self) -> Withdrawn | None:
        """Why they may not be told; None when they may."""
        now = self._principal()
        # The same object as before: nothing was found out since.
        if now is not self._looked_at:
            self._looked_at = now
            self._found = self._judge()
        return self._found

    def _reading(self) -> str | None:
        return None if self._looked_at is None else self._wanted.reading(self._looked_at)

    def _judge(self) -> Withdrawn | None:
        if not may_read(self._looked_at, self._wanted):
            return WITHDRAWN
        return None if self._reading() == self._began else OTHERS_MEANT


def _asked(wanted: Wanted, principal: Principal) -> QueryDocuments:
    """What reads a snapshot: the store decides which documents are meant, and which of them may be read."""
    query = DocumentQuery(
        collection=wanted.collection, filters=wanted.filters, filter=wanted.filter, limit=PAGE_DOCUMENTS
    )
    permit = principal.permit(wanted.collection)
    return QueryDocuments(wanted.database, query, permit=permit, claims=principal.claims_text())


class _Judge:
    """What changes of the log are to one filter, found out in slices."""

    def __init__(self, expression: Expression, spending: Spending) -> None:
        self._predicate = filters.predicate(expression)
        self._weight = filters.weight_of(expression)
        self._spending = spending

    async def move(self, change: DocumentChange, images: Images) -> Move | None:
        """What a change is to it; raises when it costs too much to say."""
        if is_too_much(self._weight, change):
            raise too_much(change)
        await self._spending.wait_for(CHANGE_COST + self._weight.of(size_of(change)))
        return move_of(self._predicate, images)


def in_parts(documents: list[Document]) -> list[list[Document]]:
    """The documents in parts, each no larger than a page but for its last document; one part at least."""
    parts: list[list[Document]] = [[]]
    size = 0
    for document in documents:
        if size >= PAGE_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(document)
        size += len(document.body)
    return parts


def next_limit(came: int, limit_max: int) -> int:
    """How many to ask for next: where pages are cut short by their size, more would be read for nothing."""
    return max(1, min(2 * came, limit_max))


class Budget(NamedTuple):
    """Who pays for the filters that they follow a collection by, and what those may cost together beyond the conditions
    that they are found by; None for any cost."""

    owner: Hashable = ""
    unforeseen_max: int | None = None


ANY_COST = Budget()
Tell = Callable[[Event], None]
End = Callable[[str, str], None]
# Waited for before more is told of a beginning than the follower can take.
Ready = Callable[[], Awaitable[None]]


class Said(NamedTuple):
    """What a place in the log was told by: rules and claims, and the store; '' for who does not say of which."""

    reading: str
    identity: str


class Subscriptions:
    """All of one process."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._feeds: dict[tuple[str, str], Feed] = {}
        self.tokens = ResumeTokens(queues)
        self.watch = LiveWatch(queues)
        self.turns = Turns()

    def count(self) -> int:
        """How many collections are followed."""
        return len(self._feeds)

    async def open(
        self,
        wanted: Wanted,
        expression: Expression,
        tell: Tell,
        end: End,
        may: May,
        sees: Sees | None = None,
        budget: Budget = ANY_COST,
    ) -> Subscription:
        """Begin to follow. What comes waits until `go_live`; `tell` gets it then, `end` a code and a reason when it is
        over without the follower's doing, and `may` says with every change why it may not be told, if it may not."""
        key = wanted.database, check_collection(wanted.collection)
        feed = self._feeds.get(key)
        if feed is None:
            kind = SystemFeed if is_system(wanted.collection) else Feed
            feed = self._feeds[key] = kind(self._queues, *key, on_empty=self._drop, watch=self.watch, turns=self.turns)
        subscription = Subscription(feed, tell, end, may)
        if isinstance(feed, SystemFeed):
            subscription.sees = sees
        await feed.enter(subscription)
        if subscription.is_over:
            raise Closed("this server stops")
        try:
            subscription.join(expression, *budget)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def feeds(self) -> list[Feed]:
        """What is followed."""
        return list(self._feeds.values())

    def numbers(self) -> dict[str, float]:
        """What this process does for live queries."""
        return {
            "live_collections": len(self._feeds),
            "live_subscriptions": sum(feed.count() for feed in self._feeds.values()),
            **self.watch.counts,
        }

    def _drop(self, feed: Feed) -> None:
        key = feed.database, feed.collection
        if self._feeds.get(key) is feed:
            del self._feeds[key]

    # ── beginnings ──

    async def snapshot(
        self, subscription: Subscription, wanted: Wanted, principal: Principal, ready: Ready
    ) -> AsyncGenerator[tuple[list[Document], Offset | None], None]:
        """The documents that are meant now, a page after the other; with the last one comes the place in the log behind
        which everything is told, and then the subscription is live."""
        feed = subscription.feed
        if isinstance(feed, SystemFeed):
            # All at once: nothing comes between what is known now and what is told next.
            rows = [row for row in feed.rows.values() if subscription.sees is None or subscription.sees(row)]
            meant = filters.predicate(wanted.expression(principal))
            yield [document_of(row) for row in rows if meant(row)], feed.seq
            subscription.go_live(Known(feed.position))
            return
        asked = _asked(wanted, principal)
        known: Known | None = None

        async def goes_on() -> bool:
            await ready()
            return not subscription.is_over

        while await goes_on():
            page = await find_all(self._queues.store, asked, PAGE_BYTES)
            known = known or Known(page.lsn)
            known.add(page.documents, page.lsn, await self._queues.last_lsn())
            cursor, limit = page.next_cursor, next_limit(len(page), PAGE_DOCUMENTS)
            parts = in_parts(list(page))
            del page
            while len(parts) > 1:
                yield parts.pop(0), None
                if not await goes_on():
                    return
            if not cursor:
                yield parts.pop(), subscription.reached(known)
                subscription.go_live(known)
                return
            # Nothing of it is held here while the client takes it: there may be many who take nothing.
            yield parts.pop(), None
            query = msgspec.structs.replace(asked.query, start_after=cursor, limit=limit)
            asked = msgspec.structs.replace(asked, query=query)

    async def gap_since(self, subscription: Subscription, said: Said, now: Said, last: Offset) -> str:
        """Why a place in the log cannot be gone on from; '' when it can."""
        if said.reading != now.reading:
            return OTHER_DOCUMENTS
        if said.identity not in ("", now.identity) or not await self.is_kept(subscription, last):
            return NOT_KEPT
        return ""

    async def is_kept(self, subscription: Subscription, last_seq: Offset) -> bool:
        """Whether all that came after a place in the log is still there; a place that it never reached is another's."""
        if isinstance(subscription.feed, SystemFeed):
            return False
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
        judge = _Judge(expression, Spending(self.turns, feed.database))
        first, limit = Offset(last_seq + 1), PAGE_SEGMENTS
        while partition is not None and reached < until:
            read = await self._queues.ask(ReadPartition(partition.partition_id, first, limit, PAGE_BYTES))
            limit = next_limit(len(read), PAGE_SEGMENTS)
            # The segment that ends before it may be among them, and other queues take the log on without this one.
            segments = [segment for segment in read if segment.first_offset + len(segment.records) > first]
            if not segments and first >= partition.end:
                break
            if not segments or segments[0].first_offset > first:
                raise ResyncRequired(NOT_KEPT)
            for segment in segments:
                await ready()
                for change, images, place in changes_of(segment):
                    move = await judge.move(change, images) if place[0] > last_seq else None
                    if move is not None and not subscription.is_over and subscription.is_allowed():
                        subscription.tell(Event(feed.collection, change, move, place))
                first = Offset(segment.first_offset + len(segment.records))
                reached = segment.lsn
        subscription.go_live(Known(max(until, reached)))

    def replica(self, wanted: Wanted, permit: Permit | None) -> Replica:
        """A copy of a collection elsewhere."""
        return Replica(self._queues, wanted.database, wanted.collection, permit)

    async def replicated(
        self, subscription: Subscription, replica: Replica, checkpoint: Checkpoint, ready: Ready
    ) -> AsyncGenerator[Pulled, None]:
        """Documents and tombstones in the order of the commits that wrote them last, from a place on; then the
        subscription is live. Raises ResyncRequired when the place is of another log."""
        after, limit = Lsn(0), PAGE_DOCUMENTS
        while True:
            await ready()
            pulled = await replica.pull(checkpoint, limit, bytes_max=PAGE_BYTES)
            if pulled.resync:
                raise ResyncRequired(pulled.resync)
            checkpoint = pulled.checkpoint
            if pulled.documents:
                after = pulled.documents[-1].lsn
                yield pulled
            if pulled.is_last:
                break
            limit = next_limit(len(pulled.documents), PAGE_DOCUMENTS)
        subscription.go_live(Known(after))

    async def _partition(self, feed: Feed) -> PartitionStatus | None:
        queue = changes_queue(feed.collection)
        found = await self._queues.ask(ListPartitions(feed.database, queue, limit=1))
        return found[0] if found else None
