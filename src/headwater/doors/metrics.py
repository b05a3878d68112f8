"""`GET /metrics`: what this server did and how its queues stand, in the text format of Prometheus.

Nothing is counted for it that is not counted anyway; sizes and lags are asked of the store when somebody reads. What
the processes of a server do for everybody together is for its operator; others are told of their own database.

`process` tells the processes of one server apart. Each puts its report on a board that they share, so that whichever is
asked answers for all; see `board.py`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headwater.clock import SECOND
from headwater.doors.capture_metrics import capture_families
from headwater.doors.job_metrics import job_families
from headwater.doors.listing import group_pages, queue_pages
from headwater.doors.routes import Route
from headwater.doors.site import ALONE, Site
from headwater.doors.wire import Request, Response
from headwater.doors.work import together
from headwater.errors import StoreFull, StoreSilent
from headwater.model.histogram import Histogram
from headwater.model.principal import Principal, Scope
from headwater.services.live_watch import COUNTERS as LIVE_COUNTERS
from headwater.services.own_records import Passed
from headwater.services.room_lag import RoomState, judge
from headwater.stores.questions import FindLastLsn, GroupStatus, QueueStatus

log = logging.getLogger(__name__)

# Queues, and groups, that have a line of their own. Those beyond, by name, are added up under this, which is no name.
LABELLED_MAX = 1_000
OTHERS = "*"

_COUNTERS = {
    "records_pushed": ("pushed_records", "Records appended"),
    "records_duplicate": ("duplicate_records", "Records that were there before"),
    "records_refused": ("refused_records", "Records that a queue refused"),
    "records_popped": ("popped_records", "Records delivered"),
    "records_settled": ("settled_records", "Records that consumers reported on"),
    "reports_refused": ("refused_reports", "Reports that came too late or were wrong"),
    "records_buried": ("dead_letters", "Records that went to the dead letters"),
}
_PROCESS_COUNTERS = {
    "commits": "Transactions, each for everybody who waited",
    "syncs": "Waits for the disk, each for everybody who waited",
    "tail_looks": "Looks at the log for commits of others",
    "tail_useful_looks": "Looks that found something",
    "poll_wakes": "Keys that were woken because something may be there",
    "poll_useful_wakes": "Wakes that served somebody",
    "poll_pops": "Pops that were made for waiting clients",
    "poll_served": "Waiting pops that got something",
    "poll_timeouts": "Waiting pops whose time was over",
    "poll_overflows": "Pops that were refused because too many waited",
    "room_messages_sent": "Messages that were said in rooms",
    "room_messages_delivered": "Messages of rooms that came out of the log",
    "records_passed_over": "Records of Headwater's own queues that could not be read",
    **LIVE_COUNTERS,
}
_PROCESS_GAUGES = {
    "operations_pending": "Operations that wait for a commit",
    "tail_lsn": "The newest segment that this process knows",
    "connections": "Open connections",
    "waiting_pops": "Pops that wait",
    "waiting_pops_max": "Pops that may wait at once",
    "waiting_keys": "Selections that pops wait for: one question serves all of a key",
    "realtime_sessions": "Realtime conversations",
    "realtime_pressure": "What waits for realtime clients: 0 is calm, 1 above 70 % of its room, 2 above 90 %",
    "live_collections": "Collections that somebody here follows",
    "live_subscriptions": "Live queries and streams",
    "rooms": "Rooms that somebody here is in",
    "rooms_undelivered": "Messages of rooms that were not handed out yet",
    "rooms_undelivered_age_seconds": "For how long the oldest of them waits",
    "rooms_state": "How rooms are, by what is undelivered: 0 is healthy, 1 warning, 2 critical",
    "rooms_messages_per_second": "Messages of rooms that were handed out, in a second of the last ones",
    "rooms_poll_latency_seconds": "How long it took from learning of a message to handing it out, on average",
    "rooms_polling_threads": "Followers of the log, one for all rooms of a database",
    "rooms_members": "Members that are in rooms here",
}

_STATES = list(RoomState)


class ProcessReport(msgspec.Struct, frozen=True):
    """What one process did, for everybody and for each database."""

    process: str
    work: dict[str, dict[str, int]]
    rates: dict[str, dict[str, float]]
    numbers: dict[str, float]
    availability: dict[str, float]
    delivery: list[tuple[str, float]]
    delivery_seconds: float
    requests: list[tuple[str, str, int, int]]
    operations: dict[str, "Durations"]
    questions: dict[str, "Durations"]
    syncs: "Durations"
    # What only some stores count.
    store_numbers: dict[str, float] = {}


class Durations(msgspec.Struct, frozen=True):
    """How many were over within each step, and how many seconds all took together."""

    steps: list[tuple[str, float]]
    seconds: float


def durations_of(histogram: Histogram) -> Durations:
    """What was measured, to be told."""
    return Durations(histogram.cumulative(), histogram.total)


_decode = msgspec.msgpack.Decoder(ProcessReport).decode


def report_of(site: Site) -> ProcessReport:
    """What this process did."""
    committer, tail, polls = site.committer, site.tail, site.queues.intentions
    return ProcessReport(
        process=site.process,
        work={database: dict(work.counters) for database, work in site.work.items()},
        rates={database: work.rates() for database, work in site.work.items()},
        numbers={
            "commits": committer.commits,
            "syncs": committer.syncs,
            "operations_pending": committer.pending,
            "tail_looks": tail.looks,
            "tail_useful_looks": tail.useful_looks,
            "tail_lsn": tail.position,
            "connections": site.connections(),
            "waiting_pops": polls.count,
            "waiting_pops_max": site.config.waiters_max,
            "waiting_keys": polls.keys(),
            "poll_wakes": polls.wakes,
            "poll_useful_wakes": polls.useful_wakes,
            "poll_pops": polls.pops,
            "poll_served": polls.served,
            "poll_timeouts": polls.timeouts,
            "poll_overflows": polls.overflows,
            "realtime_sessions": site.realtime.count(),
            "records_passed_over": Passed.count,
            "realtime_pressure": float(site.realtime.pressure),
            **site.subscriptions.numbers(),
            **room_numbers(site),
        },
        availability={
            "operations": 1 - committer.pending / site.config.pending_max,
            "waiting_pops": 1 - polls.count / site.config.waiters_max,
            **site.availability(),
        },
        delivery=[(str(bound), float(count)) for bound, count in polls.delivery.cumulative()],
        delivery_seconds=polls.delivery.total,
        requests=[(*about, count) for about, count in site.requests.items()],
        operations={kind.__name__: durations_of(one) for kind, one in site.queues.timings.operations.items()},
        questions={kind.__name__: durations_of(one) for kind, one in site.queues.timings.questions.items()},
        syncs=durations_of(site.queues.timings.syncs),
        store_numbers=site.queues.store_numbers(),
    )


def room_numbers(site: Site) -> dict[str, float]:
    """What this process does for rooms."""
    lags = [lag for lag in map(site.rooms.lag_of, {live.database for live in site.rooms.live}) if lag is not None]
    return {
        "rooms": len(site.rooms.live),
        "rooms_undelivered": sum(lag.undelivered for lag in lags),
        "rooms_undelivered_age_seconds": max((lag.age_seconds() for lag in lags), default=0.0),
        "rooms_state": max((_STATES.index(judge(lag.undelivered, lag.age_seconds())) for lag in lags), default=0),
        "rooms_messages_per_second": sum(lag.per_second() for lag in lags),
        "rooms_poll_latency_seconds": max((lag.latency_ms() for lag in lags), default=0.0) / 1_000,
        "rooms_polling_threads": site.rooms.followers,
        "rooms_members": sum(len(live.here) for live in site.rooms.live),
        "room_messages_sent": site.rooms.sent,
        "room_messages_delivered": site.rooms.delivered,
    }


def put_up(site: Site) -> None:
    """Put this process's report on the board, for the others to answer with."""
    if site.board.count > 1:
        site.board.write(int(site.process), msgspec.msgpack.encode(report_of(site)))


