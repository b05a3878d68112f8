"""How many bytes of bodies a server holds at once, over all its connections: a budget, and shares of it.

A body is counted from the moment it is taken, or as much as has come of it, until its request is answered; a message of
a WebSocket, as much as has come of it, until all of it is there. Nobody may have more than half of the budget, however
much is free: whoever sends a lot slows down itself and not the others.

Answers have a budget of their own: what a client has not taken of one is held for it. How large an answer is, nobody
knows before it is there, so it is counted then, and whoever has too much to take gets no more until it has.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.doors.wire import OPEN_PATHS, Request

SHARE = 0.5


class Budget:
    """Bytes that may be held. One body always fits, or a server would refuse it for ever."""

    def __init__(self, bytes_max: int, body_bytes_max: int) -> None:
        self._bytes_max = max(bytes_max, body_bytes_max)
        self._share_bytes_max = max(int(self._bytes_max * SHARE), body_bytes_max)
        self._by_owner: dict[str, int] = {}
        # Those who were told that too much is held for them.
        self._pressed: set[str] = set()
        self.bytes = 0
        self.refusals = 0

    def take(self, owner: str, count: int) -> bool:
        """Count these bytes for somebody; False, and nothing is counted, when there is no room for them."""
        theirs = self._by_owner.get(owner, 0) + count
        if self.bytes + count > self._bytes_max or theirs > self._share_bytes_max:
            self.refusals += 1
            return False
        self.bytes += count
        self._by_owner[owner] = theirs
        return True

    def holds_too_much(self, owner: str) -> bool:
        """Whether as much is held for somebody as may be: all of a share, or anything at all when nothing is free."""
        theirs = self._by_owner.get(owner, 0)
        is_too_much = theirs >= self._share_bytes_max or (theirs > 0 and self.bytes >= self._bytes_max)
        if is_too_much:
            self._pressed.add(owner)
        return is_too_much

    def is_pressed(self, owner: str) -> bool:
        """Whether somebody was told so, since what was held for them was as much."""
        return owner in self._pressed

    @contextmanager
    def holding(self, owner: str, count: int) -> Iterator[None]:
        """Count bytes that are there already, whether there is room for them or not, for so long."""
        if not count:
            yield
            return
        self.bytes += count
        self._by_owner[owner] = self._by_owner.get(owner, 0) + count
        try:
            yield
        finally:
            self.give_back(owner, count)

    def free(self) -> float:
        """How much of it is free, from 0 to 1."""
        return 1 - self.bytes / self._bytes_max

    def give_back(self, owner: str, count: int) -> None:
        """Count them no more."""
        self.bytes -= count
        self._pressed.discard(owner)
        left = self._by_owner[owner] - count
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]


class Hold:
    """What one request holds of a budget, or the message of a WebSocket that has not come whole."""

    __slots__ = ("_budget", "_bytes", "_owner")

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._bytes = 0

    def grow(self, size: int) -> bool:
        """Hold so many bytes; False when there is no room for them."""
        more = size - self._bytes
        if more <= 0:
            return True
        if not self._budget.take(self._owner, more):
            return False
        self._bytes = size
        return True

    def fit(self, size: int) -> bool:
        """Hold so many bytes, fewer than before or more; False when there is no room for them."""
        if size >= self._bytes:
            return self.grow(size)
        self._budget.give_back(self._owner, self._bytes - size)
        self._bytes = size
        return True

    def belong_to(self, owner: str) -> None:
        """Hold for somebody else from now on."""
        self.release()
        self._owner = owner

    def release(self) -> None:
        """Hold nothing any more."""
        if self._bytes:
            self._budget.give_back(self._owner, self._bytes)
            self._bytes = 0


def owner_of(request: Request) -> str:
    """Whose bytes they are: a credential stands for its principal; without one it is the address."""
    return request.headers.get("authorization") or request.client


def has_too_much(answers: Budget, request: Request) -> bool:
    """Whether somebody has so many answers to take that there are no more for them; one is told that a server is alive
    all the same."""
    return answers.bytes > 0 and answers.holds_too_much(owner_of(request)) and request.path not in OPEN_PATHS
