"""One measure in a fresh process, so that no side inherits another's memory, threads or open files.

The parent calls `run`; the child is this module as a program, which prints its sample as the last line.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import uvloop

from benchmarks.machine import without_folders
from benchmarks.peers import Context, load
from benchmarks.suite import find
from benchmarks.timing import Sample

ROOT = Path(__file__).parent.parent
END_SECONDS_MAX = 5.0


class Task(msgspec.Struct, frozen=True):
    suite: str
    question: str
    contestant: str
    quick: bool
    seconds: float
    folder: str


def run(task: Task, seconds_max: float) -> Sample:
    """Measures in a child process; a child that fails or hangs becomes a sample with an error."""
    command = [sys.executable, "-m", "benchmarks.measure", msgspec.json.encode(task).decode()]
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = child.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        return Sample(error=f"no result within {seconds_max:.0f} s")
    finally:
        end_session(child)
    if child.returncode == 0:
        return msgspec.json.decode(output.splitlines()[-1], type=Sample)
    return Sample(error=without_folders(last_line(errors)))


def end_session(child: "subprocess.Popen[str]") -> None:
    """Ends a child that did not end well, together with the servers and helpers that it started in its session."""
    if child.returncode == 0:
        return
    for ending in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, ending)
            child.wait(END_SECONDS_MAX)


def last_line(text: str) -> str:
    return next(reversed(text.strip().splitlines()), "the measuring process ended without a word")


def measure(task: Task) -> Sample:
    contestant = find(task.suite, task.question, task.contestant, task.quick)
    folder = Path(task.folder)
    with load(contestant.peer).serve(folder) as address:
        return uvloop.run(contestant.workload(contestant.peer, Context(folder, task.seconds, address)))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that a private server is stopped and reaped
    print(msgspec.json.encode(measure(msgspec.json.decode(sys.argv[1], type=Task))).decode())
