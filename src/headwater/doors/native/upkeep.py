"""Queues, groups, leases, dead letters and traces: who may change them, and who may look at them."""

from typing import Any

from msgspec import structs

from headwater.doors.listing import group_pages, list_response, queue_pages
from headwater.doors.native.rules import Rule
from headwater.doors.site import Site, key_of
from headwater.doors.wire import Request, Response
from headwater.errors import InvalidOption
from headwater.log.group_operations import ConfigureGroup, GiveBack, ReleaseLeases
from headwater.log.operations import (
    Configure,
    DeleteGroup,
    DeleteQueue,
    Operation,
    Purge,
    Requeue,
    Seek,
    SetSwitch,
    Switched,
    Trace,
)
from headwater.model.names import check_name
from headwater.model.principal import Scope
from headwater.services.checks import check_optional_name, check_text
from headwater.services.rooms import MEMORY_SWITCH
from headwater.stores.questions import (
    LeaseStatus,
    ListDeadLetters,
    ListGroups,
    ListLeases,
    ListPartitions,
    ListQueues,
    ListTraces,
    Question,
)


async def _check_trace(site: Site, request: Request, trace: Trace) -> Trace:
    for name in trace.names:
        check_name("trace", name)
    return trace


async def _own_pop_key(site: Site, request: Request, giving_back: GiveBack) -> GiveBack:
    """Keys are whose they are: nobody gives back what somebody else popped."""
    return structs.replace(giving_back, pop_key=key_of(request, giving_back.pop_key))


async def _check_switch(site: Site, request: Request, switch: SetSwitch) -> SetSwitch:
    """Other switches have routes of their own."""
    if switch.name != MEMORY_SWITCH:
        raise InvalidOption(f"the one switch here is {MEMORY_SWITCH!r}; got {switch.name!r:.80}")
    return switch


async def _switched(site: Site, request: Request, switch: SetSwitch, switched: Switched) -> Switched:
    """This process goes by it at once, the others when they next say who is there."""
    await site.rooms.look_at_switches()
    return switched


OPERATIONS: dict[type[Operation], Rule] = {
    Configure: Rule(scope=Scope.ADMIN, queue="queue"),
    DeleteQueue: Rule(scope=Scope.ADMIN, queue="queue"),
    Seek: Rule(scope=Scope.ADMIN, queue="queue"),
    DeleteGroup: Rule(scope=Scope.ADMIN, queue="queue"),
    ConfigureGroup: Rule(scope=Scope.ADMIN, queue="queue"),
    ReleaseLeases: Rule(scope=Scope.ADMIN, queue="queue"),
    Requeue: Rule(scope=Scope.ADMIN, queue="queue", queue_too="to"),
    Purge: Rule(scope=Scope.ADMIN, queue="queue"),
    SetSwitch: Rule(scope=Scope.ADMIN, whole=True, check=_check_switch, show=_switched),
    Trace: Rule(scope=Scope.CONSUME, partition=True, check=_check_trace),
    GiveBack: Rule(scope=Scope.CONSUME, check=_own_pop_key),
}


async def _queues(site: Site, request: Request, asked: ListQueues) -> Response:
    """The queues that they may use, by name: all of them, or a part."""
    part = asked.part
    limit = None if part.limit < 0 else part.limit
    return await list_response(queue_pages(site, request.principal, part.after[0], limit))


async def _groups(site: Site, request: Request, asked: ListGroups) -> Response:
    """The groups of queues that they may use, by queue and name: all of them, or a part."""
    part = asked.part
    limit = None if part.limit < 0 else part.limit
    return await list_response(group_pages(site, request.principal, asked.queue, part.after, limit))


async def _check_group(site: Site, request: Request, asked: ListLeases) -> ListLeases:
    check_optional_name("group", asked.group)
    return asked


async def _their_leases(site: Site, request: Request, asked: object, found: list[LeaseStatus]) -> list[LeaseStatus]:
    return [status for status in found if request.principal.may_use(status.queue)]


async def _check_name(site: Site, request: Request, asked: ListTraces) -> ListTraces:
    check_text("transaction_id", asked.transaction_id)
    return asked


async def _check_one_queue(site: Site, request: Request, asked: ListPartitions) -> ListPartitions:
    """Of one queue that they may use: those of a whole database are not everybody's."""
    check_name("queue", asked.queue)
    return asked


_looks: dict[str, Any] = {"scope": Scope.METRICS, "or_scopes": (Scope.SUBSCRIBE,), "queue": "queue", "some": True}

QUESTIONS: dict[type[Question[Any]], Rule] = {
    ListQueues: Rule(scope=Scope.METRICS, or_scopes=(Scope.SUBSCRIBE,), reply=_queues),
    ListGroups: Rule(**_looks, reply=_groups),
    ListLeases: Rule(**_looks, check=_check_group, show=_their_leases),
    ListDeadLetters: Rule(scope=Scope.SUBSCRIBE, queue="queue"),
    ListTraces: Rule(scope=Scope.SUBSCRIBE, partition=True, check=_check_name),
    ListPartitions: Rule(scope=Scope.SUBSCRIBE, queue="queue", check=_check_one_queue),
}
