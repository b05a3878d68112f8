"""Running one command: in a session of its own, with its output captured, ended for certain when its time is over.

posix_spawn and not fork: a worker is a large process, and copying its page tables would cost more than the command.
"""

import asyncio
import os
import resource
import signal
import time
from contextlib import suppress
from functools import cache

import msgspec

from headwater.log.job_operations import ClaimedJob
from headwater.worker.capture import Capture
from headwater.worker.processes import kill_group

READ_BYTES = 65_536
_default_signals = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: its exit code (negative: the signal), what it used, and why it was ended if it was."""

    exit_code: int
    output: str
    last_line: str
    duration_seconds: float
    memory_bytes: int | None
    stopped: str = ""


class Shell:
    """One command on its way. `run` starts it and waits for its end; `stop` ends it early."""

    def __init__(self, job: ClaimedJob, *, output_bytes_max: int, grace_seconds: float) -> None:
        self._job = job
        self._grace_seconds = grace_seconds
        self._capture = Capture(output_bytes_max)
        self._stopped = ""
        self._timers: list[asyncio.TimerHandle] = []
        self.process = 0
        self.begun_at = 0.0

    @property
    def output(self) -> str:
        """What was printed so far."""
        return self._capture.text()

    async def run(self) -> Ended:
        """Start the command and wait for its end. OSError when it cannot be started."""
        loop = asyncio.get_running_loop()
        self.begun_at = time.monotonic()
        # Linux counts what the process was before it became the command: no more than this says nothing.
        self._own_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reading = self._spawn()
        descriptor = os.pidfd_open(self.process)
        ended = loop.create_future()
        loop.add_reader(descriptor, _resolve, ended)
        loop.add_reader(reading, self._read, reading)
        if self._job.work.timeout_seconds:
            self._timers.append(loop.call_later(self._job.work.timeout_seconds, self.stop, "timeout"))
        try:
            await ended
        finally:
            for timer in self._timers:
                timer.cancel()
            loop.remove_reader(descriptor)
            os.close(descriptor)
            # The leader is a zombie until it is waited for, so this number still means its group and nobody else's.
            kill_group(self.process, signal.SIGKILL)
            status, used = _reap(self.process)
            self._drain(reading)
        seconds = time.monotonic() - self.begun_at
        return Ended(
            os.waitstatus_to_exitcode(status),
            self._capture.text(),
            self._capture.last_line(),
            seconds,
            used.ru_maxrss * 1_024 if used.ru_maxrss > self._own_size else None,
            self._stopped,
        )

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
        arguments = command_line(self._job)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ]
        try:
            self.process = os.posix_spawnp(
                arguments[0],
                arguments,
                environment(self._job),
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

    def _read(self, reading: int) -> None:
        try:
            chunk = os.read(reading, READ_BYTES)
        except BlockingIOError:
            return
        if chunk:
            self._capture.add(chunk)
        else:
            asyncio.get_running_loop().remove_reader(reading)

    def _drain(self, reading: int) -> None:
        """What is in the pipe is the command's; who still holds the other end is not waited for."""
        asyncio.get_running_loop().remove_reader(reading)
        with suppress(BlockingIOError):
            while chunk := os.read(reading, READ_BYTES):
                self._capture.add(chunk)
        os.close(reading)


def _reap(process: int) -> tuple[int, resource.struct_rusage]:
    """How a process that has ended did so, and what it used."""
    _, status, used = os.wait4(process, 0)
    return status, used


def _resolve(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def command_line(job: ClaimedJob) -> list[str]:
    """The program and its arguments: as given, or through the shell where the job asks for it."""
    work = job.work
    arguments = list(work.argv) if work.argv else ["/bin/sh", "-c", work.command]
    if work.cwd:
        return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', work.cwd, *arguments]
    return arguments


def environment(job: ClaimedJob) -> dict[str, str]:
    """The worker's environment without Headwater's own settings, which may be secret, and with what names the job."""
    about = {
        "HEADWATER_JOB_ID": job.id,
        "HEADWATER_JOB_QUEUE": job.queue,
        "HEADWATER_JOB_ATTEMPT": str(job.attempt),
        "HEADWATER_JOB_TOKEN": str(job.token),
        "HEADWATER_JOB_NUMBER": str(job.number),
    }
    if job.results is not None:
        about["HEADWATER_JOB_RESULTS"] = msgspec.json.encode(job.results).decode()
    return {**_inherited(), **job.work.env, **about}


@cache
def _inherited() -> dict[str, str]:
    """Taken once: a worker's environment does not change, and going over it costs as much as starting a program."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}


def mark_of(job: ClaimedJob) -> bytes:
    """What the environment of everything that a job started has in it."""
    return f"HEADWATER_JOB_NUMBER={job.number}\x00".encode()