def reports(site: Site) -> list[ProcessReport]:
    """What each process of this server did: this one just now, the others when they last said."""
    own = report_of(site)
    found = []
    for index in range(site.board.count):
        if str(index) == site.process:
            found.append(own)
        elif (written := site.board.read(index)) is not None:
            found.append(_decode(written))
    return found


def work_for(site: Site, principal: Principal) -> tuple[dict[str, int], dict[str, float]]:
    """Counters and rates of all processes, of the caller's database. Who may not use all of it is told of none: what
    the others' queues do would be in it."""
    if not principal.may_use_all():
        return {}, {}
    found = reports(site)
    counters = together([report.work.get(principal.database, {}) for report in found])
    rates = together([report.rates.get(principal.database, {}) for report in found])
    return {name: int(count) for name, count in counters.items()}, {
        name: round(rate, 3) for name, rate in rates.items()
    }


async def show_metrics(site: Site, request: Request) -> Response:
    """Everything that the caller may know, freshly counted; a turn of the event loop for each family."""
    pieces: list[bytes] = []
    async for family in _families(site, request.principal):
        registry = CollectorRegistry()
        registry.register(_Ready([family]))
        pieces.append(generate_latest(registry))
        await asyncio.sleep(0)
    return Response(content_type=CONTENT_TYPE_LATEST, body=b"".join(pieces))


