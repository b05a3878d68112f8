"""`/api/v1/resources…`, `/api/v1/status…`, `/api/v1/analytics…`: what there is, how much of it, and how it goes."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, structs

from headwater.clock import SECOND
from headwater.doors.listing import all_groups, all_queues
from headwater.doors.metrics import work_for
from headwater.doors.queen import views
from headwater.doors.queen.configuration import show_options
from headwater.doors.queen.identities import show_time
from headwater.doors.queen.messages import MessagesQuery, list_messages
from headwater.doors.site import Site, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import QueueMissing
from headwater.log.operations import Clear
from headwater.model.names import check_name
from headwater.model.principal import Scope
from headwater.services.checks import check_optional_name, check_said_name
from headwater.stores.questions import (
    FindLastLsn,
    GroupStatus,
    ListGroups,
    ListPartitions,
    PartitionStatus,
    QueueStatus,
)


class ListQuery(Struct, frozen=True):
    """Which part of a list, and which names are looked for."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    search: str = ""
    namespace: str = ""
    task: str = ""


class PartitionsQuery(Struct, frozen=True):
    """Which partitions: those after a number, of one queue or of all. For more than 10,000, `after` goes on."""

    queue: str = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    offset: Annotated[int, Meta(ge=0, le=10_000)] = 0
    after: Annotated[int, Meta(ge=0, lt=2**62)] = 0


class ClearQuery(Struct, frozen=True):
    """Which partition; all of them when none is named."""

    partition: str | None = None


class PageOfQueue(Struct, frozen=True):
    """Which of a queue's newest messages."""

    partition: str = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


Groups = Mapping[str, Sequence[GroupStatus]]
"""The groups of each queue."""


# ── what there is ──


async def overview(site: Site, request: Request) -> Response:
    """Everything in numbers."""
    queues = await _queues(site, request)
    groups = await _groups(site, request)
    return json_response(
        views.Overview(
            queues=len(queues),
            partitions=sum(status.partitions for status in queues),
            namespaces=len({status.namespace for status in queues if status.namespace}),
            tasks=len({status.task for status in queues if status.task}),
            consumer_groups=len(groups),
            messages=_totals(queues, _by_queue(groups)),
            timestamp=show_time(site.clock.now()),
        )
    )


def _totals(queues: Sequence[QueueStatus], groups: Groups) -> views.Totals:
    return views.Totals(
        total=sum(status.records for status in queues),
        pending=sum(_pending(status, groups.get(status.queue, ())) for status in queues),
        processing=sum(group.working for status in queues for group in groups.get(status.queue, ())),
        dead_letter=sum(status.dead_letters for status in queues),
    )


def _pending(status: QueueStatus, groups: Sequence[GroupStatus]) -> int:
    """What waits for the group that is furthest behind, and nobody works on; without a group, all there is."""
    return max((group.lag - group.working for group in groups), default=status.records)


def _by_queue(groups: Sequence[GroupStatus]) -> Groups:
    found: dict[str, list[GroupStatus]] = {}
    for group in groups:
        found.setdefault(group.queue, []).append(group)
    return found


async def list_namespaces(site: Site, request: Request) -> Response:
    """The namespaces with what is in them."""
    groups = _by_queue(await _groups(site, request))
    found = _by_name(await _queues(site, request), "namespace")
    namespaces = [views.Namespace(name, name, len(some), _totals(some, groups)) for name, some in found]
    return json_response(views.Namespaces(namespaces))


async def list_tasks(site: Site, request: Request) -> Response:
    """The tasks with what is in them."""
    groups = _by_queue(await _groups(site, request))
    found = _by_name(await _queues(site, request), "task")
    tasks = [views.Task(name, name, len(some), _totals(some, groups)) for name, some in found]
    return json_response(views.Tasks(tasks))


def _by_name(queues: Sequence[QueueStatus], kind: str) -> list[tuple[str, list[QueueStatus]]]:
    together: dict[str, list[QueueStatus]] = {}
    for status in queues:
        name = getattr(status, kind)
        if name:
            together.setdefault(name, []).append(status)
    return sorted(together.items())


