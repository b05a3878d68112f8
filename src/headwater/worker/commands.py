"""The worker's commands: starts them, reports their ends, and leaves nothing of them behind."""

import asyncio
import errno
import logging
from collections.abc import Callable

from headwater.log.job_operations import ClaimedJob, JobReport, Note
from headwater.model.job import JobNumber, JobOutcome, WorkerSettings
from headwater.stores.job_starts import JobStarts, marks_of
from headwater.worker.call_reports import release
from headwater.worker.processes import kill_strays
from headwater.worker.reports import report_of, unstartable
from headwater.worker.shell import Ended, Shell, Unwatched, mark_of
from headwater.worker.watcher import Watcher

log = logging.getLogger(__name__)

OUTPUT_PAUSE_SECONDS = 1.0
NO_MARK = b"\0"
# What this process, or the machine, has no more of: no fault of the command.
LACKING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.ENOBUFS}


class Commands:
    """Runs commands. Reports go to `on_report`, what long ones have printed so far to `on_output`.

    With `sweeps`, whatever a command leaves behind is killed; `spare` names processes that are none of them.
    """

    def __init__(self, settings: WorkerSettings, starts: JobStarts, *, worker: str, sweeps: bool) -> None:
        self._settings = settings
        self._starts = starts
        self._marks = marks_of(starts.path, worker)
        self._sweeps = sweeps
        # By token too: one whose lease was lost may still be ending when its job comes here again.
        self._shells: dict[tuple[JobNumber, int], Shell] = {}
        self._watcher: Watcher | None = None
        self._sent_bytes: dict[tuple[JobNumber, int], int] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._all_ended: asyncio.Future[None] | None = None
        self.spare: Callable[[], set[int]] = set
        self.on_report: Callable[[JobReport], None] = lambda report: None
        self.on_output: Callable[[Note], None] = lambda note: None
        self.on_lack: Callable[[OSError], None] = lambda error: None

    @property
    def count(self) -> int:
        """How many commands run."""
        return len(self._shells)

    def started_before(self, moment: float) -> bool:
        """Whether a command runs since before `moment` (of the monotonic clock)."""
        return any(shell.begun_at <= moment for shell in self._shells.values())

    def run(self, job: ClaimedJob) -> None:
        """Start a command. One that cannot be started has failed, unless it is this process that lacks something."""
        slot = self._starts.hold(job.number, job.token)
        if not self._starts.mark(slot, job.number, job.token):
            self.on_report(release(job))
            return
        limits = (self._settings.output_max, self._settings.grace)
        shell = Shell(job, self._marks, *limits, on_end=self._ended)
        try:
            if self._watcher is None:
                self._watcher = Watcher()
            shell.start(self._watcher)
        except Unwatched as error:
            self._fail(job, unstartable(job, error.error))
            self.on_lack(error.error)
            return
        except (OSError, ValueError) as error:
            self._could_not_start(job, error)
            return
        self._starts.name_process(slot, job.number, job.token, shell.process)
        self._shells[job.number, job.token] = shell
        if self._telling is None:
            self._tell_later()

    def mark_again(self) -> None:
        """Mark what runs as started, after the marks were damaged."""
        for shell in self._shells.values():
            job = shell.job
            self._starts.name_process(self._starts.hold(job.number, job.token), job.number, job.token, shell.process)

    def _could_not_start(self, job: ClaimedJob, error: OSError | ValueError) -> None:
        if isinstance(error, OSError) and error.errno in LACKING:
            self.on_report(release(job))
            self.on_lack(error)
            return
        self._fail(job, unstartable(job, error))

    def _fail(self, job: ClaimedJob, reason: str) -> None:
        self.on_report(JobReport(number=job.number, token=job.token, outcome=JobOutcome.FAILED, error=reason))

    def stop(self, number: JobNumber, reason: str) -> bool:
        """Ask a command to end, and insist after a while; False when it does not run here."""
        found = [shell for (one, _), shell in self._shells.items() if one == number]
        for shell in found:
            shell.stop(reason)
        return bool(found)

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
        del self._shells[job.number, job.token]
        self._sent_bytes.pop((job.number, job.token), None)
        self._kill_strays(mark_of(job))
        self.on_report(report_of(job, ended))
        if self._all_ended is not None and not self._shells:
            self._all_ended.set_result(None)

    def sweep(self) -> None:
        """A process of functions is gone: so is what it left behind, as far as it is known to be nobody else's."""
        self._kill_strays(None)

    def _kill_strays(self, mark: bytes | None) -> None:
        """Nothing that a command started outlives it, not even in a session of its own.

        Whatever has lost its parents is a child of ours, and its environment says whose it was. One that says nothing
        may belong to a neighbour that still runs: it is killed when none does.
        """
        if not self._sweeps:
            return
        known = {shell.process for shell in self._shells.values()} | self.spare()
        alone = not self._shells and not self.spare()
        killed = kill_strays(known, None if alone else mark or NO_MARK)
        if killed:
            log.warning("killed %d processes that a job left behind", killed)

    # ── output while they run ──

    def _tell_later(self) -> None:
        self._telling = asyncio.get_running_loop().call_later(OUTPUT_PAUSE_SECONDS, self._tell_output)

    def _tell_output(self) -> None:
        """A command that runs for long shows its output while it does."""
        self._telling = None
        for (number, token), shell in self._shells.items():
            if shell.printed_bytes != self._sent_bytes.get((number, token), 0):
                self._sent_bytes[number, token] = shell.printed_bytes
                self.on_output(Note(number=number, token=token, output=shell.output))
        if self._shells:
            self._tell_later()
