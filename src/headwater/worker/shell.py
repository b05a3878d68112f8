"""Running one command: in a session of its own, with its output captured, ended for certain when its time is over.

posix_spawn and not fork: a worker is a large process, and copying its page tables would cost more than the command.
"""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import msgspec

from headwater.log.job_operations import ClaimedJob
from headwater.worker.capture import Capture
from headwater.worker.processes import kill_group
from headwater.worker.watcher import Watcher

READ_BYTES = 65_536
RESULTS_BYTES_MAX = 100_000
_default_signals = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: its exit code (negative: the signal), what it used, and why it was ended if it was."""

    exit_code: int
    output: str
    last_line: str
    duration_seconds: float
    memory_bytes: int | None
    stopped: str = ""


class Unwatched(Exception):
    """The command ran, and had to be ended because this process could not hear of its end: that is an attempt."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Shell:
    """One command on its way. `start` starts it, `stop` ends it early, `on_end` is told how it ended."""

    def __init__(
        self,
        job: ClaimedJob,
        marks: dict[str, str],
        output_bytes_max: int,
        grace_seconds: float,
        on_end: Callable[[ClaimedJob, Ended], None],
    ) -> None:
        self.job = job
        self._marks = marks
        self._grace_seconds = grace_seconds
        self._on_end = on_end
        self._capture = Capture(output_bytes_max)
        self._stopped = ""
        self._timers: list[asyncio.TimerHandle] = []
        self.process = 0
        self.begun_at = 0.0

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._capture.text()

    @property
    def printed_bytes(self) -> int:
        """How much was printed so far."""
        return self._capture.total

    def start(self, watcher: Watcher) -> None:
        """Start the command. OSError or ValueError when that cannot be."""
        self.begun_at = time.monotonic()
        # Linux counts what the process was before it became the command: no more than this says nothing.
        self._own_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._watcher = watcher
        self._reading = self._spawn()
        try:
            self._descriptor = os.pidfd_open(self.process)
        except OSError as error:
            # It runs already, and nobody would hear of its end.
            kill_group(self.process, signal.SIGKILL)
            os.wait4(self.process, 0)
            os.close(self._reading)
            raise Unwatched(error) from error
        watcher.add(self._descriptor, self._ended)
        watcher.add(self._reading, self._read)
        seconds = self.job.work.timeout_seconds
        if seconds:
            self._timers.append(asyncio.get_running_loop().call_later(seconds, self.stop, "timeout"))

    def _ended(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._watcher.remove(self._descriptor)
        os.close(self._descriptor)
        # The leader is a zombie until it is waited for, so this number still means its group and nobody else's.
        kill_group(self.process, signal.SIGKILL)
        _, status, used = os.wait4(self.process, 0)
        self._drain()
        ended = Ended(
            os.waitstatus_to_exitcode(status),
            self._capture.text(),
            self._capture.last_line(),
            time.monotonic() - self.begun_at,
            used.ru_maxrss * 1_024 if used.ru_maxrss > self._own_size else None,
            self._stopped,
        )
        self._on_end(self.job, ended)

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """End the command: ask its whole group first, then insist."""
        if not self.process:
            return
        self._stopped = self._stopped or reason
        kill_group(self.process, signal.SIGKILL if at_once else signal.SIGTERM)
        if not at_once:
            insist = asyncio.get_running_loop().call_later(self._grace_seconds, self._kill)
            self._timers.append(insist)

    def _kill(self) -> None:
        kill_group(self.process, signal.SIGKILL)

    def _spawn(self) -> int:
        """Start it; the descriptor that its output comes from."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        arguments = command_line(self.job)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ]
        try:
            self.process = os.posix_spawnp(
                arguments[0],
                arguments,
                environment(self.job, self._marks),
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=_default_signals,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return reading

    def _read(self) -> None:
        try:
            chunk = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._capture.add(chunk)
        else:
            self._watcher.remove(self._reading)

    def _drain(self) -> None:
        """What is in the pipe is the command's; who still holds the other end is not waited for."""
        self._watcher.remove(self._reading)
        with suppress(BlockingIOError):
            while chunk := os.read(self._reading, READ_BYTES):
                self._capture.add(chunk)
        os.close(self._reading)


def command_line(job: ClaimedJob) -> list[str]:
    """The program and its arguments: as given, or through the shell where the job asks for it."""
    work = job.work
    arguments = list(work.argv) if work.argv else ["/bin/sh", "-c", work.command]
    if work.cwd:
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', work.cwd, *arguments]
    return arguments


def environment(job: ClaimedJob, marks: dict[str, str]) -> dict[str, str]:
    """The worker's environment without Headwater's own settings, which may be secret, and with what names the job."""
    about = {
        "HEADWATER_JOB_ID": job.id,
        "HEADWATER_JOB_QUEUE": job.queue,
        "HEADWATER_JOB_ATTEMPT": str(job.attempt),
        "HEADWATER_JOB_TOKEN": str(job.token),
        "HEADWATER_JOB_NUMBER": str(job.number),
        **marks,
    }
    if job.results is not None:
        results = msgspec.json.encode(job.results)
        # The kernel takes no longer variable; a command that needs more can ask `queuectl show`.
        if len(results) <= RESULTS_BYTES_MAX:
            about["HEADWATER_JOB_RESULTS"] = results.decode()
    return {**_inherited(), **job.work.env, **about}


@cache
def _inherited() -> dict[str, str]:
    """Taken once: a worker's environment does not change, and going over it costs as much as starting a program."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}


def mark_of(job: ClaimedJob) -> bytes:
    """What the environment of everything that a job started has in it."""
    return f"\0HEADWATER_JOB_NUMBER={job.number}\0".encode()
