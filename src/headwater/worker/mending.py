"""What a worker notes of started jobs stands in memory that functions can reach: it is put right when one hit it."""

import logging
from collections.abc import Iterable

from headwater.log.job_operations import ClaimedJob
from headwater.stores.job_starts import JobStarts
from headwater.worker.commands import Commands
from headwater.worker.functions import Functions

log = logging.getLogger(__name__)


def mend_starts(starts: JobStarts, commands: Commands, functions: Functions, fetched: Iterable[ClaimedJob]) -> None:
    """Make the notes anew, with what is still held and does not wait, if they are not as the worker made them."""
    if not starts.is_intact():
        log.error("a job has written over what this worker notes about started jobs; the notes are made anew")
        commands.mark_again()
        starts.repair({(job.number, job.token) for job in [*fetched, *functions.untaken()]})
