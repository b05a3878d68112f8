"""The worker's commands: starts them, reports their ends, and leaves nothing of them behind."""

import asyncio
import logging
from collections.abc import Callable

from headwater.log.job_operations import ClaimedJob, Note, Report
from headwater.model.job import JobNumber, Outcome, WorkerSettings
from headwater.worker.processes import kill_strays
from headwater.worker.reports import report_of, unstartable
from headwater.worker.shell import Ended, Shell, mark_of
from headwater.worker.watcher import Watcher

log = logging.getLogger(__name__)

OUTPUT_PAUSE_SECONDS = 1.0


class Commands:
    """Runs commands. Reports go to `on_report`, what long ones have printed so far to `on_output`.

    With `sweeps`, whatever a command leaves behind is killed; `spare` names a process that is none of them.
    """

    def __init__(self, settings: WorkerSettings, *, sweeps: bool) -> None:
        self._settings = settings
        self._sweeps = sweeps
        self._shells: dict[JobNumber, Shell] = {}
        self._watcher: Watcher | None = None
        self._told: dict[JobNumber, int] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._all_ended: asyncio.Future[None] | None = None
        self.spare: Callable[[], int] = lambda: 0
        self.on_report: Callable[[Report], None] = lambda report: None
        self.on_output: Callable[[Note], None] = lambda note: None

    @property
    def count(self) -> int:
        """How many commands run."""
        return len(self._shells)

    def started_before(self, moment: float) -> bool:
        """Whether a command runs since before `moment` (of the monotonic clock)."""
        return any(shell.begun_at <= moment for shell in self._shells.values())

    def run(self, job: ClaimedJob) -> None:
        """Start a command; one that cannot be started has failed."""
        if self._watcher is None:
            self._watcher = Watcher()
        limits = (self._settings.output_max, self._settings.grace)
        shell = Shell(job, *limits, on_end=self._ended)
        try:
            shell.start(self._watcher)
        except OSError as error:
            reason = unstartable(job, error)
            self.on_report(Report(number=job.number, token=job.token, outcome=Outcome.FAILED, error=reason))
            return
        self._shells[job.number] = shell
        if self._telling is None:
            self._tell_later()

    def stop(self, number: JobNumber, reason: str) -> bool:
        """Ask a command to end, and insist after a while; False when it does not run here."""
        shell = self._shells.get(number)
        if shell is not None:
            shell.stop(reason)
        return shell is not None

    def abort(self, reason: str) -> None:
        """End all commands at once."""
        for shell in self._shells.values():
            shell.stop(reason, at_once=True)

    async def closed(self) -> None:
        """Until the last one has ended."""
        if self._shells:
            self._all_ended = asyncio.get_running_loop().create_future()
            await self._all_ended
        if self._telling is not None:
            self._telling.cancel()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _ended(self, job: ClaimedJob, ended: Ended) -> None:
        del self._shells[job.number]
        self._told.pop(job.number, None)
        self._kill_strays()
        self.on_report(report_of(job, ended))
        if self._all_ended is not None and not self._shells:
            self._all_ended.set_result(None)

    def _kill_strays(self) -> None:
        """Nothing that a command started outlives it, not even in a session of its own."""
        if not self._sweeps:
            return
        known = {shell.process for shell in self._shells.values()} | {self.spare()}
        spared = tuple(mark_of(shell.job) for shell in self._shells.values())
        killed = kill_strays(known, spared)
        if killed:
            log.warning("killed %d processes that a command left behind", killed)

    # ── output while they run ──

    def _tell_later(self) -> None:
        self._telling = asyncio.get_running_loop().call_later(OUTPUT_PAUSE_SECONDS, self._tell_output)

    def _tell_output(self) -> None:
        """A command that runs for long shows its output while it does."""
        self._telling = None
        for number, shell in self._shells.items():
            if shell.printed_bytes != self._told.get(number, 0):
                self._told[number] = shell.printed_bytes
                self.on_output(Note(number=number, token=shell.job.token, output=shell.output))
        if self._shells:
            self._tell_later()
