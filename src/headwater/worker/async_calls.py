"""Runs async functions in the event loop of a runner, up to a number of them at once.

Calls wait in the line and are taken when there is room: what waits can be taken back, even while the loop is blocked.
"""

import asyncio
import logging
import os
import time
from functools import partial
from types import FrameType
from typing import Any

from headwater.model.job import JobNumber, JobOutcome
from headwater.services.job_functions import Interrupted, JobFunction, enter_job
from headwater.worker.calls import ANYBODY, NOBODY
from headwater.worker.frames import Begun, Done, FrameReader, Run, decode_to_runner
from headwater.worker.outcomes import completed, failed
from headwater.worker.plain_calls import context_of
from headwater.worker.printing import Printer
from headwater.worker.runner_ends import RunnerEnds, low_numbers_taken
from headwater.worker.steps import Steps, keep_from_calls, owner
from headwater.worker.surroundings import Surroundings

log = logging.getLogger(__name__)

READ_BYTES = 65_536
BEAT_SECONDS = 0.1
HELD = (
    "it held up the event loop that others run in: await, or leave what blocks to asyncio.to_thread or a plain function"
)
DISTURBED = "another job that ran in its event loop cancelled it"


class AsyncCalls:
    """Takes calls from the line until the worker closes it, or until this process is worn out."""

    def __init__(self, ends: RunnerEnds, surroundings: Surroundings, concurrency: int, recycle_after: int) -> None:
        self._ends = ends
        self._surroundings = surroundings
        self._concurrency = concurrency
        self._left = recycle_after or -1
        self._process = os.getpid()
        self._tasks: dict[JobNumber, asyncio.Task[None]] = {}
        self._stopped: set[JobNumber] = set()
        self._held: set[JobNumber] = set()
        self._disturbed: set[JobNumber] = set()
        self._begun: set[JobNumber] = set()
        self._steps = Steps(ends.slate, self._disturbed.add)
        self._beating = False
        self._listens = False
        self._telling = False
        self._closed = False
        with low_numbers_taken():
            self._loop = asyncio.new_event_loop()

    def serve(self) -> None:
        """Run what comes. A function that stops the loop, or raises what ends programs in a task of its own, does not
        end it for the others; when the loop itself is broken this process is of no more use."""
        asyncio.set_event_loop(self._loop)
        self._loop.set_task_factory(self._steps.make)
        keep_from_calls(self._loop, {self._ends.line.fileno(), self._ends.hearing})
        os.set_blocking(self._ends.hearing, False)
        self._loop.add_reader(self._ends.hearing, self._hear, FrameReader())
        self._loop.call_soon(self._take)
        while not self._closed and not self._loop.is_closed():
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt, Interrupted):
                log.warning("a task that a function has left behind ended with what ends programs", exc_info=True)
        self._ends.teller.tell()

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The worker asks whoever holds the loop to let go of it: only the call that it means."""
        holder, meant = owner(), self._ends.slate.interrupted()
        if holder != NOBODY and meant in (holder, ANYBODY):
            self._ends.slate.interrupt(NOBODY)
            self._held.add(holder)
            raise Interrupted

    def _beat(self) -> None:
        """The loop turns: noted while there is anything that waits for it."""
        self._ends.slate.beat()
        self._beating = bool(self._tasks)
        if self._beating:
            self._loop.call_later(BEAT_SECONDS, self._beat)

    # ── calls ──

    def _has_room(self) -> bool:
        return self._left != 0 and not self._closed and len(self._tasks) < self._concurrency

    def _take(self) -> None:
        """Take what there is room for, and listen for more only while there is some."""
        while self._has_room():
            run = self._ends.line.take()
            if run is None:
                break
            self._start(run)
        if self._ends.line.is_over:
            self._left = 0
        if self._listens != self._has_room():
            self._listens = not self._listens
            if self._listens:
                self._loop.add_reader(self._ends.line.fileno(), self._take)
            else:
                self._loop.remove_reader(self._ends.line.fileno())
        if self._closed or (self._left == 0 and not self._tasks):
            self._close()

    def _start(self, run: Run) -> None:
        function = self._ends.known.get(run.about.type)
        if function is None:
            self._ends.teller.send(Done(run.number, JobOutcome.RELEASED, 0.0))
            return
        self._left -= 1
        self._tell(Begun(run.number, time.monotonic()))
        task = self._steps.task(self._loop, run.number, self._run(run, function))
        self._tasks[run.number] = task
        if not self._beating:
            self._beat()
        task.add_done_callback(partial(self._finished, run, function))

    async def _run(self, run: Run, function: JobFunction[..., Any]) -> None:
        # Not before: until its turn in the loop comes, another may end the process, or cancel all there is.
        if not self._ends.starts.mark(run.slot, run.number, run.about.token):
            self._closed = True
            return
        self._begun.add(run.number)
        begun = time.monotonic()
        printer = Printer(run.number, self._ends.teller)
        limit = asyncio.timeout(run.timeout_seconds or None)
        try:
            enter_job(context_of(self._ends, run))
            printer.enter()
            arguments, options = function.bind(run.arguments)
            async with limit:
                result = await function.function(*arguments, **options)
            done = completed(run.number, result, time.monotonic() - begun)
        except BaseException as error:
            done = self._failed(run, function, error, limit, time.monotonic() - begun)
        if os.getpid() != self._process:
            os._exit(0)  # A copy that the function has made of this process: its parent goes on.
        printer.end()
        self._tell(done)

    def _failed(
        self,
        run: Run,
        function: JobFunction[..., Any],
        error: BaseException,
        limit: asyncio.Timeout | None,
        seconds: float,
    ) -> Done:
        if isinstance(error, asyncio.CancelledError) and run.number in self._stopped:
            return Done(run.number, JobOutcome.CANCELLED, seconds, error="cancelled")
        if isinstance(error, asyncio.CancelledError) and run.number in self._disturbed:
            # It is not at fault and may have another start, unless it has one at most.
            again = run.about.attempts_max > 1
            return Done(run.number, JobOutcome.RELEASED if again else JobOutcome.FAILED, seconds, error=DISTURBED)
        if isinstance(error, Interrupted) and run.number in self._held:
            return Done(run.number, JobOutcome.FAILED, seconds, error=HELD)
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            reason = f"timed out after {run.timeout_seconds:g} s"
            return Done(run.number, JobOutcome.FAILED, seconds, error=reason)
        return failed(run.number, function, error, seconds)

    def _finished(self, run: Run, function: JobFunction[..., Any], task: asyncio.Task[None]) -> None:
        number = run.number
        # Cancelled before its first step, or interrupted where its end was being told: nobody would ever hear of it.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._tell(self._ended_early(run, function, error))
        self._tasks.pop(number, None)
        for told in (self._stopped, self._held, self._disturbed, self._begun):
            told.discard(number)
        if not self._surroundings.mend():
            self._left = 0
        self._take()

    def _ended_early(self, run: Run, function: JobFunction[..., Any], error: BaseException) -> Done:
        """A call that could not tell its end itself. One that had not begun is given back, unless it is to be ended."""
        if run.number in self._begun or run.number in self._stopped:
            return self._failed(run, function, error, None, 0.0)
        return Done(run.number, JobOutcome.RELEASED, 0.0, error=DISTURBED)

    # ── the worker ──

    def _tell(self, message: Begun | Done) -> None:
        """What happens in one turn of the loop is told together."""
        self._ends.teller.keep(message)
        if not self._telling:
            self._telling = True
            self._loop.call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._telling = False
        self._ends.teller.tell()

    def _hear(self, frames: FrameReader) -> None:
        chunk = os.read(self._ends.hearing, READ_BYTES)
        if not chunk:
            self._close()
        for frame in frames.feed(chunk):
            stop = decode_to_runner(frame)
            task = self._tasks.get(stop.number)
            if task is not None:
                self._stopped.add(stop.number)
                task.cancel()

    def _close(self) -> None:
        self._closed = True
        self._loop.stop()
