"""What clients of documents send and get. Names that nobody knows are refused."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from headwater.model.document import Condition, DocumentRow, Fields, OrderBy
from headwater.services.document_checks import QUERY_LIMIT_MAX, ROWS_MAX
from headwater.services.replication import Checkpoint

WRITES_MAX = 1_000

_count = {"type": "integer", "minimum": 0}
# Beside what stands here a document has the fields that it was given.
FlatDocument = Annotated[
    Fields,
    Meta(
        title="Document",
        extra_json_schema={
            "required": ["id", "collection", "version", "createdAt", "updatedAt"],
            "properties": {
                "id": {"type": "string"},
                "collection": {"type": "string"},
                "version": {"type": "integer", "minimum": 1},
                "createdAt": _count,
                "updatedAt": _count,
                "deleted": {"type": "boolean"},
            },
        },
    ),
]
ReplicaDocument = Annotated[
    Fields,
    Meta(
        title="ReplicaDocument",
        extra_json_schema={
            "required": ["id", "_deleted"],
            "properties": {"id": {"type": "string"}, "_deleted": {"type": "boolean"}},
        },
    ),
]

Conditions = Annotated[list[Condition], Meta(max_length=256)]
Limit = Annotated[int, Meta(ge=1, le=QUERY_LIMIT_MAX)]
Number = Annotated[int, Meta(ge=0, lt=2**62)]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What all bodies are."""


class WriteRequest(Asked, frozen=True, kw_only=True):
    """Fields of a document, and what must hold of it before they are written."""

    doc: Fields
    if_match: Conditions = []


class DeleteRequest(Asked, frozen=True, kw_only=True):
    """What must hold of a document before it is deleted."""

    if_match: Conditions = []


class QueryRequest(Asked, frozen=True, kw_only=True):
    """Documents of a collection. `filter` is CEL text beside the list; `startAfter` is a `nextCursor`."""

    collection: str
    filters: Conditions = []
    filter: str = ""
    order_by: Annotated[list[OrderBy], Meta(max_length=8)] = []
    limit: Limit = 100
    start_after: str | None = None
    show_deleted: bool = False


class DocumentsAnswer(Struct, frozen=True, rename="camel"):
    """Documents, and the cursor to go on behind them; empty when there are no more."""

    docs: list[FlatDocument]
    next_cursor: str = ""


class Write(Asked, frozen=True, kw_only=True):
    """One write of a batch."""

    type: Literal["create", "set", "update", "delete"]
    path: str
    data: Fields = {}
    if_match: Conditions = []


class BatchRequest(Asked, frozen=True, kw_only=True):
    """Writes that take effect together or not at all."""

    writes: Annotated[list[Write], Meta(min_length=1, max_length=WRITES_MAX)]


class GetRequest(Asked, frozen=True, kw_only=True):
    """One document, by its path."""

    path: str


class PullRequest(Asked, frozen=True, kw_only=True):
    """What a replica has not read yet."""

    collection: str
    checkpoint: Checkpoint | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class PullAnswer(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Documents in the order of their commits, and how far that is. Fewer than were asked for are all there are.
    `resync` says why they come from the beginning, when the checkpoint was of another log; so they do when
    `rules_changed`: it was made under other access rules, and what else the replica has is not theirs any more."""

    documents: list[ReplicaDocument]
    checkpoint: Checkpoint
    resync: str = ""
    rules_changed: bool = False


class PushRequest(Asked, frozen=True, kw_only=True):
    """What a replica has written."""

    collection: str
    rows: Annotated[list[DocumentRow], Meta(max_length=ROWS_MAX)]
