"""How often: an allowance for each principal or address, for as many of them as memory was set aside for.

When there are more, the one that was quiet for longest is forgotten: it starts full again, which is what it would be.
"""

import time
from collections.abc import Callable, Hashable
from ipaddress import IPv6Address

from headwater.doors.access.refusals import ask_to_wait
from headwater.doors.wire import OPEN_PATHS, Handler, Request, Response
from headwater.errors import RateExceeded
from headwater.model.allowance import Level, Rate, owed_seconds, refill, wait_seconds

KEYS_MAX = 10_000


class Allowances:
    """One allowance for each key, all at the same rate."""

    def __init__(self, rate: Rate, keys_max: int = KEYS_MAX, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._keys_max = keys_max
        self._now = now
        self._levels: dict[Hashable, Level] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: Hashable) -> float:
        """Take one; how many seconds to wait when there is none to take, else 0."""
        level = self._level(key)
        wait = wait_seconds(level, self._rate)
        self._keep(key, level if wait else Level(level.left - 1.0, level.at))
        return wait

    def reserve(self, key: Hashable) -> float:
        """Take one that may come later; in how many seconds it is there. Whoever comes next is behind it, so that of
        many who wait each is called once, in turn."""
        level = self._level(key)
        level = Level(level.left - 1.0, level.at)
        self._keep(key, level)
        return owed_seconds(level, self._rate)

    def _level(self, key: Hashable) -> Level:
        now = self._now()
        kept = self._levels.pop(key, None)
        return Level(self._rate.burst, now) if kept is None else refill(kept, self._rate, now)

    def _keep(self, key: Hashable, level: Level) -> None:
        """At the end: the dict stands in the order of use."""
        self._levels[key] = level
        if len(self._levels) > self._keys_max:
            del self._levels[next(iter(self._levels))]


def within_rate(handler: Handler, allowances: Allowances) -> Handler:
    """The same door, for requests that do not come too often from one principal; one without a name is its address.

    What watches over a server comes as often as it likes: refused, it would take a busy server for a dead one.
    """

    async def answer(request: Request) -> Response:
        if request.path in OPEN_PATHS or request.awaits_body:
            return await handler(request)
        principal = request.principal
        key = (principal.database, principal.subject) if principal.subject else address_key(request.client)
        wait = allowances.take(key)
        if not wait:
            return await handler(request)
        return ask_to_wait(request, RateExceeded("too many requests; slow down", wait))

    return answer


def address_key(client: str) -> str:
    """Whom an address stands for. With IPv6 that is the network: one host can have all its addresses."""
    if ":" not in client:
        return client
    try:
        address = IPv6Address(client.partition("%")[0])
    except ValueError:
        return client
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
