"""Hands in what a worker reports, until the store has taken it, off the path of what comes next."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.errors import Closed, HeadwaterError, Overloaded, StoreReplaced
from headwater.log.committer import CommittedResult, Committer
from headwater.log.job_operations import JobReport, Settle, Settled
from headwater.stores.job_starts import JobStarts

log = logging.getLogger(__name__)

ERROR_PAUSE_SECONDS = 0.5


class Settlement:
    """Reports on their way. The marks of their jobs are kept until they have arrived."""

    def __init__(self, committer: Committer, database: str, worker: str, starts: JobStarts) -> None:
        self._committer = committer
        self._database = database
        self._worker = worker
        self._starts = starts
        self.on_change: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """Whether something is on its way. It may set jobs free that waited for it."""
        return bool(self._tasks)

    def hand_in(self, reports: list[JobReport]) -> None:
        """Hand reports in now, so that they go with the next claim, and look after them in a task."""
        operation = Settle(database=self._database, worker=self._worker, reports=reports)
        self.look_after(self._settle(operation, self._submit(operation)))

    def look_after(self, deed: Coroutine[Any, Any, None]) -> None:
        """Something that is to be done before the worker ends."""
        task = asyncio.get_running_loop().create_task(deed)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finished(self) -> None:
        """Until nothing is on its way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self.on_change()

    def _submit(self, operation: Settle) -> asyncio.Future[CommittedResult[Settled]] | None:
        try:
            return self._committer.submit(operation)
        except Overloaded:
            return None

    async def _settle(self, operation: Settle, answer: asyncio.Future[CommittedResult[Settled]] | None) -> None:
        """Until the store has taken the reports: what was done must not be done again for want of a second try."""
        while True:
            try:
                if answer is not None:
                    settled = (await answer).result
                    _log_lost(settled)
                    for report in operation.reports:
                        self._starts.let_go(report.number, report.token)
                    return
            except (Closed, StoreReplaced) as error:
                log.warning("%d reports came too late: %s", len(operation.reports), error)
                return
            except HeadwaterError as error:
                log.warning("reports could not be handed in, trying again: %s", error)
            await asyncio.sleep(ERROR_PAUSE_SECONDS)
            answer = self._submit(operation)


def _log_lost(settled: Settled) -> None:
    lost = sum(state is None for state in settled.states)
    if lost:
        log.warning("%d reports were refused: the jobs belong to others now", lost)
