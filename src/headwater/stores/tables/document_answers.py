"""Questions about documents. One answer looks at a bounded number of them: whoever asks goes on from its position."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from headwater import filters
from headwater.model.document import Document
from headwater.model.document_order import Foremost, QueryCursor, cursor_of, place_of, read_cursor, write_cursor
from headwater.model.names import Lsn
from headwater.stores.document_questions import (
    DocumentIndexStatus,
    DocumentPage,
    DocumentQuery,
    FindDocument,
    ListDocumentIndexes,
    ListDocumentsAfter,
    ListUnfinishedIndexes,
    QueryDocuments,
)
from headwater.stores.tables.connection import Connection, Value, take_bytes
from headwater.stores.tables.document_indexes import COLLECTIONS_KNOWN_MAX, read_indexes
from headwater.stores.tables.document_plan import LAST_ID, Asked, Plan, choose_plan, understand
from headwater.stores.tables.documents import DocumentRow, document_of
from headwater.stores.tables.segments import read_end
from headwater.stores.tables.subject import Answering, SubjectAnswers

if TYPE_CHECKING:
    from typing_extensions import TypeForm

# So many documents are looked at for one answer, and so many are read at once: others wait for the same thread.
SCANNED_MAX = 5_000
READ_AT_ONCE = 500
# What they may cost together, in comparisons of a filter (each search counts with the size of the document), and how
# large they may be that are read at once.
LOOKED_COST_MAX = 300_000
READ_BYTES = 524_288
# What is answered while everybody waits: so many conditions, so long a text, so many ranges of keys, and of documents
# so many and so large together.
QUICK_CONDITIONS = 16
QUICK_TEXT = 512
QUICK_RANGES = 16
QUICK_ROWS = 256
QUICK_BYTES = 65_536

# Id, version, deleted, body, lsn.
NamedRow = tuple[str, int, int, str, int]
# The same with its key.
KeyedRow = tuple[str, int, int, str, int, bytes]
ShownRow = TypeVar("ShownRow", NamedRow, KeyedRow)
IsMeant = Callable[[Document], bool]


class Stretch(NamedTuple):
    """Rows on the way, and the range of the plan that they are of."""

    range_at: int
    rows: Sequence[NamedRow] | Sequence[KeyedRow]


class _Look:
    """What one answer has looked at so far; `is_over` when others come first."""

    def __init__(self, expression: filters.Expression, *, is_exact: bool) -> None:
        weight = filters.Weight(0, 0) if is_exact else filters.weight_of(expression)
        # To read a document costs as much as a search.
        self._weight = filters.Weight(weight.cost + 1, weight.searches + 1)
        self._cost = 0
        self.scanned = 0

    def take(self, row: NamedRow | KeyedRow) -> None:
        """One more."""
        self.scanned += 1
        self._cost += self._weight.of(len(row[3]))

    @property
    def is_over(self) -> bool:
        """Whether it ends with this one."""
        return self.scanned >= SCANNED_MAX or self._cost >= LOOKED_COST_MAX


class _TooMuch(Exception):
    """There is more to look at than may be."""


class _Allowance:
    """How much may still be looked at."""

    def __init__(self) -> None:
        self._rows = QUICK_ROWS
        self._bytes = QUICK_BYTES

    def take(self, rows: Iterator[ShownRow]) -> list[ShownRow]:
        """All rows; raises as soon as there is one too many, or they are too large."""
        taken: list[ShownRow] = []
        for row in rows:
            self._rows -= 1
            self._bytes -= len(row[3])
            if self._rows < 0 or self._bytes < 0:
                raise _TooMuch
            taken.append(row)
        return taken


class DocumentAnswers(SubjectAnswers):
    """Reads documents."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql
        # The fields with an index, by database and collection, as of a version of the catalog: who changes an index
        # raises it.
        self._fields: dict[tuple[str, str], list[str]] = {}
        self._version = -1

    def handlers(self) -> Answering:
        """What answers which question."""
        return {
            FindDocument: self.find,
            QueryDocuments: self.query,
            ListDocumentsAfter: self.after_commit,
            ListDocumentIndexes: self.indexes,
            ListUnfinishedIndexes: self.unfinished_indexes,
        }

    def find(self, asked: FindDocument) -> Document | None:
        """One document."""
        place = (asked.database, asked.collection, asked.id)
        row = self._connection.row(self._sql.find_document, place, DocumentRow)
        return None if row is None else document_of(asked.collection, asked.id, *row)

    def after_commit(self, asked: ListDocumentsAfter) -> list[Document]:
        """Documents in the order of their commits."""
        place = (asked.database, asked.collection, asked.after, asked.after_id, asked.limit)
        statement = self._sql.documents_after_commit
        rows = take_bytes(self._connection.each(statement, place, NamedRow), asked.bytes_max, _size)
        return [document_of(asked.collection, *row) for row in rows]

    def unfinished_indexes(self, asked: ListUnfinishedIndexes) -> list[tuple[str, str, str]]:
        """The indexes that not all documents are in yet."""
        return self._connection.rows(self._sql.unfinished_document_indexes, (), tuple[str, str, str])

    def indexes(self, asked: ListDocumentIndexes) -> list[DocumentIndexStatus]:
        """The indexes of a database."""
        rows = read_indexes(self._connection, asked.database)
        return [DocumentIndexStatus(row.pattern, row.field, bool(row.ready)) for row in rows]

    # ── queries ──

    def query(self, asked: QueryDocuments) -> DocumentPage:
        """Some documents of a query, in its order."""
        # Before anything else is read: what was committed up to here is in what is found.
        lsn, version = read_end(self._connection)
        understood = understand(asked.query, asked.permit, asked.claims)
        return self._along(asked, understood, choose_plan(understood, self._indexed(asked, version)), lsn)

    def query_quickly(self, asked: QueryDocuments) -> DocumentPage | None:
        """The same, where everybody waits for it: only along an index, and only as far as that is soon over. None when
        it may take longer, or cannot be asked."""
        if not _is_small(asked.query):
            return None
        lsn, version = read_end(self._connection)
        understood = understand(asked.query, asked.permit, asked.claims)
        plan = choose_plan(understood, self._indexed(asked, version))
        if not plan.field or len(plan.ranges) > QUICK_RANGES:
            return None
        try:
            return self._along(asked, understood, plan, lsn, _Allowance())
        except _TooMuch:
            return None

    def _along(
        self, asked: QueryDocuments, understood: Asked, plan: Plan, lsn: Lsn, allowance: _Allowance | None = None
    ) -> DocumentPage:
        way = _Way(self._connection, asked, plan, _begin(asked.position, plan, understood), allowance)
        is_meant = _meant(asked, understood, plan)
        look = _Look(understood.expression, is_exact=plan.is_exact)
        if plan.is_ordered:
            return self._in_order(asked, is_meant, way, lsn, look)
        return self._sorted(asked, understood, is_meant, way, lsn, look)

    def _indexed(self, asked: QueryDocuments, version: int) -> list[str]:
        """The fields whose index can be used; tombstones are in none."""
        if asked.query.show_deleted:
            return []
        if version != self._version or len(self._fields) >= COLLECTIONS_KNOWN_MAX:
            self._version = version
            self._fields.clear()
        place = asked.database, asked.query.collection
        found = self._fields.get(place)
        if found is None:
            rows = read_indexes(self._connection, asked.database)
            found = self._fields[place] = [row.field for row in rows if row.ready and row.fits(place[1])]
        return found

    def _in_order(self, asked: QueryDocuments, is_meant: IsMeant, way: "_Way", lsn: Lsn, look: _Look) -> DocumentPage:
        """The first ones that are meant."""
        collection, limit, bytes_max = asked.query.collection, asked.query.limit, asked.bytes_max
        found: list[Document] = []
        size = 0
        for stretch in way:
            for row in stretch.rows:
                look.take(row)
                document = document_of(collection, *row[:5])
                if is_meant(document):
                    found.append(document)
                    size += len(document.body)
                    if len(found) == limit:
                        return DocumentPage(found, lsn, is_ordered=True, scanned=look.scanned)
                if look.is_over or size >= bytes_max:
                    return DocumentPage(found, lsn, _position(stretch, row), is_ordered=True, scanned=look.scanned)
        return DocumentPage(found, lsn, is_ordered=True, scanned=look.scanned)

    def _sorted(
        self, asked: QueryDocuments, understood: Asked, is_meant: IsMeant, way: "_Way", lsn: Lsn, look: _Look
    ) -> DocumentPage:
        """The first ones, in the order asked for, among those that were looked at."""
        order, position = understood.order, ""
        after = None if understood.after is None else place_of(understood.after, order)
        first = Foremost(asked.query.limit, asked.bytes_max)
        for stretch, row in way.rows():
            look.take(row)
            document = document_of(asked.query.collection, *row[:5])
            if is_meant(document):
                place = place_of(cursor_of(document.flat(), order), order)
                if after is None or after < place:
                    first.add(place, document)
            if look.is_over:
                position = _position(stretch, row)
                break
        return DocumentPage(first.documents(), lsn, position, scanned=look.scanned)


