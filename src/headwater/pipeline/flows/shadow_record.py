"""shadow-record: changes of documents, sampled and sanitised, as files that a matcher is tried with.

    log ─ read_step ─► sampled by document ─► declared fields hashed or gone ─► staged files ─► their places ─► manifest

A row has the document before and after one change, which is all that a matcher is told of it. Running it again adds
what is new. Always: changes in = recorded + left out by the sample + unreadable.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headwater.client.access import Access
from headwater.errors import QueueMissing, SourceUnfit, StoreDamaged
from headwater.model.document import DocumentChange, collection_of
from headwater.pipeline.belonging import check_owner, with_end
from headwater.pipeline.ends import RECORDS_PER_STEP, Step, check_gone, check_plain, plan, read_step
from headwater.pipeline.files import plain_place
from headwater.pipeline.flows.export import take_parts
from headwater.pipeline.manifest import STAGING, Entry, Manifest, holding, remove_strangers, write_manifest
from headwater.pipeline.options import anywhere
from headwater.pipeline.progress import Progress, Tell, keep_quiet, rate
from headwater.pipeline.ranges import Place
from headwater.pipeline.resuming import Purpose, resume_folder
from headwater.pipeline.sanitising import Sanitising, about_rules, is_sampled, sanitise
from headwater.pipeline.served import Log, open_log
from headwater.pipeline.summary import Summary
from headwater.services.own_records import images_of

if TYPE_CHECKING:
    import pyarrow

KIND = "recording"
FILES = ("lsn-*",)
KEY_BYTES_MIN = 16
COLUMNS = {
    "collection": "STRING",
    "partition_id": "BIGINT",
    "offset": "BIGINT",
    "lsn": "BIGINT",
    "op": "STRING",
    "id": "STRING",
    "version": "BIGINT",
    "before": "STRING",
    "after": "STRING",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
# Beside them what became of a change, and which of the declared fields it had.
JUDGED = f"{SCHEMA}, fate STRING, met ARRAY<STRING>"
RECORDED, LEFT_OUT, UNREADABLE = "recorded", "left out", "unreadable"

_decode_change = msgspec.json.Decoder(DocumentChange).decode


class ShadowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which collections (`*` stands for any letters) are recorded, where, and what becomes of their documents."""

    store: str
    access: Access = Access()
    database: str = "main"
    folder: str
    collections: tuple[str, ...]
    rules: Sanitising = Sanitising()
    decrypt: bool = False
    records_per_step: int = RECORDS_PER_STEP


class Count(NamedTuple):
    """What became of changes, and which declared fields any of them had."""

    fates: Mapping[str, int]
    met: frozenset[str]

    @property
    def read(self) -> int:
        return sum(self.fates.values())

    def add(self, other: "Count") -> "Count":
        fates = {fate: self.fates.get(fate, 0) + other.fates.get(fate, 0) for fate in {*self.fates, *other.fates}}
        return Count(fates, self.met | other.met)


NOTHING = Count({}, frozenset())


def run(spark: SparkSession, job: ShadowRecord, tell: Tell = keep_quiet) -> Summary:
    """Record what is new in the collections."""
    check_rules(job.rules)
    folder = Path(job.folder)
    with open_log(job.store, job.access) as log, holding(folder):
        began_at = log.now()
        queues = find_queues(log, job.database, job.collections)
        check_plain(log, job.database, queues, job.decrypt)
        about = {"collections": ", ".join(sorted(job.collections)), **about_rules(job.rules)}
        manifest = before = resume_folder(folder, log, Purpose(KIND, job.database, about, FILES), queues)
        marks = {queue: manifest.queues.get(queue, 0) for queue in queues}
        steps = plan(log, job.database, marks, manifest.ends, job.records_per_step)
        progress = Progress(tell, sum(step.records for step in steps))
        count = NOTHING
        for step in steps:
            with progress.step(spark.sparkContext, step.records):
                manifest, found = _try_step(spark, job, step, manifest, marks, log)
            count = count.add(found)
        return _summary(job, before, manifest, count, rate(count.read, began_at, log.now()))


def check_rules(rules: Sanitising) -> None:
    """Raises unless documents can be sampled and sanitised like this."""
    if not 0 < rules.share <= 1:
        raise SourceUnfit(f"the share of documents lies above 0 and is 1 at most; got {rules.share}")
    if rules.hashed and len(rules.key) < KEY_BYTES_MIN:
        raise SourceUnfit(
            f"a key of {KEY_BYTES_MIN} bytes at least is needed to hash {', '.join(rules.hashed)}: whoever has none "
            f"could try all values there are. Make one: head -c 32 /dev/urandom > key; got {len(rules.key)} bytes"
        )
    if twice := set(rules.hashed) & set(rules.removed):
        raise SourceUnfit(f"a field is hashed or removed, not both: {', '.join(sorted(twice))}")


def find_queues(log: Log, database: str, collections: Sequence[str]) -> list[str]:
    """The queues with the changes of these collections; one that is named and not there is an error."""
    there = {
        collection: status.queue
        for status in log.queues(database)
        if (collection := collection_of(status.queue)) is not None
    }
    missing = [wanted for wanted in collections if not any(fnmatchcase(name, wanted) for name in there)]
    if missing:
        known = ", ".join(sorted(there)) or "none"
        raise QueueMissing(f"there is no collection {', '.join(map(repr, missing))}; there are {known}")
    return sorted(queue for name, queue in there.items() if any(fnmatchcase(name, each) for each in collections))


