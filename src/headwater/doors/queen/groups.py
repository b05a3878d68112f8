"""`/api/v1/consumer-groups…`: who reads what, how far behind they are, and moving or forgetting them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from headwater.clock import SECOND
from headwater.doors.listing import all_groups
from headwater.doors.queen import views
from headwater.doors.queen.identities import parse_time, show_time
from headwater.doors.site import Site, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption, QueueMissing
from headwater.log.operations import DeleteGroup, Seek, Subscribe
from headwater.model.names import check_name
from headwater.stores.questions import CursorStatus, GroupStatus, ListCursors

CURSORS_MAX = 10_000
LAGGING_SECONDS = 60


class LaggingQuery(Struct, frozen=True, rename="camel"):
    """From which lag on a group counts as lagging."""

    min_lag_seconds: Annotated[float, Meta(ge=0)] = 60


class DeleteQuery(Struct, frozen=True, rename="camel"):
    """Whether a group is forgotten with the place where it began; without that it begins there again."""

    delete_metadata: bool = True


class SubscriptionBody(Struct, frozen=True, rename="camel"):
    """From when on a group reads."""

    subscription_timestamp: str


class SeekBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where a group goes: to the end, to the beginning, to a time, or in one partition to an offset.

    With a place that nobody knows it would go to another, and pass messages for good.
    """

    to_end: bool = False
    to_beginning: bool = False
    timestamp: str | None = None
    offset: int | None = None


class GroupSummary(Struct, frozen=True, rename="camel"):
    """A group in one queue. Nobody signs in here, so `members` are the leases that consumers hold now."""

    name: str
    topics: list[str]
    queue_name: str
    members: int
    partitions_with_lag: int
    total_lag: int
    max_time_lag: float
    state: str
    leased: int
    lost: int


class GroupMoved(Struct, frozen=True, rename="camel"):
    """A group was moved."""

    success: bool
    consumer_group: str
    partitions_updated: int
    queue_name: str | None = None
    queues: int | None = None
    new_timestamp: str | None = None


class GroupDeleted(Struct, frozen=True, rename="camel"):
    """A group was forgotten, in so many queues."""

    success: bool
    consumer_group: str
    deleted: int
    queue_name: str | None = None


async def list_groups(site: Site, request: Request) -> Response:
    """All groups of all queues."""
    return json_response([_summary(site, status) for status in await _groups(site, request)])


async def show_group(site: Site, request: Request, group: str) -> Response:
    """Where one group stands, queue by queue and partition by partition."""
    check_name("group", group)
    known = [status for status in await _groups(site, request) if status.group == group]
    if not known:
        raise QueueMissing(f"there is no group {group!r:.80}")
    cursors = await site.queues.ask(ListCursors(request.principal.database, group, CURSORS_MAX))
    return json_response({status.queue: _detail(site, status, cursors) for status in known})


def _detail(site: Site, status: GroupStatus, cursors: list[CursorStatus]) -> views.GroupDetail:
    partitions = [
        views.CursorView(
            partition=cursor.partition,
            partition_id=str(cursor.partition_id),
            position=cursor.position,
            offset_lag=cursor.lag,
            lease_active=cursor.leased,
        )
        for cursor in cursors
        if cursor.queue == status.queue
    ]
    return views.GroupDetail(status.lag, _seconds_behind(site, status), partitions)


async def list_lagging(site: Site, request: Request, query: LaggingQuery) -> Response:
    """Groups whose oldest waiting message is older than this."""
    found = [_summary(site, status) for status in await _groups(site, request)]
    return json_response([group for group in found if group.total_lag and group.max_time_lag >= query.min_lag_seconds])


async def delete_group(site: Site, request: Request, query: DeleteQuery, group: str) -> Response:
    """Forget a group in all queues."""
    check_name("group", group)
    database, keep = request.principal.database, not query.delete_metadata
    if request.principal.may_use_all():
        operation = DeleteGroup(database=database, group=group, keep_beginning=keep)
        count = (await site.queues.run(operation)).count
        return json_response(GroupDeleted(success=True, consumer_group=group, deleted=count))
    count = 0
    for status in await _groups(site, request):
        if status.group == group:
            operation = DeleteGroup(database=database, queue=status.queue, group=group, keep_beginning=keep)
            count += (await site.queues.run(operation)).count
    return json_response(GroupDeleted(success=True, consumer_group=group, deleted=count))


