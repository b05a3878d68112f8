"""Processes and their descendants on Linux: who adopts orphans, who is left over, and how they are ended.

A subreaper is the new parent of every descendant whose own parent dies, even of one that made a session of its own: so
a worker finds whatever a command left behind, and a supervisor whatever a killed worker left behind.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_READ_BYTES = 65_536
SWEEPS_MAX = 200
SWEEP_PAUSE_SECONDS = 0.005


def adopt_orphans() -> None:
    """From now on, orphaned descendants become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Adopt orphans for a while: a program that supervised workers gets none of anybody else's afterwards."""
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    adopt_orphans()
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def end_with_parent(number: signal.Signals, parent: int) -> None:
    """Get a signal when the parent dies; at once when it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")


def children() -> set[int]:
    """The children that the main thread started, and the orphans that were adopted: those are always given to it."""
    file = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while part := os.read(file, _READ_BYTES):
            found += part
    finally:
        os.close(file)
    return set(map(int, found.split()))


def is_stopped(process: int) -> bool:
    """Whether a process was stopped by a signal and waits to be let go on; a debugger's hold is another matter."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


def environment_of(process: int) -> bytes:
    """The environment that a process was started with; nothing when it is gone or not ours."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def kill_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a process group that we made; one that is gone needs none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_strays(known: set[int], mark: bytes | None = None) -> int:
    """Kill children that are not known, whole groups of them, until none is left; how many there were.

    With a mark, only those that have it in their environment; whoever is dead already is let go in any case.
    """
    killed: set[int] = set()
    for _ in range(SWEEPS_MAX):
        strays = children() - known
        if mark is not None:
            strays = {stray for stray in strays if mark in environment_of(stray)}
        if not strays:
            break
        for stray in strays:
            _kill_stray(stray)
            killed.add(stray)
        if children() & strays:
            time.sleep(SWEEP_PAUSE_SECONDS)
    if mark is not None:
        _bury(children() - known)
    return len(killed)


def _bury(processes: set[int]) -> None:
    """Let go of children that have ended and that nobody waits for."""
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def _kill_stray(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process) == process:
            os.killpg(process, signal.SIGKILL)
        os.kill(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)


def describe_end(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"was ended by {name}"
    return f"ended with exit code {code}"
