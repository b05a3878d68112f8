"""All routes of the queue API, as data."""

from typing import Any

from headwater.doors.queen import (
    configuration,
    groups,
    maintenance,
    messages,
    pop,
    push,
    reports,
    resources,
    streams,
    traces,
    transactions,
    views,
)
from headwater.doors.queen import shapes as shape
from headwater.doors.routes import Route, RouteHandler
from headwater.model.principal import Scope


def get(path: str, handler: RouteHandler, summary: str, scope: Scope, **more: Any) -> Route:
    """Something to read."""
    return Route(method="GET", path=path, handler=handler, summary=summary, scope=scope, lenient=True, **more)


def post(path: str, handler: RouteHandler, summary: str, scope: Scope, **more: Any) -> Route:
    """Something to do."""
    return Route(method="POST", path=path, handler=handler, summary=summary, scope=scope, lenient=True, **more)


def delete(path: str, handler: RouteHandler, summary: str, scope: Scope, **more: Any) -> Route:
    """Something to drop. With a parameter that nobody knows more would be dropped than was meant."""
    return Route(method="DELETE", path=path, handler=handler, summary=summary, scope=scope, **more)


_popping: dict[str, Any] = {"gives": shape.PopResponse, "changes": True, "may_be_empty": True}

QUEUES = (
    post(
        "/api/v1/push",
        push.push,
        "Append messages to queues",
        Scope.PUBLISH,
        gives=list[shape.PushResult],
        status=201,
    ),
    get(
        "/api/v1/pop/queue/{queue}",
        pop.pop_queue,
        "Lease the next messages of a queue; 204 when there are none",
        Scope.CONSUME,
        **_popping,
    ),
    get(
        "/api/v1/pop/queue/{queue}/partition/{partition}",
        pop.pop_partition,
        "Lease the next messages of one partition; 204 when there are none",
        Scope.CONSUME,
        **_popping,
    ),
    get(
        "/api/v1/pop",
        pop.pop_together,
        "Lease the next messages of any queue of a namespace and task; 204 when there are none",
        Scope.CONSUME,
        **_popping,
    ),
    post(
        "/api/v1/ack",
        reports.ack,
        "Report on one message",
        Scope.CONSUME,
        gives=list[shape.AckResult],
    ),
    post(
        "/api/v1/ack/batch",
        reports.ack_batch,
        "Report on several messages",
        Scope.CONSUME,
        gives=list[shape.AckResult],
    ),
    post(
        "/api/v1/lease/{lease}/extend",
        reports.extend,
        "Keep a lease for longer",
        Scope.CONSUME,
        gives=shape.ExtendResponse,
    ),
    post(
        "/api/v1/transaction",
        transactions.transaction,
        "Pushes and reports that take effect together or not at all",
        Scope.CONSUME,
        or_scopes=(Scope.PUBLISH,),
        blame=transactions.blame,
        gives=shape.TransactionResponse,
    ),
    post(
        "/api/v1/configure",
        configuration.configure,
        "Make a queue or change its options",
        Scope.ADMIN,
        gives=shape.ConfigureResponse,
    ),
    delete(
        "/api/v1/resources/queues/{queue}",
        configuration.delete_queue,
        "Remove a queue with everything in it",
        Scope.ADMIN,
        gives=shape.DeleteResponse,
    ),
    delete(
        "/api/v1/queues/{queue}/clear",
        resources.clear_queue,
        "Drop all messages of a queue or of one partition",
        Scope.ADMIN,
        gives=views.Cleared,
    ),
)