async def delete_group_of_queue(site: Site, request: Request, query: DeleteQuery, group: str, queue: str) -> Response:
    """Forget a group in one queue."""
    check_use(request, queue)
    operation = DeleteGroup(
        database=request.principal.database,
        queue=check_name("queue", queue),
        group=check_name("group", group),
        keep_beginning=not query.delete_metadata,
    )
    count = (await site.queues.run(operation)).count
    return json_response(GroupDeleted(success=True, consumer_group=group, queue_name=queue, deleted=count))


async def subscribe(site: Site, request: Request, body: SubscriptionBody, group: str) -> Response:
    """Have a group read from a time on: in the queues that it reads, and in those that it will read."""
    check_name("group", group)
    at = parse_time("subscriptionTimestamp", body.subscription_timestamp)
    queues = [status.queue for status in await _groups(site, request) if status.group == group]
    moved = 0
    # First: a time that has not come is refused where the group is. Elsewhere it may come before the group does.
    for queue in queues:
        operation = Seek(database=request.principal.database, queue=queue, group=group, timestamp=at)
        moved += (await site.queues.run(operation)).partitions
    # Who may use some queues only must not decide where others begin.
    if request.principal.may_use_all():
        await site.queues.run(Subscribe(database=request.principal.database, group=group, timestamp=at))
    return json_response(
        GroupMoved(
            success=True,
            consumer_group=group,
            partitions_updated=moved,
            queues=len(queues),
            new_timestamp=show_time(at),
        )
    )


async def seek(site: Site, request: Request, body: SeekBody, group: str, queue: str) -> Response:
    """Move a group in a queue."""
    return await _seek(site, request, body, (group, queue, ""))


async def seek_partition(
    site: Site, request: Request, body: SeekBody, group: str, queue: str, partition: str
) -> Response:
    """Move a group in one partition; to its end when nothing is said."""
    check_name("partition", partition)
    if body == SeekBody():
        body = SeekBody(to_end=True)
    return await _seek(site, request, body, (group, queue, partition))


async def _seek(site: Site, request: Request, body: SeekBody, names: tuple[str, str, str]) -> Response:
    group, queue, partition = names
    check_use(request, queue)
    operation = Seek(
        database=request.principal.database,
        queue=check_name("queue", queue),
        group=check_name("group", group),
        partition=partition,
        **_target(body),
    )
    moved = (await site.queues.run(operation)).partitions
    return json_response(GroupMoved(success=True, consumer_group=group, queue_name=queue, partitions_updated=moved))


def _target(body: SeekBody) -> dict[str, Any]:
    chosen: list[dict[str, Any]] = []
    if body.to_end:
        chosen.append({"to": "end"})
    if body.to_beginning:
        chosen.append({"to": "beginning"})
    if body.timestamp is not None:
        chosen.append({"timestamp": parse_time("timestamp", body.timestamp)})
    if body.offset is not None:
        if body.offset < 0:
            raise InvalidOption(f"offset must be 0 or above; got {body.offset}")
        chosen.append({"offset": body.offset})
    if len(chosen) != 1:
        raise InvalidOption("say one of toEnd, toBeginning, timestamp and offset")
    return chosen[0]


async def _groups(site: Site, request: Request) -> list[GroupStatus]:
    """The groups of the queues that the caller may use."""
    return await all_groups(site, request.principal)


def _summary(site: Site, status: GroupStatus) -> GroupSummary:
    behind = _seconds_behind(site, status)
    return GroupSummary(
        name=status.group,
        topics=[status.queue],
        queue_name=status.queue,
        members=status.leased,
        partitions_with_lag=status.partitions_lagging,
        total_lag=status.lag,
        max_time_lag=behind,
        state="Lagging" if behind >= LAGGING_SECONDS else "Stable",
        leased=status.leased,
        lost=status.lost,
    )


def _seconds_behind(site: Site, status: GroupStatus) -> float:
    if status.oldest_waiting_at is None:
        return 0.0
    return max((site.clock.now() - status.oldest_waiting_at) / SECOND, 0.0)
