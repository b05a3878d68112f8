"""The changes of one collection, told to all in this process who follow some of its documents.

    log ──► following ──► Feed: decoded once ──► matcher: whom it concerns ──► Subscription.take, for each of them

There is one feed for a collection while anybody follows it, however many do. Whom the changes of a commit concern is
found in slices (`turns.py`): many filters may have to be tried, and the documents may be large. Then they are told of
the commit within one turn of the event loop: whoever joins or leaves does so between two commits, and who joins while
one is looked at is among those who may be told of it.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.clock import Timestamp
from headwater.config import KIB, MIB
from headwater.errors import FilterTooLarge, HeadwaterError
from headwater.filters import Expression, Predicate, Weight
from headwater.model.document import Document, DocumentChange, changes_queue
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.model.selection import Selection
from headwater.services.follow import Following, Step
from headwater.services.live_watch import LiveWatch
from headwater.services.matching import Filed, Hits, Matcher, Move
from headwater.services.own_records import Images, document_changes
from headwater.services.queues import Queues
from headwater.services.turns import Spending, Turns
from headwater.stores.questions import ListPartitions, ReadPartition, Segment

log = logging.getLogger(__name__)

# So many changes wait for a subscription that is not ready for them, and so large; more than that, and it begins anew.
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 16 * MIB
# So many ids of a beginning are kept while it is read; of what lies behind them, a change or the end may be told of a
# document that was not in its page.
SHOWN_MAX = 50_000
# What a filter may look through for one document: each of its searches counts with the size of the document.
SEARCHED_BYTES_MAX = 8 * MIB
# What a change costs beside the filters that are tried, in comparisons.
CHANGE_COST = 20
# What was written while a feed began is read in parts.
SEGMENTS_AT_ONCE = 100
SEGMENT_BYTES_AT_ONCE = 512 * KIB
LOST = "changes were dropped from the log before they were told"
BEHIND = "more changes came than could wait while the beginning was read"
STOPPED = "this server stops to follow the collection"


class Event:
    """A change as it is to those who follow a set of documents. Whoever encodes it keeps that here, for the others."""

    __slots__ = ("change", "collection", "encoded", "lsn", "move", "partition_id", "seq", "written_at")

    def __init__(self, collection: str, change: DocumentChange, move: Move, place: "Place") -> None:
        self.collection = collection
        self.change = change
        self.move = move
        self.seq, self.lsn, self.partition_id, self.written_at = place
        self.encoded: dict[object, str] = {}

    def entered(self) -> "Event":
        """The same to somebody who has not been told of the document."""
        place = (self.seq, self.lsn, self.partition_id, self.written_at)
        return Event(self.collection, self.change, Move.ENTERED, place)

    @property
    def has_left(self) -> bool:
        """Whether the document is still there, and not among those that are followed any more."""
        return self.move is Move.LEFT and self.change.op != "delete"


Place = tuple[Offset, Lsn, PartitionId, Timestamp]
Changed = tuple[DocumentChange, Images, Place]


def changes_of(segment: Segment) -> list[Changed]:
    """The changes that one commit made, each with the document before and after, and its place in the log."""
    return [
        (change, images, (offset, segment.lsn, segment.partition_id, segment.written_at))
        for offset, _, (change, images) in document_changes.read(segment)
    ]


def move_of(predicate: Predicate, images: Images) -> Move | None:
    """What a change is to those for whom a filter decides; None when it does not concern them."""
    was, now = (image is not None and predicate(image) for image in images)
    if now:
        return Move.CHANGED if was else Move.ENTERED
    return Move.LEFT if was else None


def size_of(change: DocumentChange) -> int:
    """How much there is to look through: the document before and after."""
    return len(change.before) + len(change.after)


def is_too_much(weight: Weight, change: DocumentChange) -> bool:
    """Whether a filter would look through more of a document than one may."""
    return weight.searches * max(len(change.before), len(change.after)) > SEARCHED_BYTES_MAX


def too_much(change: DocumentChange) -> FilterTooLarge:
    """What is said then."""
    return FilterTooLarge(
        f"the filter would look through {SEARCHED_BYTES_MAX:,} bytes or more of the document {change.id!r:.260}, "
        f"which has {max(len(change.before), len(change.after)):,}: fewer searches, or smaller documents"
    )


class Withdrawn(NamedTuple):
    """Why somebody may not be told any more: a code and a reason."""

    code: str
    reason: str


May = Callable[[], Withdrawn | None]


class _Page(NamedTuple):
    """A page of a beginning: it has everything up to `through`, and nothing behind `until`. `shown` are the ids that it
    has, and that were told since; None where that would be too many to keep."""

    through: Lsn
    until: Lsn
    shown: set[str] | None


class Known:
    """What a beginning that was read in pages has: everything up to `after`, and more of some documents. Pages come by
    id, and each has what was there at its own commit or, of single documents, later: one that was gone by then is in
    none of them, and its end is not told."""

    __slots__ = ("_documents", "_kept", "_last_ids", "_pages", "after", "newest")

    def __init__(self, after: Lsn) -> None:
        self.after = after
        self.newest = after
        self._documents: dict[str, Lsn] = {}
        self._last_ids: list[str] = []
        self._pages: list[_Page] = []
        self._kept = 0

    def add(self, page: Sequence[Document], through: Lsn, until: Lsn) -> None:
        """One page more, of the ids behind the page before, up to its last id."""
        self._documents.update((document.id, document.lsn) for document in page if document.lsn > through)
        if page:
            self._last_ids.append(page[-1].id)
        shown: set[str] | None = None
        if until > through and self._kept + len(page) <= SHOWN_MAX:
            shown = {document.id for document in page}
            self._kept += len(page)
        self._pages.append(_Page(through, until, shown))
        self.newest = max(self.newest, until, *(document.lsn for document in page))

    def _page(self, id: str) -> _Page:
        return self._pages[min(bisect_left(self._last_ids, id), len(self._pages) - 1)]

    def has(self, event: "Event") -> bool:
        """Whether a change is in it already, or is the end of what was never told."""
        if event.lsn <= self.after:
            return True
        if event.lsn > self.newest or not self._pages:
            return False
        id = event.change.id
        page = self._page(id)
        if event.lsn <= max(page.through, self._documents.get(id, 0)):
            return True
        is_in_doubt = event.move is Move.LEFT and event.lsn <= page.until and page.shown is not None
        return is_in_doubt and id not in (page.shown or ())

    def as_told(self, event: "Event") -> "Event":
        """A change that is not in it, as it is to who has this beginning: a document that they were not shown is new to
        them, and its end is told from now on."""
        if event.move is Move.LEFT or event.lsn > self.newest or not self._pages:
            return event
        page = self._page(event.change.id)
        if page.shown is None or event.lsn > page.until or event.change.id in page.shown:
            return event
        page.shown.add(event.change.id)
        return event if event.move is Move.ENTERED else event.entered()


class Subscription:
    """One who follows the documents of a filter. Until `go_live`, what comes waits."""

    __slots__ = (
        "_feed",
        "_filed",
        "_is_over",
        "_known",
        "_waiting",
        "_waiting_bytes",
        "at_close",
        "end",
        "may",
        "sees",
        "tell",
    )

    def __init__(self, feed: "Feed", tell: Callable[[Event], None], end: Callable[[str, str], None], may: May) -> None:
        self.tell = tell
        self.end = end
        self.may = may
        self.at_close: Callable[[], None] | None = None
        # Of rows that are not documents of the store, which of them it may be told of.
        self.sees: Callable[[Mapping[str, Any]], bool] | None = None
        self._feed = feed
        self._filed: Filed | None = None
        self._waiting: list[Event] | None = []
        self._waiting_bytes = 0
        self._is_over = False
        self._known: Known | None = None

    @property
    def feed(self) -> "Feed":
        """What it hears of."""
        return self._feed

    @property
    def is_over(self) -> bool:
        """Whether it follows no more."""
        return self._is_over

    def join(self, expression: Expression, owner: Hashable = "", unforeseen_max: int | None = None) -> None:
        """From now on changes are taken. Raises when the filters of the owner would cost too much together."""
        self._filed = self._feed.matcher.add(expression, self, owner, unforeseen_max)

    def reached(self, known: Known) -> Offset:
        """The place in the log up to which a beginning has everything."""
        first = next((event for event in self._waiting or () if not known.has(event)), None)
        return self._feed.seq if first is None else Offset(first.seq - 1)

    def go_live(self, known: Known) -> None:
        """The beginning has been told. Tell what waited and is not in it."""
        waiting, self._waiting = self._waiting or [], None
        self._known = known
        for event in waiting:
            self.take(event)

    def wait_again(self) -> None:
        """What comes waits, until `go_live`: it is behind, and is told what it has missed first."""
        if not self._is_over and self._waiting is None:
            self._waiting, self._waiting_bytes = [], 0

    def take(self, event: Event) -> None:
        """A change that concerns it."""
        if self._is_over:
            return
        if self._waiting is not None:
            self._waiting.append(event)
            self._waiting_bytes += len(event.change.after) + len(event.change.before)
            if len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
                self.stop("resync", BEHIND)
            return
        if self._known is not None:
            if self._known.has(event):
                return
            event = self._known.as_told(event)
            if event.lsn > self._known.newest:
                self._known = None
        # A filter is no permission: that is asked for with every change.
        if self.is_allowed():
            self.tell(event)

    def is_allowed(self) -> bool:
        """Whether it may still be told; else it is over, and says so."""
        withdrawn = self.may()
        if withdrawn is not None:
            self.stop(*withdrawn)
        return withdrawn is None

    def stop(self, code: str, reason: str) -> None:
        """Follow no more, because of something that the follower is told."""
        if not self._is_over:
            self.close()
            self.end(code, reason)

    def close(self) -> None:
        """Follow no more; a second time changes nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._waiting = None
        if self.at_close is not None:
            self.at_close()
        if self._filed is not None:
            self._feed.matcher.remove(self._filed, self)
        self._feed.leave(self)


