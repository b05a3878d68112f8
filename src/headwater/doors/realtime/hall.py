"""All realtime sessions of one server: who is there, heartbeats, who must say who they are, and how often they speak.

There may be a hundred thousand that only wait, so one timer is for all of them: once in a second it looks at those
whose heartbeat is due, at those who have not said who they are, and at each credential that sessions go by. One that
was revoked ends its sessions within that second. The timer runs only while somebody is there.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, TypeVar

from headwater.doors.access.rates import Allowances, address_key
from headwater.doors.realtime.envelope import tell
from headwater.doors.realtime.limits import RealtimeLimits
from headwater.doors.sessions import CloseCode
from headwater.doors.wire import Request
from headwater.errors import AccessError, HeadwaterError, Overloaded, RateExceeded, Unauthenticated
from headwater.model.allowance import Rate
from headwater.model.principal import Principal
from headwater.model.watermarks import RECOVERED, Pressure, next_pressure

if TYPE_CHECKING:
    from headwater.doors.realtime.session import MessageHandler, RealtimeSession

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
BURST_SECONDS = 2.0
# So much of what waits for a client may be left a look later, when the server has no room.
TAKEN_SHARE = 0.5
# So often in a row as much or more may wait for a client as a look before, while others have to wait for room.
STALLED_LOOKS_MAX = 30

Item = TypeVar("Item", bound=Hashable)


class Hall:
    """Where the sessions of one server are. `handlers` say what is done about each type of message."""

    def __init__(self, limits: RealtimeLimits, handlers: "Mapping[str, MessageHandler]") -> None:
        self.limits = limits
        self.handlers = handlers
        self.rate = Rate(limits.messages_per_second, max(1.0, limits.messages_per_second * BURST_SECONDS))
        together = limits.messages_per_token_per_second
        self._together = Rate(together, max(1.0, together * BURST_SECONDS))
        self._sessions: set[RealtimeSession] = set()
        # Whose heartbeat is due when, in that order; who has left is let go of when it comes by.
        self._ring: deque[tuple[float, RealtimeSession]] = deque()
        # Those who have not said who they are, with the time by which they must, in that order.
        self._unknown: dict[RealtimeSession, float] = {}
        self._by_credential: dict[str, set[RealtimeSession]] = {}
        self._by_address: Counter[Hashable] = Counter()
        self._by_principal: Counter[Hashable] = Counter()
        # What the subscriptions of each token, or address, hold.
        self._subscribed: Counter[Hashable] = Counter()
        self.pressure = Pressure.CALM
        # What waited for those whose subscriptions were ended to make room, when they were last looked at.
        self._given_up: dict[RealtimeSession, int] = {}
        # Since the server is short of room: what waited for each, and for how many looks it has not become less.
        self._stalled: dict[RealtimeSession, tuple[int, int]] = {}
        # Called with the pressure before and now.
        self.at_pressure: list[Callable[[Pressure, Pressure], None]] = []
        # Called once in a second while somebody is there, and when nobody is any more.
        self.at_tick: list[Callable[[], None]] = []
        self.at_empty: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None

    @cached_property
    def allowances(self) -> Allowances:
        """How often all connections of one token, or of one address, may speak together."""
        return Allowances(self._together, now=asyncio.get_running_loop().time)

    def count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    # ── coming and going ──

    def admit(self, request: Request) -> None:
        """Raises when there are too many from where a request comes."""
        if self._by_address[address_key(request.client)] >= self.limits.connections_per_address_max:
            raise Overloaded("too many realtime connections from this address; close some, or come back later")

    def admit_listener(self, request: Request) -> None:
        """The same of somebody who is known already, by whom they are as well."""
        self.admit(request)
        self._check_room_for(key_of(request.principal))

    def _check_room_for(self, key: Hashable | None) -> None:
        if key is not None and self._by_principal[key] >= self.limits.connections_per_token_max:
            raise Overloaded("too many realtime connections with this token; close some, or come back later")

    def enter(self, session: "RealtimeSession") -> None:
        """A session has begun."""
        self._sessions.add(session)
        now = asyncio.get_running_loop().time()
        self._ring.append((now + self.limits.heartbeat_seconds, session))
        self._by_address[session.address] += 1
        if session.principal is None:
            self._unknown[session] = now + self.limits.auth_seconds
        if self._timer is None:
            self._tick_later()

    def know(self, session: "RealtimeSession", principal: Principal, credential: str) -> None:
        """A session is known to be somebody's; raises when they have too many already."""
        key = key_of(principal)
        if key != session.key:
            self._check_room_for(key)
            self._forget(session)
            session.key = key
            if key is not None:
                self._by_principal[key] += 1
        self._unknown.pop(session, None)
        self._drop_credential(session)
        if credential:
            session.credential = credential
            self._by_credential.setdefault(credential, set()).add(session)

    def leave(self, session: "RealtimeSession") -> None:
        """A session is over."""
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._given_up.pop(session, None)
        self._unknown.pop(session, None)
        self._drop_credential(session)
        self._forget(session)
        _count_down(self._by_address, session.address)
        if not self._sessions:
            self._ring.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            # Nobody looks again until somebody stays, and nobody does who is refused for what waited for others.
            self.weigh()
            for call in self.at_empty:
                call()

    def _drop_credential(self, session: "RealtimeSession") -> None:
        theirs = self._by_credential.get(session.credential)
        if theirs is not None:
            theirs.discard(session)
            if not theirs:
                del self._by_credential[session.credential]
        session.credential = ""

    def _forget(self, session: "RealtimeSession") -> None:
        if session.key is not None:
            _count_down(self._by_principal, session.key)
            session.key = None

    # ── what is held for them ──

    def hold(self, owner: Hashable, size: int) -> None:
        """A subscription of somebody takes so much; raises when theirs would take more together than they may."""
        if self._subscribed[owner] + size > self.limits.subscriptions_bytes_per_token_max:
            room = self.limits.subscriptions_bytes_per_token_max
            raise Overloaded(f"the subscriptions of one token hold up to {room:,} bytes: fewer, or shorter filters")
        self._subscribed[owner] += size

    def release(self, owner: Hashable, size: int) -> None:
        """It is over."""
        self._subscribed[owner] -= size
        if not self._subscribed[owner]:
            del self._subscribed[owner]

    # ── once in a second ──

    def _tick_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        now = asyncio.get_running_loop().time()
        while self._ring and self._ring[0][0] <= now:
            _, session = self._ring.popleft()
            if session in self._sessions:
                self._ring.append((now + self.limits.heartbeat_seconds, session))
                session.send(HEARTBEAT)
        late = [session for session, due in self._unknown.items() if due <= now]
        for session in late:
            session.refuse(Unauthenticated("nobody has said who they are in time"), CloseCode.POLICY_VIOLATED)
        self.weigh()
        for call in self.at_tick:
            call()
        if self._by_credential and self._checking is None:
            self._checking = asyncio.ensure_future(self._check_credentials())

    def weigh(self) -> None:
        """Look how much waits for all clients together, and do something about it before it is too much (S3-20, S3-21):
        first what is optional waits, then those for whom the most waits are given up, and are told. Who has not taken
        half of it by the next look is let go: that it speaks is no sign that it reads."""
        waiting = {session: session.waiting_bytes() for session in self._sessions}
        room = self.limits.outboxes_bytes_max
        before, self.pressure = self.pressure, next_pressure(self.pressure, sum(waiting.values()) / room)
        if self.pressure is not before:
            log.warning("what waits for realtime clients is %s, it was %s", self.pressure.name, before.name)
            for note in self.at_pressure:
                note(before, self.pressure)
        self._stalled = {} if self.pressure is Pressure.CALM else self._look_for_stalled(waiting)
        if self.pressure is Pressure.HARD:
            too_much = sum(waiting.values()) - RECOVERED * room
            for session in most_first({one: (one.owner, size) for one, size in waiting.items()}):
                if too_much <= 0:
                    break
                too_much -= waiting[session]
                self._make_room(session, waiting[session])
        else:
            self._given_up.clear()
        if self.pressure is Pressure.CALM and before is not Pressure.CALM:
            for session in list(self._sessions):
                session.go_on()

    def _look_for_stalled(self, waiting: "dict[RealtimeSession, int]") -> "dict[RealtimeSession, tuple[int, int]]":
        """Let go of those who have taken nothing for a while, and have others wait: short of the hard mark too."""
        found: dict[RealtimeSession, tuple[int, int]] = {}
        for session, now in waiting.items():
            before, looks = self._stalled.get(session, (0, 0))
            looks = looks + 1 if now and now >= before else 0
            if looks > STALLED_LOOKS_MAX:
                session.cut()
            elif now:
                found[session] = now, looks
        return found

    def _make_room(self, session: "RealtimeSession", waiting: int) -> None:
        """Nothing more is told to one for whom much waits; and if it does not take that, it is let go."""
        before = self._given_up.get(session)
        if before is not None and waiting > before * TAKEN_SHARE:
            log.info("a realtime client that takes nothing is let go: %s bytes waited for it", waiting)
            session.cut()
            return
        self._given_up[session] = waiting
        session.give_up()

    async def _check_credentials(self) -> None:
        """Ask for each credential whether it is still good. What was verified a moment ago is known without a look."""
        try:
            for credential, sessions in list(self._by_credential.items()):
                # They may all have gone while others were asked for.
                if (one := next(iter(sessions), None)) is not None:
                    await self._check(credential, one)
        finally:
            self._checking = None

    async def _check(self, credential: str, one: "RealtimeSession") -> None:
        if one.identify is None:
            return
        try:
            principal = await one.identify(credential)
        except (Unauthenticated, RateExceeded) as error:
            for session in list(self._by_credential.get(credential, ())):
                session.refuse(error, CloseCode.POLICY_VIOLATED)
        except HeadwaterError as error:
            # The store cannot be asked now; what is known of them stands until it can.
            level = logging.INFO if isinstance(error, AccessError) else logging.WARNING
            log.log(level, "a credential could not be looked at again: %s", error)
        else:
            for session in list(self._by_credential.get(credential, ())):
                session.know_anew(principal)


def key_of(principal: Principal) -> Hashable | None:
    """Whom a connection counts for; None for somebody without a name, of whom only the address counts."""
    return (principal.database, principal.subject) if principal.subject else None


def most_first(held: Mapping[Item, tuple[Hashable, int]]) -> Iterator[Item]:
    """Things that somebody holds, each with its owner and size, in the order in which they are let go: always the
    largest of the owner who holds most of what is left."""
    together: Counter[Hashable] = Counter()
    of: dict[Hashable, list[Item]] = {}
    for item, (owner, size) in sorted(held.items(), key=lambda one: one[1][1]):
        together[owner] += size
        of.setdefault(owner, []).append(item)
    heap = [(-size, number, owner) for number, (owner, size) in enumerate(together.items())]
    heapify(heap)
    while heap:
        negative, number, owner = heap[0]
        item = of[owner].pop()
        yield item
        if of[owner]:
            heapreplace(heap, (negative + held[item][1], number, owner))
        else:
            heappop(heap)


def _count_down(counter: Counter[Hashable], key: Hashable) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


HEARTBEAT = tell("heartbeat", {})
