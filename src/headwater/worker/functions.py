"""The worker's functions: which there are, and what calls them: a runner for plain ones, and one for async ones."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from headwater.log.job_operations import ClaimedJob, JobReport, Note
from headwater.model.job import JobNumber
from headwater.model.job_policy import JobPolicy
from headwater.services.jobs import DeclaredSchedule
from headwater.stores.job_starts import JobStarts
from headwater.worker.call_reports import FunctionSettings, has_ended_a_process, release
from headwater.worker.frames import Ready
from headwater.worker.runner import ASYNC_KIND, EITHER_KIND, PLAIN_KIND
from headwater.worker.runner_process import RunnerProcess
from headwater.worker.suspects import Suspects

log = logging.getLogger(__name__)

DEATHS_BEFORE_WORK_MAX = 3
# So many processes run suspects, of each kind; behind one that takes longer than this none of them waits.
APART_MAX = 4
APART_SECONDS = 1.0


class Functions:
    """Runs functions. Reports go to `on_report`, what they note while they run to `on_note`."""

    def __init__(self, settings: FunctionSettings, starts: JobStarts) -> None:
        self._settings = settings
        self._starts = starts
        self._suspects = Suspects()
        self._first = RunnerProcess(EITHER_KIND, settings, starts, self._suspects)
        self._runners = [self._first]
        self._plain: RunnerProcess | None = None
        self._async: RunnerProcess | None = None
        self._asynchronous: frozenset[str] = frozenset()
        self._early: list[ClaimedJob] = []
        self._early_deaths = 0
        self._loaded = False
        self._ending = False
        self._slow: asyncio.TimerHandle | None = None
        self.known: frozenset[str] = frozenset()
        self.policies: dict[str, JobPolicy] = {}
        self.schedules: list[DeclaredSchedule] = []
        self.unloadable = ""
        self.on_report: Callable[[JobReport], None] = lambda report: None
        self.on_note: Callable[[Note], None] = lambda note: None
        self.on_lack: Callable[[OSError], None] = lambda error: None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_unloadable: Callable[[], None] = lambda: None
        self.on_dead: Callable[[], None] = lambda: None
        self.on_gone: Callable[[], None] = lambda: None
        self._connect(self._first)

    @property
    def processes(self) -> set[int]:
        """The runners' process ids."""
        return {runner.process for runner in self._runners} - {0}

    @property
    def is_loading(self) -> bool:
        """Whether it is not known yet which functions there are."""
        return bool(self._settings.sources) and not self._loaded and not self.unloadable

    @property
    def has_loaded(self) -> bool:
        """Whether they were loaded once, whatever became of them since."""
        return self._loaded

    @property
    def count(self) -> int:
        """How many calls the runners have."""
        return sum(runner.count for runner in self._runners) + len(self._early)

    def started_before(self, moment: float) -> bool:
        """Whether a call runs since before `moment` (of the monotonic clock)."""
        return any(begun_at <= moment for runner in self._runners for begun_at in runner.begun().values())

    def able_to_begin(self, seconds: float) -> frozenset[str]:
        """Functions that a call would not have to wait for long: plain ones run one after the other, so none of them
        while one runs for more than `seconds`, and no async ones while one holds up their loop for as long. Those are
        left to other workers."""
        moment = time.monotonic() - seconds
        able = self.known
        if self._plain is not None and any(begun_at <= moment for begun_at in self._plain.begun().values()):
            able = able & self._asynchronous
        if self._async is not None and self._async.is_held_since(moment):
            able = able - self._asynchronous
        return able

    @property
    def one_by_one(self) -> frozenset[str]:
        """Functions that are called one after the other: the plain ones."""
        return self.known - self._asynchronous

    def waiting(self) -> int:
        """How many calls have not begun."""
        return sum(runner.count - len(runner.begun()) for runner in self._runners if runner.count) + len(self._early)

    def start(self) -> None:
        """Load the functions, so that no job has to wait for that. OSError when this process lacks what that takes."""
        if not self._first.process:
            self._first.start()
        if self._slow is None and self.is_loading:
            self._slow = asyncio.get_running_loop().call_later(self._settings.load_seconds_max, self._too_slow)

    def run(self, job: ClaimedJob) -> None:
        """Call a function."""
        if not self._loaded and not self.unloadable:
            self._early.append(job)
            self._start_or_give_back()
        elif job.type not in self.known:
            self.on_report(release(job))
        elif (apart := self._find_apart(job)) is not None:
            apart.run(job)
        elif job.type in self._asynchronous:
            self._async = self._async or self._add(ASYNC_KIND)
            self._async.run(job)
        else:
            self._plain = self._plain or self._add(PLAIN_KIND)
            self._plain.run(job)

    def _find_apart(self, job: ClaimedJob) -> RunnerProcess | None:
        """Where a call may be run that has ended a process or may have: apart from all others, unless whatever is there
        takes long; None for any other call."""
        if job.number not in self._suspects and not has_ended_a_process(job):
            return None
        kind = ASYNC_KIND if job.type in self._asynchronous else PLAIN_KIND
        apart = [runner for runner in self._runners if runner.is_apart and runner.kind == kind]
        free = min(apart, key=lambda runner: runner.count, default=None)
        if (free is None or free.count) and len(apart) < APART_MAX:
            return self._add(kind, is_apart=True)
        moment = time.monotonic() - APART_SECONDS
        rest = [runner for runner in apart if not any(begun_at <= moment for begun_at in runner.begun().values())]
        return min(rest, key=lambda runner: runner.count, default=None)

    def stop(self, number: JobNumber, reason: str) -> None:
        """End a call."""
        for runner in self._runners:
            runner.stop(number, reason)

    def end_stopped(self) -> None:
        """End processes that a function has stopped (SIGSTOP): what they run would never end otherwise."""
        for runner in self._runners:
            runner.end_stopped()

    def untaken(self) -> list[ClaimedJob]:
        """The jobs that have not begun, and stay where they are."""
        return [*self._early, *(job for runner in self._runners for job in runner.untaken())]

    def recall(self) -> list[ClaimedJob]:
        """Take back what has not begun."""
        early, self._early = self._early, []
        return [*early, *(job for runner in self._runners for job in runner.recall())]

    def abort(self, reason: str) -> None:
        """End everything: what ran has failed for this reason, what had not begun is given back."""
        self._ending = True
        self._give_back_early()
        for runner in self._runners:
            runner.abort(reason)

    def close(self) -> None:
        """Forget all calls; the processes end."""
        self._early.clear()
        for runner in self._runners:
            runner.close()

    async def closed(self) -> None:
        """Until the processes are gone."""
        for runner in self._runners:
            await runner.closed()

    def _add(self, kind: str, *, is_apart: bool = False) -> RunnerProcess:
        runner = RunnerProcess(kind, self._settings, self._starts, self._suspects, is_apart=is_apart)
        self._connect(runner)
        self._runners.append(runner)
        return runner

    def _connect(self, runner: RunnerProcess) -> None:
        runner.on_ready = lambda ready: self._ready(runner, ready)
        runner.on_early_death = lambda how: self._died_early(runner, how)
        runner.on_report = lambda report: self.on_report(report)
        runner.on_note = lambda note: self.on_note(note)
        runner.on_lack = lambda error: self.on_lack(error)
        runner.on_again = lambda job: self._run_again(runner, job)
        runner.on_dead = lambda: self.on_dead()
        runner.on_gone = lambda: self.on_gone()

    def _run_again(self, runner: RunnerProcess, job: ClaimedJob) -> None:
        if self.unloadable or self._ending:
            self.on_report(release(job))
        else:
            runner.run(job)

    def _start_or_give_back(self) -> None:
        try:
            self.start()
        except OSError as error:
            self._give_back_early()
            self.on_lack(error)

    def _give_back_early(self) -> None:
        early, self._early = self._early, []
        for job in early:
            self.on_report(release(job))

    def _ready(self, runner: RunnerProcess, ready: Ready) -> None:
        if ready.error:
            self._cannot_load(ready.error)
            return
        self._early_deaths = 0
        if runner.kind == EITHER_KIND:
            runner.kind = PLAIN_KIND if ready.plain else ASYNC_KIND
            self._plain = runner if ready.plain else None
            self._async = None if ready.plain else runner
        self._asynchronous = frozenset(ready.asynchronous)
        self.known = self._asynchronous | frozenset(ready.plain)
        self.policies = ready.policies
        self.schedules = msgspec.json.decode(ready.schedules, type=list[DeclaredSchedule])
        self._loaded = True
        early, self._early = self._early, []
        for job in early:
            self.run(job)
        self.on_ready()

    def _too_slow(self) -> None:
        """An import that hangs would keep the worker from everything, for ever, and nobody would be told."""
        if self.is_loading and not self._ending:
            seconds = f"{self._settings.load_seconds_max:g} s"
            self._cannot_load(
                f"they were not imported within {seconds} (--load-timeout): does a module wait for something?"
            )

    def _died_early(self, runner: RunnerProcess, how: str) -> None:
        """A process that dies again and again before it runs anything would be started for ever."""
        if self._ending:
            return
        self._early_deaths += 1
        if self._early_deaths >= DEATHS_BEFORE_WORK_MAX:
            self._cannot_load(f"the process that runs functions {how}, {self._early_deaths} times before it ran any")
        elif not self._loaded and not self.unloadable:
            self._start_or_give_back()

    def _cannot_load(self, why: str) -> None:
        if not self.unloadable:
            self.unloadable = why
            self._give_back_early()
            self.on_unloadable()