GROUPS = (
    get(
        "/api/v1/consumer-groups",
        groups.list_groups,
        "All groups, how far behind each is",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=list[groups.GroupSummary],
    ),
    get(
        "/api/v1/consumer-groups/lagging",
        groups.list_lagging,
        "Groups whose oldest waiting message is older than this",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=list[groups.GroupSummary],
    ),
    get(
        "/api/v1/consumer-groups/{group}",
        groups.show_group,
        "Where a group stands, by queue and partition",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=dict[str, views.GroupDetail],
    ),
    delete(
        "/api/v1/consumer-groups/{group}",
        groups.delete_group,
        "Forget a group in all queues",
        Scope.ADMIN,
        gives=groups.GroupDeleted,
    ),
    post(
        "/api/v1/consumer-groups/{group}/subscription",
        groups.subscribe,
        "Have a group read from a time on, in all its queues",
        Scope.ADMIN,
        gives=groups.GroupMoved,
    ),
    delete(
        "/api/v1/consumer-groups/{group}/queues/{queue}",
        groups.delete_group_of_queue,
        "Forget a group in one queue",
        Scope.ADMIN,
        gives=groups.GroupDeleted,
    ),
    post(
        "/api/v1/consumer-groups/{group}/queues/{queue}/seek",
        groups.seek,
        "Move a group in a queue: to the end, the beginning or a time",
        Scope.ADMIN,
        gives=groups.GroupMoved,
    ),
    post(
        "/api/v1/consumer-groups/{group}/queues/{queue}/partitions/{partition}/seek",
        groups.seek_partition,
        "Move a group in one partition",
        Scope.ADMIN,
        gives=groups.GroupMoved,
    ),
)

MESSAGES = (
    get(
        "/api/v1/dlq",
        messages.list_dead_letters,
        "Messages that failed for good, newest first",
        Scope.SUBSCRIBE,
        gives=messages.DeadMessages,
    ),
    get(
        "/api/v1/messages",
        messages.list_messages,
        "The newest messages of a queue",
        Scope.SUBSCRIBE,
        gives=messages.KeptMessages,
    ),
    get(
        "/api/v1/messages/{partition}/{message}",
        messages.show_message,
        "One message",
        Scope.SUBSCRIBE,
        gives=messages.KeptMessage,
    ),
    delete(
        "/api/v1/messages/{partition}/{message}",
        messages.delete_message,
        "Drop a dead letter, or have every group pass a message",
        Scope.ADMIN,
        gives=messages.Decision,
    ),
    post(
        "/api/v1/messages/{partition}/{message}/retry",
        messages.retry_message,
        "Push a dead letter back",
        Scope.ADMIN,
        gives=messages.Decision,
    ),
    post(
        "/api/v1/messages/{partition}/{message}/dlq",
        messages.bury_message,
        "Move a message to the dead letters",
        Scope.ADMIN,
        gives=messages.Decision,
    ),
    post(
        "/api/v1/traces",
        traces.add_trace,
        "Note an event in the life of a message",
        Scope.CONSUME,
        gives=traces.TraceNoted,
        status=201,
    ),
    get(
        "/api/v1/traces/names",
        traces.list_trace_names,
        "The names that events were noted under",
        Scope.SUBSCRIBE,
        gives=views.TraceNames,
    ),
    get(
        "/api/v1/traces/by-name/{name}",
        traces.list_traces_named,
        "The events noted under a name",
        Scope.SUBSCRIBE,
        gives=views.NamedTraces,
    ),
    get(
        "/api/v1/traces/{partition}/{message}",
        traces.list_traces,
        "The events of one message",
        Scope.SUBSCRIBE,
        gives=views.TraceViews,
    ),
)

