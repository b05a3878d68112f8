"""What a wake-up is: something that calls back when there may be something new."""

from collections.abc import Callable
from typing import Protocol


class Wakeup(Protocol):
    """Calls `wake` on the event loop, perhaps too often, never with data.

    `wake` answers whether it found anything new; a wake-up that polls uses that to set its pace.
    """

    name: str

    def start(self, wake: Callable[[], bool]) -> None:
        """Begin to call; on the running event loop."""
        ...

    def close(self) -> None:
        """Call no more."""
        ...
