"""A document: its path, what it is over the wire and in the store, and the change that a write is.

    rooms/room-1/messages/m3      document m3 of the collection rooms/room-1/messages

A document is kept as the flat JSON object that the wire carries: its own fields, and those of `OWN_NAMES`, which
Headwater sets. What is deleted leaves a tombstone without fields of its own, whose version goes on rising.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from secrets import token_hex
from typing import Any, Literal, cast

import msgspec

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError, InvalidName, InvalidPayload, StoreDamaged, TooLarge
from headwater.model.json_values import is_same_json
from headwater.model.names import SYSTEM_PREFIX, Lsn
from headwater.model.record import check_ready_json

# What a client says under these names is passed over, but for the id.
OWN_NAMES = frozenset({"id", "collection", "version", "createdAt", "updatedAt", "deleted"})
# Where changes are told: a queue for each collection (docs/decisions/2026-11-17-documents.md).
CHANGES_PREFIX = f"{SYSTEM_PREFIX}documents/"
# How patterns of access tokens name collections.
ACCESS_PREFIX = "documents/"
COLLECTION_LENGTH_MAX = 200
COLLECTIONS_KNOWN_MAX = 4_096
ID_LENGTH_MAX = 256
MILLISECOND = 1_000

Op = Literal["insert", "update", "delete"]
Fields = dict[str, Any]

NULL = msgspec.Raw(b"null")
# `.` and `..` are no names: whatever lies between a client and a server may take them for steps of a path.
_segment = re.compile(r"(?!\.\.?$)[A-Za-z0-9._:-]+")
_steps = frozenset({".", ".."})
# What PostgreSQL has no place for in a text, as JSON spells it.
_zero = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Any]).decode


class Document(msgspec.Struct, frozen=True, gc=False):
    """A document as it is kept. `body` is the flat object; `lsn` is the commit that wrote it, 0 in the answer of that
    write itself, which is given before its commit has a place in the log."""

    collection: str
    id: str
    version: int
    deleted: bool
    body: msgspec.Raw
    lsn: Lsn = Lsn(0)

    def flat(self) -> Fields:
        """All fields, those of Headwater's own too: what filters see."""
        return decode_flat(self.body)

    @property
    def data(self) -> Fields:
        """The fields that are its own."""
        return own_fields(self.flat())

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return _time(self.flat()["createdAt"])

    @property
    def updated_at(self) -> datetime:
        """When it was written last."""
        return _time(self.flat()["updatedAt"])

    def __getitem__(self, field: str) -> Any:
        return self.flat()[field]

    @property
    def path(self) -> str:
        """Collection and id."""
        return f"{self.collection}/{self.id}"

    def __repr__(self) -> str:
        # The text of its body is kept as it is, and says nothing to who prints a document.
        told = "deleted" if self.deleted else f"{self.data!r:.500}"
        return f"Document({self.path!r}, version={self.version}, {told})"

    def tombstone(self) -> "Document":
        """The same without its fields, as deleted: for who may not see them any more."""
        return msgspec.structs.replace(
            self, deleted=True, body=msgspec.Raw(_encode({**self._own_names(), "deleted": True}))
        )

    def receipt(self) -> "Document":
        """The same without its fields, as it was written: for who may write it and not read it."""
        return msgspec.structs.replace(self, body=msgspec.Raw(_encode(self._own_names())))

    def _own_names(self) -> Fields:
        return {name: value for name, value in self.flat().items() if name in OWN_NAMES}


class DocumentChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one write did, as the log tells it: flat bodies before and after it. `after` of a delete is its tombstone;
    `before` is null where there was none, or it was deleted."""

    op: Op
    id: str
    version: int
    after: msgspec.Raw
    before: msgspec.Raw = NULL


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`{field, op, value}`: what must hold of a document."""

    field: str
    op: str
    value: Any


