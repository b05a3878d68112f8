"""Many descriptors that live for milliseconds: watched by one epoll of our own, which the event loop watches.

To add one costs a single call of the kernel; a reader of the event loop is several, and objects of its own.
"""

import asyncio
import select
from collections.abc import Callable


class Watcher:
    """Calls back when descriptors can be read, for as long as they can."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    def add(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Watch a descriptor."""
        self._callbacks[descriptor] = callback
        self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        """Watch it no more; one that is not watched is no error."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _ready(self) -> None:
        for descriptor, _ in self._epoll.poll(0):
            callback = self._callbacks.get(descriptor)
            if callback is not None:
                callback()
