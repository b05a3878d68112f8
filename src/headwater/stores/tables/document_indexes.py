"""Indexes on fields of documents: which there are, and the keys that a write adds and drops.

An index is declared for a pattern of collections. Its keys are rows of one table, kept with every write from the
declaration on; documents that were there before are taken in some at a time, and queries use it once all are.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

from headwater.errors import InvalidPayload
from headwater.log.document_operations import DocumentIndexed, DropDocumentIndex, IndexDocuments
from headwater.log.operations import Deleted
from headwater.model.document import Fields, decode_flat, value_at
from headwater.model.order_key import order_key
from headwater.stores.tables.catalog import Catalog
from headwater.stores.tables.connection import Columns, Connection, Text
from headwater.stores.tables.subject import Read

# PostgreSQL keeps no longer ones in an index.
KEY_BYTES_MAX = 1_024
COLLECTIONS_KNOWN_MAX = 10_000

# Collection, id, deleted, body.
UnindexedRow = tuple[str, str, int, str]
# Database, collection, field, key, id.
KeyRow = tuple[str, str, str, bytes, str]


class IndexRow(NamedTuple):
    """An index, and how far it is."""

    pattern: str
    field: str
    ready: int
    done_collection: str
    done_id: str

    def fits(self, collection: str) -> bool:
        """Whether documents of a collection have keys in it."""
        return fnmatchcase(collection, self.pattern)


class DocumentIndexes:
    """All indexes, under the write lock. `Documents` applies what is asked for, and calls this."""

    def __init__(self, connection: Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._catalog = catalog
        self._version = -1
        self._known: dict[str, list[IndexRow]] = {}
        self._fields: dict[tuple[str, str], tuple[str, ...]] = {}

    # ── what is remembered ──

    def forget(self) -> None:
        """Read them again."""
        self._known.clear()
        self._fields.clear()

    def meet(self, version: int) -> None:
        """The catalog's version: others who declare an index change it."""
        if version != self._version:
            self._version = version
            self.forget()

    def foresee(self, database: str) -> list[Read]:
        """What a write will read of indexes."""
        return [] if database in self._known else [Read("document_indexes", (database,))]

    def _rows(self, database: str) -> list[IndexRow]:
        found = self._known.get(database)
        if found is None:
            found = self._known[database] = read_indexes(self._connection, database)
        return found

    def fields_of(self, database: str, collection: str) -> tuple[str, ...]:
        """The fields of a collection that have keys."""
        found = self._fields.get((database, collection))
        if found is None:
            if len(self._fields) >= COLLECTIONS_KNOWN_MAX:
                self._fields.clear()
            rows = self._rows(database)
            found = tuple(dict.fromkeys(row.field for row in rows if row.fits(collection)))
            self._fields[database, collection] = found
        return found

    def changes(
        self, database: str, collection: str, name: str, before: Fields | None, after: Fields | None
    ) -> list[tuple[bool, KeyRow]]:
        """The keys that a write drops (False) and adds (True). Raises when it brings a value that is too long to be a
        key. One that was there before an index has none, and stops no write: neither one that leaves it nor others."""
        found: list[tuple[bool, KeyRow]] = []
        for field in self.fields_of(database, collection):
            old = None if before is None else key_at(before, field)
            new = None if after is None else key_at(after, field)
            if old == new:
                continue
            if old is not None and is_kept(old):
                found.append((False, (database, collection, field, old, name)))
            if new is not None:
                if not is_kept(new):
                    raise InvalidPayload(f"field {field!r} has an index: its value may take {KEY_BYTES_MAX:,} bytes")
                found.append((True, (database, collection, field, new, name)))
        return found

    # ── operations ──

    def index(self, operation: IndexDocuments) -> DocumentIndexed:
        """Declare an index, or take in some more of the documents that were there before it. Where one of them has a
        value that is no key, the index is taken back, and the error says which."""
        row = self._find(operation.database, operation.pattern, operation.field)
        if row is None:
            row = IndexRow(operation.pattern, operation.field, 0, "", "")
            self._put(operation.database, row)
        if row.ready:
            return DocumentIndexed(ready=True)
        place = (operation.database, row.done_collection, row.done_id, operation.limit)
        found = self._connection.rows(self._sql.documents_to_index, place, UnindexedRow)
        keys: list[KeyRow] = []
        for collection, name, deleted, body in found:
            if not deleted and row.fits(collection):
                key = key_at(decode_flat(body), row.field)
                if not is_kept(key):
                    self._take_back(operation.database, row)
                    raise InvalidPayload(
                        f"there can be no index on {row.field!r} for {row.pattern}: its values may take"
                        f" {KEY_BYTES_MAX:,} bytes, and that of {collection}/{name:.260} takes {len(key):,}"
                    )
                keys.append((operation.database, collection, row.field, key, name))
        self._connection.executemany(self._sql.add_document_key, keys)
        ready = len(found) < operation.limit
        reached = row if not found else row._replace(done_collection=found[-1][0], done_id=found[-1][1])
        self._put(operation.database, reached._replace(ready=int(ready)))
        return DocumentIndexed(ready=ready)

    def drop(self, operation: DropDocumentIndex) -> Deleted:
        """Forget an index, and the keys that no other one needs."""
        row = self._find(operation.database, operation.pattern, operation.field)
        if row is None:
            return Deleted(0)
        self._take_back(operation.database, row)
        return Deleted(1)

    def _take_back(self, database: str, row: IndexRow) -> None:
        self._connection.run(self._sql.drop_document_index, (database, row.pattern, row.field))
        self._changed()
        collection = ""
        while found := self._connection.row(self._sql.next_keyed_collection, (database, collection), Text):
            collection = found[0]
            if row.fits(collection) and row.field not in self.fields_of(database, collection):
                self._connection.run(self._sql.drop_field_keys, (database, collection, row.field))

    def _find(self, database: str, pattern: str, field: str) -> IndexRow | None:
        rows = read_indexes(self._connection, database)
        return next((row for row in rows if (row.pattern, row.field) == (pattern, field)), None)

    def _put(self, database: str, row: IndexRow) -> None:
        self._connection.run(self._sql.put_document_index, (database, *row))
        self._changed()

    def _changed(self) -> None:
        """Tell other processes, which write keys too."""
        self._catalog.changed()
        self.meet(self._catalog.version)


def key_at(flat: Fields, field: str) -> bytes:
    """The key of a document for an index on a field, which may be too long to be kept."""
    return order_key(value_at(flat, field))


def is_kept(key: bytes) -> bool:
    """Whether an index can have a key."""
    return len(key) <= KEY_BYTES_MAX


def read_indexes(connection: Connection, database: str) -> list[IndexRow]:
    """The indexes of a database."""
    return list(map(IndexRow._make, connection.rows(connection.sql.document_indexes, (database,), Columns)))
