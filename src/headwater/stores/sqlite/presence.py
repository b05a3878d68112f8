"""Whether the files that were opened are still those at their names.

A file that is deleted or replaced under an open handle stays readable and writable for it, and for nobody else: what is
written there is lost when the handle closes. Looking at the names costs a microsecond each. What was lost once stays
lost, even when somebody puts a file back: every later call of the handle says so.
"""

import os
from typing import NoReturn

from headwater.errors import StoreReplaced

COMPANIONS = ("", "-wal", "-shm")

_Place = tuple[int, int]


class Presence:
    """The files of one open handle. May be asked from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[tuple[str, _Place]] = []
        self._loss = ""

    def remember(self) -> None:
        """The files are open now: these are the ones."""
        paths = [f"{self._path}{companion}" for companion in COMPANIONS]
        self._files = [(path, place) for path in paths if (place := _place_of(path)) is not None]

    def check(self) -> None:
        """Raises when one of them is gone or another file lies in its place."""
        if self._loss:
            raise StoreReplaced(self._loss)
        for path, place in self._files:
            found = _place_of(path)
            if found != place:
                self.lose(f"{path} was {'deleted' if found is None else 'replaced'} while it was open")

    def lose(self, what: str) -> NoReturn:
        """Say now, and from now on, that this store is no more."""
        self._loss = f"{what}; nothing more is read from or written to it: close this handle and open the store again"
        raise StoreReplaced(self._loss)


def _place_of(path: str) -> _Place | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
