"""Files that were open when this process was forked: they are not opened here.

SQLite believes of such a file that this process has the locks which it had before the fork, and asks for none. The
operating system gives a child no locks. So its parent, or anybody else, would take itself for the last who has the file
open, and delete the log with what the child was answered for.
"""

import os
from contextlib import suppress
from weakref import WeakKeyDictionary

import apsw

from headwater.errors import Forked

# Device and number of a file.
Identity = tuple[int, int]


class OpenFiles:
    """Which files this process has open, and which its parent had."""

    def __init__(self) -> None:
        self._open: WeakKeyDictionary[apsw.Connection, Identity] = WeakKeyDictionary()
        self._inherited: set[Identity] = set()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def check(self, path: str) -> None:
        """Raises for a file that was open at the fork."""
        if self._inherited and _identity_of(path) in self._inherited:
            raise Forked(
                f"{path} was open in the process that this one (pid {os.getpid()}) was forked from, and a child has no "
                "locks on it: what is written here could be lost. Start the process with spawn instead of fork "
                '(multiprocessing.get_context("spawn"), subprocess), or open nothing before the fork'
            )

    def add(self, connection: apsw.Connection, path: str) -> None:
        """A connection was opened."""
        identity = _identity_of(path)
        if identity is not None:
            self._open[connection] = identity

    def discard(self, connection: apsw.Connection) -> None:
        """It was closed."""
        self._open.pop(connection, None)

    def _forked(self) -> None:
        self._inherited |= set(self._open.values())


def _identity_of(path: str) -> Identity | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


OPEN_FILES = OpenFiles()
