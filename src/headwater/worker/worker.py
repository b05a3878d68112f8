"""One worker: claims jobs, runs them, reports, and keeps its lease. It sleeps until the log says that there is more.

Reports and the claim of what comes next share a commit. How much is claimed ahead follows from how long jobs take:
short ones are fetched by the hundred, of long ones not one more than can run, so that no other worker stays idle.
"""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from headwater.clock import SECOND, Clock, Timestamp
from headwater.errors import Closed, HeadwaterError, StoreReplaced
from headwater.log.job_operations import Capacity, Claimed, ClaimedJob, JobReport, Note
from headwater.log.operations import Touch
from headwater.model.job import CONTROL_PARTITION, JOBS_QUEUE, JobNumber, JobOutcome, WorkerSettings, runs_command
from headwater.model.selection import Selection
from headwater.outage import level_of
from headwater.services.jobs import Jobs, JobService
from headwater.stores.job_questions import FindJobsReady
from headwater.stores.job_starts import JobStarts, starts_path
from headwater.worker.call_reports import release
from headwater.worker.commands import Commands
from headwater.worker.declaring import declare
from headwater.worker.functions import Functions
from headwater.worker.lease import Lease
from headwater.worker.mending import mend_starts
from headwater.worker.news import News
from headwater.worker.notes import Notes
from headwater.worker.pace import Pace
from headwater.worker.reports import LeftToOthers, log_failure
from headwater.worker.settlement import ERROR_PAUSE_SECONDS, Settlement
from headwater.worker.worker_options import (
    TOLD_BY_SIGNAL,
    UNLOADABLE,
    UNLOADABLE_NOW,
    WITHOUT_HEARTBEAT,
    WorkerOptions,
)

log = logging.getLogger(__name__)

AHEAD_SECONDS = 0.1
AHEAD_MAX = 200
PIPELINE_MAX = 100
STALLED_SECONDS = 1.0
LACK_PAUSE_SECONDS = 1.0
NOTE_PAUSE_SECONDS = 0.2
GATHER_SECONDS = 0.025


