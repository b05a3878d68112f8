"""Runs plain functions, one after the other, in the main thread of a runner."""

import contextvars
import os
import signal
import time
from types import FrameType
from typing import Any

import msgspec

from headwater.model.job import JobNumber, JobOutcome
from headwater.services.job_functions import Interrupted, JobContext, JobFunction, enter_job
from headwater.worker.frames import Done, Progress, Run
from headwater.worker.outcomes import completed, describe, failed
from headwater.worker.printing import Printer
from headwater.worker.runner_ends import RunnerEnds
from headwater.worker.surroundings import Surroundings

INTERRUPT = signal.SIGUSR2


class PlainCalls:
    """Takes calls from the line until the worker closes it, or until this process is worn out."""

    def __init__(self, ends: RunnerEnds, surroundings: Surroundings, recycle_after: int) -> None:
        self._ends = ends
        self._surroundings = surroundings
        self._recycle_after = recycle_after
        self._process = os.getpid()
        self._running = JobNumber(0)

    def serve(self) -> None:
        """Run what comes."""
        count = 0
        while (run := self._next()) is not None:
            count += 1
            if not self._start(run) or not self._surroundings.mend() or count == self._recycle_after:
                break
        self._ends.teller.tell()

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The worker asks a call to end: only the one that it means, and only while that runs."""
        if not self._ends.teller.defer(self._interrupt):
            self._interrupt()

    def _interrupt(self) -> None:
        if self._running and self._ends.slate.interrupted() == self._running:
            self._running = JobNumber(0)
            raise Interrupted

    def _next(self) -> Run | None:
        """The next call. Whoever waits for what was done is told before this thread begins to wait."""
        run = self._ends.line.take()
        if run is None:
            self._ends.teller.tell()
            return self._ends.line.take(wait=True)
        self._ends.teller.tell_soon()
        return run

    def _start(self, run: Run) -> bool:
        """Run one call; False when nothing may be started here any more."""
        function = self._ends.known.get(run.about.type)
        if function is None:
            # The worker has asked for known types only; what a job says chooses, and never finds.
            self._ends.teller.send(Done(run.number, JobOutcome.RELEASED, 0.0))
            return True
        if not self._ends.starts.mark(run.slot, run.number, run.about.token):
            return False
        begun = time.monotonic()
        self._ends.slate.begin(run.number, begun)
        printer = Printer(run.number, self._ends.teller)
        try:
            done = contextvars.copy_context().run(self._call, run, function, printer, begun)
        except BaseException as error:
            # An interruption that came while the end of the call was being told.
            done = Done(run.number, JobOutcome.FAILED, time.monotonic() - begun, error=describe(error))
        if os.getpid() != self._process:
            os._exit(0)  # A copy that the function has made of this process: its parent goes on.
        printer.end()
        self._ends.teller.keep(done)
        self._ends.slate.end()
        return True

    def _call(self, run: Run, function: JobFunction[..., Any], printer: Printer, begun: float) -> Done:
        try:
            enter_job(context_of(self._ends, run))
            printer.enter()
            arguments, options = function.bind(run.arguments)
            self._running = run.number
            result = function.function(*arguments, **options)
            self._running = JobNumber(0)
            return completed(run.number, result, time.monotonic() - begun)
        except BaseException as error:
            self._running = JobNumber(0)
            return failed(run.number, function, error, time.monotonic() - begun)


def context_of(ends: RunnerEnds, run: Run) -> JobContext:
    """What a call can know and say about its job."""

    def report(value: Any) -> None:
        ends.teller.send(Progress(run.number, msgspec.json.encode(value).decode()))

    return JobContext(run.about, report)