def _size(row: NamedRow | KeyedRow) -> int:
    return len(row[3])


def _is_small(query: DocumentQuery) -> bool:
    return query.limit <= QUICK_ROWS and len(query.filters) <= QUICK_CONDITIONS and len(query.filter) <= QUICK_TEXT


def _meant(asked: QueryDocuments, understood: Asked, plan: Plan) -> IsMeant:
    """What says of a document on the way whether it is meant. Where the way leads to no others, it is not read."""
    if plan.is_exact:
        return lambda document: True
    predicate = filters.predicate(understood.expression)
    # Of what is deleted, nobody can say whether they might read it: what access rules speak of is gone.
    hides_deleted = asked.permit is not None or not asked.query.show_deleted
    return lambda document: not (document.deleted and hides_deleted) and predicate(document.flat())


# ── where the way begins, and goes on ──


class _Start(NamedTuple):
    """Behind a document: its range among those of the plan, its key in the index, its id. A range that does not have
    the key lies behind it, all of it."""

    range_at: int
    key: bytes
    id: str


def _position(stretch: Stretch, row: NamedRow | KeyedRow) -> str:
    key = row[5] if len(row) > 5 else b""
    return write_cursor(QueryCursor((stretch.range_at.to_bytes(2, "big"), key), row[0]))


