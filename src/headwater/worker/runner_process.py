"""The worker's end of a runner: starts it, sends it calls, knows which of them run, and ends it when it must.

Calls wait in a line that the runner takes them from. When the process dies, those that were marked as started have
failed, unless it is written on the slate what they came to; the others are sent to the next one.
"""

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headwater.log.job_operations import ClaimedJob, JobReport, Note
from headwater.model.job import JobNumber
from headwater.stores.job_starts import JobStarts
from headwater.worker.call_reports import Call, Death, FunctionSettings, blame, end_of, judge, release, run_of
from headwater.worker.calls import ANYBODY, NOBODY
from headwater.worker.frames import (
    Begun,
    Done,
    FrameReader,
    NoFrame,
    Output,
    Progress,
    Ready,
    Run,
    Stop,
    ToWorker,
    decode_to_worker,
    encode_frame,
)
from headwater.worker.loop_watch import LOOKS, LoopWatch, Measure
from headwater.worker.plain_calls import INTERRUPT
from headwater.worker.processes import describe_end, is_stopped, kill_group
from headwater.worker.runner import ASYNC_KIND
from headwater.worker.runner_start import Runner, start_runner
from headwater.worker.running_output import RunningOutput
from headwater.worker.suspects import Suspects

log = logging.getLogger(__name__)

READ_BYTES = 65_536
GRACE_SECONDS_MIN = 0.1
# For so long a step of an async call may go on when the time of the call is over: its own loop may tell it then.
LATE_SECONDS = 0.5