async def _families(site: Site, principal: Principal) -> AsyncIterator[Metric]:
    found = reports(site)
    if principal.may_use_all():
        for family in _work(found, principal.database):
            yield family
    if principal.may(Scope.OPERATOR):
        for family in _processes(found):
            yield family
    try:
        async for family in _asked(site, principal):
            yield family
    except (StoreFull, StoreSilent) as error:
        log.debug("what the store would have to be asked is left out: %s", error)


async def _asked(site: Site, principal: Principal) -> AsyncIterator[Metric]:
    """What only the store knows."""
    if principal.may(Scope.OPERATOR):
        lsn = GaugeMetricFamily("headwater_lsn", "The newest segment of the log")
        lsn.add_metric((), await site.queues.ask(FindLastLsn()))
        yield lsn
    queues = _Queues()
    async for page in queue_pages(site, principal):
        queues.add(page)
    for family in queues.families():
        yield family
    groups = _Groups(site.clock.now())
    async for group_page in group_pages(site, principal):
        groups.add(group_page)
    for family in groups.families():
        yield family
    for family in (*await job_families(site, principal), *await capture_families(site, principal)):
        yield family


class _Ready(Collector):
    """Families that are complete."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _work(found: Sequence[ProcessReport], database: str) -> Iterator[Metric]:
    for name, (counter, text) in _COUNTERS.items():
        family = CounterMetricFamily(f"headwater_{name}", text, labels=("process",))
        for report in found:
            family.add_metric((report.process,), report.work.get(database, {}).get(counter, 0))
        yield family


def _processes(found: Sequence[ProcessReport]) -> Iterator[Metric]:
    for kind, about in ((CounterMetricFamily, _PROCESS_COUNTERS), (GaugeMetricFamily, _PROCESS_GAUGES)):
        for name, text in about.items():
            family = kind(f"headwater_{name}", text, labels=("process",))
            for report in found:
                family.add_metric((report.process,), report.numbers[name])
            yield family
    yield from _stores(found)
    available = GaugeMetricFamily(
        "headwater_available_ratio", "What is free of what a process has: 1 all, 0 nothing", labels=("process", "of")
    )
    delivery = HistogramMetricFamily(
        "headwater_poll_delivery_seconds", "From the push of a record to a client that waited", labels=("process",)
    )
    names = ("process", "method", "route", "status")
    requests = CounterMetricFamily("headwater_http_requests", "Requests by what they asked and got", labels=names)
    for report in found:
        for of, ratio in report.availability.items():
            available.add_metric((report.process, of), max(ratio, 0.0))
        delivery.add_metric((report.process,), report.delivery, report.delivery_seconds)
        for method, path, status, count in report.requests:
            requests.add_metric((report.process, method, path, str(status)), count)
    yield from (available, delivery, requests)
    yield from _durations(found)


def _stores(found: Sequence[ProcessReport]) -> Iterator[Metric]:
    """What a store counts beside what is counted of every store."""
    return _store_families({report.process: report.store_numbers for report in found})


def _store_families(numbers: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    for name in sorted({name for counted in numbers.values() for name in counted}):
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"headwater_{name}", "Of the store, as this process uses it", labels=("process",))
        for process, counted in numbers.items():
            family.add_metric((process,), counted.get(name, 0))
        yield family


def show_store(numbers: Mapping[str, float], process: str = ALONE) -> Response:
    """What a process counts that has no store open: by the same names and labels as one that has."""
    registry = CollectorRegistry()
    registry.register(_Ready(list(_store_families({process: numbers}))))
    return Response(content_type=CONTENT_TYPE_LATEST, body=generate_latest(registry))


def _durations(found: Sequence[ProcessReport]) -> Iterator[Metric]:
    """How long the store took, by what it was asked for."""
    operations = HistogramMetricFamily(
        "headwater_operation_seconds", "Commits with an operation of this kind", labels=("process", "operation")
    )
    questions = HistogramMetricFamily(
        "headwater_question_seconds", "Questions of this kind", labels=("process", "question")
    )
    syncs = HistogramMetricFamily("headwater_sync_seconds", "Waits for the disk", labels=("process",))
    for report in found:
        for family, measured in ((operations, report.operations), (questions, report.questions)):
            for kind, durations in measured.items():
                family.add_metric((report.process, kind), durations.steps, durations.seconds)
        syncs.add_metric((report.process,), report.syncs.steps, report.syncs.seconds)
    yield from (operations, questions, syncs)


class _Queues:
    """The families of queues: a line for each of the first, one for all others together."""

    def __init__(self) -> None:
        self._count = 0
        self._others = [0, 0, 0, 0]
        self._families = [
            GaugeMetricFamily("headwater_queue_records", "Records that a queue keeps", labels=("queue",)),
            GaugeMetricFamily("headwater_queue_waiting", "Records before the slowest group", labels=("queue",)),
            GaugeMetricFamily("headwater_queue_dead_letters", "Dead letters of a queue", labels=("queue",)),
            GaugeMetricFamily("headwater_queue_partitions", "Partitions of a queue", labels=("queue",)),
        ]

    def add(self, page: Sequence[QueueStatus]) -> None:
        for status in page:
            numbers = (status.records, status.waiting, status.dead_letters, status.partitions)
            self._count += 1
            if self._count <= LABELLED_MAX:
                for family, number in zip(self._families, numbers, strict=True):
                    family.add_metric((status.queue,), number)
            else:
                self._others = [sum(pair) for pair in zip(self._others, numbers, strict=True)]

    def families(self) -> Iterator[Metric]:
        if self._count > LABELLED_MAX:
            for family, number in zip(self._families, self._others, strict=True):
                family.add_metric((OTHERS,), number)
        count = GaugeMetricFamily("headwater_queues", "Queues")
        count.add_metric((), self._count)
        yield from (*self._families, count)


class _Groups:
    """The families of consumer groups: a line for each of the first, one for all others together."""

    def __init__(self, now: int) -> None:
        names = ("queue", "group")
        self._now = now
        self._count = 0
        self._others = [0.0, 0.0, 0.0, 0.0]
        self._families: list[GaugeMetricFamily | CounterMetricFamily] = [
            GaugeMetricFamily("headwater_group_lag", "Records before a group", labels=names),
            GaugeMetricFamily("headwater_group_behind_seconds", "Age of the oldest of them", labels=names),
            GaugeMetricFamily("headwater_group_leases", "Partitions that a group works on", labels=names),
            CounterMetricFamily("headwater_group_lost", "Records dropped before a group read them", labels=names),
        ]

    def add(self, page: Sequence[GroupStatus]) -> None:
        for status in page:
            oldest = status.oldest_waiting_at
            behind = 0.0 if oldest is None else max(self._now - oldest, 0) / SECOND
            numbers = (status.lag, behind, status.leased, status.lost)
            self._count += 1
            if self._count <= LABELLED_MAX:
                for family, number in zip(self._families, numbers, strict=True):
                    family.add_metric((status.queue, status.group), number)
            else:
                lag, oldest_behind, leases, lost = self._others
                # Of ages the oldest counts, not their sum.
                self._others = [
                    lag + status.lag,
                    max(oldest_behind, behind),
                    leases + status.leased,
                    lost + status.lost,
                ]

    def families(self) -> Iterator[Metric]:
        if self._count > LABELLED_MAX:
            for family, number in zip(self._families, self._others, strict=True):
                family.add_metric((OTHERS, OTHERS), number)
        yield from self._families


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
