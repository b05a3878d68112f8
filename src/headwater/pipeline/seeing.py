"""Opening a log for reading on whatever machine this is: one that does not see the driver's file is told the way."""

import asyncio
import platform

from pyspark import TaskContext

from headwater.errors import StoreMissing
from headwater.pipeline.asking import ask
from headwater.stores.log_reader import LogReader


def open_seen(runner: asyncio.Runner, reader: LogReader) -> None:
    """Open a log. A task runs on a store that its driver saw: what is missing there is missing on this machine only."""
    try:
        ask(runner, reader.open())
    except StoreMissing as error:
        if TaskContext.get() is None:
            raise
        raise StoreMissing(
            f"the executor on {platform.node()} does not see {reader.traits.location}, which the driver reads: "
            "a file is for one machine, so let executors on others read through a server, with store=https://host "
            "(headwater serve) and a token"
        ) from error