class RunnerProcess:
    """Calls in one process of one kind, and in the next one when that ends; `is_apart`: each call in one of its own."""

    def __init__(
        self, kind: str, settings: FunctionSettings, starts: JobStarts, suspects: Suspects, *, is_apart: bool = False
    ) -> None:
        self.kind = kind
        self.is_apart = is_apart
        self._settings = settings
        if is_apart:
            self._settings = msgspec.structs.replace(settings, concurrency=1, recycle_after=1)
        self._starts = starts
        self._calls: dict[JobNumber, Call] = {}
        self._process: Runner | None = None
        self._unsent = bytearray()
        self._unplaced: deque[ClaimedJob] = deque()
        self._retiring: asyncio.TimerHandle | None = None
        self._culprits: set[JobNumber] = set()
        self._has_served = False
        self._suspects = suspects
        self._loop_watch: asyncio.TimerHandle | None = None
        self._gone: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = 0.0
        self._output = RunningOutput(self._calls, settings.output_bytes_max, lambda note: self.on_note(note))
        self.is_ready = False
        self.on_ready: Callable[[Ready], None] = lambda ready: None
        self.on_early_death: Callable[[str], None] = lambda how: None
        self.on_again: Callable[[ClaimedJob], None] = self.run
        self.on_dead: Callable[[], None] = lambda: None
        self.on_gone: Callable[[], None] = lambda: None
        self.on_report: Callable[[JobReport], None] = lambda report: None
        self.on_note: Callable[[Note], None] = lambda note: None
        self.on_lack: Callable[[OSError], None] = lambda error: None

    @property
    def process(self) -> int:
        """The runner's process id, 0 when there is none."""
        return self._process.popen.pid if self._process is not None else 0

    @property
    def count(self) -> int:
        """How many calls the runner has."""
        return len(self._calls)

    def begun(self) -> dict[JobNumber, float]:
        """The calls that run, and since when."""
        begun = {number: call.begun_at for number, call in self._calls.items() if call.begun_at}
        if self._process is not None:
            number, begun_at = self._process.slate.read()
            if number in self._calls:
                begun[number] = min(begun_at, time.monotonic())
        return begun

    def is_held_since(self, moment: float) -> bool:
        """Whether a step of an async call runs since before `moment`, so that no other gets on."""
        if self._process is None:
            return False
        holder, since = self._process.slate.read_step()
        return holder != NOBODY and since <= moment

    # ── asking ──

    def run(self, job: ClaimedJob) -> None:
        """Send a call; it is given back when this process lacks what that takes."""
        try:
            process = self._process or self.start()
            placed = not (self._unplaced or self._retiring) and process.line.put(self._run_of(job))
        except OSError as error:
            self.on_report(release(job))
            self.on_lack(error)
            return
        self._calls[job.number] = Call(job)
        process.slate.expect(job.number)
        if not placed:
            self._unplaced.append(job)
        if job.work.timeout_seconds and self.kind != ASYNC_KIND:
            self._watch_by(time.monotonic() + job.work.timeout_seconds)

    def _run_of(self, job: ClaimedJob) -> Run:
        return run_of(job, self._starts.hold(job.number, job.token))

    def stop(self, number: JobNumber, reason: str) -> None:
        """End a call: it is interrupted, and its process is ended when that does not help."""
        call = self._calls.get(number)
        if call is None:
            return
        call.stopped = call.stopped or reason
        waiting = self.take_line()
        for job in waiting:
            if job.number == number:
                self._forget(number)
                self.on_report(blame(call, call.stopped, None))
            else:
                self.run(job)
        if number in self._calls:
            self._interrupt(call)

    def _interrupt(self, call: Call) -> None:
        process = self._process
        if process is None:
            return
        if self.kind == ASYNC_KIND:
            self._send(Stop(call.job.number))
        else:
            self._signal(call.job.number)
        self._time(call, self._settings.grace_seconds, self._insist, call)

    def _insist(self, call: Call) -> None:
        """A call that does not end when asked to takes its process with it; one that had not begun is asked anew."""
        if call.job.number not in self.begun():
            self._interrupt(call)
        elif self.kind == ASYNC_KIND:
            self._press(call)
        else:
            self._kill()

    def _press(self, call: Call) -> None:
        """An async call did not end when its loop was told to end it. It is interrupted if it holds that loop; when
        another one does, that one is the matter of the watch over the loop; and otherwise the process is ended."""
        if self._process is None:
            return
        number, grace = call.job.number, max(self._settings.grace_seconds, GRACE_SECONDS_MIN)
        holder, since = self._process.slate.read_step()
        if holder == number and not call.is_pressed:
            call.is_pressed = True
            self._signal(number)
            self._time(call, grace, self._press, call)
        elif holder not in (number, NOBODY) and time.monotonic() - since >= grace / 2:
            self._time(call, grace, self._press, call)
        else:
            self._kill(number)

    def _signal(self, number: JobNumber) -> None:
        """Interrupt a call, in the middle of whatever it does."""
        if self._process is not None:
            self._process.slate.interrupt(number)
            with suppress(ProcessLookupError):
                os.kill(self._process.popen.pid, INTERRUPT)

    def end_stopped(self) -> None:
        """End the process when a signal has stopped it."""
        if self._process is not None and is_stopped(self._process.popen.pid):
            log.warning("the process that runs functions was stopped by a signal, and is ended")
            self._kill()

    def recall(self) -> list[ClaimedJob]:
        """Take back what has not begun."""
        found = self.take_line()
        for job in found:
            self._forget(job.number)
        return found

    def take_line(self) -> list[ClaimedJob]:
        """The jobs that nobody has taken out of the line; they are nobody's then."""
        numbers = [] if self._process is None else [run.number for run in self._process.runners_line.take_all()]
        jobs = [call.job for number in numbers if (call := self._calls.get(number)) is not None]
        unplaced, self._unplaced = self._unplaced, deque()
        return [*jobs, *(job for job in unplaced if job.number in self._calls)]

    def abort(self, reason: str) -> None:
        """End everything: what ran has failed for this reason, what had not begun is given back."""
        for job in self.recall():
            self.on_report(release(job))
        for call in self._calls.values():
            call.stopped = call.stopped or reason
        self._kill()

    def close(self) -> None:
        """Forget all calls; the process ends."""
        self.take_line()
        self._kill()
        for number in list(self._calls):
            self._forget(number)

    async def closed(self) -> None:
        """Until the process is gone."""
        while self._process is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    # ── the process ──

    def start(self) -> Runner:
        """Start the process. OSError when this process lacks what that takes."""
        self._process = process = start_runner(self.kind, self._settings, self._starts)
        self.is_ready = False
        loop = asyncio.get_running_loop()
        loop.add_reader(process.hearing, self._read, process)
        # The pipe may be held open by a process that a function has started: only this tells that the runner is gone.
        loop.add_reader(process.ended, self._died, process)
        return process

    def _kill(self, culprit: JobNumber = NOBODY) -> None:
        """End the process, because of one of its calls if that is known."""
        if culprit != NOBODY:
            self._culprits.add(culprit)
        if self._process is not None:
            kill_group(self._process.popen.pid, signal.SIGKILL)

    def _send(self, message: Stop) -> None:
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

    def _read(self, process: Runner) -> None:
        """Hear what there is now; at most so much, so that one that prints for ever does not hold up the others."""
        if self._hear(process) is False:
            asyncio.get_running_loop().remove_reader(process.hearing)
        try:
            while self._unplaced and not self._retiring and process.line.put(self._run_of(self._unplaced[0])):
                self._unplaced.popleft()
        except OSError as error:
            job = self._unplaced.popleft()
            self._forget(job.number)
            self.on_report(release(job))
            self.on_lack(error)

    def _hear(self, process: Runner) -> bool | None:
        """Take one piece of what the runner says; False when nobody will say more, None when nobody does now."""
        try:
            chunk = os.read(process.hearing, READ_BYTES)
        except BlockingIOError:
            return None
        self._take_frames(process.frames, chunk)
        return bool(chunk)

    def _take_frames(self, frames: FrameReader, chunk: bytes) -> None:
        """Take one message after the other: what stands before and behind nonsense counts."""
        why = ""
        for frame in frames.feed(chunk):
            try:
                self._take(decode_to_worker(frame))
            except NoFrame as error:
                why = str(error)
        if frames.nonsense_bytes:
            why = f"{frames.nonsense_bytes:,} bytes belong to no frame"
        if why:
            self._retire(why)

    def _retire(self, why: str) -> None:
        """A function has written to a descriptor that is not its own, and may have hit what others said. Which one it
        was nobody knows: what runs may finish, within the time of grace, and what comes next has a new process."""
        process = self._process
        if process is None or self._retiring is not None:
            return
        log.error("the process that runs functions says what cannot be read, and gets no more of them: %s", why)
        waiting = self.take_line()
        self._unplaced.extend(waiting)
        process.line.end()
        self._retiring = asyncio.get_running_loop().call_later(self._settings.grace_seconds, self._kill)

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Done):
            self._done(message)
        elif isinstance(message, Begun):
            self._has_begun(message)
        elif isinstance(message, Ready):
            self.is_ready = not message.error
            self.on_ready(message)
        else:
            call = self._calls.get(message.number)
            if call is not None:
                self._note(call, message)

    def _note(self, call: Call, message: Progress | Output) -> None:
        if isinstance(message, Progress):
            call.progress = message.value
            self.on_note(Note(number=call.job.number, token=call.job.token, progress=message.value))
        else:
            self._output.add(call, message.text)

    def _has_begun(self, begun: Begun) -> None:
        """An async call runs."""
        call = self._calls.get(begun.number)
        if call is None:
            return
        call.begun_at = time.monotonic()
        if self._loop_watch is None and self._process is not None:
            self._look_again(LoopWatch(self._process.slate))
        if call.stopped:
            self._interrupt(call)
        elif call.job.work.timeout_seconds:
            # It is stopped by its own loop; when that does not help, its process is.
            seconds, late = call.job.work.timeout_seconds, min(LATE_SECONDS, self._settings.grace_seconds)
            self._time(call, seconds + late, self._look_whether_told, call, begun.at + seconds, late)

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
        begun = self.begun()
        moments = []
        for number, call in self._calls.items():
            limit = call.job.work.timeout_seconds
            if not limit or call.stopped:
                continue
            moment = begun.get(number, now) + limit
            if moment <= now:
                call.stopped = "timeout"
                self._interrupt(call)
            else:
                moments.append(moment)
        if moments:
            self._watch_by(min(moments))

    def _look_whether_told(self, call: Call, deadline: float, late: float) -> None:
        """An async call is over its time. One that holds its loop up since before that cannot have been told, and is
        interrupted now; any other was told, and may clean up within the time of grace."""
        if self._process is None:
            return
        holder, since = self._process.slate.read_step()
        if not self._starts.is_marked(call.job.number, call.job.token):
            # Its time begins when the loop comes to it, and another one holds that.
            seconds = call.job.work.timeout_seconds
            self._time(call, seconds + late, self._look_whether_told, call, time.monotonic() + seconds, late)
        elif holder == call.job.number and since < deadline:
            self._overdue(call)
        else:
            self._time(call, self._settings.grace_seconds - late, self._overdue, call)

    def _overdue(self, call: Call) -> None:
        call.stopped = call.stopped or "timeout"
        self._press(call)

    def _look_again(self, watch: LoopWatch) -> None:
        pause = self._settings.loop_seconds_max / LOOKS
        self._loop_watch = asyncio.get_running_loop().call_later(pause, self._look_at_loop, watch)

    def _look_at_loop(self, watch: LoopWatch) -> None:
        """A loop that no longer turns would keep its calls for ever, and the worker from ending."""
        self._loop_watch = None
        begun = self.begun()
        if self._process is None or not begun:
            return
        measure, holder = watch.look(begun)
        if measure is Measure.INTERRUPT:
            log.warning("the event loop of functions has not turned for %g s", self._settings.loop_seconds_max)
            self._signal(holder or ANYBODY)
        elif measure is Measure.KILL:
            log.error("the event loop of functions does not turn any more, and its process is ended")
            self._kill(holder)
        self._look_again(watch)

    def _time(self, call: Call, seconds: float, deed: Callable[..., None], *arguments: object) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.timer = asyncio.get_running_loop().call_later(seconds, deed, *arguments)

    # ── ends ──

    def _done(self, done: Done) -> None:
        call = self._forget(done.number)
        self._has_served = True
        if call is not None:
            self._suspects.clear(done.number)
            self.on_report(end_of(call, done))

    def _take_kept(self, process: Runner) -> None:
        """What the process had done and not told; what cannot be read was not done, as far as anybody knows."""
        self._take_frames(FrameReader(), process.slate.kept())

    def untaken(self) -> list[ClaimedJob]:
        """The jobs that wait in the line, and go on doing so: the runner has started none of them."""
        waiting = self.take_line()
        for job in waiting:
            self.run(job)
        return waiting

    def _forget(self, number: JobNumber) -> Call | None:
        call = self._calls.pop(number, None)
        if call is not None and call.timer is not None:
            call.timer.cancel()
        return call

    def _forget_process(self) -> None:
        self._process = None
        for timer in (self._retiring, self._loop_watch):
            if timer is not None:
                timer.cancel()
        self._retiring = self._loop_watch = None
        self._culprits, self._has_served = set(), False
        self._unsent.clear()
        self._unplaced.clear()

    def _died(self, process: Runner) -> None:
        """The process is gone: what it had started and not finished has failed, or is given back when another was at
        fault; the rest goes to the next process."""
        loop = asyncio.get_running_loop()
        for descriptor in (process.hearing, process.ended):
            loop.remove_reader(descriptor)
        loop.remove_writer(process.telling)
        kill_group(process.popen.pid, signal.SIGKILL)
        self.on_dead()
        how = describe_end(process.popen.wait())
        while self._hear(process):
            pass
        self._take_kept(process)
        begun = self.begun()
        culprits = frozenset(self._culprits or {process.slate.read_step()[0]} - {NOBODY})
        is_fresh = self._retiring is None and not self._has_served
        process.close()
        self._forget_process()
        was_ready, self.is_ready = self.is_ready, False
        started = self._starts.started()
        calls = [call for number in list(self._calls) if (call := self._forget(number)) is not None]
        ran = [call for call in calls if (call.job.number, call.job.token) in started]
        rest = [call for call in calls if (call.job.number, call.job.token) not in started]
        is_late = culprits.isdisjoint(call.job.number for call in ran)
        death = Death(how, culprits, begun, is_late=is_late, alone=len(ran) == 1 and (self.is_apart or is_fresh))
        for call in ran:
            self.on_report(judge(call, death, self._suspects))
        if not was_ready:
            self.on_early_death(how)
        for call in rest:
            if call.stopped == "cancelled":
                self.on_report(blame(call, call.stopped, None))
            elif call.stopped or self._starts.is_closed():
                self.on_report(release(call.job))
            else:
                self.on_again(call.job)
        self.on_gone()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
