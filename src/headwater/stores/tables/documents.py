"""Documents under the write lock: writing them, and telling the log what changed.

Rows and changes of a commit are gathered and written once, at its end, when the log's part is known: a document knows
the LSN of the commit that wrote it. Until then what was written is found among what waits, so that writes of one commit
see each other. Only this subject looks at the rows, so nobody else has to.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from headwater import filters
from headwater.clock import Timestamp
from headwater.errors import (
    DocumentExists,
    DocumentMissing,
    HeadwaterError,
    NotAllowed,
    PreconditionFailed,
    TooLarge,
)
from headwater.log.document_operations import (
    CreateDocument,
    DeleteDocument,
    DocumentIndexed,
    DocumentsMerged,
    DropDocumentIndex,
    IndexDocuments,
    MergeDocuments,
    SetDocument,
    UpdateDocument,
)
from headwater.log.operations import Deleted, Operation
from headwater.model.document import (
    MILLISECOND,
    NULL,
    Condition,
    Document,
    DocumentChange,
    Fields,
    Op,
    body_of,
    changes_queue,
    decode_flat,
    flat_of,
    is_same_state,
    kept_from_replicas,
    named,
    own_fields,
    replica_fields,
)
from headwater.model.document import DocumentRow as PushedRow
from headwater.model.document_rules import Action, Permit
from headwater.model.names import PARTITION_DEFAULT, Lsn
from headwater.model.record import Record
from headwater.stores.tables.catalog import Catalog, Partition
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.document_indexes import DocumentIndexes, KeyRow
from headwater.stores.tables.segments import Segments
from headwater.stores.tables.subject import Handler, Handlers, Read, Seen, Subject, Together

REFUSED = "the access rules of this collection do not allow it"
CHANGES_RETENTION_SECONDS = 7 * 86_400.0

# Database, collection, id.
Place = tuple[str, str, str]
# Version, deleted, body, lsn.
DocumentRow = tuple[int, int, str, int]
_encode = msgspec.json.Encoder().encode
_writes = (CreateDocument, SetDocument, UpdateDocument, DeleteDocument)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A record that is encoded together with its payload, as a `Record` is."""

    data: DocumentChange


class _Gathered(NamedTuple):
    """What a commit has written so far: documents by place, changes by database and collection, keys of indexes."""

    documents: dict[Place, Document]
    changes: dict[tuple[str, str], list[_Entry]]
    keys: list[tuple[bool, KeyRow]]

    def copied(self) -> "_Gathered":
        """The same, whatever is added to this one later."""
        changes = {place: list(entries) for place, entries in self.changes.items()}
        return _Gathered(dict(self.documents), changes, list(self.keys))