class Feed:
    """Follows the log of a collection for all who want to hear of it."""

    def __init__(
        self,
        queues: Queues,
        database: str,
        collection: str,
        on_empty: Callable[["Feed"], None],
        watch: LiveWatch | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._watch = watch or LiveWatch(queues)
        self._spending = Spending(turns or Turns(), database)
        self.collection = collection
        self.database = database
        self.matcher = Matcher()
        # Everything up to here was told: a commit, and the last change that it made to the collection, or one before.
        self.position = Lsn(0)
        self.seq = Offset(-1)
        self._queues = queues
        self._on_empty = on_empty
        self._subscriptions: set[Subscription] = set()
        self._following: Following | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None

    async def enter(self, subscription: Subscription) -> None:
        """Somebody wants to hear of it; once this is over, everything that comes is told."""
        self._subscriptions.add(subscription)
        if self._starting is None:
            self._starting = asyncio.ensure_future(self.start())
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            subscription.close()
            raise

    def count(self) -> int:
        """How many follow it."""
        return len(self._subscriptions)

    def leave(self, subscription: Subscription) -> None:
        """They do not any more; the last one closes it."""
        self._subscriptions.discard(subscription)
        if not self._subscriptions:
            self._on_empty(self)
            if self._task is not None:
                self._task.cancel()
            if self._following is not None:
                self._following.close()

    async def start(self) -> None:
        """Begin to follow the log."""
        queue = changes_queue(self.collection)
        before = await self._queues.ask(ListPartitions(self.database, queue, limit=1))
        following = await self._queues.followers.follow(Selection(self.database, (queue,)))
        try:
            self.seq = await self._seq_at(following.position, before[0].end if before else Offset(0))
        except BaseException:
            following.close()
            raise
        self.position = following.position
        if not self._subscriptions:
            following.close()
            return
        self._following = following
        self._task = asyncio.ensure_future(self._run(following))

    async def _seq_at(self, through: Lsn, end: Offset) -> Offset:
        """The last change up to a commit, when all before `end` are: what came in between is in nobody's beginning, and
        is not told either."""
        for partition in await self._queues.ask(ListPartitions(self.database, changes_queue(self.collection), limit=1)):
            while behind := await self._written(partition.partition_id, end, through):
                end = Offset(behind[-1].first_offset + len(behind[-1].records))
        return Offset(end - 1)

    async def _written(self, partition_id: PartitionId, first: Offset, through: Lsn) -> list[Segment]:
        read = ReadPartition(partition_id, first, SEGMENTS_AT_ONCE, SEGMENT_BYTES_AT_ONCE)
        return [segment for segment in await self._queues.ask(read) if segment.lsn <= through]

    async def _run(self, following: Following) -> None:
        try:
            async for step in following:
                await self.take(step)
        except HeadwaterError as error:
            log.warning("the changes of %s can no longer be followed: %s", self.collection, error)
        except Exception:
            log.exception("the changes of %s can no longer be followed", self.collection)
        self._stop_all(STOPPED)

    async def take(self, step: Step) -> None:
        """What the log has next."""
        if step.resync is not None:
            self._stop_all(LOST)
            return
        for segment in step.segments:
            changes = changes_of(segment)
            for changed, hits in zip(changes, await self.match(changes), strict=True):
                self.tell(changed, hits)
                self.seq = changed[2][0]
            self.position = max(self.position, segment.lsn)
        self.position = max(self.position, step.through)

    async def match(self, changes: Sequence[Changed]) -> list[Hits]:
        """Whom each of some changes concerns, those who join meanwhile too."""
        matcher, found = self.matcher, [_Matched() for _ in changes]
        matcher.begin()
        try:
            for changed, one in zip(changes, found, strict=True):
                await self._try(matcher.find(*changed[1]), changed, one)
            while new := matcher.take_new():
                for changed, one in zip(changes, found, strict=True):
                    await self._try(new, changed, one)
        finally:
            matcher.end()
        self._spending.rest()
        for one in found:
            self._watch.matched(self.collection, one.seconds, one.tried, len(one.hits))
        return [one.hits for one in found]

    async def _try(self, filters: Collection[Filed], changed: Changed, one: "_Matched") -> None:
        """Try filters with a change, as many in one slice as it has room for."""
        change, images, _ = changed
        size = size_of(change)
        whole = CHANGE_COST + sum(filed.weight.of(size) for filed in filters)
        if self._spending.fits(whole):
            one.judge(self.matcher, filters, images)
            return
        for filed in list(filters):
            if is_too_much(filed.weight, change):
                self._refuse(filed, too_much(change))
                continue
            await self._spending.wait_for(filed.weight.of(size))
            one.judge(self.matcher, (filed,), images)

    def _refuse(self, filed: Filed, error: FilterTooLarge) -> None:
        """A filter that costs too much for a document ends, for all who watch by it."""
        for subscription in list(filed.watchers):
            assert isinstance(subscription, Subscription)
            subscription.stop(error.code, str(error))

    def tell(self, changed: Changed, hits: Hits) -> None:
        """A change, to those whom it concerns."""
        change, images, place = changed
        events: dict[Move, Event] = {}
        told = 0
        for filed, move in hits.items():
            event = events.get(move)
            if event is None:
                event = events[move] = Event(self.collection, change, move, place)
            for subscription in list(filed.watchers):
                assert isinstance(subscription, Subscription)
                if subscription.sees is None or subscription.sees(images[1] or images[0] or {}):
                    subscription.take(event)
                    told += 1
        self._watch.spread(self.collection, told)

    def _stop_all(self, reason: str) -> None:
        for subscription in list(self._subscriptions):
            subscription.stop("resync", reason)


class _Matched:
    """What was found out about one change."""

    __slots__ = ("hits", "seconds", "tried")

    def __init__(self) -> None:
        self.hits: Hits = {}
        self.tried = 0
        self.seconds = 0.0

    def judge(self, matcher: Matcher, filters: Collection[Filed], images: Images) -> None:
        """Try some filters."""
        began = time.perf_counter()
        matcher.judge(filters, *images, self.hits)
        self.seconds += time.perf_counter() - began
        self.tried += len(filters)
