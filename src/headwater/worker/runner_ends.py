"""A runner's ends of what it shares with its worker, as they were inherited, and what it may call."""

import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import msgspec

from headwater.stores.job_starts import JobStarts
from headwater.worker.calls import Slate, join_line
from headwater.worker.loading import FunctionSources, KnownFunctions
from headwater.worker.telling import Teller

# Programs write to low numbers by accident, as to one that they have closed: ours are not among those. Lower ones are
# tried where a process may have fewer.
NUMBERS = (200, 100, 50, 20)
Mapped = TypeVar("Mapped", Slate, JobStarts)


class RunnerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner is started: the descriptors it inherits, what it loads, and what it runs of that."""

    line: int
    slate: int
    hearing: int
    telling: int
    starts: int
    parent: int
    sources: FunctionSources
    kind: str
    concurrency: int
    recycle_after: int


class RunnerEnds:
    """What the calls of a runner need. Made before any code of others runs in this process."""

    def __init__(self, options: RunnerOptions) -> None:
        self.known: KnownFunctions = {}
        self.slate = _map(Slate, options.slate)
        self.starts = _map(JobStarts, options.starts)
        line, self.hearing, telling = map(_move_away, (options.line, options.hearing, options.telling))
        self.line = join_line(line)
        self.teller = Teller(self.slate, telling)
        self._own = (line, self.hearing, telling)
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """In a copy that a function has made of this process: it must not take calls, nor speak for its parent."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._own:
            os.dup2(nothing, descriptor, inheritable=False)


def _move_away(descriptor: int) -> int:
    """The same under a high number, if this process may have such."""
    for number in NUMBERS:
        try:
            moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
        except OSError:
            continue
        os.close(descriptor)
        return moved
    os.set_inheritable(descriptor, False)
    return descriptor


@contextmanager
def low_numbers_taken() -> Iterator[None]:
    """What is opened meanwhile has a high number, as an event loop that a function should not close by accident."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = next((number for number in NUMBERS if number < soft // 2), 0)
    with ExitStack() as taken:
        number = 0
        while number < wanted - 1:
            number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            taken.callback(os.close, number)
        yield


def _map(kind: Callable[[int], Mapped], file: int) -> Mapped:
    """Map memory, and keep no descriptor of it: the one that Python holds, under the lowest number that is free, leads
    nowhere from then on."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    lowest = os.dup(nothing)
    os.close(lowest)
    mapped = kind(file)
    if os.path.samestat(os.fstat(lowest), os.fstat(file)):
        os.dup2(nothing, lowest, inheritable=False)
    os.close(file)
    os.close(nothing)
    return mapped
