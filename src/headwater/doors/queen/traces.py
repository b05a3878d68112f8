"""`/api/v1/traces…`: events in the lives of messages, noted by consumers and read back by message or by name."""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from headwater.doors.queen import views
from headwater.doors.queen.identities import parse_partition, show_time, trace_name
from headwater.doors.queen.shapes import Text
from headwater.doors.site import Site, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import QueueMissing
from headwater.log.operations import Trace
from headwater.model.names import GROUP_DEFAULT, check_name
from headwater.model.record import check_ready_json
from headwater.services.checks import check_text
from headwater.stores.questions import ListTraceNames, ListTraces, ListTracesNamed, TraceEvent

NAMES_MAX = 32


class TraceBody(Struct, frozen=True, rename="camel"):
    """An event in the life of a message, under any number of names."""

    transaction_id: Text
    partition_id: str
    data: Raw | UnsetType = UNSET
    consumer_group: str | None = None
    trace_names: Annotated[list[str], Meta(max_length=NAMES_MAX)] | None = None
    event_type: Text = "info"


class TraceNoted(Struct, frozen=True):
    """The event was noted."""

    success: bool


class PageQuery(Struct, frozen=True):
    """Which part of a list."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


async def add_trace(site: Site, request: Request, body: TraceBody) -> Response:
    """Note an event."""
    partition_id = parse_partition(body.partition_id)
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")
    data = Raw(b"null") if body.data is UNSET else body.data
    check_ready_json(data, site.config.record_bytes_max)
    operation = Trace(
        database=request.principal.database,
        partition_id=partition_id,
        transaction_id=trace_name(check_text("transactionId", body.transaction_id)),
        group=check_name("group", body.consumer_group or GROUP_DEFAULT),
        names=tuple(check_text("trace name", name) for name in body.trace_names or ()),
        event=check_text("eventType", body.event_type),
        data=data,
    )
    await site.queues.run(operation)
    return json_response(TraceNoted(success=True), status=201)


async def list_traces(site: Site, request: Request, partition: str, name: str) -> Response:
    """The events of one message."""
    partition_id = parse_partition(partition)
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")
    events = await site.queues.ask(ListTraces(request.principal.database, partition_id, trace_name(name)))
    return json_response(views.TraceViews([_event(event) for event in events]))


async def list_traces_named(site: Site, request: Request, query: PageQuery, name: str) -> Response:
    """The events noted under a name, newest first."""
    check_text("trace name", name)
    principal = request.principal
    events = await site.queues.ask(
        ListTracesNamed(principal.database, name, query.limit, query.offset, principal.reach)
    )
    return json_response(views.NamedTraces([_event(event) for event in events], query.limit, query.offset))


async def list_trace_names(site: Site, request: Request, query: PageQuery) -> Response:
    """The names that events were noted under, the last used first."""
    principal = request.principal
    found = await site.queues.ask(ListTraceNames(principal.database, query.offset + query.limit, principal.reach))
    names = [
        views.TraceNameView(name.name, name.name, name.count, show_time(name.last_at)) for name in found[query.offset :]
    ]
    return json_response(views.TraceNames(names, [name.name for name in names]))


def _event(event: TraceEvent) -> views.TraceView:
    return views.TraceView(
        partition_id=str(event.partition_id),
        transaction_id=event.transaction_id,
        consumer_group=event.group,
        trace_name=event.name or None,
        event_type=event.event,
        data=event.data,
        created_at=show_time(event.noted_at),
    )
