"""`POST /v1/configure`, `seek`, `requeue` and the like: queues, groups, dead letters and traces are changed."""

from msgspec import UNSET, Raw

from headwater.doors.native.messages import check_partition
from headwater.doors.site import Site, check_use, key_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption
from headwater.log.group_operations import ConfigureGroup, ReleaseLeases
from headwater.log.operations import Configure, DeleteGroup, DeleteQueue, Purge, Requeue, Seek, Trace
from headwater.model.names import Lsn, Offset, check_name
from headwater.model.principal import Scope, require_all
from headwater.model.record import check_ready_json
from headwater.services.checks import check_ids, check_number, check_optional_name, check_text, check_timestamp
from headwater.services.requests import (
    ConfigureGroupRequest,
    ConfigureRequest,
    DeadLettersRequest,
    DeleteGroupRequest,
    DeleteQueueRequest,
    ReleaseLeasesRequest,
    RequeueRequest,
    SeekRequest,
    TraceRequest,
)


def check_queue(request: Request, queue: str) -> str:
    """The name of a queue that they may use."""
    check_use(request, check_name("queue", queue))
    return queue


async def configure(site: Site, request: Request, body: ConfigureRequest) -> Response:
    """Make a queue, or change its options."""
    for kind, name in (("namespace", body.namespace), ("task", body.task)):
        if name is not None:
            check_optional_name(kind, name)
    operation = Configure(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        namespace=body.namespace,
        task=body.task,
        options=body.options,
    )
    return json_response(await site.queues.run(operation))


async def delete_queue(site: Site, request: Request, body: DeleteQueueRequest) -> Response:
    """Remove a queue with everything in it."""
    operation = DeleteQueue(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
    )
    return json_response(await site.queues.run(operation))


async def seek(site: Site, request: Request, body: SeekRequest) -> Response:
    """Move a group."""
    if sum(target is not None for target in (body.timestamp, body.lsn, body.offset)) > 1:
        raise InvalidOption("a group goes to a timestamp, behind an LSN or to an offset, not to several")
    operation = Seek(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        group=check_name("group", body.group),
        partition=check_optional_name("partition", body.partition),
        to=body.to,
        timestamp=None if body.timestamp is None else check_timestamp(body.timestamp),
        lsn=None if body.lsn is None else Lsn(check_number("lsn", body.lsn)),
        offset=None if body.offset is None else Offset(body.offset),
        create=body.create,
    )
    return json_response(await site.queues.run(operation))


async def delete_group(site: Site, request: Request, body: DeleteGroupRequest) -> Response:
    """Forget a group."""
    if body.queue:
        check_queue(request, body.queue)
    else:
        require_all(request.principal, Scope.ADMIN)
    operation = DeleteGroup(
        database=request.principal.database,
        key=key_of(request, body.key),
        group=check_name("group", body.group),
        queue=body.queue,
        keep_beginning=body.keep_beginning,
    )
    return json_response(await site.queues.run(operation))


async def configure_group(site: Site, request: Request, body: ConfigureGroupRequest) -> Response:
    """Give a group options of its own."""
    operation = ConfigureGroup(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        group=check_name("group", body.group),
        options=body.options,
    )
    return json_response(await site.queues.run(operation))


async def release_leases(site: Site, request: Request, body: ReleaseLeasesRequest) -> Response:
    """Give back what is leased."""
    operation = ReleaseLeases(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        group=check_optional_name("group", body.group),
        partition=check_optional_name("partition", body.partition),
        token=body.token,
    )
    return json_response(await site.queues.run(operation))


async def requeue(site: Site, request: Request, body: RequeueRequest) -> Response:
    """Have dead letters delivered once more."""
    if body.to:
        check_queue(request, body.to)
    operation = Requeue(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        ids=check_ids(body.ids),
        limit=body.limit,
        to=body.to,
        all_groups=body.all_groups,
    )
    return json_response(await site.queues.run(operation))


async def purge(site: Site, request: Request, body: DeadLettersRequest) -> Response:
    """Drop dead letters for good."""
    operation = Purge(
        database=request.principal.database,
        key=key_of(request, body.key),
        queue=check_queue(request, body.queue),
        ids=check_ids(body.ids),
        limit=body.limit,
    )
    return json_response(await site.queues.run(operation))


async def trace(site: Site, request: Request, body: TraceRequest) -> Response:
    """Note an event in the life of a record."""
    await check_partition(site, request, body.partition_id)
    data = Raw(b"null") if body.data is UNSET else body.data
    check_ready_json(data, site.config.record_bytes_max)
    operation = Trace(
        database=request.principal.database,
        key=key_of(request, body.key),
        partition_id=body.partition_id,
        transaction_id=check_text("transaction_id", body.transaction_id),
        group=check_name("group", body.group),
        names=tuple(check_name("trace", name) for name in body.names),
        event=check_text("event", body.event),
        data=data,
    )
    return json_response(await site.queues.run(operation))