def read_position(text: str) -> _Start:
    """The place in what an earlier answer gave as its position."""
    cursor = read_cursor(text, 2)
    assert cursor is not None
    at, key = cursor.keys
    return _Start(int.from_bytes(at, "big"), key, cursor.id)


def _begin(position: str, plan: Plan, understood: Asked) -> _Start | None:
    """Behind the position of an earlier answer; else, where documents come in order, behind the cursor."""
    if position:
        return read_position(position)
    after = understood.after
    if after is None or not plan.is_ordered:
        return None
    if not plan.field:
        return _Start(0, b"", after.id)
    if understood.order and understood.order[0].field == plan.field:
        key = after.keys[0]
    else:
        # Of one key of an index, by id.
        key = plan.ranges[0].low if plan.ranges else b""
    # A cursor may come from a query with another filter: where no range has its key, the next one on the way begins.
    places = enumerate(plan.ranges)
    at = next((at for at, one in places if not one.is_passed(key, back=plan.back)), len(plan.ranges))
    return _Start(at, key, after.id)


class _Way:
    """All documents that a plan leads to."""

    def __init__(
        self,
        connection: Connection,
        asked: QueryDocuments,
        plan: Plan,
        start: _Start | None,
        allowance: _Allowance | None,
    ) -> None:
        self._connection = connection
        self._sql = connection.sql
        self._database, self._collection = asked.database, asked.query.collection
        self._plan = plan
        self._start = start
        self._allowance = allowance
        self._bytes_max = min(asked.bytes_max, READ_BYTES)
        # Of documents that come in order most often no more are needed than were asked for.
        self._at_once = min(READ_AT_ONCE, asked.query.limit) if plan.is_ordered else READ_AT_ONCE

    def _read(self, row: "TypeForm[ShownRow]", statement: str, *bindings: Value) -> tuple[list[ShownRow], bool]:
        """The next rows, and whether there may be more. The more there turn out to be, the more are read at once."""
        limit, self._at_once = self._at_once, min(READ_AT_ONCE, 2 * self._at_once)
        found = self._connection.each(statement, (*bindings, limit), row)
        if self._allowance is not None:
            rows = self._allowance.take(found)
            return rows, len(rows) == limit
        rows = take_bytes(found, self._bytes_max, _size)
        return rows, len(rows) == limit or sum(map(_size, rows)) >= self._bytes_max

    def rows(self) -> Iterator[tuple[Stretch, NamedRow | KeyedRow]]:
        """One after the other."""
        for stretch in self:
            for row in stretch.rows:
                yield stretch, row

    def __iter__(self) -> Iterator[Stretch]:
        if not self._plan.field:
            yield from self._by_id()
            return
        first = self._start.range_at if self._start is not None else 0
        for at in range(first, len(self._plan.ranges)):
            among = self._plan.ranges[at]
            start = self._start if self._start is not None and at == first and among.holds(self._start.key) else None
            for rows in self._range(among.low, among.high, start):
                yield Stretch(at, rows)

    def _by_id(self) -> Iterator[Stretch]:
        back = self._plan.back
        statement = self._sql.documents_by_id_back if back else self._sql.documents_by_id
        name = self._start.id if self._start is not None else LAST_ID if back else ""
        while True:
            rows, more = self._read(NamedRow, statement, self._database, self._collection, name)
            yield Stretch(0, rows)
            if not more:
                return
            name = rows[-1][0]

    def _range(self, low: bytes, high: bytes, start: _Start | None) -> Iterator[list[KeyedRow]]:
        """Rows of one range: first the rest of the key that was begun, then the keys behind it."""
        back = self._plan.back
        among = self._sql.documents_with_key_back if back else self._sql.documents_with_key
        onward = self._sql.documents_from_key_back if back else self._sql.documents_from_key
        place = (self._database, self._collection, self._plan.field)
        while True:
            if start is not None:
                rows, more = self._read(KeyedRow, among, *place, start.key, start.id)
                yield rows
                if more:
                    start = start._replace(id=rows[-1][0])
                    continue
                low, high = (low, start.key) if back else (start.key + b"\0", high)
            rows, more = self._read(KeyedRow, onward, *place, low, high)
            yield rows
            if not more:
                return
            start = _Start(0, rows[-1][5], rows[-1][0])
