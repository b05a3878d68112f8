"""A client of live queries, in memory."""

from collections.abc import Callable
from typing import Any

from headwater.doors.realtime.session import RealtimeSession
from headwater.doors.site import Site
from headwater.doors.wire import Request
from headwater.model.principal import OWNER, Principal
from tests.doors.realtime.guests import PATIENCE_SECONDS, Desk, MemoryPeer, say
from tests.waiting import expect_soon_async

MESSAGES = "rooms/r1/messages"
Found = dict[str, Any]


class Page:
    """One client, in memory."""

    def __init__(self, site: Site, principal: Principal = OWNER, desk: Desk | None = None) -> None:
        self.peer = MemoryPeer()
        identify = None if desk is None else desk.identify
        asked = Request(method="GET", path="/realtime/ws", principal=principal, identify=identify)
        self.session = RealtimeSession(site, site.realtime, asked, self.peer)

    async def say(self, type: str, payload: object, id: str = "s") -> None:
        await say(self.session, type, payload, id)

    async def hear(self, type: str, count: int = 1) -> list[Found]:
        """Payloads of the first messages of a type, once there are so many."""
        await until(lambda: len(self.all(type)) >= count)
        return self.all(type)[:count]

    def all(self, type: str) -> list[Found]:
        return [message["payload"] for message in self.peer.heard if message["type"] == type]

    async def subscribe(self, id: str = "s", collection: str = MESSAGES, **more: object) -> Found:
        query: Found = {"collection": collection}
        query |= {key: more.pop(key) for key in ("filters", "filter") if key in more}
        await self.say("subscribe", {"query": query, **more}, id)
        await until(lambda: any(message.get("id") == id for message in self.peer.heard))
        answer = next(message for message in self.peer.heard if message.get("id") == id)
        assert answer["type"] == "subscribe_ack", answer
        payload: Found = answer["payload"]
        return payload

    def cut(self) -> None:
        self.session.closed(1006)


async def until(holds: Callable[[], object]) -> None:
    await expect_soon_async(lambda: _found(holds), PATIENCE_SECONDS)


async def _found(holds: Callable[[], object]) -> bool:
    return bool(holds())
