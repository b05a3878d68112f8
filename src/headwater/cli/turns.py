"""Serving a store that one broker holds at a time: answer while it is held here, hand on while it is held elsewhere.

    STANDING BY ──the holder leaves, or its lease ends──► HOLDING
        ▲  requests go to the holder                        │ requests are answered here
        └──────another has taken over meanwhile─────────────┘ everything of before is let go

The port is open all the time, so that servers behind a balancer all serve. A broker that has lost the store does not
wait for it with requests in its hands: they are told to come back, and find the new holder.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from headwater.cli.session import make_headwater, start
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.cli.serve import Serving
    from headwater.doors.edge.server import Edge
    from headwater.doors.front import Front
    from headwater.stores.contract import HeldByOne, Holder

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
ANYWHERE = frozenset({"0.0.0.0", "::", ""})


async def serve_in_turns(serving: "Serving", hw: "Headwater", ready: Callable[[int], None]) -> signal.Signals:
    """Until a signal ends it."""
    from headwater.cli.serve import listen_for_signals, make_edge, passed_first, start_edge, stop_edge, url_of
    from headwater.doors.access.guard import describe_guard, guarded_outside
    from headwater.doors.front import Front
    from headwater.stores.contract import Holder

    signals = listen_for_signals()
    edge = make_edge(serving)
    guards = partial(guarded_outside, settings=serving.access)
    front = Front(guards, asks_who=bool(serving.access.auth), is_encrypted=serving.tls is not None)
    edge.handler = edge.admit = passed_first(serving, front)
    await start_edge(edge, serving)
    address = serving.advertise or ("" if serving.host in ANYWHERE else url_of(serving, edge.port))
    own = Holder(address, describe_guard(serving.access, serving.commands))
    turns = Turns(serving, edge, front, own, lambda: ready(edge.port))
    serving_on = asyncio.ensure_future(turns.go_on(hw))
    ending = asyncio.ensure_future(signals.get())
    try:
        await asyncio.wait({serving_on, ending}, return_when=asyncio.FIRST_COMPLETED)
        if serving_on.done():
            serving_on.result()
        edge.sessions.close()
        turns.drain()
        await stop_edge(edge, signals)
        return ending.result()
    finally:
        ending.cancel()
        serving_on.cancel()
        await asyncio.wait({serving_on})
        edge.abort()
        await turns.close()


class Turns:
    """One broker, which holds the store at times."""

    def __init__(
        self, serving: "Serving", edge: "Edge", front: "Front", own: "Holder", ready: Callable[[], None]
    ) -> None:
        self._serving = serving
        self._edge = edge
        self._front = front
        self._own = own
        self._ready = ready
        self._is_ready = False
        self._held: Headwater | None = None

    async def go_on(self, hw: "Headwater") -> None:
        """Stand by, hold, lose, and stand by again."""
        self._front.join(await _brokers_of(hw).secret(), self._own)
        while True:
            await self._stand_by(hw)
            self._held = hw
            await self._hold(hw)
            self._front.stand_by(_brokers_of(hw).held_by, _brokers_of(hw).numbers)
            self._edge.sessions.send_away()
            self._held = None
            await _let_go(hw)
            hw = make_headwater(self._serving.settings, housekeeping=None)

    async def _stand_by(self, hw: "Headwater") -> None:
        """Until the store is ours. There is somebody who answers as soon as its holder is known."""
        brokers = _brokers_of(hw)
        brokers.stand_by(self._own)
        opening = asyncio.ensure_future(start(hw, self._serving.settings))
        # Whom the last one lost it to is known already.
        known = self._front.holder()

        def find_holder() -> "Holder | None":
            held = brokers.held_by()
            return known if held is None else held

        self._front.stand_by(find_holder, brokers.numbers)
        try:
            while not opening.done():
                await asyncio.wait({opening}, timeout=LOOK_SECONDS)
                if brokers.held_by() is not None:
                    known = None
                if self._front.holder() is not None:
                    self._front.objection()
                    self._say_ready()
                else:
                    # Nobody holds it any more that could be asked, and it cannot be had: that is told.
                    self._front.tell(brokers.trouble())
            opening.result()
        finally:
            opening.cancel()
            await asyncio.wait({opening})

    async def _hold(self, hw: "Headwater") -> None:
        """Answer, until somebody else holds the store."""
        from headwater.cli.serve import guarded_routes, make_door

        door = await make_door(self._serving, hw, self._edge)
        self._front.serve(guarded_routes(self._serving, hw, door))
        log.info("this broker holds the store")
        self._say_ready()
        holder = None
        while holder is None:
            await asyncio.sleep(LOOK_SECONDS)
            holder = _brokers_of(hw).held_by()
        log.warning(
            "another broker%s holds the store: this one hands on to it",
            f" ({holder.address})" if holder.address else "",
        )

    def _say_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._ready()

    def drain(self) -> None:
        """The server stops: whoever waits is told."""
        from headwater.cli.serve import drain

        if self._held is not None:
            drain(self._held)

    async def close(self) -> None:
        """Leave the store, if it is held here."""
        if self._held is not None:
            await self._held.close()


async def _let_go(hw: "Headwater") -> None:
    """Of a store that is somebody else's: nothing of it can be given back any more."""
    try:
        await hw.close()
    except HeadwaterError as error:
        log.info("what was held when the store was lost is given back when its leases end: %s", error)


def _brokers_of(hw: "Headwater") -> "HeldByOne":
    return cast("HeldByOne", hw.store)
