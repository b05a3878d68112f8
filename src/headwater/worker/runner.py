"""The process in which functions run. The worker beside it keeps the lease and can end it whenever it must.

The main thread takes calls from the line and runs plain functions, one after the other. A second thread has an event
loop: it hears what else the worker says and runs async functions, up to a number of them at once. What plain functions
came to is told at once when no call waits, and otherwise together with what comes next, a moment later at most.
"""

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from functools import partial
from typing import Any

import msgspec

from headwater.errors import HeadwaterError
from headwater.model.job import JobNumber, Outcome
from headwater.services.job_functions import (
    Cancel,
    JobContext,
    JobFunction,
    Retry,
    Snooze,
    enter_job,
)
from headwater.worker.calls import CallLine, Slate, join_line
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
    ToWorker,
    decode_to_runner,
    encode_frame,
)
from headwater.worker.loading import FunctionSources, KnownFunctions, load_functions
from headwater.worker.processes import end_with_parent

ERROR_LENGTH_MAX = 8_192
RESULT_BYTES_MAX = 1_048_576
READ_BYTES = 65_536
TELL_SECONDS = 0.001


class Runner:
    """Runs what comes over one line."""

    def __init__(self, ends: "Ends", known: KnownFunctions, concurrency: int) -> None:
        self._reading, self._writing = ends.hearing, ends.telling
        self._line = ends.line
        self._slate = ends.slate
        self._known = known
        self._concurrency = concurrency
        self._sending = threading.Lock()
        self._untold = bytearray()
        self._told_at = 0.0
        self._telling_later = False
        self._waiting: deque[tuple[Run, JobFunction[..., Any]]] = deque()
        self._tasks: dict[JobNumber, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        """Run until the worker closes its end. Plain functions run in this thread."""
        threading.Thread(target=self._listen_for_ever, name="headwater-runner-loop", daemon=True).start()
        while (run := self._next()) is not None:
            self._start(run)

    def send(self, message: ToWorker) -> None:
        """Tell the worker something, and what was not told yet."""
        with self._sending:
            self._untold += encode_frame(message)
            self._write()

    # ── the main thread ──

    def _next(self) -> Run | None:
        """The next call. Whoever waits for what was done is told before this thread begins to wait."""
        run = self._line.take()
        if run is None:
            self._tell()
            return self._line.take(wait=True)
        if self._untold and time.monotonic() - self._told_at >= TELL_SECONDS:
            self._tell()
        elif self._untold and not self._telling_later:
            # The next call may take hours.
            self._telling_later = True
            self._loop.call_soon_threadsafe(self._loop.call_later, TELL_SECONDS, self._tell_late)
        return run

    def _start(self, run: Run) -> None:
        function = self._find(run)
        if function is None:
            return
        if function.is_async:
            self._loop.call_soon_threadsafe(self._start_async, run, function)
            return
        begun = time.monotonic()
        self._slate.begin(run.number, begun)
        done = contextvars.copy_context().run(self._call, run, function, begun)
        self._slate.end()
        with self._sending:
            self._untold += encode_frame(done)

    def _find(self, run: Run) -> JobFunction[..., Any] | None:
        """The function that was allowed under exactly this name: what a job says chooses, and never finds."""
        function = self._known.get(run.about.type)
        if function is None:
            reason = f"no function is known as {run.about.type!r} where this worker was told to look for functions"
            self.send(Done(run.number, Outcome.FAILED, 0.0, error=reason))
        return function

    def _call(self, run: Run, function: JobFunction[..., Any], begun: float) -> Done:
        try:
            enter_job(self._context(run))
            arguments, options = function.bind(run.arguments)
            return completed(run.number, function.function(*arguments, **options), time.monotonic() - begun)
        except Exception as error:
            return failed(run.number, function, error, time.monotonic() - begun)

    def _context(self, run: Run) -> JobContext:
        def report(value: Any) -> None:
            self.send(Progress(run.number, msgspec.json.encode(value).decode()))

        return JobContext(run.about, report)

    def _tell(self) -> None:
        with self._sending:
            self._write()

    def _write(self) -> None:
        untold, self._untold = self._untold, bytearray()
        frames = memoryview(untold)
        while frames:
            frames = frames[os.write(self._writing, frames) :]
        self._told_at = time.monotonic()

    # ── the loop's thread ──

    def _tell_late(self) -> None:
        self._telling_later = False
        self._tell()

    def _listen_for_ever(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        frames = FrameReader()
        closed = asyncio.Event()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._hear, frames, closed)
        await closed.wait()
        self._loop.remove_reader(self._reading)
        for task in list(self._tasks.values()):
            task.cancel()

    def _hear(self, frames: FrameReader, closed: asyncio.Event) -> None:
        chunk = os.read(self._reading, READ_BYTES)
        if not chunk:
            closed.set()
        for frame in frames.feed(chunk):
            self._take(decode_to_runner(frame))

    def _take(self, message: Run | Stop | Recall) -> None:
        if isinstance(message, Run):
            function = self._find(message)
            if function is not None:
                self._start_async(message, function)
        elif isinstance(message, Stop):
            self._stop(message.number)
        else:
            numbers = [run.number for run, _ in self._waiting]
            self._waiting.clear()
            self.send(Recalled(numbers))

    def _stop(self, number: JobNumber) -> None:
        task = self._tasks.get(number)
        if task is not None:
            task.cancel()
        for waiting in [waiting for waiting in self._waiting if waiting[0].number == number]:
            self._waiting.remove(waiting)
            self.send(Done(number, Outcome.CANCELLED, 0.0, error="cancelled"))

    def _start_async(self, run: Run, function: JobFunction[..., Any]) -> None:
        self._waiting.append((run, function))
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._concurrency:
            run, function = self._waiting.popleft()
            task = self._loop.create_task(self._run_async(run, function))
            self._tasks[run.number] = task
            task.add_done_callback(partial(self._finished, run.number))

    def _finished(self, number: JobNumber, task: asyncio.Task[None]) -> None:
        self._tasks.pop(number, None)
        self._fill()

    async def _run_async(self, run: Run, function: JobFunction[..., Any]) -> None:
        self.send(Begun(run.number))
        begun = time.monotonic()
        try:
            enter_job(self._context(run))
            arguments, options = function.bind(run.arguments)
            async with asyncio.timeout(run.timeout_seconds or None):
                result = await function.function(*arguments, **options)
            done = completed(run.number, result, time.monotonic() - begun)
        except asyncio.CancelledError:
            done = Done(run.number, Outcome.CANCELLED, time.monotonic() - begun, error="cancelled")
        except TimeoutError as error:
            seconds = time.monotonic() - begun
            over = run.timeout_seconds and seconds >= run.timeout_seconds
            reason = f"timed out after {run.timeout_seconds:g} s" if over else describe(error)
            done = Done(run.number, Outcome.FAILED, seconds, error=reason)
        except Exception as error:
            done = failed(run.number, function, error, time.monotonic() - begun)
        self.send(done)


def completed(number: JobNumber, result: Any, seconds: float) -> Done:
    """A call that returned; a result that is no JSON value is a failure that no retry mends."""
    if result is None:
        return Done(number, Outcome.COMPLETED, seconds)
    try:
        kept = msgspec.json.encode(result)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        reason = f"what it returned cannot be kept as JSON: {error}"
        return Done(number, Outcome.BURIED, seconds, error=reason)
    if len(kept) > RESULT_BYTES_MAX:
        reason = f"what it returned has {len(kept):,} bytes as JSON; {RESULT_BYTES_MAX:,} are kept"
        return Done(number, Outcome.BURIED, seconds, error=reason)
    return Done(number, Outcome.COMPLETED, seconds, kept.decode())


def failed(number: JobNumber, function: JobFunction[..., Any], error: Exception, seconds: float) -> Done:
    """A call that raised: what it asked for, or what its exception means."""
    if isinstance(error, Retry):
        return Done(number, Outcome.FAILED, seconds, error=str(error), after_seconds=error.after)
    if isinstance(error, Snooze):
        return Done(number, Outcome.SNOOZED, seconds, error=str(error), after_seconds=error.after)
    if isinstance(error, Cancel):
        return Done(number, Outcome.CANCELLED, seconds, error=str(error) or "the job cancelled itself")
    for_good = isinstance(error, function.give_up_for) or not isinstance(error, function.retry_for)
    return Done(number, Outcome.BURIED if for_good else Outcome.FAILED, seconds, error=describe(error))


def describe(error: BaseException) -> str:
    """The error and where it came from, the end of it when it is long."""
    text = "".join(traceback.format_exception(error)).strip()
    return text[-ERROR_LENGTH_MAX:].encode("utf-8", "replace").decode()


def declarations(known: KnownFunctions) -> Ready:
    """What the functions and their apps declare."""
    apps = {id(one.app): one.app for one in known.values()}.values()
    schedules = [schedule for app in apps for schedule in app.schedules]
    return Ready(policies={name: one.policy for name, one in known.items()}, schedules=msgspec.json.encode(schedules))


class Ends(msgspec.Struct, frozen=True):
    """The runner's ends of what it shares with its worker, as they were inherited."""

    line: CallLine
    slate: Slate
    hearing: int
    telling: int


def main(ends: Ends, sources: FunctionSources, concurrency: int, parent: int) -> int:
    """Serve the worker at the other ends."""
    end_with_parent(signal.SIGKILL, parent)
    for descriptor in (ends.line.fileno(), ends.hearing, ends.telling):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, os.getcwd())
    try:
        known = load_functions(sources)
    except Exception as error:
        # What we refuse ourselves says all that there is to say; anything else is somebody's code.
        reason = str(error) if isinstance(error, HeadwaterError) else describe(error)
        os.write(ends.telling, encode_frame(Ready(reason)))
        return 1
    os.write(ends.telling, encode_frame(declarations(known)))
    Runner(ends, known, concurrency).serve()
    return 0


if __name__ == "__main__":
    _line, _slate, _hearing, _telling, _sources, _concurrency, _parent = sys.argv[1:]
    _ends = Ends(join_line(int(_line)), Slate(int(_slate)), int(_hearing), int(_telling))
    sys.exit(main(_ends, msgspec.json.decode(_sources, type=FunctionSources), int(_concurrency), int(_parent)))
