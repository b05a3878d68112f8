"""Figures of a queue over a stretch of time, made so that they add up.

A row belongs to a queue, a group ('' for what was pushed, whoever reads it), a type and a bucket: the minute, hour or
day that begins at `bucket`. Rows of the same bucket are added; latencies are kept as counts in bins that grow by a
fifth, so that quantiles can be told of any sum of rows.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from headwater.clock import SECOND, Timestamp

RESOLUTIONS = {"minute": 60 * SECOND, "hour": 3_600 * SECOND, "day": 86_400 * SECOND}
BINS_PER_DOUBLING = 4
MILLISECOND = 1_000


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one bucket. Latencies are in microseconds, from a record's time until it was seen completed."""

    queue: str
    group: str = ""
    type: str = ""
    resolution: str = "minute"
    bucket: int
    pushed: int = 0
    bytes: int = 0
    late: int = 0
    completed: int = 0
    latency_total: int = 0
    latency_max: int = 0
    latency_bins: dict[int, int] = {}
    lag_max: int = 0
    retried: int = 0
    buried: int = 0


class RollupQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollups are wanted: of one queue or of all, `until` left out."""

    resolution: str = "minute"
    since: Timestamp = Timestamp(0)
    until: Timestamp = Timestamp(2**62)
    queue: str = ""


RollupKey = tuple[str, int, str, str, str]


def key_of(row: Rollup) -> RollupKey:
    """What makes two rows the same row."""
    return row.resolution, row.bucket, row.queue, row.group, row.type


def add(one: Rollup, other: Rollup) -> Rollup:
    """Two rows of the same bucket as one."""
    return msgspec.structs.replace(
        one,
        pushed=one.pushed + other.pushed,
        bytes=one.bytes + other.bytes,
        late=one.late + other.late,
        completed=one.completed + other.completed,
        latency_total=one.latency_total + other.latency_total,
        latency_max=max(one.latency_max, other.latency_max),
        latency_bins=add_bins(one.latency_bins, other.latency_bins),
        lag_max=max(one.lag_max, other.lag_max),
        retried=one.retried + other.retried,
        buried=one.buried + other.buried,
    )


def add_up(rows: Iterable[Rollup]) -> list[Rollup]:
    """Rows with those of the same bucket added."""
    found: dict[RollupKey, Rollup] = {}
    for row in rows:
        key = key_of(row)
        found[key] = add(found[key], row) if key in found else row
    return list(found.values())


def in_resolution(row: Rollup, resolution: str) -> Rollup:
    """A row as part of a coarser bucket."""
    bucket = row.bucket - row.bucket % RESOLUTIONS[resolution]
    return msgspec.structs.replace(row, resolution=resolution, bucket=bucket)


def add_bins(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Two counts by bin as one."""
    return {number: one.get(number, 0) + other.get(number, 0) for number in sorted({*one, *other})}


def bin_of(latency: int) -> int:
    """The bin of a latency in microseconds."""
    return math.floor(BINS_PER_DOUBLING * math.log2(max(latency, 0) / MILLISECOND + 1))


def quantile(bins: Mapping[int, int], share: float) -> float | None:
    """The latency in milliseconds that this share of the records stayed below; None when there are none."""
    total = sum(bins.values())
    seen = 0
    for number in sorted(bins):
        seen += bins[number]
        if seen and seen >= share * total:
            return round(float(2 ** ((number + 1) / BINS_PER_DOUBLING)) - 1, 3)
    return None
