"""How a replica reads on: documents in the order of the commits that wrote them, from the place that it has reached.

Where access rules hold, a replica learns of what it may read, and of what it might have a copy of: a document that is
gone, or is not theirs any more, is told as deleted if they could read it since the replica was last complete. The log
knows that, as long as it is kept. Of all others not even the id is told.

A checkpoint may be of another log: of another store, or of this one before it was put back from a copy. Going on from
there would pass over what was written here. Or it was made under other access rules, and what the replica has is not
what is theirs. It begins anew then, and is told so.
"""

from collections.abc import AsyncGenerator
from typing import Annotated, NamedTuple

import msgspec

from headwater import filters
from headwater.config import MIB
from headwater.model.document import Document, changes_queue
from headwater.model.document_rules import Permit, digest_of
from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.services.own_records import document_changes
from headwater.services.queues import Queues
from headwater.stores.document_questions import FindDocument, ListDocumentsAfter
from headwater.stores.questions import FindIdentity, FindLastLsnOf

ANOTHER_STORE = (
    "the checkpoint is of another store, or of this one before it was restored; all documents are pulled anew"
)
ANOTHER_LOG = (
    "the collection never was where the checkpoint says: it is of another collection, or of this log before that was "
    "put back from a copy; all documents are pulled anew"
)

