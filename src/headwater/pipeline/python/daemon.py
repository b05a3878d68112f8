"""Spark's daemon for Python workers, with what they all import: `python daemon.py pyspark.worker`, started by `python`.

Spark forks a worker for every task slot, and one for every plan of a table and every stream. Each would import Spark's
Python code, Arrow and Headwater anew, which takes longer than reading a hundred thousand messages. Here it is imported
once, before the forks. Arrow's allocator has a thread by then and NumPy may; both make themselves ready for a fork.
"""

import importlib
import os
import sys
from contextlib import suppress

# As `python -m pyspark.daemon` would have it: the folder it was started in, not that of this file.
sys.path[0] = os.getcwd()

from pyspark.daemon import manager  # noqa: E402

OURS = ("headwater.pipeline.source", "pyarrow.compute")
# It looks which packages there are, once in a session, and needs nothing of them.
LOOKING = "pyspark.sql.worker.lookup_data_sources"


def preload(worker: str) -> None:
    """Import what workers import. One that is missing is told by the worker that needs it."""
    for name in () if worker == LOOKING else (*OURS, worker):
        with suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    preload(*sys.argv[1:2])
    manager()
