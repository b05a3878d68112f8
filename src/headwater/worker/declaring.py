"""Brings what a worker's functions declare to the store: how they are run, whoever adds them, and their schedules."""

import asyncio
import logging

from headwater.errors import HeadwaterError
from headwater.outage import level_of
from headwater.services.jobs import Jobs
from headwater.worker.functions import Functions
from headwater.worker.settlement import ERROR_PAUSE_SECONDS

log = logging.getLogger(__name__)


async def declare(jobs: Jobs, functions: Functions) -> None:
    """Until the store has it; an error that trying again does not help against is the caller's."""
    while True:
        try:
            await jobs.register(functions.policies)
            await jobs.declare(functions.schedules)
            return
        except HeadwaterError as error:
            if not error.retryable:
                raise
            told = "what the functions declare could not be brought to the store, trying again: %s"
            log.log(level_of(error), told, error)
        await asyncio.sleep(ERROR_PAUSE_SECONDS)