# A part of an answer ends with the document that makes it as large as this.
PART_BYTES = 2 * MIB

Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a replica has read. `lsn` and `store` are the place in the log, and whose log it is; a checkpoint without
    them is that of a client which keeps only the pair. `rules` are those under which it read, in short, and `since` is
    the commit up to which it had everything at the time it last came to an end."""

    updated_at: Number = 0
    id: str = ""
    lsn: Number | None = None
    identity: str = msgspec.field(default="", name="store")
    rules: str = ""
    since: Number | msgspec.UnsetType = msgspec.UNSET


class Pulled(NamedTuple):
    """Documents that a replica has not read yet; `is_last` when there are no more, and fewer came than were asked for.
    `resync` says why they come from the beginning, when the checkpoint is of another log; they do, too, when
    `rules_changed`: it was made under other access rules."""

    documents: list[Document]
    checkpoint: Checkpoint
    resync: str = ""
    is_last: bool = True
    rules_changed: bool = False


class _Place(NamedTuple):
    """Behind which commit and document a replica goes on; `resync` says why that is not where it was, or that the
    access rules are others."""

    lsn: Lsn
    id: str
    resync: str = ""
    rules_changed: bool = False


BEGINNING = _Place(Lsn(0), "")


class Replica:
    """A copy of a collection: what it reads, and under which rules."""

    def __init__(self, queues: Queues, database: str, collection: str, permit: Permit | None) -> None:
        self._queues = queues
        self._database = database
        self._collection = collection
        self._permit = permit
        self._rules = digest_of(permit)
        self._identity = ""

    async def identify(self) -> str:
        """Whose log it is: checkpoints of another are worth nothing."""
        self._identity = self._identity or await self._queues.ask(FindIdentity())
        return self._identity

    async def pull(self, checkpoint: Checkpoint | None, limit: int, bytes_max: int) -> Pulled:
        """What comes behind a checkpoint: as much as was asked for, or all that there is; none behind the document that
        makes it as large as `bytes_max`."""
        await self.identify()
        if self._permit is None:
            after = await self._place_behind(checkpoint)
            page = await self._readable(after, limit, bytes_max, None)
            return self._pulled(page, checkpoint, None, after)
        # Asked for before anything is read: who is told all that there is has everything up to here.
        newest = await self._queues.ask(FindLastLsnOf(self._database, (changes_queue(self._collection),)))
        after = await self._place_behind(checkpoint, newest)
        since = self._complete_at(checkpoint, after, newest)
        departed = _Departed(self._queues, self._selection, since, self._permit)
        page = await self._readable(after, limit, bytes_max, departed)
        return self._pulled(page, checkpoint, newest if page.is_last else since, after)

    async def pull_in_parts(self, checkpoint: Checkpoint | None, limit: int) -> AsyncGenerator[Pulled, None]:
        """The same, in parts of bounded size which are one answer together. It ends before a document that is in it
        already: that was written again meanwhile, and so was everything behind it."""
        told: set[str] = set()
        part = await self.pull(checkpoint, limit, PART_BYTES)
        while True:
            yield part
            told.update(document.id for document in part.documents)
            if part.is_last or len(told) >= limit:
                return
            reached = part.checkpoint
            part = self._before(told, await self.pull(reached, limit - len(told), PART_BYTES), reached)

    def _before(self, told: set[str], part: Pulled, reached: Checkpoint) -> Pulled:
        """What comes in a part before the first document that was told, which makes it the last."""
        ids = [document.id for document in part.documents]
        count = next((place for place, id in enumerate(ids) if id in told), len(ids))
        if count == len(ids):
            return part
        documents = part.documents[:count]
        since = None if reached.since is msgspec.UNSET else Lsn(reached.since)
        return part._replace(documents=documents, checkpoint=self._behind(documents, reached, since), is_last=True)

    def _pulled(self, page: "_Page", checkpoint: Checkpoint | None, since: Lsn | None, after: _Place) -> Pulled:
        reached = self._behind(page.documents, None if after.resync else checkpoint, since)
        return Pulled(page.documents, reached, after.resync, page.is_last, after.rules_changed)

    async def _list(self, after: _Place, limit: int, bytes_max: int) -> "_Page":
        asked = ListDocumentsAfter(self._database, self._collection, after.lsn, after.id, limit, bytes_max)
        found = await self._queues.ask(asked)
        is_cut = sum(len(document.body) for document in found) >= bytes_max
        return _Page(found, is_last=len(found) < limit and not is_cut)

    def _complete_at(self, checkpoint: Checkpoint | None, after: _Place, newest: Lsn) -> Lsn:
        """The commit up to which it had everything. A replica that begins has nothing that could be gone."""
        if checkpoint is None or not checkpoint.id:
            return newest
        if checkpoint.since is msgspec.UNSET or after.resync:
            return after.lsn
        return Lsn(checkpoint.since)

    def reached(self, document: Document) -> Checkpoint:
        """The checkpoint behind a document that was told when it was written; not all of its commit may be told yet."""
        return self._at(document, None if self._permit is None else Lsn(document.lsn - 1))

    def _behind(self, found: list[Document], checkpoint: Checkpoint | None, since: Lsn | None) -> Checkpoint:
        if found:
            return self._at(found[-1], since)
        if checkpoint is None:
            return Checkpoint(lsn=0, identity=self._identity)
        return checkpoint if since is None else msgspec.structs.replace(checkpoint, since=since)

    def _at(self, document: Document, since: Lsn | None) -> Checkpoint:
        return Checkpoint(
            updated_at=document["updatedAt"],
            id=document.id,
            lsn=document.lsn,
            identity=self._identity,
            rules=self._rules,
            since=msgspec.UNSET if since is None else since,
        )

    @property
    def _selection(self) -> Selection:
        return Selection(self._database, (changes_queue(self._collection),))

    async def _place_behind(self, checkpoint: Checkpoint | None, newest: Lsn | None = None) -> _Place:
        """Behind which commit and document it goes on. Under other rules other documents are theirs: it begins anew."""
        if checkpoint is None or not checkpoint.id:
            return BEGINNING
        if checkpoint.lsn is not None and checkpoint.identity != self._identity:
            return BEGINNING._replace(resync=ANOTHER_STORE)
        found = await self._queues.ask(FindDocument(self._database, self._collection, checkpoint.id))
        if checkpoint.lsn is None:
            return self._behind_the_pair(checkpoint, found)
        if self._is_of_another_log(checkpoint, Lsn(checkpoint.lsn), found, newest):
            return BEGINNING._replace(resync=ANOTHER_LOG)
        if checkpoint.rules != self._rules:
            return BEGINNING._replace(rules_changed=True)
        return _Place(Lsn(checkpoint.lsn), checkpoint.id)

    def _behind_the_pair(self, checkpoint: Checkpoint, found: Document | None) -> _Place:
        if found is None or found["updatedAt"] != checkpoint.updated_at or not self._may_read(found):
            return BEGINNING
        return _Place(found.lsn, found.id)

    def _is_of_another_log(self, checkpoint: Checkpoint, lsn: Lsn, found: Document | None, newest: Lsn | None) -> bool:
        """Whether this log never was there. Documents stay, with the commit that wrote them last: the one that a
        checkpoint names was written by its commit, or since. Where rules hold, one that may not be read says nothing:
        whoever makes checkpoints up would learn of it."""
        if self._permit is not None and (found is None or not self._may_read(found)):
            return newest is not None and lsn > newest
        if found is None or found.lsn < lsn:
            return True
        return found.lsn == lsn and found["updatedAt"] != checkpoint.updated_at

    def _may_read(self, document: Document) -> bool:
        if self._permit is None:
            return True
        return not document.deleted and filters.may_read(self._permit, document.flat())

    async def _readable(self, after: _Place, limit: int, bytes_max: int, departed: "_Departed | None") -> "_Page":
        """The next ones that are theirs: as many as were asked for or have so many bytes, unless there are no more."""
        kept: list[Document] = []
        while True:
            page = await self._list(after, limit, bytes_max)
            kept += page.documents if departed is None else await self._theirs(page.documents, departed)
            if len(kept) >= limit:
                return _Page(kept[:limit], is_last=False)
            if page.is_last or kept:
                return _Page(kept, page.is_last)
            after = _Place(page.documents[-1].lsn, page.documents[-1].id)

    async def _theirs(self, page: list[Document], departed: "_Departed") -> list[Document]:
        """Of some documents, those that they may read, and that those are gone which they could read before."""
        theirs = {one.id for one in page if self._may_read(one)}
        if len(theirs) < len(page):
            await departed.read(page[-1].lsn)
        told = []
        for one in page:
            if one.id in theirs:
                told.append(one)
            elif one.id in departed.ids:
                told.append(one.tombstone())
        departed.ids.difference_update(one.id for one in page)
        return told


class _Page(NamedTuple):
    """Some documents, and whether those are the last that there are."""

    documents: list[Document]
    is_last: bool


class _Departed:
    """Which documents somebody could read at some time since a commit, by what the log says they were before."""

    def __init__(self, queues: Queues, selection: Selection, since: Lsn, permit: Permit) -> None:
        self._followers = queues.followers
        self._selection = selection
        self._permit = permit
        self._reached = since
        self.ids: set[str] = set()

    async def read(self, through: Lsn) -> None:
        """Look through the log up to a commit."""
        while self._reached < through:
            step = await self._followers.read(self._selection, self._reached)
            for segment in step.segments:
                for _, _, (change, (before, _)) in document_changes.read(segment):
                    if before is not None and filters.may_read(self._permit, before):
                        self.ids.add(change.id)
            self._reached = step.through
