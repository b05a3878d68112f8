"""A runner's ends of what it shares with its worker, as they were inherited, and what it may call."""

import os

import msgspec

from headwater.stores.job_starts import JobStarts
from headwater.worker.calls import CallLine, Slate
from headwater.worker.loading import FunctionSources, KnownFunctions
from headwater.worker.telling import Teller


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
    """What the calls of a runner need."""

    def __init__(self, options: RunnerOptions, line: CallLine, known: KnownFunctions) -> None:
        self.line = line
        self.known = known
        self.slate = Slate(options.slate)
        self.starts = JobStarts(options.starts)
        self.hearing = options.hearing
        self.teller = Teller(self.slate, options.telling)
        self._own = (options.line, options.hearing, options.telling)
        for descriptor in self._own:
            os.set_inheritable(descriptor, False)
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """In a copy that a function has made of this process: it must not take calls, nor speak for its parent."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._own:
            os.dup2(nothing, descriptor, inheritable=False)