def _try_step(
    spark: SparkSession, job: ShadowRecord, step: Step, manifest: Manifest, marks: dict[str, int], log: Log
) -> tuple[Manifest, Count]:
    try:
        return _record_step(spark, job, step, manifest, marks, log)
    except Exception:
        # Readers of the folder see what the manifest names, and no half of a step.
        remove_strangers(Path(job.folder), manifest, FILES)
        raise


def _record_step(
    spark: SparkSession, job: ShadowRecord, step: Step, manifest: Manifest, marks: dict[str, int], log: Log
) -> tuple[Manifest, Count]:
    folder = Path(job.folder)
    entries: list[Entry] = []
    count = NOTHING
    if step.records:
        messages = read_step(spark, Place(anywhere(job.store), job.database, job.access), marks, step)
        judged = judge(messages, job.rules).persist(StorageLevel.MEMORY_AND_DISK)
        staged = folder / STAGING / f"{step.through}"
        try:
            count = _count(judged)
            rows = judged.where(f.col("fate") == RECORDED).select(*COLUMNS)
            rows.write.mode("overwrite").option("compression", "zstd").parquet(plain_place(staged))
        finally:
            judged.unpersist()
        entries = list(take_parts(folder, staged, step, manifest.about["collections"], "parquet"))
    # What is missing of it may be so because a collection was deleted meanwhile.
    check_owner(folder, manifest, log, job.database, list(marks))
    gone = check_gone(log, job.database, marks, step, count.read)
    after = msgspec.structs.replace(
        manifest,
        entries=(*manifest.entries, *entries),
        queues={**manifest.queues, **{queue: max(mark, step.through) for queue, mark in marks.items()}},
        ends={**manifest.ends, **step.ends},
        lost={"*": manifest.lost.get("*", 0) + sum(step.lost.values()) + gone},
    )
    after = with_end(after, log, step.through)
    write_manifest(folder, after)
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    return after, count


def judge(messages: DataFrame, rules: Sanitising) -> DataFrame:
    """Messages of change logs as rows of a recording, each with what became of it; only those recorded tell more."""

    def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        text, number = pyarrow.string(), pyarrow.int64()
        fields = [(name, text if kind == "STRING" else number) for name, kind in COLUMNS.items()]
        schema = pyarrow.schema([*fields, ("fate", text), ("met", pyarrow.list_(text))])
        for batch in batches:
            yield pyarrow.RecordBatch.from_pylist([judge_change(row, rules) for row in batch.to_pylist()], schema)

    return messages.select("queue", "partition_id", "offset", "lsn", "value").mapInArrow(run, JUDGED)


def judge_change(row: dict[str, Any], rules: Sanitising) -> dict[str, Any]:
    """One change: sampled, then sanitised. What cannot be read is not shown either: nobody knows what is in it."""
    collection = collection_of(row["queue"]) or ""
    try:
        change = _decode_change(row["value"])
        images = images_of(change)
    except (msgspec.MsgspecError, StoreDamaged):
        return {"fate": UNREADABLE}
    if not is_sampled(collection, change.id, rules.share):
        return {"fate": LEFT_OUT}
    shown = [None if image is None else sanitise(image, rules) for image in images]
    before, after = (None if each is None else msgspec.json.encode(each[0]).decode() for each in shown)
    return {
        "collection": collection,
        "partition_id": row["partition_id"],
        "offset": row["offset"],
        "lsn": row["lsn"],
        "op": change.op,
        "id": sanitise({"id": change.id}, rules)[0].get("id"),
        "version": change.version,
        "before": before,
        "after": after,
        "fate": RECORDED,
        "met": sorted({field for each in shown if each is not None for field in each[1]}),
    }


def _count(judged: DataFrame) -> Count:
    fates = {row["fate"]: int(row["count"]) for row in judged.groupBy("fate").count().collect()}
    met = judged.select(f.explode("met").alias("field")).distinct().collect()
    return Count(fates, frozenset(row["field"] for row in met))


def _summary(job: ShadowRecord, before: Manifest, after: Manifest, count: Count, speed: int) -> Summary:
    facts: dict[str, Any] = {
        "collections": len(after.queues),
        "changes in": count.read,
        "recorded": count.fates.get(RECORDED, 0),
        "left out by the sample": count.fates.get(LEFT_OUT, 0),
        "unreadable": count.fates.get(UNREADABLE, 0),
        "lost to retention before": sum(after.lost.values()) - sum(before.lost.values()),
        "files": len(after.entries) - len(before.entries),
        "bytes": sum(entry.bytes for entry in after.entries) - sum(entry.bytes for entry in before.entries),
        "changes a second": speed,
    }
    declared = {*job.rules.hashed, *job.rules.removed}
    if count.fates.get(RECORDED) and (unmet := sorted(declared - count.met)):
        # A field that is misspelt is not taken out of anything.
        facts["in no document"] = ", ".join(unmet)
    return Summary(flow="shadow-record", facts=facts)
