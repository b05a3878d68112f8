"""What a figure is held to. A goal looks at the samples of one question and gives a verdict."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from benchmarks.timing import Sample

Metric = Literal["rate", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "memory_mb", "lock_waits", "wal_mb"]
Results = Mapping[str, Sequence[Sample]]  # by contestant, one sample a round


class Verdict(msgspec.Struct, frozen=True):
    goal: str
    measured: str
    met: bool | None  # None: a side was left out or failed


class Times(msgspec.Struct, frozen=True):
    """`subject` moves at least `factor` times as many messages as `against`."""

    subject: str
    factor: float
    against: str

    def judge(self, results: Results) -> Verdict:
        goal = f"{self.subject} ≥ {self.factor:g} × {self.against}"
        found = ratio(results, self.subject, self.against)
        if found is None:
            return Verdict(goal, "not measured", None)
        return Verdict(goal, f"{found:.2f} ×", found >= self.factor)


class Within(msgspec.Struct, frozen=True):
    """`subject` stays within a limit, counted from the figure of `above` where that is named."""

    subject: str
    metric: Metric
    limit: float
    above: str = ""

    def judge(self, results: Results) -> Verdict:
        figure, unit = self.metric.replace("mb", "MB").split("_")
        base_name = f"{self.above} + " if self.above else ""
        goal = f"{self.subject}: {figure} ≤ {base_name}{self.limit:g} {unit}"
        found = overall(results.get(self.subject, ()), self.metric)
        base = overall(results.get(self.above, ()), self.metric) if self.above else 0.0
        if found is None or base is None:
            return Verdict(goal, "not measured", None)
        against = f" against {base:.2f} + {self.limit:g}" if self.above else ""
        return Verdict(goal, f"{found:.2f}{against} {unit}", found <= base + self.limit)


class AtMost(msgspec.Struct, frozen=True):
    """A figure of `subject` is at most `factor` times that of `against`."""

    subject: str
    metric: Metric
    factor: float
    against: str

    def judge(self, results: Results) -> Verdict:
        figure, unit = self.metric.replace("mb", "MB").split("_")
        goal = f"{self.subject}: {figure} ≤ {self.factor:g} × {self.against}"
        found = overall(results.get(self.subject, ()), self.metric)
        base = overall(results.get(self.against, ()), self.metric)
        if found is None or not base:
            return Verdict(goal, "not measured", None)
        return Verdict(
            goal, f"{found / base:.2f} × ({found:.2f} against {base:.2f} {unit})", found <= self.factor * base
        )


class Reaches(msgspec.Struct, frozen=True):
    """`subject` moves at least so many messages a second."""

    subject: str
    least: float

    def judge(self, results: Results) -> Verdict:
        goal = f"{self.subject} ≥ {self.least:,.0f}/s"
        found = overall(results.get(self.subject, ()), "rate")
        if found is None:
            return Verdict(goal, "not measured", None)
        return Verdict(goal, f"{found:,.0f}/s", found >= self.least)


Goal = Times | Within | AtMost | Reaches


def overall(samples: Sequence[Sample], metric: Metric) -> float | None:
    """The median over the rounds; of a peak, the highest."""
    values: list[float] = [value for sample in samples if (value := getattr(sample, metric)) is not None]
    if not values:
        return None
    return max(values) if metric in ("memory_mb", "lock_waits", "wal_mb") else statistics.median(values)


def ratio(results: Results, subject: str, against: str) -> float | None:
    """The median of the rounds' ratios: both sides of a round saw the same neighbours on the machine."""
    rounds = zip(results.get(subject, ()), results.get(against, ()), strict=False)
    ratios = [ours.rate / theirs.rate for ours, theirs in rounds if ours.rate and theirs.rate]
    return statistics.median(ratios) if ratios else None
