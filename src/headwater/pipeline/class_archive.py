"""Spark's classes as one file that Java maps into memory, so that a session starts in a third of the time.

    headwater pipeline prepare      makes it, once for each Java and each Spark
    start_session                   uses it when it is there

Java reads, checks and links about 15,000 classes before Spark gives its first answer. It can keep them ready in an
archive, if it is shown once which they are: a small session does a little of everything, and Java writes the archive
when it ends. An archive that does not fit the Java or the Spark at hand is left alone by Java itself.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headwater.errors import PipelineUnavailable

DUMP_SECONDS_MAX = 600.0


def archive_file(java: str | None, spark_home: str, environment: Mapping[str, str]) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    known_by = hashlib.sha256(f"{java}\n{spark_home}".encode()).hexdigest()[:16]
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "headwater" / f"spark-classes-{known_by}.jsa"


def archive_options(archive: Path) -> str:
    """What Java must be told to use the archive; nothing when there is none."""
    return f'-XX:SharedArchiveFile="{archive}" -Xlog:cds=off' if archive.is_file() else ""


def make_archive(archive: Path) -> int:
    """Make the archive anew; how many bytes it has. Another process does it: its Java must end to write it."""
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        part = Path(folder) / "classes.jsa"
        said = subprocess.run(
            [sys.executable, "-m", __name__, str(part)], cwd=folder, capture_output=True, text=True, check=False
        )
        if not part.is_file():
            why = (said.stderr.strip() or "this Java keeps no archive of classes").splitlines()[-1]
            raise PipelineUnavailable(f"Spark's classes could not be kept ready: {why}")
        os.replace(part, archive)
    return archive.stat().st_size


def show_java_what_is_used(part: Path) -> None:
    """Do a little of everything in a session whose Java writes the archive when it ends."""
    from headwater.log.operations import Push
    from headwater.model.record import Record
    from headwater.pipeline.handle import Handle
    from headwater.pipeline.reading import payload, read, read_stream
    from headwater.pipeline.session import JAVA_OPTIONS, start_session

    order = Record(msgspec.Raw(b'{"customer": "ada", "amount": 1.5}'))
    with Handle("headwater.db", create=True) as log:
        log.commit([Push(queue="orders", partition="one", records=[order] * 10)])
    spark = start_session("local[2]", log="spark.log", settings={JAVA_OPTIONS: f'-XX:ArchiveClassesAtExit="{part}"'})
    options = {"store": "headwater.db", "queue": "orders", "schema": "customer STRING, amount DOUBLE"}
    totals = read(spark, **options).groupBy("value.customer").agg({"value.amount": "sum"})
    totals.write.parquet("totals")
    spark.read.parquet("totals").selectExpr("to_json(struct(*)) AS value").collect()
    copies = read_stream(spark, **options).select(payload("value.customer"))
    writer = copies.writeStream.format("headwater").options(store="headwater.db", queue="copies")
    writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(DUMP_SECONDS_MAX)


if __name__ == "__main__":
    show_java_what_is_used(Path(sys.argv[1]))
