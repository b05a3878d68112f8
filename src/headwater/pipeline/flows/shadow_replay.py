"""shadow-replay: recorded changes through a matcher, whose answers are compared with those of another.

    recording ─► the matcher ─────────────► answers ─┐
        └──────► every filter by itself,             ├─► where they differ, how long each took
                 or answers that were kept before ───┘

An answer is whom one change concerns and how. It is asked before a new matcher, or a new version, serves anybody: more
divergence than allowed is a failure, so that a script stops there.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from pyspark import StorageLevel
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.errors import HeadwaterError, SourceUnfit
from headwater.filters import Expression, Predicate, predicate
from headwater.filters.spark import parse_for_payloads
from headwater.pipeline.files import glob_free, plain_place
from headwater.pipeline.flows.shadow_record import KIND, SCHEMA
from headwater.pipeline.manifest import Manifest, need_manifest, reading, verify
from headwater.pipeline.own import import_named
from headwater.pipeline.progress import Progress, Tell, keep_quiet
from headwater.pipeline.sanitising import Sanitising, about_rules, hash_values, is_blind, recorded_rules
from headwater.pipeline.summary import Summary
from headwater.services.feed import move_of
from headwater.services.matching import Matcher, Move

if TYPE_CHECKING:
    import pyarrow

PLACE = ["collection", "partition_id", "offset"]
ANSWERS = "collection STRING, partition_id BIGINT, offset BIGINT, concerned ARRAY<STRING>, nanoseconds BIGINT"
QUANTILES = {"p50": 0.5, "p99": 0.99}
EXAMPLES_MAX = 5


class Watchers(Protocol):
    """One filter of a matcher."""

    @property
    def watchers(self) -> Mapping[Hashable, None]:
        """All who watch by it."""
        ...


class AnyMatcher(Protocol):
    """What is tried: `headwater.services.matching.Matcher` is one."""

    def add(self, expression: Expression, watcher: Hashable) -> Any:
        """From now on somebody watches the documents of a filter."""
        ...

    def match(self, before: Any, after: Any) -> Sequence[tuple[Watchers, Move]]:
        """Whom a change concerns, and how."""
        ...


Make = Callable[[], AnyMatcher]


class ShadowReplay(msgspec.Struct, frozen=True, kw_only=True):
    """Which recording goes through which matcher (`module:name`, none for that of this version) with which filters.

    `against` has answers that were kept before; none are compared with every filter by itself. `keep` is where answers
    are kept. More than `divergence_max` of all changes may not be answered otherwise; `slowdown_max` is how many times
    as long the median may take, and 0 for no bound.
    """

    folder: str
    filters: str
    key: bytes = b""
    matcher: str = ""
    against: str = ""
    keep: str = ""
    divergence_max: float = 0.0
    slowdown_max: float = 0.0


class Watched(msgspec.Struct, frozen=True):
    """A line of the file of filters: somebody who watches some documents of these collections."""

    filter: str
    collection: str = "*"

    @property
    def name(self) -> str:
        return f"{self.collection}: {self.filter}"


class Filter(NamedTuple):
    """A filter for recorded documents, by the name that it has in answers."""

    name: str
    collection: str
    expression: Expression


class _One(NamedTuple):
    watchers: Mapping[Hashable, None]
    predicate: Predicate


class EveryFilter:
    """A matcher that has no index and asks every filter: slow, and what the others are to agree with."""

    def __init__(self) -> None:
        self._all: list[_One] = []

    def add(self, expression: Expression, watcher: Hashable) -> None:
        """From now on somebody watches the documents of a filter."""
        self._all.append(_One({watcher: None}, predicate(expression)))

    def match(self, before: Any, after: Any) -> list[tuple[Watchers, Move]]:
        """Whom a change concerns, and how."""
        found = ((one, move_of(one.predicate, (before, after))) for one in self._all)
        return [(one, move) for one, move in found if move is not None]


def run(spark: SparkSession, job: ShadowReplay, tell: Tell = keep_quiet) -> Summary:
    """Replay a recording; the summary says in one line why a rollout should stop, if it should."""
    folder = Path(job.folder)
    if job.keep and Path(job.keep).exists():
        raise SourceUnfit(f"{job.keep} is there already: answers are kept in a folder of their own")
    with reading(folder):
        return _replay(spark, job, folder, tell)


def _replay(spark: SparkSession, job: ShadowReplay, folder: Path, tell: Tell) -> Summary:
    manifest = need_manifest(folder, KIND)
    rules = _rules(folder, manifest, job.key)
    filters = read_filters(Path(job.filters), rules)
    for entry in manifest.entries:
        verify(folder, entry)
    paths = [glob_free((folder / entry.path).absolute()) for entry in manifest.entries]
    if not paths:
        raise SourceUnfit(f"{folder} has no changes yet: nothing was tried, and nothing is known of the matcher")
    changes = spark.read.schema(SCHEMA).parquet(*paths)
    make: Make = find_matcher(job.matcher) if job.matcher else Matcher
    others = _kept(spark, job.against) if job.against else answer(changes, filters, EveryFilter)
    with Progress(tell, 1).step(spark.sparkContext, 1):
        found = _try(job, answer(changes, filters, make), others)
    return _summary(job, found, filters, sum(is_blind(one.expression, rules) for one in filters))


def _try(job: ShadowReplay, answers: DataFrame, others: DataFrame) -> "Comparison":
    answers.persist(StorageLevel.MEMORY_AND_DISK)
    others.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        found = compare(answers, others)
        if job.keep:
            answers.write.option("compression", "zstd").parquet(plain_place(Path(job.keep)))
        return found
    finally:
        answers.unpersist()
        others.unpersist()


def find_matcher(name: str) -> Make:
    """What makes a matcher, by `module:name`. Executors get it as it is here, and need not have the module."""
    module, attribute = import_named(name, "a matcher")
    make = getattr(module, attribute, None)
    if not callable(make):
        raise SourceUnfit(f"{module.__name__} has no {attribute!r} that would make a matcher")
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found: Make = make
    return found


def _rules(folder: Path, manifest: Manifest, key: bytes) -> Sanitising:
    """The rules of a recording; with the key of its hashes, filters can be hashed as well."""
    rules = recorded_rules(manifest.about, key)
    if key and rules.hashed and about_rules(rules)["key"] != manifest.about["key"]:
        raise SourceUnfit(f"{folder} was hashed with another key: with this one filters would mean no document")
    return rules


def read_filters(path: Path, rules: Sanitising) -> list[Filter]:
    """The filters of a file, one JSON object a line, as they mean recorded documents."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnfit(f"{path} cannot be read: {error}") from error
    found = [_filter(path, number, line, rules) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise SourceUnfit(f'{path} has no filters; one is {{"collection": "orders", "filter": "amount > 10"}}')
    return list(dict.fromkeys(found))


def _filter(path: Path, number: int, line: str, rules: Sanitising) -> Filter:
    try:
        watched = msgspec.json.decode(line, type=Watched)
        expression = parse_for_payloads(watched.filter)
    except (msgspec.MsgspecError, HeadwaterError) as error:
        raise SourceUnfit(f"{path}, line {number}: {error}") from error
    return Filter(watched.name, watched.collection, hash_values(expression, rules) if rules.key else expression)


def answer(changes: DataFrame, filters: Sequence[Filter], make: Make) -> DataFrame:
    """Whom each change concerns, by a matcher that every task makes for itself, and how long it took to say so."""

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        text, number = pyarrow.string(), pyarrow.int64()
        kinds = (text, number, number, pyarrow.list_(text), number)
        schema = pyarrow.schema(list(zip([*PLACE, "concerned", "nanoseconds"], kinds, strict=True)))

        @cache
        def matcher_of(collection: str) -> AnyMatcher:
            matcher = make()
            for one in filters:
                if fnmatchcase(collection, one.collection):
                    matcher.add(one.expression, one.name)
            return matcher

        for batch in batches:
            rows = [_answer(row, matcher_of(row["collection"])) for row in batch.to_pylist()]
            yield pyarrow.RecordBatch.from_pylist(rows, schema)

    return changes.select(*PLACE, "before", "after").mapInArrow(run, ANSWERS)


def _answer(row: Mapping[str, Any], matcher: AnyMatcher) -> dict[str, Any]:
    before, after = (None if row[name] is None else msgspec.json.decode(row[name]) for name in ("before", "after"))
    began_at = time.perf_counter_ns()
    hits = matcher.match(before, after)
    took = time.perf_counter_ns() - began_at
    concerned = sorted(f"{watcher} ({move.value})" for filed, move in hits for watcher in filed.watchers)
    return {**{name: row[name] for name in PLACE}, "concerned": concerned, "nanoseconds": took}


def _kept(spark: SparkSession, place: str) -> DataFrame:
    """Answers of before."""
    if not Path(place).is_dir():
        raise SourceUnfit(f"{place} has no answers: there is no such folder")
    return spark.read.schema(ANSWERS).parquet(plain_place(Path(place)))


class Comparison(NamedTuple):
    """What two sets of answers come to."""

    changes: int
    diverging: int
    matches: int
    seen: set[str]
    examples: list[dict[str, Any]]
    took: dict[str, float]
    others_took: dict[str, float]


def compare(answers: DataFrame, others: DataFrame) -> Comparison:
    """Answers of a matcher beside those of another, change by change; one that only one of them has differs."""
    mine = answers.withColumnRenamed("concerned", "mine").drop("nanoseconds")
    theirs = others.withColumnRenamed("concerned", "theirs").drop("nanoseconds")
    both = mine.join(theirs, PLACE, "full_outer")
    differing = both.where(~f.col("mine").eqNullSafe(f.col("theirs")))
    only = [f.array_except(f.coalesce(a, f.array()), f.coalesce(b, f.array())) for a, b in _either("mine", "theirs")]
    examples = (
        differing.orderBy(*PLACE).limit(EXAMPLES_MAX).select(*PLACE, only[0].alias("more"), only[1].alias("less"))
    )
    totals = answers.agg(f.count("*"), f.sum(f.size("concerned"))).first()
    names = answers.select(f.explode("concerned").alias("name")).distinct().collect()
    return Comparison(
        both.count(),
        differing.count(),
        int(totals[1] or 0) if totals is not None else 0,
        {row["name"].rpartition(" (")[0] for row in names},
        [row.asDict() for row in examples.collect()],
        _latency(answers),
        _latency(others),
    )


def _either(one: str, other: str) -> list[tuple[str, str]]:
    return [(one, other), (other, one)]


def _latency(answers: DataFrame) -> dict[str, float]:
    """How long answers took, in microseconds."""
    found = answers.agg(f.percentile("nanoseconds", list(QUANTILES.values()))).first()
    values = found[0] if found is not None and found[0] is not None else [0.0] * len(QUANTILES)
    return {name: round(value / 1_000, 1) for name, value in zip(QUANTILES, values, strict=True)}


def refusal(job: ShadowReplay, found: Comparison) -> str:
    """Why a rollout should stop; '' when it need not."""
    divergence = found.diverging / max(found.changes, 1)
    if divergence > job.divergence_max:
        return f"{found.diverging:,} of {found.changes:,} changes are answered otherwise: {divergence:.2%}, and " + (
            f"{job.divergence_max:.2%} are allowed"
        )
    slowdown = found.took["p50"] / max(found.others_took["p50"], 0.1)
    if job.slowdown_max and slowdown > job.slowdown_max:
        return f"the median answer takes {slowdown:.2f} times as long, and {job.slowdown_max:.2f} are allowed"
    return ""


def _summary(job: ShadowReplay, found: Comparison, filters: Sequence[Filter], blind: int) -> Summary:
    facts: dict[str, Any] = {
        "changes": found.changes,
        "filters": len(filters),
        "matches": found.matches,
        "filters without a match": len({one.name for one in filters} - found.seen),
        "diverging": found.diverging,
        "divergence": round(found.diverging / max(found.changes, 1), 6),
        **{f"{name} µs": value for name, value in found.took.items()},
        **{f"{name} µs of the others": value for name, value in found.others_took.items()},
    }
    if blind:
        # They are compared as all are, and cannot show much.
        facts["filters after what was removed or hashed"] = blind
    if found.examples:
        facts["examples"] = found.examples
    return Summary(flow="shadow-replay", facts=facts, refused=refusal(job, found))
