"""Ctrl-C in a flow on Spark: what runs is ended in good order, and one line says so.

A line to Java must not be cut in the middle of an answer, so Spark is started and used by a thread that hears of no
signal; the one that does waits, and asks Spark to end.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from headwater.cli.output import note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.pipeline.summary import Summary

Result = TypeVar("Result")

CANCEL_SECONDS = 0.2


@contextmanager
def noting_the_end() -> Iterator[None]:
    """Says in one line that Ctrl-C ended a flow."""
    try:
        yield
    except KeyboardInterrupt:
        note("ended by Ctrl-C; what was finished stays, and running it again goes on from there")
        raise


def run_interruptibly(spark: "SparkSession", run: "Callable[[], Summary]") -> "Summary":
    """Run a flow so that Ctrl-C ends Spark's jobs."""
    from headwater.pipeline.session import make_active

    def run_here() -> "Summary":
        make_active(spark)
        return run()

    def end() -> None:
        for query in spark.streams.active:
            query.stop()
        spark.sparkContext.cancelAllJobs()

    return interruptibly(run_here, end)


def interruptibly(work: Callable[[], Result], end: Callable[[], None] = lambda: None) -> Result:
    """Do work in a thread of its own; after Ctrl-C, `end` is called until it has ended, and then that is raised.

    The thread that waits for Spark, or for its start, must not be interrupted: half an answer would be left on its line
    to Java. Nor must this one, which could lose the other.
    """
    # Most commands never come here.
    from concurrent.futures import ThreadPoolExecutor, wait

    asked = threading.Event()
    handler = signal.signal(signal.SIGINT, lambda number, frame: asked.set())
    try:
        with ThreadPoolExecutor(max_workers=1) as threads:
            running = threads.submit(work)
            while not running.done():
                if asked.is_set():
                    end()
                wait([running], CANCEL_SECONDS)
    finally:
        signal.signal(signal.SIGINT, handler)
    if asked.is_set():
        raise KeyboardInterrupt
    return running.result()
