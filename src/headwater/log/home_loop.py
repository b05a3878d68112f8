"""The event loop that something was opened in. What is asked of it from another one is refused before anything is done:
done halfway, it would take effect and look as if it had failed, or leave connections behind that no loop serves."""

import asyncio

from headwater.errors import WrongLoop
from headwater.forks import Origin


class HomeLoop:
    """Where something is at home. `name` is what to call it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._origin = Origin()

    def settle(self) -> asyncio.AbstractEventLoop:
        """The running event loop, which is its own from now on."""
        self._loop, self._origin = asyncio.get_running_loop(), Origin()
        return self._loop

    def has_ended(self) -> bool:
        """Whether its event loop is gone for good, as after `asyncio.run`: then another one may have it."""
        return self._loop is not None and self._loop.is_closed()

    def check(self) -> None:
        """Raises when another event loop asks, or a process that was forked from the one that has it."""
        if self._loop is None:
            return
        self._origin.check(self._name)
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop(
                f"{self._name} was opened in another event loop, of another thread or one that has ended; "
                "nothing was done. Open one in each event loop, hand the call to the loop that has it "
                "(asyncio.run_coroutine_threadsafe), or use headwater.sync, which any thread may call"
            )