async def list_queues(site: Site, request: Request, query: ListQuery) -> Response:
    """The queues with their sizes."""
    chosen = _chosen(await _queues(site, request), query)
    page = chosen[query.offset : query.offset + query.limit]
    groups = _by_queue(await _groups(site, request))
    return json_response(views.QueueViews([show_queue(status, groups) for status in page], len(chosen)))


def _chosen(queues: Sequence[QueueStatus], query: ListQuery) -> list[QueueStatus]:
    return [
        status
        for status in queues
        if query.search in status.queue
        and query.namespace in ("", status.namespace)
        and query.task in ("", status.task)
    ]


async def show_one_queue(site: Site, request: Request, queue: str) -> Response:
    """One queue with its options, partitions and groups."""
    check_use(request, check_name("queue", queue))
    database = request.principal.database
    status = next((found for found in await _queues(site, request) if found.queue == queue), None)
    if status is None:
        raise QueueMissing(_why_missing(queue))
    partitions = await site.queues.ask(ListPartitions(database, queue))
    groups = await site.queues.ask(ListGroups(database, queue))
    about = structs.asdict(show_queue(status, _by_queue(groups)))
    about["partitions"] = [show_partition(partition) for partition in partitions]
    return json_response(views.WholeQueue(**about, consumer_groups=[_show_group(site, group) for group in groups]))


def _why_missing(queue: str) -> str:
    """Clients of queen-mq 2 ask for `{queue}/depth`, which is a name of a queue as well."""
    name, _, last = queue.rpartition("/")
    if name and last == "depth":
        return f"this server does not answer the depth of a queue; /api/v1/resources/queues/{name:.80} has its totals"
    return f"there is no queue {queue!r:.80}"


async def list_partitions(site: Site, request: Request, query: PartitionsQuery) -> Response:
    """The partitions with where their messages begin and end."""
    check_optional_name("queue", query.queue)
    if query.queue:
        check_use(request, query.queue)
    principal, wanted = request.principal, query.offset + query.limit
    found = await site.queues.ask(ListPartitions(principal.database, query.queue, wanted, query.after, principal.reach))
    total = sum(status.partitions for status in await _queues(site, request) if query.queue in ("", status.queue))
    return json_response(views.PartitionViews([show_partition(status) for status in found[query.offset :]], total))


async def clear_queue(site: Site, request: Request, query: ClearQuery, queue: str) -> Response:
    """Drop all messages of a queue, or of one partition."""
    check_use(request, check_name("queue", queue))
    operation = Clear(
        database=request.principal.database,
        queue=queue,
        partition=check_said_name("partition", query.partition),
    )
    count = (await site.queues.run(operation)).count
    return json_response(views.Cleared(success=True, cleared=True, queue=queue, count=count))


def show_queue(status: QueueStatus, groups: Groups) -> views.QueueView:
    """A queue as the clients read it."""
    return views.QueueView(
        name=status.queue,
        queue=status.queue,
        namespace=status.namespace,
        task=status.task,
        partitions=status.partitions,
        messages=_totals([status], groups),
        options=show_options(status.options),
        created_at=show_time(status.created_at),
    )


def show_partition(status: PartitionStatus) -> views.PartitionView:
    """A partition as the clients read it."""
    return views.PartitionView(
        id=str(status.partition_id),
        partition_id=str(status.partition_id),
        queue=status.queue,
        name=status.partition,
        partition=status.partition,
        start_offset=status.start,
        end_offset=status.end,
        messages=status.end - status.start,
        created_at=show_time(status.created_at),
    )


def _show_group(site: Site, status: GroupStatus) -> views.GroupView:
    oldest = status.oldest_waiting_at
    behind = 0.0 if oldest is None else max((site.clock.now() - oldest) / SECOND, 0.0)
    return views.GroupView(
        name=status.group,
        queue=status.queue,
        partitions=status.partitions,
        lag=status.lag,
        seconds_behind=behind,
        leased=status.leased,
        lost=status.lost,
    )


