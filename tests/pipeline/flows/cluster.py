"""All flows on a cluster of two executors on this machine: `python -m tests.pipeline.flows.cluster FILE`.

The store is named by a path from here: executors run in folders of their own, and must find it all the same.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from headwater.pipeline import read, start_session
from headwater.pipeline.flows import archive, export, load, restore, rollup
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.export import Export
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.flows.restore import Restore
from headwater.pipeline.flows.rollup import RollUp
from tests.pipeline.store import JAVA_OPTIONS

MASTER = "local-cluster[2,1,1024]"
STORE = "hw.db"


def main(file: str) -> None:
    os.environ["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS
    # Few tasks: on a cluster a shuffle has 200 of them unless it is told otherwise.
    spark = start_session(MASTER, log=Path("spark.log"), settings={"spark.sql.shuffle.partitions": "2"})
    facts: dict[str, Any] = {
        "load": load.run(spark, LoadFiles(store=STORE, queue="orders", files=(file,), partition_field="lane")).facts,
        "archive": archive.run(spark, Archive(store=STORE, folder="archive")).facts,
        "restore": restore.run(spark, Restore(store=STORE, folder="archive", target="copy")).facts,
        "rollup": rollup.run(spark, RollUp(store=STORE)).facts,
        "export": export.run(spark, Export(store=STORE, queue="copy", folder="out", format="ndjson")).facts,
    }
    options = {"store": STORE, "queue": "copy", "minPartitions": "4"}
    rows = spark.read.format("headwater").options(**options).load().select("partition", "offset")
    typed = read(spark, **options, schema="id BIGINT").select("value.id")
    facts["rows"] = sorted(tuple(row) for row in rows.collect())
    facts["typed"] = sorted(row.id for row in typed.collect())
    facts["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(json.dumps(facts))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
