"""Whether the files that were opened are still those at their names.

A file that is deleted or replaced under an open handle stays readable and writable for it, and for nobody else: what is
written there is lost when the handle closes. Every commit asks, after it and before anybody is answered: a look before
it would say less and cost as much. So the usual answer must be cheap: while the folder has not changed, no name in it
has. What was lost once stays lost, even when somebody puts a file back: every later call of the handle says so.
"""

import os
import time
from typing import NoReturn

from headwater.errors import StoreReplaced

COMPANIONS = ("", "-wal", "-shm")
# The kernel notes the time of a change by its own clock, which ticks every few milliseconds: two changes within a tick
# look like one. A folder that has rested for longer than this cannot have changed in the tick it was looked at.
RESTED_NS = 100_000_000

_Place = tuple[int, int]
# Which folder is at the name, and when a name in it changed last.
_FolderState = tuple[int, int, int]


class Presence:
    """The files of one open handle. May be asked from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        # As bytes: a text would be encoded anew at every look.
        self._folder = os.fsencode(os.path.dirname(os.path.abspath(path)))
        # A link may be turned elsewhere while both folders rest.
        self._real = os.path.realpath(path)
        self._is_link = self._real != os.path.abspath(path)
        self._rested: _FolderState | None = None
        self._files: list[tuple[str, _Place]] = []
        # What happened to them, once they are lost.
        self.loss = ""
        self._kind = StoreReplaced

    def remember(self) -> None:
        """The files are open now: these are the ones."""
        paths = [f"{self._path}{companion}" for companion in COMPANIONS]
        self._files = [(path, place) for path in paths if (place := _place_of(path)) is not None]

    def check(self) -> None:
        """Raises when one of them is gone or another file lies in its place."""
        if self.loss:
            self.remind()
        folder: _FolderState | None
        try:
            found = os.stat(self._folder)
            folder = (found.st_dev, found.st_ino, found.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            folder = None
        if folder is None or folder != self._rested:
            self._look(folder)

    def remind(self) -> None:
        """Raises when that was seen before, without a look."""
        if self.loss:
            raise self._kind(self.loss)

    def _look(self, folder: _FolderState | None) -> None:
        """Something has happened in the folder lately: look at each file."""
        # What lies beside the file goes by its name: whoever opens it where it is now does not find our part of it.
        if os.path.realpath(self._path) != self._real:
            self.lose(f"{self._path} is a link to another place now, which it was not when it was opened")
        for path, place in self._files:
            found = _place_of(path)
            if found != place:
                self.lose(f"{path} was {'deleted' if found is None else 'replaced'} while it was open")
        has_rested = folder is not None and time.time_ns() - folder[2] > RESTED_NS
        self._rested = folder if has_rested and not self._is_link else None

    def lose(self, what: str, kind: type[StoreReplaced] = StoreReplaced) -> NoReturn:
        """Say now, and from now on, that this store is no more."""
        self.loss = f"{what}; nothing more is read from or written to it: close this handle and open the store again"
        self._kind = kind
        raise kind(self.loss)


def _place_of(path: str) -> _Place | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
