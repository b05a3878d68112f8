"""Starts a runner, and holds the worker's ends of what lies between them."""

import os
import subprocess
import sys
from contextlib import ExitStack, suppress

import msgspec

from headwater.stores.job_starts import JobStarts, marks_of
from headwater.worker.call_reports import FunctionSettings
from headwater.worker.calls import CallLine, Slate, make_line, make_slate
from headwater.worker.frames import FrameReader
from headwater.worker.overheard import Overheard
from headwater.worker.runner_ends import RunnerOptions


class Runner(msgspec.Struct, frozen=True):
    """A runner, and the worker's ends of what lies between them. The runner's end of the line is held to take back."""

    popen: subprocess.Popen[bytes]
    line: CallLine
    runners_line: CallLine
    slate: Slate
    hearing: int
    telling: int
    ended: int
    frames: FrameReader
    overheard: Overheard

    def close(self) -> None:
        """Let go of everything."""
        self.overheard.close()
        for end in (self.line, self.runners_line, self.slate):
            end.close()
        for descriptor in (self.hearing, self.telling, self.ended):
            os.close(descriptor)


def start_runner(kind: str, settings: FunctionSettings, starts: JobStarts) -> Runner:
    """Start a process for functions. OSError when this process lacks what that takes."""
    with ExitStack() as undo:
        line, runners_line = make_line()
        undo.callback(line.close)
        undo.callback(runners_line.close)
        slate, to_runner, telling, hearing, to_worker = _descriptors(undo)
        pages = Slate(slate)
        undo.callback(pages.close)
        options = RunnerOptions(
            line=runners_line.fileno(),
            slate=slate,
            hearing=to_runner,
            telling=to_worker,
            starts=starts.file,
            parent=os.getpid(),
            sources=settings.sources,
            kind=kind,
            concurrency=settings.concurrency,
            recycle_after=settings.recycle_after,
        )
        popen = _popen(options, marks_of(starts.path, settings.worker))
        undo.callback(_end_at_once, popen)
        ended = os.pidfd_open(popen.pid)
        undo.pop_all()
    for descriptor in (slate, to_runner, to_worker):
        os.close(descriptor)
    os.set_blocking(hearing, False)
    os.set_blocking(telling, False)
    return Runner(popen, line, runners_line, pages, hearing, telling, ended, FrameReader(), Overheard(popen))


def _descriptors(undo: ExitStack) -> tuple[int, int, int, int, int]:
    slate = make_slate()
    undo.callback(os.close, slate)
    to_runner, telling = os.pipe2(os.O_CLOEXEC)
    undo.callback(os.close, to_runner)
    undo.callback(os.close, telling)
    hearing, to_worker = os.pipe2(os.O_CLOEXEC)
    undo.callback(os.close, hearing)
    undo.callback(os.close, to_worker)
    return slate, to_runner, telling, hearing, to_worker


def _popen(options: RunnerOptions, marks: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "headwater.worker.runner", msgspec.json.encode(options).decode()],
        pass_fds=(options.line, options.slate, options.hearing, options.telling, options.starts),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **marks},
    )


def _end_at_once(popen: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        popen.kill()
    popen.wait()
    if popen.stdout is not None:
        popen.stdout.close()
