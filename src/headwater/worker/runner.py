"""The process in which functions run. The worker beside it keeps the lease and can end it whenever it must.

The main thread runs plain functions, one after the other. A second thread has an event loop: it reads what the worker
sends and runs async functions, up to a number of them at once.
"""

import asyncio
import contextvars
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from functools import partial
from typing import Any

import msgspec

from headwater.model.job import JobNumber, Outcome
from headwater.services.job_functions import (
    Cancel,
    JobContext,
    JobFunction,
    JobRegistry,
    Retry,
    Snooze,
    enter_job,
)
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
from headwater.worker.processes import end_with_parent

ERROR_LENGTH_MAX = 8_192
RESULT_BYTES_MAX = 1_048_576
READ_BYTES = 1_048_576


class Runner:
    """Runs what comes over one socket."""

    def __init__(
        self, pipes: tuple[int, int], registry: JobRegistry, modules: tuple[str, ...], concurrency: int
    ) -> None:
        self._reading, self._writing = pipes
        self._registry = registry
        self._modules = modules
        self._concurrency = concurrency
        self._sending = threading.Lock()
        self._plain: queue.SimpleQueue[tuple[Run, JobFunction[..., Any]] | None] = queue.SimpleQueue()
        self._waiting: deque[tuple[Run, JobFunction[..., Any]]] = deque()
        self._tasks: dict[JobNumber, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        """Run until the worker closes its end. Plain functions run in this thread."""
        thread = threading.Thread(target=self._read, name="headwater-runner-loop", daemon=True)
        thread.start()
        while (item := self._plain.get()) is not None:
            self._run_plain(*item)

    def send(self, message: ToWorker) -> None:
        """Tell the worker something."""
        frame = memoryview(encode_frame(message))
        with self._sending:
            while frame:
                frame = frame[os.write(self._writing, frame) :]

    # ── the loop's thread ──

    def _read(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen())
        finally:
            self._plain.put(None)

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
            self._start(message)
        elif isinstance(message, Stop):
            task = self._tasks.get(message.number)
            if task is not None:
                task.cancel()
        else:
            self.send(Recalled(self._give_back()))

    def _start(self, run: Run) -> None:
        try:
            function = self._registry.find(run.about.type, self._modules)
        except Exception as error:
            self.send(Done(run.number, Outcome.FAILED, 0.0, error=describe(error)))
            return
        if function.is_async:
            self._waiting.append((run, function))
            self._fill()
        else:
            self._plain.put((run, function))

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._concurrency:
            run, function = self._waiting.popleft()
            task = self._loop.create_task(self._run_async(run, function))
            self._tasks[run.number] = task
            task.add_done_callback(partial(self._finished, run.number))

    def _finished(self, number: JobNumber, task: asyncio.Task[None]) -> None:
        self._tasks.pop(number, None)
        self._fill()

    def _give_back(self) -> list[JobNumber]:
        numbers = [run.number for run, _ in self._waiting]
        self._waiting.clear()
        while True:
            try:
                item = self._plain.get_nowait()
            except queue.Empty:
                return numbers
            if item is not None:
                numbers.append(item[0].number)

    async def _run_async(self, run: Run, function: JobFunction[..., Any]) -> None:
        self.send(Begun(run.number, True))
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

    # ── the main thread ──

    def _run_plain(self, run: Run, function: JobFunction[..., Any]) -> None:
        self.send(Begun(run.number, False))
        context = contextvars.copy_context()
        self.send(context.run(self._call, run, function))

    def _call(self, run: Run, function: JobFunction[..., Any]) -> Done:
        begun = time.monotonic()
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


def load_registry(path: str) -> JobRegistry:
    """The app at `module:name`; with no path an empty one."""
    if not path:
        return JobRegistry()
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name or "app")
    if not isinstance(found, JobRegistry):
        raise TypeError(f"{path} is no JobApp: {type(found).__name__}")
    return found


def main(pipes: tuple[int, int], app: str, modules: tuple[str, ...], concurrency: int, parent: int) -> int:
    """Serve the worker at the other ends of two inherited pipes."""
    end_with_parent(signal.SIGKILL, parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, os.getcwd())
    try:
        registry = load_registry(app)
    except Exception as error:
        os.write(pipes[1], encode_frame(Ready(describe(error))))
        return 1
    os.write(pipes[1], encode_frame(Ready()))
    Runner(pipes, registry, modules, concurrency).serve()
    return 0


if __name__ == "__main__":
    _reading, _writing, _app, _modules, _concurrency, _parent = sys.argv[1:]
    _allowed = tuple(filter(None, _modules.split(",")))
    sys.exit(main((int(_reading), int(_writing)), _app, _allowed, int(_concurrency), int(_parent)))
