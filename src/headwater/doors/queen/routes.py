"""All routes of the queue API, as data."""

from headwater.doors.queen.configuration import configure, delete_queue
from headwater.doors.queen.pop import pop_partition, pop_queue, pop_together
from headwater.doors.queen.push import push
from headwater.doors.queen.reports import ack, ack_batch, extend
from headwater.doors.queen.shapes import (
    AckBatchBody,
    Acknowledgment,
    AckResult,
    ConfigureAnswer,
    ConfigureBody,
    DeleteAnswer,
    ExtendAnswer,
    ExtendBody,
    PopAnswer,
    PopQuery,
    PushBody,
    PushResult,
    TransactionAnswer,
    TransactionBody,
)
from headwater.doors.queen.transactions import transaction
from headwater.doors.routes import Route
from headwater.model.principal import Scope

ROUTES = (
    Route(
        method="POST",
        path="/api/v1/push",
        handler=push,
        summary="Append messages to queues",
        scope=Scope.PUBLISH,
        takes=PushBody,
        gives=list[PushResult],
        status=201,
    ),
    Route(
        method="GET",
        path="/api/v1/pop/queue/{queue}",
        handler=pop_queue,
        summary="Lease the next messages of a queue; 204 when there are none",
        scope=Scope.CONSUME,
        asks=PopQuery,
        gives=PopAnswer,
        changes=True,
    ),
    Route(
        method="GET",
        path="/api/v1/pop/queue/{queue}/partition/{partition}",
        handler=pop_partition,
        summary="Lease the next messages of one partition; 204 when there are none",
        scope=Scope.CONSUME,
        asks=PopQuery,
        gives=PopAnswer,
        changes=True,
    ),
    Route(
        method="GET",
        path="/api/v1/pop",
        handler=pop_together,
        summary="Lease the next messages of any queue of a namespace and task; 204 when there are none",
        scope=Scope.CONSUME,
        asks=PopQuery,
        gives=PopAnswer,
        changes=True,
    ),
    Route(
        method="POST",
        path="/api/v1/ack",
        handler=ack,
        summary="Report on one message",
        scope=Scope.CONSUME,
        takes=Acknowledgment,
        gives=list[AckResult],
    ),
    Route(
        method="POST",
        path="/api/v1/ack/batch",
        handler=ack_batch,
        summary="Report on several messages",
        scope=Scope.CONSUME,
        takes=AckBatchBody,
        gives=list[AckResult],
    ),
    Route(
        method="POST",
        path="/api/v1/lease/{lease}/extend",
        handler=extend,
        summary="Keep a lease for longer",
        scope=Scope.CONSUME,
        takes=ExtendBody,
        gives=ExtendAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/transaction",
        handler=transaction,
        summary="Pushes and reports that take effect together or not at all",
        scope=Scope.CONSUME,
        takes=TransactionBody,
        gives=TransactionAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/configure",
        handler=configure,
        summary="Make a queue or change its options",
        scope=Scope.ADMIN,
        takes=ConfigureBody,
        gives=ConfigureAnswer,
    ),
    Route(
        method="DELETE",
        path="/api/v1/resources/queues/{queue}",
        handler=delete_queue,
        summary="Remove a queue with everything in it",
        scope=Scope.ADMIN,
        gives=DeleteAnswer,
    ),
)