# ── how it goes ──


async def show_status(site: Site, request: Request) -> Response:
    """This server and its store at a glance."""
    queues = await _queues(site, request)
    groups = await _groups(site, request)
    counters, rates = work_for(site, request.principal)
    return json_response(
        views.Status(
            version=site.version,
            queues=len(queues),
            messages=_totals(queues, _by_queue(groups)),
            waiting_pops=site.queues.intentions.count_for(request.principal),
            counters=counters,
            rates=rates,
            timestamp=show_time(site.clock.now()),
        )
    )


async def list_queue_status(site: Site, request: Request, query: ListQuery) -> Response:
    """The queues with their sizes and groups."""
    groups = _by_queue(await _groups(site, request))
    chosen = _chosen(await _queues(site, request), query)
    page = chosen[query.offset : query.offset + query.limit]
    shown = [
        views.WatchedQueue(
            **structs.asdict(show_queue(status, groups)),
            consumer_groups=[_show_group(site, group) for group in groups.get(status.queue, ())],
        )
        for status in page
    ]
    return json_response(views.WatchedQueues(shown, len(chosen)))


async def list_queue_messages(site: Site, request: Request, query: PageOfQueue, queue: str) -> Response:
    """The newest messages of a queue."""
    asked = MessagesQuery(queue=queue, partition=query.partition, limit=query.limit, offset=query.offset)
    return await list_messages(site, request, asked)


async def show_analytics(site: Site, request: Request) -> Response:
    """What this server did for the caller's database. For history, have Prometheus read /metrics."""
    counters, rates = work_for(site, request.principal)
    return json_response(views.Analytics(counters=counters, rates=rates, timestamp=show_time(site.clock.now())))


async def show_lags(site: Site, request: Request) -> Response:
    """How far behind each group is now."""
    now = show_time(site.clock.now())
    return json_response(
        views.Series(
            [
                {"timestamp": now, "queue": group.queue, "consumerGroup": group.group}
                | {"lag": group.lag, "secondsBehind": _show_group(site, group).seconds_behind}
                for group in await _groups(site, request)
            ]
        )
    )


async def show_operations(site: Site, request: Request) -> Response:
    """What this server did per second for the caller's database."""
    _, rates = work_for(site, request.principal)
    return json_response(views.Series([{"timestamp": show_time(site.clock.now()), **rates}] if rates else []))


async def show_parked(site: Site, request: Request) -> Response:
    """How many pops wait at this server now."""
    count = site.queues.intentions.count_for(request.principal)
    return json_response(views.Series([{"timestamp": show_time(site.clock.now()), "waitingPops": count}]))


async def show_sizes(site: Site, request: Request) -> Response:
    """How many messages each queue keeps now."""
    now = show_time(site.clock.now())
    queues = await _queues(site, request)
    kept: list[dict[str, str | int | float]] = [
        {"timestamp": now, "queue": queue.queue, "messages": queue.records} for queue in queues
    ]
    return json_response(views.Series(kept))


async def show_store(site: Site, request: Request) -> Response:
    """What the store says of itself; under the path at which queen-mq shows its database."""
    traits = site.queues.traits
    lsn = await site.queues.ask(FindLastLsn()) if request.principal.may(Scope.OPERATOR) else UNSET
    return json_response(
        views.StoreView(engine=traits.engine, store=traits.name, durable_by=traits.durable_by, lsn=lsn)
    )


async def refresh(site: Site, request: Request) -> Response:
    """Numbers are counted when they are asked for, so there is nothing to refresh."""
    return json_response(views.Refreshed(success=True))


async def _queues(site: Site, request: Request) -> list[QueueStatus]:
    return await all_queues(site, request.principal)


async def _groups(site: Site, request: Request) -> list[GroupStatus]:
    return await all_groups(site, request.principal)
