"""What a wake-up is: something that calls back when there may be something new."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol


class Found(Enum):
    """What a look at the store found: something new of others, only our own commit, or nothing that explains it."""

    NEWS = "news"
    OWN = "own"
    NOTHING = "nothing"


class Wakeup(Protocol):
    """Calls `wake` on the event loop, perhaps too often, never with data; what it answers sets the pace."""

    name: str

    def start(self, wake: Callable[[], Found]) -> None:
        """Begin to call; on the running event loop."""
        ...

    def changed(self) -> bool:
        """Whether somebody else has committed since this was last asked. Cheap: it is asked at every call, sometimes in
        a row. A wake-up that cannot look says yes whenever it calls."""
        ...

    def defer(self, seconds: float) -> None:
        """From now on, call so long after there may be something, not at once: whoever else looks may go first.

        A wake-up that looks at a pace of its own may keep to that.
        """
        ...

    def close(self) -> None:
        """Call no more."""
        ...
