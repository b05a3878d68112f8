"""Forks of the process. A fork copies what is open into a process that has neither its threads nor its event loop:
whoever waited for them there would wait for ever. So what is open knows where it belongs (`Origin`), locks are free in
a child (`OwnLock`), and a fork waits for what it must not cut in two (`ForkGuard`)."""

import os
import threading
from types import TracebackType
from weakref import WeakSet

from headwater.errors import Forked


class _Forks:
    """How many forks this process is away from the first one. A fork waits for those who must not be cut in two."""

    def __init__(self) -> None:
        self.count = 0
        # One after the other: two would wait for each other's guards.
        self._forking = threading.RLock()
        self._held: list[ForkGuard] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._wait, after_in_parent=self._go_on, after_in_child=self._forked)

    def _wait(self) -> None:
        self._forking.acquire()
        self._held = list(_guards)
        for guard in self._held:
            guard.__enter__()

    def _go_on(self) -> None:
        for guard in self._held:
            guard.__exit__(None, None, None)
        self._held = []
        self._forking.release()

    def _forked(self) -> None:
        self.count += 1
        for lock in _locks:
            lock.renew()
        self._go_on()


class _Lock:
    """A lock for a `with` block."""

    _lock: "threading.Lock | threading.RLock"

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class ForkGuard(_Lock):
    """Held by a thread while it does something that a fork must not come into. In a child of one that is writing to a
    file SQLite takes the write lock for held, by a thread that is not there, as long as the child lives."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _guards.add(self)


_guards: WeakSet[ForkGuard] = WeakSet()
_forks = _Forks()


class Origin:
    """Where something was opened: in the process that made this."""

    def __init__(self) -> None:
        self._forks = _forks.count

    @property
    def is_here(self) -> bool:
        """Whether that is this process, and not one that this process was forked from."""
        return self._forks == _forks.count

    def check(self, name: str, line: str = "") -> None:
        """Raises in a process that was forked from it. `name` and `line` are what to call it and how to open it."""
        if not self.is_here:
            raise Forked(
                f"{name} was opened by the process that this one (pid {os.getpid()}) was forked from; "
                f"open it anew here, after the fork{line and f': {line}'} (a file: in a process started by spawn)"
            )


class OwnLock(_Lock):
    """A lock among the threads of this process: in a fork of it nobody has it, whoever had it there."""

    def __init__(self) -> None:
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Nobody has it."""
        self._lock = threading.Lock()


_locks: WeakSet[OwnLock] = WeakSet()
