"""The worker's end of a runner: starts it, sends it calls, knows which of them run, and ends it when it must.

Plain calls wait in a line that the runner takes them from, async ones in the runner's loop. When the process dies,
those calls that ran are to blame; the others are sent to the next one.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headwater.log.job_operations import ClaimedJob, Report
from headwater.model.job import JobNumber, Outcome
from headwater.model.job_policy import JobPolicy
from headwater.services.job_functions import RunAbout
from headwater.services.jobs import DeclaredSchedule
from headwater.worker.calls import CallLine, Slate, make_line, make_slate
from headwater.worker.frames import (
    Begun,
    Done,
    FrameReader,
    Progress,
    Ready,
    Recall,
    Recalled,
    Run,
    Stop,
    ToRunner,
    decode_to_worker,
    encode_frame,
)
from headwater.worker.loading import FunctionSources
from headwater.worker.processes import kill_group

log = logging.getLogger(__name__)

READ_BYTES = 65_536
DEATHS_BEFORE_WORK_MAX = 3


class AppUnloadable(Exception):
    """The app that the worker was started with cannot be imported."""


class _Call(msgspec.Struct):
    """A call that the runner has. `begun_at` and `is_async` are known of async ones."""

    job: ClaimedJob
    begun_at: float = 0.0
    is_async: bool = False
    stopped: str = ""
    timer: asyncio.TimerHandle | None = None


class _Process(msgspec.Struct, frozen=True):
    """A runner, and the worker's ends of what lies between them. The runner's end of the line is held to take back."""

    popen: subprocess.Popen[bytes]
    line: CallLine
    runners_line: CallLine
    slate: Slate
    hearing: int
    telling: int

    def close(self) -> None:
        """Let go of everything."""
        for end in (self.line, self.runners_line, self.slate):
            end.close()
        os.close(self.hearing)
        os.close(self.telling)


class Functions:
    """Runs functions through one process. Reports go to `on_report`, progress to `on_progress`."""

    def __init__(self, sources: FunctionSources, concurrency: int, grace_seconds: float) -> None:
        self._sources = sources
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._calls: dict[JobNumber, _Call] = {}
        self._async_types: set[str] = set()
        self._process: _Process | None = None
        self._unsent = bytearray()
        self._unplaced: deque[ClaimedJob] = deque()
        self._ready = False
        self._early_deaths = 0
        self._recalled: asyncio.Future[list[ClaimedJob]] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._warm: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = 0.0
        self.unloadable = ""
        self.policies: dict[str, JobPolicy] = {}
        self.schedules: list[DeclaredSchedule] = []
        self.on_report: Callable[[Report], None] = lambda report: None
        self.on_progress: Callable[[ClaimedJob, str], None] = lambda job, value: None
        self.on_unloadable: Callable[[], None] = lambda: None

    @property
    def process(self) -> int:
        """The runner's process id, 0 when there is none."""
        return self._process.popen.pid if self._process is not None else 0

    @property
    def count(self) -> int:
        """How many calls the runner has."""
        return len(self._calls)

    def started_before(self, moment: float) -> bool:
        """Whether a call runs since before `moment` (of the monotonic clock)."""
        return any(begun_at <= moment for begun_at in self._begun().values())

    def waiting(self) -> int:
        """How many calls the runner has not begun."""
        return len(self._calls) - len(self._begun()) if self._calls else 0

    def _begun(self) -> dict[JobNumber, float]:
        """The calls that run, and since when."""
        begun = {number: call.begun_at for number, call in self._calls.items() if call.begun_at}
        if self._process is not None:
            number, begun_at = self._process.slate.read()
            if number in self._calls:
                begun[number] = begun_at
        return begun

    async def warm_up(self) -> None:
        """Start the process and wait until it has loaded its app, so that no job has to wait for that."""
        if self._process is None:
            self._start()
        self._warm = asyncio.get_running_loop().create_future()
        if not self._ready and not self.unloadable:
            await self._warm

    # ── asking ──

    def run(self, job: ClaimedJob) -> None:
        """Send a call."""
        process = self._process or self._start()
        if job.type in self._async_types:
            self._calls[job.number] = _Call(job, is_async=True)
            self._send(_run_of(job))
            return
        self._calls[job.number] = _Call(job)
        if self._unplaced or not process.line.put(_run_of(job)):
            self._unplaced.append(job)
        if job.work.timeout_seconds:
            self._watch_by(time.monotonic() + job.work.timeout_seconds)

    def stop(self, number: JobNumber, reason: str) -> None:
        """End a call: an async one is cancelled, a plain one takes the process with it."""
        call = self._calls.get(number)
        if call is None:
            return
        call.stopped = call.stopped or reason
        if number not in self._begun():
            self._stop_waiting(call)
        elif call.is_async:
            self._send(Stop(number))
            self._time(call, self._grace_seconds, self._kill)
        else:
            self._kill()

    def _stop_waiting(self, stopped: _Call) -> None:
        """A call that has not begun is taken out of the line; one that is on its way to the loop is stopped there."""
        for job in self._take_line():
            if job.number == stopped.job.number:
                self._forget(job.number)
                self.on_report(_blame(stopped, stopped.stopped, None))
            else:
                self.run(job)
        if stopped.job.number in self._calls:
            self._send(Stop(stopped.job.number))
            self._time(stopped, self._grace_seconds, self.stop, stopped.job.number, stopped.stopped)

    async def recall(self) -> list[ClaimedJob]:
        """Take back what has not begun."""
        found = self._take_line()
        for job in found:
            self._forget(job.number)
        if self._process is None or not any(call.is_async and not call.begun_at for call in self._calls.values()):
            return found
        if self._recalled is None:
            self._recalled = asyncio.get_running_loop().create_future()
            self._send(Recall())
        return [*found, *await self._recalled]

    def _take_line(self) -> list[ClaimedJob]:
        """The jobs that nobody has taken out of the line; they are nobody's then."""
        numbers = [] if self._process is None else [run.number for run in self._process.runners_line.take_all()]
        jobs = [call.job for number in numbers if (call := self._calls.get(number)) is not None]
        unplaced, self._unplaced = self._unplaced, deque()
        return [*jobs, *(job for job in unplaced if job.number in self._calls)]

    def abort(self, reason: str) -> None:
        """End everything: what ran has failed for this reason, what had not begun is given back."""
        self._take_line()
        self._kill()
        begun = self._begun()
        for number, call in list(self._calls.items()):
            self._forget(number)
            call.stopped = reason
            self.on_report(_blame(call, reason, begun[number]) if number in begun else _release(call.job))

    def close(self) -> None:
        """Forget all calls; the process ends."""
        self._take_line()
        self._kill()
        for number in list(self._calls):
            self._forget(number)

    async def closed(self) -> None:
        """Until the process is gone."""
        while self._process is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    # ── the process ──

    def _start(self) -> _Process:
        line, runners_line = make_line()
        slate = make_slate()
        to_runner, telling = os.pipe2(os.O_CLOEXEC)
        hearing, to_worker = os.pipe2(os.O_CLOEXEC)
        inherited = (runners_line.fileno(), slate, to_runner, to_worker)
        arguments = [*map(str, inherited), msgspec.json.encode(self._sources).decode(), str(self._concurrency)]
        popen = subprocess.Popen(
            [sys.executable, "-m", "headwater.worker.runner", *arguments, str(os.getpid())],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._process = _Process(popen, line, runners_line, Slate(slate), hearing, telling)
        for descriptor in (slate, to_runner, to_worker):
            os.close(descriptor)
        os.set_blocking(hearing, False)
        os.set_blocking(telling, False)
        self._ready = False
        asyncio.get_running_loop().add_reader(hearing, self._read, self._process, FrameReader())
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            kill_group(self._process.popen.pid, signal.SIGKILL)

    def _send(self, message: ToRunner) -> None:
        self._unsent += encode_frame(message)
        self._write()

    def _write(self) -> None:
        if self._process is None:
            return
        loop = asyncio.get_running_loop()
        try:
            while self._unsent:
                del self._unsent[: os.write(self._process.telling, self._unsent)]
        except BlockingIOError:
            loop.add_writer(self._process.telling, self._write)
            return
        except BrokenPipeError:
            self._unsent.clear()
        loop.remove_writer(self._process.telling)

    def _read(self, process: _Process, frames: FrameReader) -> None:
        try:
            chunk = os.read(process.hearing, READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._died(process)
            return
        for frame in frames.feed(chunk):
            self._take(decode_to_worker(frame))
        while self._unplaced and process.line.put(_run_of(self._unplaced[0])):
            self._unplaced.popleft()

    def _take(self, message: Ready | Begun | Done | Progress | Recalled) -> None:
        if isinstance(message, Done):
            self._done(message)
        elif isinstance(message, Begun):
            self._has_begun(message.number)
        elif isinstance(message, Progress):
            call = self._calls.get(message.number)
            if call is not None:
                self.on_progress(call.job, message.value)
        elif isinstance(message, Recalled):
            self._take_back(message.numbers)
        elif message.error:
            self.unloadable = message.error
            self._warmed()
            self.on_unloadable()
        else:
            self._ready = True
            self.policies = message.policies
            self.schedules = msgspec.json.decode(message.schedules, type=list[DeclaredSchedule])
            self._warmed()

    def _warmed(self) -> None:
        if self._warm is not None and not self._warm.done():
            self._warm.set_result(None)

    def _has_begun(self, number: JobNumber) -> None:
        """An async call runs: others of its type need not wait behind plain ones from now on."""
        begun = self._calls.get(number)
        if begun is None:
            return
        if begun.job.type not in self._async_types:
            self._async_types.add(begun.job.type)
            for call in self._calls.values():
                call.is_async = call.is_async or call.job.type == begun.job.type
        begun.begun_at = time.monotonic()
        if begun.stopped:
            self.stop(number, begun.stopped)
        elif begun.job.work.timeout_seconds:
            # It is stopped by its own loop; when that does not help, its process is.
            self._time(begun, begun.job.work.timeout_seconds + self._grace_seconds, self._overdue, begun)

    # ── time ──

    def _watch_by(self, moment: float) -> None:
        """Look at how long the plain call runs, at this moment at the latest: one timer for all of them."""
        if self._watch is not None:
            if self._watch_at <= moment:
                return
            self._watch.cancel()
        self._watch_at = moment
        self._watch = asyncio.get_running_loop().call_later(max(moment - time.monotonic(), 0.0), self._look_at_time)

    def _look_at_time(self) -> None:
        """End the call that has run for too long. What has not begun cannot be overdue before its own time from now."""
        self._watch = None
        now = time.monotonic()
        begun = self._begun()
        moments = []
        for number, call in self._calls.items():
            limit = call.job.work.timeout_seconds
            if not limit or call.is_async:
                continue
            moments.append(begun.get(number, now) + limit)
            if moments[-1] <= now:
                self._overdue(call)
                return
        if moments:
            self._watch_by(min(moments))

    def _overdue(self, call: _Call) -> None:
        call.stopped = call.stopped or "timeout"
        self._kill()

    def _time(self, call: _Call, seconds: float, deed: Callable[..., None], *arguments: object) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(seconds, deed, *arguments)

    # ── ends ──

    def _done(self, done: Done) -> None:
        self._early_deaths = 0
        call = self._forget(done.number)
        if call is not None:
            self.on_report(
                Report(
                    number=call.job.number,
                    token=call.job.token,
                    outcome=done.outcome,
                    result=done.result,
                    error=done.error,
                    after_seconds=done.after_seconds,
                    duration_seconds=done.duration_seconds,
                )
            )

    def _count_death(self, how: str) -> None:
        """A process that dies again and again before it runs anything would be started for ever."""
        self._early_deaths += 1
        if self._early_deaths >= DEATHS_BEFORE_WORK_MAX and self._calls and not self.unloadable:
            self.unloadable = f"the process that runs functions {how}, {self._early_deaths} times before it ran any"
            self.on_unloadable()

    def _forget(self, number: JobNumber) -> _Call | None:
        call = self._calls.pop(number, None)
        if call is not None and call.timer is not None:
            call.timer.cancel()
        return call

    def _take_back(self, numbers: list[JobNumber]) -> None:
        found = [call.job for number in numbers if (call := self._forget(number)) is not None]
        if self._recalled is not None and not self._recalled.done():
            self._recalled.set_result(found)
        self._recalled = None

    def _died(self, process: _Process) -> None:
        """The process is gone: those calls that ran have failed, the others go to the next process."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.hearing)
        loop.remove_writer(process.telling)
        kill_group(process.popen.pid, signal.SIGKILL)
        how = describe_end(process.popen.wait())
        begun = self._begun()
        process.close()
        self._process = None
        if begun:
            self._early_deaths = 0
        else:
            self._count_death(how)
        self._warmed()
        self._unsent.clear()
        self._unplaced.clear()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        calls = [call for number in list(self._calls) if (call := self._forget(number)) is not None]
        for call in calls:
            if call.job.number in begun:
                self.on_report(_blame(call, how, begun[call.job.number]))
        self._take_back([])
        for call in calls:
            if call.job.number not in begun:
                self._begin_again(call)

    def _begin_again(self, call: _Call) -> None:
        if call.stopped:
            self.on_report(_blame(call, call.stopped, None))
        elif self.unloadable:
            self.on_report(_release(call.job))
        else:
            self.run(call.job)


def _run_of(job: ClaimedJob) -> Run:
    results = None if job.results is None else {name: bytes(result) for name, result in job.results.items()}
    about = RunAbout(
        id=job.id,
        queue=job.queue,
        type=job.type,
        token=job.token,
        attempt=job.attempt,
        attempts_max=job.attempts_max,
        previous_error=job.previous_error,
        results=results,
    )
    return Run(job.number, about, bytes(job.work.arguments), job.work.timeout_seconds)


def _blame(call: _Call, how: str, begun_at: float | None) -> Report:
    seconds = None if begun_at is None else time.monotonic() - begun_at
    reason = f"the process that ran it {how}"
    if call.stopped == "timeout":
        reason = f"timed out after {call.job.work.timeout_seconds:g} s"
    elif call.stopped:
        reason = call.stopped
    outcome = Outcome.CANCELLED if call.stopped == "cancelled" else Outcome.FAILED
    number, token = call.job.number, call.job.token
    return Report(number=number, token=token, outcome=outcome, error=reason, duration_seconds=seconds)


def _release(job: ClaimedJob) -> Report:
    return Report(number=job.number, token=job.token, outcome=Outcome.RELEASED)


def describe_end(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"was ended by {name}"
    return f"ended with exit code {code}"
