"""System collections: what Headwater itself knows, as documents that can be asked for and followed, and not written.

    _queues  _groups  _dead_letters  _jobs  _workers  _rooms  _members  _servers

Each is a list that the store is asked for, as flat documents. Nothing of it is kept a second time: whoever follows one
is told of the differences between two looks, and there is one look for all who do.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from headwater import filters
from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidName
from headwater.filters import Predicate
from headwater.model.document import MILLISECOND, Document, Fields
from headwater.model.document_order import cursor_mark, cursor_of, place_of, read_cursor, write_cursor
from headwater.model.names import DATABASE_DEFAULT, Lsn, Offset
from headwater.model.principal import Principal, Scope
from headwater.model.room import PREFIX as ROOM_PREFIX
from headwater.model.room import PRESENCE, Attendance
from headwater.model.server_status import SERVERS_QUEUE, SHOWN_SECONDS, ServerStatus
from headwater.services.own_records import OwnRecords
from headwater.stores.contract import Answerer
from headwater.stores.document_questions import DocumentQuery
from headwater.stores.job_questions import JobFilter, ListJobQueues, ListJobs, ListWorkers
from headwater.stores.questions import (
    DeadLetter,
    ListDeadLetters,
    ListGroups,
    ListPartitions,
    ListQueues,
    Part,
    QueueStatus,
    ReadPartition,
)

MARK = "_"
PAGE_ROWS = 200
# Of one queue or room, so that none takes the place of another: jobs that ended longest ago are left out first.
JOBS_PER_QUEUE_MAX = 1_000
LETTERS_PER_QUEUE_MAX = 1_000
MEMBERS_PER_ROOM_MAX = 1_000
SEGMENTS_MAX = 1_000

Rows = dict[str, Fields]
_decode_server = msgspec.json.Decoder(ServerStatus).decode
_server_records = OwnRecords(lambda data: _decode_server(data))
Sees = Callable[[Mapping[str, Any]], bool]
NO_REPLICAS = "a system collection has no replicas; subscribe to it"


def is_system(collection: str) -> bool:
    """Whether a collection is one of ours: names that begin with an underscore are."""
    return collection.startswith(MARK)


def check_system(collection: str) -> str:
    """The name itself when there is a system collection of it."""
    if collection in SCOPES:
        return collection
    raise InvalidName(f"there is no system collection {collection!r:.80}; there are {', '.join(SCOPES)}")


# What somebody needs beside `documents:read`: the same as where the list itself is asked for.
_looking = (Scope.METRICS, Scope.SUBSCRIBE)
SCOPES: dict[str, tuple[Scope, ...]] = {
    "_queues": _looking,
    "_groups": _looking,
    "_dead_letters": (Scope.SUBSCRIBE,),
    "_jobs": (Scope.ADMIN,),
    "_workers": (Scope.ADMIN,),
    "_rooms": (Scope.SUBSCRIBE,),
    "_members": (Scope.SUBSCRIBE,),
    "_servers": (Scope.ADMIN,),
}
# Of these it is not said which queue they belong to, or by names that others chose: all queues must be theirs.
WHOLE = frozenset({"_jobs", "_workers", "_servers"})


def may_see(principal: Principal, collection: str) -> bool:
    """Whether somebody may look at a system collection."""
    if not any(principal.may(scope) for scope in SCOPES.get(collection, ())):
        return False
    return collection not in WHOLE or principal.may_use_all()


def seen_by(principal: Callable[[], Principal | None], collection: str) -> Sees:
    """Which rows of a system collection somebody sees, as they are known at that moment: those of queues that are
    theirs, as far as the access rules let them read the collection. Every way to read one asks this."""
    known, permit = None, None

    def sees(row: Mapping[str, Any]) -> bool:
        nonlocal known, permit
        now = principal()
        if now is None:
            return False
        if now is not known:
            known, permit = now, now.permit(collection)
        return (collection in WHOLE or now.may_use(row["queue"])) and filters.may_read(permit, row)

    return sees


# ── rows ──


async def list_rows(store: Answerer, database: str, collection: str, now: Timestamp) -> Rows:
    """All rows of a system collection, by id."""
    return await _collect(collection, _readers[check_system(collection)](store, database, now))


async def find_row(store: Answerer, database: str, collection: str, id: str, now: Timestamp) -> Fields | None:
    """One row of a system collection. Who is in a room takes several questions: they are asked of this one alone."""
    if collection == "_rooms":
        return (await _collect(collection, _rooms(store, database, now, id))).get(id)
    return (await list_rows(store, database, collection, now)).get(id)


async def _collect(collection: str, rows: AsyncIterator[Fields]) -> Rows:
    found: Rows = {}
    async for row in rows:
        times = {name: value for name, value in row.items() if name in ("createdAt", "updatedAt")}
        row |= {"collection": collection, "version": 1, "createdAt": 0, "updatedAt": 0, **times}
        found[row["id"]] = row
    return found


async def _each_queue(store: Answerer, database: str) -> AsyncIterator[QueueStatus]:
    after = ""
    while True:
        page = await store.ask(ListQueues(database, Part(after=(after, ""), limit=PAGE_ROWS)))
        for status in page:
            yield status
        if len(page) < PAGE_ROWS:
            return
        after = page[-1].queue


async def _queues(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    async for one in _each_queue(store, database):
        yield {
            "id": _id(one.queue),
            "queue": one.queue,
            "namespace": one.namespace,
            "task": one.task,
            "partitions": one.partitions,
            "records": one.records,
            "waiting": one.waiting,
            "delayed": one.delayed,
            "dead_letters": one.dead_letters,
            "createdAt": one.created_at // MILLISECOND,
        }


async def _groups(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    after = ("", "")
    while True:
        page = await store.ask(ListGroups(database, "", Part(after=after, limit=PAGE_ROWS)))
        for one in page:
            fields = msgspec.to_builtins(one)
            del fields["database"]
            yield {"id": _id(one.queue, one.group), **fields}
        if len(page) < PAGE_ROWS:
            return
        after = (page[-1].queue, page[-1].group)


async def _dead_letters(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    async for queue in _each_queue(store, database):
        if not queue.dead_letters:
            continue
        async for one in _letters_of(store, queue):
            yield {
                "id": str(one.id),
                "queue": one.queue,
                "partition": one.partition,
                "group": one.group,
                "offset": one.offset,
                "error": one.error,
                "attempts": one.attempts,
                "createdAt": one.written_at // MILLISECOND,
                "updatedAt": one.failed_at // MILLISECOND,
            }


async def _letters_of(store: Answerer, queue: QueueStatus) -> AsyncIterator[DeadLetter]:
    """The oldest dead letters of a queue. An answer has no more than so many bytes."""
    count, after = 0, 0
    while count < LETTERS_PER_QUEUE_MAX:
        page = await store.ask(ListDeadLetters(queue.database, queue.queue, LETTERS_PER_QUEUE_MAX - count, after))
        if not page:
            return
        for one in page:
            yield one
        count, after = count + len(page), page[-1].id


async def _jobs(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    for queue in await store.ask(ListJobQueues(database)):
        for one in await store.ask(ListJobs(database, JobFilter(queue=queue.queue, limit=JOBS_PER_QUEUE_MAX))):
            yield {
                "id": _id(one.id),
                "queue": one.queue,
                "type": one.type,
                "state": one.state.value,
                "priority": one.priority,
                "attempts": one.attempts,
                "attempts_max": one.attempts_max,
                "worker": one.worker,
                "batch": one.batch,
                "error": one.error,
                "cancelling": one.cancelling,
                "createdAt": one.created_at // MILLISECOND,
                "updatedAt": one.changed_at // MILLISECOND,
            }


async def _workers(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    for one in await store.ask(ListWorkers(database)):
        yield {
            "id": _id(one.id),
            "host": one.about.host,
            "pid": one.about.pid,
            "queues": list(one.about.queues),
            "concurrency": one.about.concurrency,
            "held": one.held,
            "stopping": one.stopping,
            "alive": one.lease_until > now,
            "createdAt": one.started_at // MILLISECOND,
        }


async def _each_room(
    store: Answerer, database: str, now: Timestamp, id: str = ""
) -> AsyncIterator[tuple[QueueStatus, Attendance]]:
    async for queue in _each_queue(store, database):
        if not queue.queue.startswith(ROOM_PREFIX) or id not in ("", _id(queue.queue.removeprefix(ROOM_PREFIX))):
            continue
        attendance = Attendance()
        for partition in await store.ask(ListPartitions(database, queue.queue)):
            if partition.partition != PRESENCE:
                continue
            first = partition.start
            while segments := await store.ask(ReadPartition(partition.partition_id, first, SEGMENTS_MAX)):
                for segment in segments:
                    for record in segment.records:
                        attendance.take(record, segment.written_at)
                first = Offset(segments[-1].first_offset + len(segments[-1].records))
        attendance.expire(now)
        yield queue, attendance


async def _rooms(store: Answerer, database: str, now: Timestamp, id: str = "") -> AsyncIterator[Fields]:
    async for queue, attendance in _each_room(store, database, now, id):
        yield {
            "id": _id(queue.queue.removeprefix(ROOM_PREFIX)),
            "room": queue.queue.removeprefix(ROOM_PREFIX),
            "queue": queue.queue,
            "members": attendance.count(),
            "createdAt": queue.created_at // MILLISECOND,
        }


async def _members(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    async for queue, attendance in _each_room(store, database, now):
        room = queue.queue.removeprefix(ROOM_PREFIX)
        for one in attendance.members()[:MEMBERS_PER_ROOM_MAX]:
            profile = msgspec.json.decode(msgspec.json.encode(one.profile))
            about = {"room": room, "member": one.member, "queue": queue.queue, "profile": profile}
            yield {"id": _id(room, one.member), **about}


async def _lately_there(store: Answerer, now: Timestamp) -> list[ServerStatus]:
    """The servers that were there lately, by what each said last; those that left in good order are not."""
    latest: dict[str, ServerStatus] = {}
    for partition in await store.ask(ListPartitions(DATABASE_DEFAULT, SERVERS_QUEUE, limit=1)):
        first = Offset(max(partition.start, partition.end - SEGMENTS_MAX))
        for segment in await store.ask(ReadPartition(partition.partition_id, first, SEGMENTS_MAX)):
            latest |= {status.id: status for _, _, status in _server_records.read(segment)}
    return [one for one in latest.values() if not one.stopping and one.at + SHOWN_SECONDS * SECOND > now]


async def _servers(store: Answerer, database: str, now: Timestamp) -> AsyncIterator[Fields]:
    """Of the whole store: seen from its first database alone."""
    for one in await _lately_there(store, now) if database == DATABASE_DEFAULT else ():
        yield {
            "id": one.id,
            "host": one.host,
            "pid": one.pid,
            "connections": one.connections,
            "subscriptions": one.subscriptions,
            "collections": one.collections,
            "pressure": one.pressure,
            "alive": one.is_alive(now),
            "createdAt": one.started_at // MILLISECOND,
        }


def _id(*names: str) -> str:
    """Names as the id of a document, which has no slash; other names are another id. No queue, group or room has a
    tilde or an @ in its name."""
    return "@".join(name.replace("~", "~0").replace("/", "~1") for name in names)


_readers: dict[str, Callable[[Answerer, str, Timestamp], AsyncIterator[Fields]]] = {
    "_queues": _queues,
    "_groups": _groups,
    "_dead_letters": _dead_letters,
    "_jobs": _jobs,
    "_workers": _workers,
    "_rooms": _rooms,
    "_members": _members,
    "_servers": _servers,
}


# ── asking ──


def document_of(row: Fields) -> Document:
    """A row as a document."""
    body = msgspec.Raw(msgspec.json.encode(row))
    return Document(row["collection"], row["id"], row["version"], False, body)


def chosen(
    rows: Sequence[Fields], query: DocumentQuery, predicate: Predicate, sees: Sees
) -> tuple[list[Document], str]:
    """Those of the rows that a query means, in its order, with the cursor to go on."""
    order = tuple(query.order_by)
    mark = cursor_mark(query.collection, order)
    after = read_cursor(query.start_after, len(order), mark)
    behind = None if after is None else place_of(after, order)
    placed = [(place_of(cursor_of(row, order), order), row) for row in rows if sees(row) and predicate(row)]
    placed = sorted((pair for pair in placed if behind is None or behind < pair[0]), key=lambda pair: pair[0])
    found = [document_of(row) for _, row in placed[: query.limit]]
    if len(placed) <= query.limit:
        return found, ""
    return found, write_cursor(cursor_of(found[-1].flat(), order), mark)


async def find_system(
    store: Answerer, database: str, query: DocumentQuery, now: Timestamp, sees: Sees, expression: filters.Expression
) -> tuple[list[Document], str, Lsn]:
    """What a query finds in a system collection."""
    rows = await list_rows(store, database, query.collection, now)
    found, cursor = chosen(list(rows.values()), query, filters.predicate(expression), sees)
    return found, cursor, Lsn(0)
