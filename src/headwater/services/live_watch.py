"""What is counted, written down and logged of live queries: for whoever has to keep them quick (S3-35 to S3-38).

Audit records go to the queue `headwater/audit` of the database that they are about, a moment's worth in one commit, so
that they are tailed and kept like anything else in the log. What is slow is told in the process's own log, at times.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.config import Durability
from headwater.errors import HeadwaterError
from headwater.log.operations import Push
from headwater.model.names import SYSTEM_PREFIX
from headwater.model.record import Record
from headwater.services.queues import Queues

log = logging.getLogger(__name__)

AUDIT_QUEUE = f"{SYSTEM_PREFIX}audit"
AUDIT_SECONDS = 1.0
AUDIT_TTL_SECONDS = 90 * 86_400.0
# So many wait to be written down at most; what is more is counted.
AUDIT_WAITING_MAX = 10_000
# A match that takes longer holds up everybody's; an event that comes later than this is late (S3-22, S3-38).
SLOW_MATCH_SECONDS = 0.05
LATE_SECONDS = 1.0
MANY_WATCHERS = 10_000
MANY_RESUMES = 10
SAMPLE_SECONDS = 60.0

COUNTERS = {
    "live_changes": "Changes of documents that were looked at for live queries",
    "live_filters_tried": "Filters that a change was tried against, because an index led to them",
    "live_filters_met": "Filters that a change concerned",
    "live_events": "Changes that were told, each to one subscription",
    "live_events_late": "Those of them that were told more than a second after their commit",
    "live_matches_slow": "Changes whose matching took more than 50 ms",
    "live_subscribed": "Subscriptions that were begun",
    "live_resumed": "Subscriptions that were gone on with after a cut",
    "live_resumes_failed": "Resumes that could not be: what came meanwhile is not kept, or the rules are others",
    "live_resyncs": "Subscriptions that were ended with resync-required",
    "live_held": "Times that a subscription had to wait, for an ack or for room",
    "live_audit_dropped": "Audit records that were not written down, because too many waited",
}


class LiveWatch:
    """Counts, for one process."""

    def __init__(self, queues: Queues, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.is_auditing = False
        self._queues = queues
        self._monotonic = monotonic
        self._waiting: dict[str, list[Record]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._said: dict[str, float] = {}
        self._resumes: dict[str, int] = {}

    def count(self, name: str, times: int = 1) -> None:
        """Something has happened."""
        self.counts[name] += times

    # ── matching and telling ──

    def matched(self, collection: str, seconds: float, tried: int, met: int) -> None:
        """A change was looked at."""
        counts = self.counts
        counts["live_changes"] += 1
        counts["live_filters_tried"] += tried
        counts["live_filters_met"] += met
        if seconds > SLOW_MATCH_SECONDS:
            counts["live_matches_slow"] += 1
            self.sample(
                "slow", "a change of %s took %.0f ms to match: %s filters tried", collection, seconds * 1e3, tried
            )

    def told(self, written_at: Timestamp) -> None:
        """A change of this time was told to one subscription."""
        self.counts["live_events"] += 1
        if self._queues.clock.now() - written_at > LATE_SECONDS * SECOND:
            self.counts["live_events_late"] += 1

    def spread(self, collection: str, watchers: int) -> None:
        """A change concerned so many."""
        if watchers > MANY_WATCHERS:
            self.sample("many", "a change of %s went to %s subscriptions", collection, watchers)

    def resumed(self, database: str, subject: str, collection: str, *, is_kept: bool) -> None:
        """Somebody came back."""
        self.count("live_resumed" if is_kept else "live_resumes_failed")
        if not is_kept:
            self.note(database, "resume-failed", subject=subject, collection=collection)
        if len(self._resumes) > MANY_WATCHERS:
            self._resumes.clear()
        times = self._resumes[subject] = self._resumes.get(subject, 0) + 1
        if times % MANY_RESUMES == 0:
            self.sample("resumes", "%s has resumed %s times: its connections do not last", subject or "somebody", times)

    def sample(self, about: str, message: str, *values: object) -> None:
        """Say it in the log, once in a minute."""
        now = self._monotonic()
        if now - self._said.get(about, -SAMPLE_SECONDS) >= SAMPLE_SECONDS:
            self._said[about] = now
            log.warning(message, *values)

    # ── the audit ──

    def note(self, database: str, kind: str, **about: Any) -> None:
        """Write down that something happened, a moment later, together with what happens meanwhile."""
        if not self.is_auditing:
            return
        waiting = self._waiting.setdefault(database, [])
        if len(waiting) >= AUDIT_WAITING_MAX:
            self.count("live_audit_dropped")
            return
        body = {"kind": kind, "at": self._queues.clock.now(), **about}
        waiting.append(Record(msgspec.Raw(msgspec.json.encode(body)), type=kind))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(AUDIT_SECONDS, self.write_down)

    def write_down(self) -> None:
        """Append what waits to the log."""
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for database, records in waiting.items():
            push = Push(database=database, queue=AUDIT_QUEUE, records=tuple(records), ttl_seconds=AUDIT_TTL_SECONDS)
            task = asyncio.ensure_future(self._append(push))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """Have all that waits in the log, while there is one: of a server that stops, the end of every subscription."""
        if self._timer is not None:
            self._timer.cancel()
        self.write_down()
        if self._writing:
            await asyncio.wait(self._writing)

    async def _append(self, push: Push) -> None:
        try:
            await self._queues.run(push, Durability.WRITTEN)
        except HeadwaterError as error:
            self.count("live_audit_dropped", len(push.records))
            log.warning("%s audit records could not be written down: %s", len(push.records), error)
