"""Prometheus families for jobs: how many are in which state, what was done lately, how long the next has waited.

Queues beyond a number of them are added up under one label, so that a tenant with many cannot make the answer endless.
"""

from collections.abc import Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from headwater.clock import SECOND, Timestamp
from headwater.doors.site import Site
from headwater.model.job import JobState
from headwater.model.principal import Principal, Scope
from headwater.stores.job_questions import JobMinute, JobQueueStatus, ListJobMinutes, ListJobQueues, ListWorkers

LABELLED_MAX = 1_000
OTHERS = "*"
LATELY_SECONDS = 300
_DONE = ("enqueued", "completed", "failed", "dead")


async def job_families(site: Site, principal: Principal) -> list[Metric]:
    """The families of the job queues that a principal may use; the workers are for who may see all of them."""
    database, theirs = principal.database, principal.may_use
    queues = [queue for queue in await site.queues.ask(ListJobQueues(database)) if theirs(queue.queue)]
    since = Timestamp(max(site.clock.now() - LATELY_SECONDS * SECOND, 0))
    minutes = [minute for minute in await site.queues.ask(ListJobMinutes(database, since)) if theirs(minute.queue)]
    labels = labels_of(queue.queue for queue in queues)
    families = [*_states(queues, labels), *_lately(minutes, labels)]
    if principal.may_use_all() and Scope.ADMIN in principal.scopes:
        workers = GaugeMetricFamily("headwater_job_workers", "Workers whose lease is alive")
        workers.add_metric((), len(await site.queues.ask(ListWorkers(database))))
        families.append(workers)
    return families


def labels_of(names: Iterable[str]) -> dict[str, str]:
    """A label for each queue: its name, or the one that the rest of them share."""
    return {name: name if place < LABELLED_MAX else OTHERS for place, name in enumerate(sorted(names))}


def _states(queues: Sequence[JobQueueStatus], labels: dict[str, str]) -> list[Metric]:
    counts: dict[tuple[str, str], int] = {}
    paused: dict[str, int] = {}
    for queue in queues:
        label = labels[queue.queue]
        paused[label] = paused.get(label, 0) + queue.paused
        for state in JobState:
            place = (label, state.value)
            counts[place] = counts.get(place, 0) + queue.counts.get(state, 0)
    jobs = GaugeMetricFamily("headwater_jobs", "Jobs by queue and state", labels=("queue", "state"))
    for place, count in counts.items():
        jobs.add_metric(place, count)
    resting = GaugeMetricFamily("headwater_job_queues_paused", "Job queues that rest", labels=("queue",))
    for label, count in paused.items():
        resting.add_metric((label,), count)
    return [jobs, resting]


def _lately(minutes: Sequence[JobMinute], labels: dict[str, str]) -> list[Metric]:
    done: dict[tuple[str, str], int] = {}
    ran: dict[str, float] = {}
    for minute in minutes:
        label = labels.get(minute.queue, OTHERS)
        ran[label] = ran.get(label, 0.0) + minute.run_micros / SECOND
        for name in _DONE:
            done[label, name] = done.get((label, name), 0) + getattr(minute, name)
    lately = GaugeMetricFamily(
        "headwater_jobs_lately", "What became of jobs in the last five minutes", labels=("queue", "outcome")
    )
    for place, count in done.items():
        lately.add_metric(place, count)
    seconds = GaugeMetricFamily(
        "headwater_job_run_seconds_lately", "Seconds that jobs ran in the last five minutes", labels=("queue",)
    )
    for label, total in ran.items():
        seconds.add_metric((label,), total)
    return [lately, seconds]