RESOURCES = (
    get("/api/v1/resources/overview", resources.overview, "Everything in numbers", Scope.METRICS, gives=views.Overview),
    get(
        "/api/v1/resources/namespaces",
        resources.list_namespaces,
        "The namespaces",
        Scope.METRICS,
        gives=views.Namespaces,
    ),
    get("/api/v1/resources/tasks", resources.list_tasks, "The tasks", Scope.METRICS, gives=views.Tasks),
    get(
        "/api/v1/resources/queues",
        resources.list_queues,
        "The queues with their sizes",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=views.QueueViews,
    ),
    get(
        "/api/v1/resources/queues/{queue}",
        resources.show_one_queue,
        "One queue with its options, partitions and groups",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=views.WholeQueue,
    ),
    get(
        "/api/v1/resources/partitions",
        resources.list_partitions,
        "The partitions with where their messages begin and end",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=views.PartitionViews,
    ),
    get("/api/v1/status", resources.show_status, "This server at a glance", Scope.METRICS, gives=views.Status),
    get(
        "/api/v1/status/queues",
        resources.list_queue_status,
        "The queues with their sizes and groups",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=views.WatchedQueues,
    ),
    get(
        "/api/v1/status/queues/{queue}",
        resources.show_one_queue,
        "One queue with its options, partitions and groups",
        Scope.METRICS,
        or_scopes=(Scope.SUBSCRIBE,),
        gives=views.WholeQueue,
    ),
    get(
        "/api/v1/status/queues/{queue}/messages",
        resources.list_queue_messages,
        "The newest messages of a queue",
        Scope.SUBSCRIBE,
        gives=messages.KeptMessages,
    ),
    get(
        "/api/v1/status/analytics", resources.show_analytics, "Counters and rates", Scope.METRICS, gives=views.Analytics
    ),
    get(
        "/api/v1/analytics/system-metrics",
        resources.show_analytics,
        "Counters and rates",
        Scope.METRICS,
        gives=views.Analytics,
    ),
    get(
        "/api/v1/analytics/worker-metrics",
        resources.show_analytics,
        "Counters and rates",
        Scope.METRICS,
        gives=views.Analytics,
    ),
    get(
        "/api/v1/analytics/queue-lag",
        resources.show_lags,
        "How far behind groups are",
        Scope.METRICS,
        gives=views.Series,
    ),
    get("/api/v1/analytics/queue-ops", resources.show_operations, "Rates", Scope.METRICS, gives=views.Series),
    get(
        "/api/v1/analytics/queue-parked-replicas",
        resources.show_parked,
        "Pops that wait",
        Scope.METRICS,
        gives=views.Series,
    ),
    get("/api/v1/analytics/retention", resources.show_sizes, "What queues keep", Scope.METRICS, gives=views.Series),
    get(
        "/api/v1/analytics/postgres-stats",
        resources.show_store,
        "What the store says of itself",
        Scope.METRICS,
        gives=views.StoreView,
    ),
    post(
        "/api/v1/stats/refresh",
        resources.refresh,
        "Does nothing: numbers are fresh",
        Scope.METRICS,
        gives=views.Refreshed,
    ),
)

MAINTENANCE = (
    get(
        "/api/v1/system/maintenance",
        maintenance.show_maintenance,
        "What is held off",
        Scope.METRICS,
        gives=maintenance.Maintenance,
    ),
    post(
        "/api/v1/system/maintenance",
        maintenance.set_push_maintenance,
        "Hold pushes off, or take them again",
        Scope.ADMIN,
        gives=maintenance.Maintenance,
    ),
    get(
        "/api/v1/system/maintenance/pop",
        maintenance.show_maintenance,
        "What is held off",
        Scope.METRICS,
        gives=maintenance.Maintenance,
    ),
    post(
        "/api/v1/system/maintenance/pop",
        maintenance.set_pop_maintenance,
        "Hold pops off, or serve them again",
        Scope.ADMIN,
        gives=maintenance.Maintenance,
    ),
)

STREAMS = (
    post(
        "/streams/v1/queries",
        streams.register,
        "Make a streaming query known",
        Scope.CONSUME,
        gives=streams.QueryResponse,
    ),
    post(
        "/streams/v1/cycle",
        streams.cycle,
        "Commit state, pushes and the report on the source together",
        Scope.CONSUME,
        gives=streams.CycleResponse,
    ),
    post(
        "/streams/v1/state/get",
        streams.get_state,
        "What a streaming query remembers of a partition",
        Scope.CONSUME,
        gives=streams.StateResponse,
    ),
)

# What clients of queen-mq 2 ask for that is not served here.
ABSENT = {
    "/api/v1/kv": transactions.NO_KEYS,
    "/api/v1/timers": f"{transactions.NO_TIMERS}; a push to /v1/push may have delay_seconds",
    "/api/v1/locks": "this server has no locks and no semaphores",
    "/api/v1/fetch": "this server has no reads by offset for clients of queen-mq; pop with another group",
    "/api/v1/partitions/changed": "this server does not tell which partitions were written to since a time",
    "/api/v1/ephemeral": "this server has no ephemeral queues: it keeps every message",
}

ROUTES = (*QUEUES, *GROUPS, *MESSAGES, *RESOURCES, *MAINTENANCE, *STREAMS)
