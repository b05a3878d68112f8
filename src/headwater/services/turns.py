"""Long work on the event loop, in slices: the loop turns between two of them, and databases take turns.

Whoever has much to do there asks for a turn before each slice. One is given in each turn of the loop, so that requests,
heartbeats and what is quick come in between, and one database after the other, so that nobody waits for all that
another one has to do.
"""

import asyncio
from collections import deque

# What a slice may cost, in comparisons of a filter: some milliseconds. So much may be done without a turn: who does
# little at a time is not kept waiting.
SLICE_COST = 100_000
QUICK_COST = 10_000


class Turns:
    """Who may go on next, of all who have long work in one process."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_giving = False
        # How many were given: each is a turn of the loop.
        self.given = 0

    async def take(self, database: str) -> None:
        """Wait until it is the turn of somebody of this database."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(database, deque()).append(turn)
        if not self._is_giving:
            self._is_giving = True
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        """Give the next one its turn, and look again in the next turn of the loop."""
        while self._lines:
            database = next(iter(self._lines))
            line = self._lines.pop(database)
            turn = line.popleft()
            if line:
                # Behind all others who wait.
                self._lines[database] = line
            if not turn.done():
                turn.set_result(None)
                self.given += 1
                break
        self._is_giving = bool(self._lines)
        if self._is_giving:
            asyncio.get_running_loop().call_soon(self._give)


class Spending:
    """What somebody spends of their slices."""

    __slots__ = ("_database", "_left", "_turns")

    def __init__(self, turns: Turns, database: str) -> None:
        self._turns = turns
        self._database = database
        self._left = QUICK_COST

    def fits(self, cost: int) -> bool:
        """Whether there is so much left of this slice; it is spent then."""
        if cost > self._left:
            return False
        self._left -= cost
        return True

    async def wait_for(self, cost: int) -> None:
        """Spend so much, in another slice if there is not so much left of this one. What costs more than a slice has
        one to itself."""
        if not self.fits(cost):
            await self._turns.take(self._database)
            self._left = max(0, SLICE_COST - cost)

    def rest(self) -> None:
        """It is done for now: a slice is not kept for another turn of the loop."""
        self._left = min(self._left, QUICK_COST)