class OrderBy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field to order by; dots lead into objects."""

    field: str
    direction: Literal["asc", "desc"] = "asc"


class DocumentRow(msgspec.Struct, frozen=True, rename="camel"):
    """A document as a replica has it now, and as it believes that it was here before."""

    new_document_state: Fields
    assumed_master_state: Fields | None = None


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)


# ── names ──


def check_collection(name: object) -> str:
    """The collection itself when it is one: an odd number of names with slashes between them.

    >>> check_collection("rooms/room-1/messages")
    'rooms/room-1/messages'
    """
    if isinstance(name, str) and _is_collection(name):
        return name
    raise InvalidName(
        "a collection has 1, 3, 5, … names of A-Z a-z 0-9 . _ : - (not . or ..) with slashes between them, "
        f"{COLLECTION_LENGTH_MAX} characters at most; got {name!r:.80}"
    )


@lru_cache(COLLECTIONS_KNOWN_MAX)
def _is_collection(name: str) -> bool:
    parts = name.split("/")
    return len(name) <= COLLECTION_LENGTH_MAX and len(parts) % 2 == 1 and all(map(_segment.fullmatch, parts))


def check_document_id(name: object) -> str:
    """The id itself when it is one."""
    is_plain = isinstance(name, str) and 0 < len(name) <= ID_LENGTH_MAX and "/" not in name and name.isprintable()
    if is_plain and name not in _steps:
        return cast(str, name)
    raise InvalidName(
        f"the id of a document has 1 to {ID_LENGTH_MAX} printable characters and no slash, and is not . or ..; "
        f"got {name!r:.80}"
    )


def new_document_id(now: Timestamp) -> str:
    """An id that nobody has. They come in the order of time: documents that are made after each other lie beside each
    other in the store, and a commit of many writes few pages."""
    return f"{now // MILLISECOND:012x}{token_hex(10)}"


def split_path(path: str) -> tuple[str, str]:
    """Collection and id of a document's path.

    >>> split_path("rooms/room-1/messages/m3")
    ('rooms/room-1/messages', 'm3')
    """
    collection, slash, name = path.rpartition("/")
    if not slash:
        raise InvalidName(f"the path of a document is its collection, a slash and its id; got {path!r:.80}")
    return check_collection(collection), check_document_id(name)


def changes_queue(collection: str) -> str:
    """The queue whose log has the changes of a collection."""
    return CHANGES_PREFIX + collection


def collection_of(queue: str) -> str | None:
    """The collection whose changes a queue has; None when it has others."""
    return queue.removeprefix(CHANGES_PREFIX) if queue.startswith(CHANGES_PREFIX) else None


# ── what is kept ──


def value_at(flat: Mapping[str, Any], field: str) -> object:
    """The value of a field, None where there is none; dots lead into objects."""
    found: Any = flat
    for name in field.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def decode_flat(body: msgspec.Raw | bytes | str) -> Fields:
    """A document as it is kept, as Python values."""
    try:
        return _decode_fields(body)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a document cannot be read: {error}") from error


def own_fields(flat: Mapping[str, Any]) -> Fields:
    """The fields of a document that are its own."""
    if type(flat) is dict and OWN_NAMES.isdisjoint(flat):
        return flat
    return {name: value for name, value in flat.items() if name not in OWN_NAMES}


def check_fields(data: msgspec.Raw | bytes, bytes_max: int) -> msgspec.Raw:
    """The own fields of what a client sent, as they are kept; raises when they cannot be.

    Numbers and names are written anew, so that every store has the same text for the same values.
    """
    check_ready_json(msgspec.Raw(data), bytes_max)
    try:
        fields = _decode_fields(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidPayload(f"a document is a JSON object: {error}") from error
    text = _encode(own_fields(fields))
    if b"\\u0000" in text and _zero.search(text):
        raise InvalidPayload("a document may have no U+0000 in its texts")
    if len(text) > bytes_max:
        raise TooLarge(f"a document may have {bytes_max:,} bytes; this one has {len(text):,}")
    return msgspec.Raw(text)


def encode_fields(fields: Mapping[str, Any], bytes_max: int) -> msgspec.Raw:
    """The same for Python values."""
    return check_fields(write_fields(fields), bytes_max)


def write_fields(fields: Mapping[str, Any]) -> msgspec.Raw:
    """Python values as JSON, to be checked where they are handed in."""
    try:
        return msgspec.Raw(_encode(fields))
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"a document must be a JSON object; {type(fields).__name__}: {error}") from error


def flat_of(
    collection: str, name: str, fields: Mapping[str, Any], version: int, created: int, now: Timestamp, *, deleted: bool
) -> Fields:
    """The flat object of a document that is written now; `created` is in milliseconds."""
    flat: Fields = {
        "id": name,
        **fields,
        "collection": collection,
        "version": version,
        "createdAt": created,
        "updatedAt": now // MILLISECOND,
    }
    if deleted:
        flat["deleted"] = True
    return flat


def body_of(collection: str, name: str, fields: msgspec.Raw, version: int, created: int, now: Timestamp) -> msgspec.Raw:
    """The text of the flat object of a document that is there, of own fields as `check_fields` has them: the same as
    `flat_of` would be, without reading and writing them once more."""
    own = bytes(fields)[1:-1]
    return msgspec.Raw(
        b'{"id":%b%b%b,"collection":"%b","version":%d,"createdAt":%d,"updatedAt":%d}'
        % (_encode(name), b"," if own else b"", own, collection.encode(), version, created, now // MILLISECOND)
    )


def replica_of(document: Document) -> Fields:
    """A document as replicas have it: its own fields and its id, and `_deleted` on tombstones."""
    found: Fields = {"id": document.id, **own_fields(document.flat())}
    found["_deleted"] = document.deleted
    return found


def is_same_state(known: Mapping[str, Any], document: Document) -> bool:
    """Whether what a replica knows of a document is what is here: the same fields, or deleted in both."""
    deleted = bool(known.get("_deleted"))
    if deleted or document.deleted:
        return deleted and document.deleted
    return is_same_json(replica_fields(known), replica_fields(document.flat()))


def replica_fields(state: Mapping[str, Any]) -> Fields:
    """The own fields of a state that a replica sent: what RxDB keeps for itself begins with an underscore."""
    return {name: value for name, value in own_fields(state).items() if not name.startswith("_")}


def named(error: HeadwaterError, id: object) -> HeadwaterError:
    """The error itself, which says now which of several documents it is about: in its text, and as `document`."""
    if isinstance(id, str) and not hasattr(error, "document"):
        error.args = (f"the document {id!r:.260}: {error}", *error.args[1:])
        error.document = id  # type: ignore[attr-defined]
    return error


def kept_from_replicas(document: Document | None) -> Fields:
    """The fields that no replica can write, because their names are RxDB's: they stay as they are."""
    if document is None or document.deleted:
        return {}
    return {name: value for name, value in document.data.items() if name.startswith("_")}
