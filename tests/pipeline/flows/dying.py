"""A process that runs one flow, to be killed: `python -m tests.pipeline.flows.dying FLOW STORE PLACE`."""

import os
import sys
from pathlib import Path

from headwater.pipeline import start_session
from headwater.pipeline.flows import archive, load, restore
from headwater.pipeline.flows.archive import Archive
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.flows.restore import Restore
from tests.pipeline.store import JAVA_OPTIONS

RECORDS_PER_STEP = 5_000


def main(name: str, store: str, place: str) -> None:
    os.environ["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS
    spark = start_session("local[2]", log=Path(store).with_suffix(".log"))
    if name == "archive":
        archive.run(spark, Archive(store=store, folder=place, records_per_step=RECORDS_PER_STEP))
    elif name == "restore":
        restore.run(spark, Restore(store=store, folder=place, records_per_step=RECORDS_PER_STEP))
    else:
        aside = str(Path(store).with_name("quarantine"))
        load.run(spark, LoadFiles(store=store, queue="orders", files=(place,), quarantine=aside))


if __name__ == "__main__":
    main(*sys.argv[1:])
