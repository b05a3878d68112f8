"""What the routes that only look answer: queues, partitions, groups and traces as the clients of queen-mq read them."""

from msgspec import UNSET, Raw, Struct, UnsetType

from headwater.doors.queen.shapes import Options


class Totals(Struct, frozen=True, rename="camel"):
    """Messages in numbers."""

    total: int
    pending: int
    processing: int
    dead_letter: int


class Overview(Struct, frozen=True, rename="camel"):
    """Everything in numbers."""

    queues: int
    partitions: int
    namespaces: int
    tasks: int
    consumer_groups: int
    messages: Totals
    timestamp: str


class Namespace(Struct, frozen=True):
    """A namespace with what is in it."""

    namespace: str
    name: str
    queues: int
    messages: Totals


class Namespaces(Struct, frozen=True):
    """All namespaces."""

    namespaces: list[Namespace]


class Task(Struct, frozen=True):
    """A task with what is in it."""

    task: str
    name: str
    queues: int
    messages: Totals


class Tasks(Struct, frozen=True):
    """All tasks."""

    tasks: list[Task]


class QueueView(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue with its size and options."""

    name: str
    queue: str
    namespace: str
    task: str
    partitions: int
    messages: Totals
    options: Options
    created_at: str


class QueueViews(Struct, frozen=True):
    """A part of the queues, and how many there are."""

    queues: list[QueueView]
    total: int


class PartitionView(Struct, frozen=True, rename="camel"):
    """A partition with where its messages begin and end."""

    id: str
    partition_id: str
    queue: str
    name: str
    partition: str
    start_offset: int
    end_offset: int
    messages: int
    created_at: str


class PartitionViews(Struct, frozen=True):
    """Some partitions, and how many there are on all pages."""

    partitions: list[PartitionView]
    total: int


class GroupView(Struct, frozen=True, rename="camel"):
    """A group in one queue."""

    name: str
    queue: str
    partitions: int
    lag: int
    seconds_behind: float
    leased: int
    lost: int


class WatchedQueue(QueueView, frozen=True, rename="camel", kw_only=True):
    """A queue with its groups."""

    consumer_groups: list[GroupView]


class WatchedQueues(Struct, frozen=True):
    """A part of the queues with their groups, and how many there are."""

    queues: list[WatchedQueue]
    total: int


class WholeQueue(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue with its partitions one by one, and its groups."""

    name: str
    queue: str
    namespace: str
    task: str
    partitions: list[PartitionView]
    messages: Totals
    options: Options
    created_at: str
    consumer_groups: list[GroupView]


class Cleared(Struct, frozen=True):
    """A queue was emptied; so many messages were dropped."""

    success: bool
    cleared: bool
    queue: str
    count: int


class Analytics(Struct, frozen=True, kw_only=True):
    """What this server did for a database since it started, and per second over the last ten seconds.

    Both are empty for who may not use all of its queues.
    """

    counters: dict[str, int]
    rates: dict[str, float]
    timestamp: str


class Status(Analytics, frozen=True, rename="camel", kw_only=True):
    """This server and its store at a glance."""

    version: str
    queues: int
    messages: Totals
    waiting_pops: int


class Series(Struct, frozen=True):
    """What there is to be seen now, as a series of one moment: history is for Prometheus to keep."""

    series: list[dict[str, str | int | float]]


class StoreView(Struct, frozen=True, rename="camel"):
    """What the store says of itself."""

    engine: str
    store: str
    durable_by: str
    lsn: int | UnsetType = UNSET


class Refreshed(Struct, frozen=True):
    """There was nothing to do."""

    success: bool


class CursorView(Struct, frozen=True, rename="camel"):
    """Where a group stands in one partition."""

    partition: str
    partition_id: str
    position: int
    offset_lag: int
    lease_active: bool


class GroupDetail(Struct, frozen=True, rename="camel"):
    """Where a group stands in one queue."""

    total_lag: int
    max_time_lag: float
    partitions: list[CursorView]


class TraceView(Struct, frozen=True, rename="camel"):
    """An event in the life of a message."""

    partition_id: str
    transaction_id: str
    consumer_group: str
    trace_name: str | None
    event_type: str
    data: Raw
    created_at: str


class TraceViews(Struct, frozen=True):
    """The events of a message."""

    traces: list[TraceView]


class NamedTraces(TraceViews, frozen=True):
    """A part of the events under a name."""

    limit: int
    offset: int


class TraceNameView(Struct, frozen=True, rename="camel"):
    """A name that events were noted under."""

    name: str
    trace_name: str
    count: int
    last_at: str


class TraceNames(Struct, frozen=True, rename="camel"):
    """The names of events."""

    trace_names: list[TraceNameView]
    names: list[str]
