"""The worker's end of a runner: starts it, sends it calls, knows which of them run, and ends it when it must.

When the process dies, those calls that ran are to blame; those that had not begun are sent to the next one.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headwater.log.job_operations import ClaimedJob, Report
from headwater.model.job import JobNumber, Outcome
from headwater.services.job_functions import RunAbout
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
from headwater.worker.processes import kill_group

log = logging.getLogger(__name__)

READ_BYTES = 1_048_576
DEATHS_BEFORE_WORK_MAX = 3


class AppUnloadable(Exception):
    """The app that the worker was started with cannot be imported."""


class _Call(msgspec.Struct):
    """A call that the runner has."""

    job: ClaimedJob
    begun_at: float = 0.0
    is_async: bool = False
    stopped: str = ""
    timer: asyncio.TimerHandle | None = None


class Functions:
    """Runs functions through one process. Reports go to `on_report`, progress to `on_progress`."""

    def __init__(self, app: str, modules: tuple[str, ...], concurrency: int, grace_seconds: float) -> None:
        self._app = app
        self._modules = modules
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._calls: dict[JobNumber, _Call] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes = (-1, -1)
        self._unsent = bytearray()
        self._ready = False
        self._early_deaths = 0
        self._recalled: asyncio.Future[list[ClaimedJob]] | None = None
        self._gone: asyncio.Future[None] | None = None
        self._warm: asyncio.Future[None] | None = None
        self.unloadable = ""
        self.on_report: Callable[[Report], None] = lambda report: None
        self.on_progress: Callable[[ClaimedJob, str], None] = lambda job, value: None
        self.on_unloadable: Callable[[], None] = lambda: None

    @property
    def process(self) -> int:
        """The runner's process id, 0 when there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def count(self) -> int:
        """How many calls the runner has."""
        return len(self._calls)

    def started_before(self, moment: float) -> bool:
        """Whether a call runs since before `moment` (of the monotonic clock)."""
        return any(call.begun_at and call.begun_at <= moment for call in self._calls.values())

    def waiting(self) -> int:
        """How many calls the runner has not begun."""
        return sum(not call.begun_at for call in self._calls.values())

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
        if self._process is None:
            self._start()
        self._calls[job.number] = _Call(job)
        self._send_run(job)

    def stop(self, number: JobNumber, reason: str) -> None:
        """End a call: an async one is cancelled, a plain one takes the process with it."""
        call = self._calls.get(number)
        if call is None:
            return
        call.stopped = call.stopped or reason
        if call.is_async or not call.begun_at:
            self._send(Stop(number))
            self._time(call, self._grace_seconds, self._kill)
        else:
            self._kill()

    async def recall(self) -> list[ClaimedJob]:
        """Take back what has not begun."""
        if self._process is None or not self.waiting():
            return []
        if self._recalled is None:
            self._recalled = asyncio.get_running_loop().create_future()
            self._send(Recall())
        return await self._recalled

    def abort(self, reason: str) -> None:
        """End everything: what ran has failed for this reason, what had not begun is given back."""
        for call in list(self._calls.values()):
            self._forget(call.job.number)
            call.stopped = reason
            self.on_report(_blame(call, reason) if call.begun_at else _release(call.job))
        self._kill()

    def close(self) -> None:
        """Forget all calls; the process ends."""
        for number in list(self._calls):
            self._forget(number)
        self._kill()

    async def closed(self) -> None:
        """Until the process is gone."""
        while self._process is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    # ── the process ──

    def _start(self) -> None:
        to_runner, from_worker = os.pipe2(os.O_CLOEXEC)
        from_runner, to_worker = os.pipe2(os.O_CLOEXEC)
        arguments = [str(to_runner), str(to_worker), self._app, ",".join(self._modules), str(self._concurrency)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater.worker.runner", *arguments, str(os.getpid())],
            pass_fds=(to_runner, to_worker),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_runner)
        os.close(to_worker)
        self._pipes = (from_runner, from_worker)
        os.set_blocking(from_runner, False)
        os.set_blocking(from_worker, False)
        self._ready = False
        asyncio.get_running_loop().add_reader(from_runner, self._read, FrameReader())

    def _kill(self) -> None:
        if self._process is not None:
            kill_group(self._process.pid, signal.SIGKILL)

    def _send_run(self, job: ClaimedJob) -> None:
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
        self._send(Run(job.number, about, bytes(job.work.arguments), job.work.timeout_seconds))

    def _send(self, message: ToRunner) -> None:
        self._unsent += encode_frame(message)
        self._write()

    def _write(self) -> None:
        writing = self._pipes[1]
        loop = asyncio.get_running_loop()
        try:
            while self._unsent:
                del self._unsent[: os.write(writing, self._unsent)]
        except BlockingIOError:
            loop.add_writer(writing, self._write)
            return
        except BrokenPipeError:
            self._unsent.clear()
        loop.remove_writer(writing)

    def _read(self, frames: FrameReader) -> None:
        try:
            chunk = os.read(self._pipes[0], READ_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._died()
            return
        for frame in frames.feed(chunk):
            self._take(decode_to_worker(frame))

    def _take(self, message: Ready | Begun | Done | Progress | Recalled) -> None:
        if isinstance(message, Done):
            self._done(message)
        elif isinstance(message, Begun):
            self._begun(message)
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
            self._warmed()

    def _warmed(self) -> None:
        if self._warm is not None and not self._warm.done():
            self._warm.set_result(None)

    def _begun(self, message: Begun) -> None:
        call = self._calls.get(message.number)
        if call is None:
            return
        call.begun_at, call.is_async = time.monotonic(), message.is_async
        self._early_deaths = 0
        limit = call.job.work.timeout_seconds
        if call.stopped:
            self.stop(message.number, call.stopped)
        elif limit:
            # An async function is stopped by its own loop; when that does not help, its process is.
            extra = self._grace_seconds if message.is_async else 0.0
            self._time(call, limit + extra, self._overdue, call)

    def _overdue(self, call: _Call) -> None:
        call.stopped = call.stopped or "timeout"
        self._kill()

    def _time(self, call: _Call, seconds: float, deed: Callable[..., None], *arguments: object) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(seconds, deed, *arguments)

    def _done(self, done: Done) -> None:
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

    def _died(self) -> None:
        """The process is gone: those calls that ran have failed, the others go to the next process."""
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pipes[0])
        loop.remove_writer(self._pipes[1])
        for pipe in self._pipes:
            os.close(pipe)
        kill_group(self._process.pid, signal.SIGKILL)
        how = describe_end(self._process.wait())
        self._process = None
        self._count_death(how)
        self._warmed()
        self._unsent.clear()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        calls = list(self._calls.values())
        for call in calls:
            self._forget(call.job.number)
        for call in calls:
            if call.begun_at:
                self.on_report(_blame(call, how))
        self._take_back([])
        for call in calls:
            if not call.begun_at and self.unloadable:
                self.on_report(_release(call.job))
            elif not call.begun_at:
                self.run(call.job)


def _blame(call: _Call, how: str) -> Report:
    seconds = time.monotonic() - call.begun_at
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
