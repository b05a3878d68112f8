"""`GET /metrics`: what this server did and how its queues stand, in the text format of Prometheus.

Nothing is counted for it that is not counted anyway; sizes and lags are asked of the store when somebody reads.
`process` tells the processes of one server apart: each counts for itself.
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headwater.clock import SECOND
from headwater.doors.job_metrics import job_families
from headwater.doors.routes import Route
from headwater.doors.site import Site
from headwater.doors.wire import Request, Response
from headwater.model.principal import Scope
from headwater.stores.contract import GroupStatus, QueueStatus


async def show_metrics(site: Site, request: Request) -> Response:
    """Everything, freshly counted."""
    database = request.principal.database
    theirs = request.principal.may_use
    queues = [status for status in await site.store.queues(database) if theirs(status.queue)]
    groups = [status for status in await site.store.groups(database) if theirs(status.queue)]
    families = [
        *_work(site),
        *_polls(site),
        *_requests(site),
        *_queues(queues),
        *_groups(groups, site.clock.now()),
    ]
    families += await job_families(site, request.principal)
    registry = CollectorRegistry()
    registry.register(_Ready(families))
    return Response(content_type=CONTENT_TYPE_LATEST, body=generate_latest(registry))


class _Ready(Collector):
    """Families that are complete."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _counter(site: Site, name: str, text: str, value: float) -> Metric:
    family = CounterMetricFamily(f"headwater_{name}", text, labels=("process",))
    family.add_metric((site.process,), value)
    return family


def _gauge(site: Site, name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"headwater_{name}", text, labels=("process",))
    family.add_metric((site.process,), value)
    return family


def _work(site: Site) -> Iterator[Metric]:
    committer, tail = site.committer, site.tail
    yield _counter(site, "records_pushed", "Records appended", site.pushed_records)
    yield _counter(site, "records_duplicate", "Records that were there before", site.duplicate_records)
    yield _counter(site, "records_refused", "Records that a queue refused", site.refused_records)
    yield _counter(site, "records_popped", "Records delivered", site.popped_records)
    yield _counter(site, "records_settled", "Records that consumers reported on", site.settled_records)
    yield _counter(site, "reports_refused", "Reports that came too late or were wrong", site.refused_reports)
    yield _counter(site, "records_buried", "Records that went to the dead letters", site.dead_letters)
    yield _counter(site, "commits", "Transactions, each for everybody who waited", committer.commits)
    yield _counter(site, "syncs", "Waits for the disk, each for everybody who waited", committer.syncs)
    yield _gauge(site, "operations_pending", "Operations that wait for a commit", committer.pending)
    yield _counter(site, "tail_looks", "Looks at the log for commits of others", tail.looks)
    yield _counter(site, "tail_useful_looks", "Looks that found something", tail.useful_looks)
    yield _gauge(site, "tail_lsn", "The newest segment that this process knows", tail.position)
    yield _gauge(site, "connections", "Open connections", site.connections())


def _polls(site: Site) -> Iterator[Metric]:
    polls = site.queues.intentions
    yield _gauge(site, "waiting_pops", "Pops that wait", polls.count)
    yield _gauge(site, "waiting_pops_max", "Pops that may wait at once", site.config.waiters_max)
    yield _gauge(site, "waiting_keys", "Selections that pops wait for: one question serves all of a key", polls.keys())
    yield _counter(site, "poll_wakes", "Keys that were woken because something may be there", polls.wakes)
    yield _counter(site, "poll_useful_wakes", "Wakes that served somebody", polls.useful_wakes)
    yield _counter(site, "poll_pops", "Pops that were made for waiting clients", polls.pops)
    yield _counter(site, "poll_served", "Waiting pops that got something", polls.served)
    yield _counter(site, "poll_timeouts", "Waiting pops whose time was over", polls.timeouts)
    yield _counter(site, "poll_overflows", "Pops that were refused because too many waited", polls.overflows)
    delivery = HistogramMetricFamily(
        "headwater_poll_delivery_seconds", "From the push of a record to a client that waited", labels=("process",)
    )
    delivery.add_metric((site.process,), polls.delivery.cumulative(), polls.delivery.total)
    yield delivery


def _requests(site: Site) -> Iterator[Metric]:
    names = ("process", "method", "route", "status")
    requests = CounterMetricFamily("headwater_http_requests", "Requests by what they asked and got", labels=names)
    for (method, path, status), count in site.requests.items():
        requests.add_metric((site.process, method, path, str(status)), count)
    yield requests


def _queues(queues: Sequence[QueueStatus]) -> Iterator[Metric]:
    records = GaugeMetricFamily("headwater_queue_records", "Records that a queue keeps", labels=("queue",))
    waiting = GaugeMetricFamily("headwater_queue_waiting", "Records before the slowest group", labels=("queue",))
    letters = GaugeMetricFamily("headwater_queue_dead_letters", "Dead letters of a queue", labels=("queue",))
    partitions = GaugeMetricFamily("headwater_queue_partitions", "Partitions of a queue", labels=("queue",))
    for status in queues:
        records.add_metric((status.queue,), status.records)
        waiting.add_metric((status.queue,), status.waiting)
        letters.add_metric((status.queue,), status.dead_letters)
        partitions.add_metric((status.queue,), status.partitions)
    yield from (records, waiting, letters, partitions)


def _groups(groups: Sequence[GroupStatus], now: int) -> Iterator[Metric]:
    names = ("queue", "group")
    lag = GaugeMetricFamily("headwater_group_lag", "Records before a group", labels=names)
    behind = GaugeMetricFamily("headwater_group_behind_seconds", "Age of the oldest of them", labels=names)
    leases = GaugeMetricFamily("headwater_group_leases", "Partitions that a group works on", labels=names)
    lost = CounterMetricFamily("headwater_group_lost", "Records dropped before a group read them", labels=names)
    for status in groups:
        oldest = status.oldest_waiting_at
        lag.add_metric((status.queue, status.group), status.lag)
        behind.add_metric((status.queue, status.group), 0 if oldest is None else max(now - oldest, 0) / SECOND)
        leases.add_metric((status.queue, status.group), status.leased)
        lost.add_metric((status.queue, status.group), status.lost)
    yield from (lag, behind, leases, lost)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=show_metrics,
        summary="What this server did, for Prometheus",
        scope=Scope.METRICS,
        content_types=("text/plain",),
    ),
    Route(
        method="GET",
        path="/metrics/prometheus",
        handler=show_metrics,
        summary="The same, where queen-mq has it",
        scope=Scope.METRICS,
        content_types=("text/plain",),
    ),
)