class Documents(Subject):
    """All documents of the store."""

    def __init__(self, connection: Connection, catalog: Catalog, segments: Segments, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._segments = segments
        self._indexes = DocumentIndexes(connection, catalog)
        self._gathered = _Gathered({}, {}, [])

    def handlers(self) -> Handlers:
        """What applies each of its operations."""
        return {
            CreateDocument: self.create,
            SetDocument: self.set,
            UpdateDocument: self.update,
            DeleteDocument: self.delete,
            MergeDocuments: self.merge,
            IndexDocuments: self.index,
            DropDocumentIndex: self.drop_index,
        }

    def together(self) -> Mapping[type[Operation], Together]:
        """What applies many at once: what a write leaves is found here by the next, so nothing is written between."""
        handlers = self.handlers()
        return {kind: partial(_apply_each, handlers[kind]) for kind in _writes}

    def foresee(self, operations: Sequence[Operation], now: Timestamp) -> list[Read]:
        """The documents themselves, and where their changes go."""
        found: list[Read] = []
        for one in operations:
            if isinstance(one, _writes):
                found.append(Read("find_document", (one.database, one.collection, one.id)))
            elif isinstance(one, MergeDocuments):
                ids = (str(row.new_document_state.get("id", "")) for row in one.rows)
                found += [Read("find_document", (one.database, one.collection, name)) for name in ids]
            else:
                continue
            found += self._indexes.foresee(one.database)
            found += self._foresee_log(one.database, changes_queue(one.collection))
        return found

    def _foresee_log(self, database: str, name: str) -> list[Read]:
        queue = self._catalog.known_queue(database, name)
        if queue is None:
            return [Read("find_queue", (database, name))]
        partition = self._catalog.known_partition(queue, PARTITION_DEFAULT)
        if partition is None:
            return [Read("find_partition", (queue.id, PARTITION_DEFAULT))]
        return self._segments.foresee_end(partition.id)

    # ── operations ──

    def create(self, operation: CreateDocument, now: Timestamp) -> Document:
        """Make a document."""
        before = self._find(operation.database, operation.collection, operation.id)
        self._check_readable(operation.permit, before)
        if before is not None and not before.deleted:
            raise DocumentExists(f"there is a document {before.path!r:.500} already")
        return self._write(operation, before, operation.data, now)

    def set(self, operation: SetDocument, now: Timestamp) -> Document:
        """Make a document, or replace it."""
        before = self._find(operation.database, operation.collection, operation.id)
        # Of what may not be read every field is missing, as of what is not there: no condition tells which it is.
        check_conditions(operation.if_match, before if self._is_theirs(operation.permit, before) else None)
        self._check_readable(operation.permit, before)
        return self._write(operation, before, operation.data, now)

    def update(self, operation: UpdateDocument, now: Timestamp) -> Document:
        """Change fields of a document."""
        before = self._need(operation)
        check_conditions(operation.if_match, before)
        fields = _encode(own_fields(before.flat()) | decode_flat(operation.data))
        if len(fields) > self._bytes_max:
            raise TooLarge(f"a document may have {self._bytes_max:,} bytes; with this change it has {len(fields):,}")
        return self._write(operation, before, msgspec.Raw(fields), now)

    def delete(self, operation: DeleteDocument, now: Timestamp) -> Document:
        """Delete a document."""
        before = self._need(operation)
        check_conditions(operation.if_match, before)
        return self._write(operation, before, None, now)

    def merge(self, operation: MergeDocuments, now: Timestamp) -> DocumentsMerged:
        """Take in what a replica has written: all of it that fits, or nothing when something is refused."""
        bring_back = self.keep()
        try:
            return self._merge(operation, now)
        except BaseException:
            bring_back()
            raise

    def _merge(self, operation: MergeDocuments, now: Timestamp) -> DocumentsMerged:
        written = 0
        conflicts: list[Document] = []
        for row in operation.rows:
            try:
                written += self._merge_row(operation, row, conflicts, now)
            except HeadwaterError as error:
                raise named(error, row.new_document_state["id"]) from error.__cause__
        return DocumentsMerged(written, conflicts)

    def _merge_row(self, operation: MergeDocuments, row: PushedRow, conflicts: list[Document], now: Timestamp) -> bool:
        """Take in one row, or add what is here to the conflicts; whether anything was written."""
        state, assumed = row.new_document_state, row.assumed_master_state
        place = CreateDocument(
            database=operation.database,
            collection=operation.collection,
            id=state["id"],
            data=_nothing,
            permit=operation.permit,
        )
        before = self._find(place.database, place.collection, place.id)
        self._check_readable(operation.permit, before)
        if before is not None and is_same_state(state, before):
            # It came before, and the answer did not arrive.
            return False
        # Where rules hold, who never had it is not told that there was one: it may have been another's. They make
        # it, as they may by any other way.
        is_new_to_them = assumed is None and operation.permit is not None and before is not None and before.deleted
        if before is not None and not is_new_to_them and (assumed is None or not is_same_state(assumed, before)):
            conflicts.append(before)
            return False
        fields = None if state.get("_deleted") else {**kept_from_replicas(before), **replica_fields(state)}
        self._write(place, before, fields, now)
        return True

    def index(self, operation: IndexDocuments, now: Timestamp) -> DocumentIndexed:
        """Have an index. What this commit wrote before has to be among what is there."""
        self.close(now)
        return self._indexes.index(operation)

    def drop_index(self, operation: DropDocumentIndex, now: Timestamp) -> Deleted:
        """Have an index no more, nor the keys that this commit has for it."""
        self.close(now)
        return self._indexes.drop(operation)

    # ── one document ──

    def _find(self, database: str, collection: str, name: str) -> Document | None:
        waiting = self._gathered.documents.get((database, collection, name))
        if waiting is not None:
            return waiting
        row = self._connection.row(self._sql.find_document, (database, collection, name), DocumentRow)
        return None if row is None else document_of(collection, name, *row)

    def _need(self, operation: UpdateDocument | DeleteDocument) -> Document:
        found = self._find(operation.database, operation.collection, operation.id)
        # What may not be read is not there: nobody learns of it by what a write of theirs comes to.
        if found is None or found.deleted or not filters.may_read(operation.permit, found.flat()):
            raise DocumentMissing(f"there is no document {operation.collection}/{operation.id:.260}")
        return found

    @staticmethod
    def _is_theirs(permit: Permit | None, before: Document | None) -> bool:
        return permit is None or before is None or before.deleted or filters.may_read(permit, before.flat())

    def _check_readable(self, permit: Permit | None, before: Document | None) -> None:
        """Raises where a document is that may not be read: its fields must not decide what is answered."""
        if not self._is_theirs(permit, before):
            raise NotAllowed(REFUSED)

    def _write(
        self,
        operation: CreateDocument | SetDocument | UpdateDocument | DeleteDocument,
        before: Document | None,
        fields: Mapping[str, Any] | msgspec.Raw | None,
        now: Timestamp,
    ) -> Document:
        """The document with these fields, or its tombstone where there are none, and the change that this is.

        Fields that came as text are not read, unless an index or a rule looks at them."""
        collection, name = operation.collection, operation.id
        was = before if before is not None and not before.deleted else None
        flat_before = None if was is None else was.flat()
        created = now // MILLISECOND if flat_before is None else flat_before["createdAt"]
        version = 1 if before is None else before.version + 1
        deleted = fields is None
        if isinstance(fields, msgspec.Raw):
            body = body_of(collection, name, fields, version, created, now)
        else:
            flat = flat_of(collection, name, fields or {}, version, created, now, deleted=deleted)
            body = msgspec.Raw(_encode(flat))
        document = Document(collection, name, version, deleted, body)
        keys: list[tuple[bool, KeyRow]] = []
        if operation.permit is not None or self._indexes.fields_of(operation.database, collection):
            after = None if deleted else document.flat()
            action: Action = "delete" if deleted else "create" if was is None else "update"
            if not filters.may_write(operation.permit, action, flat_before, after):
                raise NotAllowed(REFUSED)
            keys = self._indexes.changes(operation.database, collection, name, flat_before, after)
        op: Op = "delete" if deleted else "insert" if was is None else "update"
        change = DocumentChange(op, name, version, document.body, NULL if was is None else was.body)
        self._gathered.documents[operation.database, collection, name] = document
        self._gathered.changes.setdefault((operation.database, collection), []).append(_Entry(change))
        self._gathered.keys.extend(keys)
        return document

    # ── a commit ──

    def catch_up(self, seen: Seen) -> None:
        """Others may have declared indexes."""
        self._indexes.meet(seen.catalog_version)

    def keep(self) -> Callable[[], None]:
        """What was written before a transaction."""
        return partial(self._go_back, self._gathered.copied())

    def _go_back(self, kept: _Gathered) -> None:
        self._gathered = kept

    def forget(self) -> None:
        """What was gathered is written, or never happened."""
        self._gathered = _Gathered({}, {}, [])
        self._indexes.forget()

    def close(self, now: Timestamp) -> None:
        """Append the changes, one segment a collection, and write the rows."""
        documents, changes, keys = self._gathered
        if not changes:
            return
        for (database, collection), entries in changes.items():
            partition = self._partition(database, changes_queue(collection), now)
            self._segments.stage(partition, cast("list[Record]", entries), now)
        self._segments.write()
        lsn = self._segments.last_lsn
        rows = [
            (*place, document.version, int(document.deleted), bytes(document.body).decode(), lsn)
            for place, document in documents.items()
        ]
        self._connection.executemany(self._sql.put_document, rows)
        for is_new, key in keys:
            self._connection.run(self._sql.add_document_key if is_new else self._sql.drop_document_key, key)
        self._gathered = _Gathered({}, {}, [])

    def _partition(self, database: str, name: str, now: Timestamp) -> Partition:
        queue = self._catalog.find_queue(database, name)
        if queue is None:
            options = msgspec.json.encode({"retention_seconds": CHANGES_RETENTION_SECONDS}).decode()
            self._connection.run(self._sql.add_queue, (database, name, "", "", 0, options, now))
            queue = self._catalog.need_queue(database, name)
        return self._catalog.make_partition(queue, PARTITION_DEFAULT, now)


def _apply_each(apply: Handler, operations: Sequence[Operation], now: Timestamp) -> list[object]:
    results: list[object] = []
    for operation in operations:
        try:
            results.append(apply(operation, now))
        except HeadwaterError as error:
            results.append(error)
    return results


_nothing = msgspec.Raw(b"{}")


def check_conditions(conditions: Sequence[Condition], document: Document | None) -> None:
    """Raises unless all conditions hold; of what is not there, all fields are missing."""
    if not conditions:
        return
    flat: Fields = {} if document is None or document.deleted else document.flat()
    expression = filters.parse_conditions(conditions)
    if not filters.predicate(expression)(flat):
        raise PreconditionFailed("the document is not as `ifMatch` says; read it again, then decide anew")


def document_of(collection: str, name: str, version: int, deleted: int, body: str, lsn: int) -> Document:
    """A document from its row."""
    return Document(collection, name, version, bool(deleted), msgspec.Raw(body.encode()), Lsn(lsn))