class Worker:
    """Runs jobs of one database until it is asked to stop, or, with `drain`, until there are none."""

    def __init__(self, service: JobService, options: WorkerOptions, settings: WorkerSettings) -> None:
        self._service = service
        self._store = service.store
        self._clock: Clock = service.clock
        self._followers = service.followers
        self._options = options
        self._settings = settings
        self._buffer: deque[ClaimedJob] = deque()
        self._jobs: dict[tuple[JobNumber, int], ClaimedJob] = {}
        self._reports: list[JobReport] = []
        self._reported_at = 0.0
        self._notes = Notes()
        self._look = True
        # Jobs have changed, and nobody has asked yet whether there is one for us; others may have woken us for them.
        self._unsure = self._woken_by_others = False
        self._pace = Pace(service.followers.tail, options.concurrency)
        self._beat_now = asyncio.Event()
        self._stopping = False
        self._killed = False
        self._code = 0
        self._ready_at: Timestamp | None = None
        self._seconds = AHEAD_SECONDS
        self._news = News()
        self._left = LeftToOthers()
        self._lacking_until = 0.0
        self._asked_for: frozenset[str] | None = None
        path = starts_path(self._store.traits.beside, options.id)
        self.starts = JobStarts.make(path, max(options.concurrency, AHEAD_MAX))
        self._lease = Lease(service.committer, options, settings.lease, self.starts)
        self._lease.on_lost = self._lost
        self._lease.on_stale = self._stale
        self._settlement = Settlement(service.committer, options.database, options.id, self.starts)
        self._settlement.on_change = self._news.tell
        self.commands = Commands(settings, self.starts, worker=options.id, sweeps=options.sweeps)
        self.commands.on_report = self._command_ended
        self.commands.on_output = self._note
        self.commands.on_lack = self._lack
        self.functions = Functions(options.functions(settings), self.starts)
        self.functions.on_report = self._report
        self.functions.on_note = self._note
        self.functions.on_lack = self._lack
        self.functions.on_ready = self._functions_ready
        self.functions.on_unloadable = self._unloadable
        self.functions.on_dead = lambda: mend_starts(self.starts, self.commands, self.functions, self._buffer)
        self.functions.on_gone = self.commands.sweep
        self.commands.spare = lambda: self.functions.processes

    # ── life ──

    async def run(self) -> int:
        """Work until the end; 0 when there is no more to do here, another number for every other reason."""
        with closing(self.starts):
            await self._run()
        return self._code

    async def _run(self) -> None:
        await self._followers.ready()
        self._followers.on_elsewhere.append(self._woken)
        self._followers.on_clock_set.append(self._clock_set)
        unwatch = self._followers.watch(Selection(self._options.database, (JOBS_QUEUE,)), self._touched)
        beating = asyncio.get_running_loop().create_task(self._beat_for_ever(), name="headwater-heartbeat")
        beating.add_done_callback(self._beaten)
        try:
            await self._beat()
            if self._options.sources:
                self._load_functions()
            await self._work()
        finally:
            beating.cancel()
            unwatch()
            self._followers.on_elsewhere.remove(self._woken)
            self._followers.on_clock_set.remove(self._clock_set)
            await self._end_everything()
        await self._settle_rest()
        await self._depart()

    async def _register(self) -> None:
        """Let jobs be run as their functions are declared, whoever adds them, and schedules be as they are."""
        try:
            await declare(Jobs(self._service, self._options.database), self.functions)
        except HeadwaterError as error:
            log.error("what the functions of this worker declare cannot be brought to the store: %s", error)
            self._code = UNLOADABLE
            self.stop()

    def stop(self, *, at_once: bool = False) -> None:
        """Finish what runs, give back the rest, and end; `at_once` ends what runs too."""
        self._killed = self._killed or at_once
        self._stopping = True
        self._news.tell()

    def stop_by_signal(self, number: int) -> None:
        """A signal came. Whose it was, the supervisor knows: any job that runs here could have sent it, so however many
        come, what runs is finished. Only SIGQUIT ends it too."""
        if not self._stopping:
            self._code = TOLD_BY_SIGNAL
        self.stop(at_once=number == signal.SIGQUIT)

    async def _work(self) -> None:
        while not self._is_done():
            if self._stopping:
                self._release_waiting()
            self._fill()
            wanted = 0 if self._stopping else self._wanted()
            if wanted and self._unsure and not self._look:
                await self._find_ready()
                continue
            if self._is_time_to_report() or (wanted and self._look):
                await self._exchange(wanted)
                continue
            if self._options.drain and self._is_idle() and not self._expects_more():
                return
            await self._wait()

    def _expects_more(self) -> bool:
        """Whether there may be something to do although nothing is here."""
        is_busy = self._settlement.is_open or self.functions.is_loading
        return bool(self._look or self._unsure or is_busy or self._lacking_until > time.monotonic())

    def _is_time_to_report(self) -> bool:
        """At once when nothing else is to be done here; while there is, reports gather for a moment."""
        if not self._reports:
            return False
        busy = self._held()
        return not busy or self._stopping or self._until_report() == 0 or len(self._reports) >= AHEAD_MAX // 2

    def _until_report(self) -> float:
        return max(self._reported_at + GATHER_SECONDS - time.monotonic(), 0.0)

    def _is_idle(self) -> bool:
        return not (self._held() or self._reports)

    def _is_done(self) -> bool:
        return self._killed or (self._stopping and self._is_idle())

    async def _wait(self) -> None:
        """Until something ends, something new may be there, or a time comes."""
        self._news.forget()
        self._pace.suit(self._held())
        seconds = self._until_ready()
        lacking = self._lacking_until - time.monotonic()
        if lacking > 0:
            seconds = _sooner(seconds, lacking)
            self._look = True
        crowded = (self.commands.count or self.functions.count) and (self._buffer or self.functions.waiting())
        if crowded:
            seconds = _sooner(seconds, STALLED_SECONDS / 2)
        if self._reports:
            seconds = _sooner(seconds, self._until_report())
        if self._asked_for is not None:
            seconds = _sooner(seconds, STALLED_SECONDS)
        if not await self._news.hear(seconds) and self._until_ready() == 0:
            self._look = True
            self._ready_at = None
        if crowded:
            self._release_stalled()
        if self._asked_for is not None and self._asked_for != self.functions.able_to_begin(STALLED_SECONDS):
            # What held up the others has let go, or something else does.
            self._look = True

    def _until_ready(self) -> float | None:
        if self._ready_at is None or self._stopping:
            return None
        return max((self._ready_at - self._clock.now()) / SECOND, 0.0)

    # ── what comes next ──

    def _wanted(self) -> int:
        """How many jobs to claim: enough for a tenth of a second, and only when half of that is used up. None before it
        is known that the functions can be loaded: a worker that was started wrongly must not touch anything."""
        if time.monotonic() < self._lacking_until or self.functions.is_loading:
            return 0
        ahead = min(int(AHEAD_SECONDS / max(self._seconds, 1e-6)), AHEAD_MAX)
        depth = max(self._options.concurrency, ahead * self._options.concurrency)
        depth = min(depth, max(AHEAD_MAX, self._options.concurrency))
        held = self._held()
        wanted = depth - held if held <= depth // 2 or held < self._options.concurrency else 0
        return min(wanted, self.starts.room)

    def _capacity(self) -> Capacity:
        return Capacity(self._options.concurrency, self.functions.one_by_one)

    def _held(self) -> int:
        """How many jobs are here."""
        return len(self._buffer) + self.commands.count + self.functions.count

    def _fill(self) -> None:
        """Start what can be started."""
        while self._buffer:
            job = self._buffer[0]
            if not runs_command(job.type):
                if self.functions.count >= max(PIPELINE_MAX, self._options.concurrency):
                    return
                self.functions.run(self._buffer.popleft())
            elif self.commands.count < self._options.concurrency:
                self.commands.run(self._buffer.popleft())
            else:
                return

    def _touched(self, touches: Sequence[Touch]) -> None:
        """Jobs have changed: there may be something for us. Nothing new says that the store is lost: a look will
        tell."""
        if not touches or any(touch.lane.partition == CONTROL_PARTITION for touch in touches):
            self._beat_now.set()
            self._look = True
        elif not self._wanted():
            # There is no room for more now; when there is, a look is due.
            self._look = True
            return
        elif not self._look:
            self._unsure = True
        self._news.tell()

    def _woken(self) -> None:
        """Others have committed, and the touches are told: was there something for us?"""
        if self._unsure:
            self._woken_by_others = True
        elif not self._look and self._wanted():
            self._pace.looked(in_vain=True)
        self._pace.suit(self._held())

    def _clock_set(self, by: int) -> None:
        """Something may be due now. The claim is a commit, and takes delays and leases along with the clock."""
        self._look = True
        self._news.tell()

    # ── the store ──

    async def _find_ready(self) -> None:
        """Jobs have changed: ask whether a claim would get something, without the write lock."""
        self._unsure = False
        woken, self._woken_by_others = self._woken_by_others, False
        now, functions = self._clock.now(), self.functions.able_to_begin(STALLED_SECONDS)
        try:
            worker = (self._options.id, self._capacity())
            question = FindJobsReady(self._options.database, self._options.queues, now, functions, *worker)
            self._ready_at = await self._store.ask(question)
        except HeadwaterError as error:
            log.debug("what is ready cannot be told, the claim will say why: %s", error)
            self._ready_at = now
        self._look = self._look or self._ready_at == now
        if woken and not self._look:
            self._pace.looked(in_vain=True)

    async def _exchange(self, wanted: int) -> None:
        """Hand in reports and claim what comes next, in one commit. Reports are waited for off the path."""
        reports, self._reports = self._reports, []
        if reports:
            self._settlement.hand_in(reports)
        if not wanted or not self._look:
            await asyncio.sleep(0)
            return
        able = self.functions.able_to_begin(STALLED_SECONDS)
        claim = self._options.claim(wanted, self._settings, able, self._capacity())
        self._asked_for = claim.functions if claim.functions != self.functions.known else None
        self._look = False
        self._pace.rest()
        try:
            claimed = await self._lease.claim(claim)
        except (Closed, StoreReplaced):
            raise
        except HeadwaterError as error:
            log.log(level_of(error), "no jobs could be claimed, trying again: %s", error)
            self._look = True
            await asyncio.sleep(ERROR_PAUSE_SECONDS)
            return
        self._take(claimed, wanted)

    def _take(self, claimed: Claimed, wanted: int) -> None:
        # A function that is known here is only busy.
        unknown = [one for one in claimed.unknown if one not in self.functions.known]
        self._left.say(unknown)
        self._buffer.extend(claimed.jobs)
        for job in claimed.jobs:
            self._jobs[job.number, job.token] = job
            self.starts.hold(job.number, job.token)
        self._pace.looked(in_vain=not claimed.jobs)
        self._ready_at = claimed.ready_at
        if len(claimed.jobs) == wanted or unknown:
            self._look = True
        if claimed.stopping:
            self.stop()

    async def _settle_rest(self) -> None:
        if self._reports:
            reports, self._reports = self._reports, []
            self._settlement.hand_in(reports)
        await self._settlement.finished()

    async def _depart(self) -> None:
        try:
            await self._lease.depart("the worker was ended while it ran")
        except HeadwaterError as error:
            log.warning("the worker's end could not be noted; its lease runs out by itself: %s", error)

    # ── the lease ──

    async def _beat_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.lease / 3):
                    await self._beat_now.wait()
            try:
                await self._beat()
                self.functions.end_stopped()
                self.functions.on_dead()
            except (Closed, StoreReplaced):
                return
            except HeadwaterError as error:
                log.log(level_of(error), "the heartbeat failed, the next one is due soon: %s", error)
                await asyncio.sleep(ERROR_PAUSE_SECONDS)

    def _beaten(self, beating: asyncio.Task[None]) -> None:
        """Without a heartbeat everything here would soon belong to others: end, and let the supervisor start anew."""
        if not beating.cancelled() and beating.exception() is not None:
            log.error("the heartbeat ended", exc_info=beating.exception())
            self._code = WITHOUT_HEARTBEAT
            self.stop()

    def _note(self, note: Note) -> None:
        """Tell it with a heartbeat that comes soon: a job may report progress a thousand times a second."""
        if not self._notes:
            asyncio.get_running_loop().call_later(NOTE_PAUSE_SECONDS, self._beat_now.set)
        self._notes.add(note)

    async def _beat(self) -> None:
        self._beat_now.clear()
        beat = await self._lease.beat(self._notes.take())
        for number in beat.cancelled:
            self._cancel(number)
        if beat.stopping:
            self.stop()

    def _lost(self) -> None:
        """The lease ran out while we were away: everything that we hold is somebody else's now."""
        if self._is_idle():
            return
        log.warning("the lease was lost; what runs here is ended")
        self._buffer.clear()
        self._jobs.clear()
        self._reports.clear()
        self.commands.abort("the lease was lost")
        self.functions.close()
        self.starts.let_all_go()

    def _stale(self, jobs: Iterable[ClaimedJob]) -> None:
        """Jobs that were claimed under a lease that is over, or may be."""
        self._give_back(jobs)
        self._look = True

    def _cancel(self, number: JobNumber) -> None:
        held = [job for job in self._buffer if job.number == number]
        for job in held:
            self._buffer.remove(job)
            self._report(JobReport(number=number, token=job.token, outcome=JobOutcome.CANCELLED, error="cancelled"))
        if not self.commands.stop(number, "cancelled"):
            self.functions.stop(number, "cancelled")

    # ── news of what runs ──

    def _command_ended(self, report: JobReport) -> None:
        """The next one begins at once, without a turn of the loop; unless this is the end of one that never began."""
        self._report(report)
        if not self._stopping and report.duration_seconds is not None:
            self._fill()

    def _unloadable(self) -> None:
        log.error("the functions of this worker cannot be loaded:\n%s", self.functions.unloadable)
        self._code = UNLOADABLE_NOW if self.functions.has_loaded else UNLOADABLE
        self.stop()

    def _load_functions(self) -> None:
        try:
            self.functions.start()
        except OSError as error:
            self._lack(error)
            asyncio.get_running_loop().call_later(LACK_PAUSE_SECONDS, self._load_functions)

    def _functions_ready(self) -> None:
        """Now it is known which functions there are: jobs that need them can be claimed."""
        self._settlement.look_after(self._register())
        self._look = True
        self._news.tell()

    def _lack(self, error: OSError) -> None:
        """This process lacks descriptors, memory or processes: that is no job's fault. Others may have more of them."""
        if time.monotonic() >= self._lacking_until:
            log.warning("jobs are given back, because this worker cannot start them now: %s", error)
        self._lacking_until = time.monotonic() + LACK_PAUSE_SECONDS
        self._give_back(self._buffer)
        self._buffer.clear()

    def _report(self, report: JobReport) -> None:
        job = self._jobs.pop((report.number, report.token), None)
        if job is not None and report.outcome in (JobOutcome.FAILED, JobOutcome.BURIED):
            log_failure(job, report)
        if report.duration_seconds is not None:
            self._seconds += 0.3 * (report.duration_seconds - self._seconds)
        if not self._reports:
            self._reported_at = time.monotonic()
        if self._asked_for is not None:
            # It may have been what the others had to wait for.
            self._look = True
        self._reports.append(report)
        self._news.tell()

    # ── giving back ──

    def _give_back(self, jobs: Iterable[ClaimedJob]) -> None:
        """Nothing of them has run: no attempt is counted."""
        for job in jobs:
            self._jobs.pop((job.number, job.token), None)
            self._reports.append(release(job))

    def _release_waiting(self) -> None:
        """Others get what was claimed ahead; no attempt is counted."""
        self._give_back([*self._buffer, *self.functions.recall()])
        self._buffer.clear()

    def _release_stalled(self) -> None:
        """A job that takes long must not hold up others that were claimed with it."""
        before = time.monotonic() - STALLED_SECONDS
        stalled = self.commands.started_before(before) or self.functions.started_before(before)
        if stalled and (self._buffer or self.functions.waiting()):
            self._seconds = max(self._seconds, AHEAD_SECONDS)
            self._release_waiting()

    async def _end_everything(self) -> None:
        """What still runs is ended at once and has failed; what had not begun is given back."""
        reason = "the worker was told to end at once"
        self.commands.abort(reason)
        self._give_back(self._buffer)
        self._buffer.clear()
        self.functions.abort(reason)
        await self.commands.closed()
        await self.functions.closed()


def _sooner(seconds: float | None, other: float) -> float:
    return other if seconds is None else min(seconds, other)
