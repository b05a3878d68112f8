"""A store that is away for a while: a server that restarts, a bucket that does not answer.

The store itself tells the log of it, once when it begins and once when it is over. Whoever else meets the error says
nothing of its own, and who only reads goes on when the store is back: nothing was missed, for a place in the log holds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headwater.errors import HeadwaterError, StoreSilent, StoreUnreachable

log = logging.getLogger(__name__)

OUTAGES = (StoreSilent, StoreUnreachable)
# A server that is away is asked again so often: what it costs is a connection that is refused.
PAUSE_SECONDS = 0.2

Result = TypeVar("Result")


class Outage:
    """Whether a server answers, by what becomes of everything that it is asked."""

    def __init__(self) -> None:
        self._is_on = False
        self._count = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around whatever the server is asked."""
        count = self._count
        try:
            yield
        except StoreUnreachable as error:
            self._begin(error)
            raise
        # What was asked before an outage, and is handed over in it, does not end it.
        if self._is_on and count == self._count:
            self._is_on = False
            log.warning("the store is back")

    def _begin(self, error: StoreUnreachable) -> None:
        if not self._is_on:
            self._is_on = True
            self._count += 1
            log.warning("the store is away, and is waited for: %s", error)


async def through_outages(ask: Callable[[], Awaitable[Result]]) -> Result:
    """What is answered, as soon as the store can answer. For questions only: a commit may have held."""
    while True:
        try:
            return await ask()
        except OUTAGES as error:
            log.debug("asked again in %g s: %s", PAUSE_SECONDS, error)
        await asyncio.sleep(PAUSE_SECONDS)


def level_of(error: BaseException) -> int:
    """How loudly a loop that tries again tells of an error: in an outage the store has told of it."""
    return logging.DEBUG if isinstance(error, OUTAGES) else logging.WARNING


def tell(teller: logging.Logger, what: str, error: BaseException) -> None:
    """What went wrong in a loop that goes on: a line where the error says it all, as when another broker has taken the
    store over; where it came from only when nobody has foreseen it."""
    if isinstance(error, HeadwaterError):
        teller.log(level_of(error), "%s: %s", what, error)
    else:
        teller.error("%s", what, exc_info=error)
