"""Reading the log of one queue without a consumer group: from a place on, and then as it grows."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from headwater.model.names import Lsn
from headwater.stores.questions import FindLastLsn

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.client.client import Client
    from headwater.stores.questions import Segment

SEGMENTS_AT_ONCE = 16
SERVER_WAIT_SECONDS = 20.0


async def last_lsn(hw: "Headwater | Client") -> Lsn:
    """Where the log ends now."""
    from headwater.client.client import Client

    return (await hw.greet()).lsn if isinstance(hw, Client) else await hw.store.ask(FindLastLsn())


def follow(hw: "Headwater | Client", queue: str, after: Lsn, *, for_ever: bool) -> "AsyncGenerator[Segment, None]":
    """The segments of a queue after an LSN, in order; then, for ever, those that come."""
    from headwater.client.client import Client

    if isinstance(hw, Client):
        return _follow_server(hw, queue, after, for_ever)
    return _follow_store(hw, queue, after, for_ever)


async def _follow_server(hw: "Client", queue: str, after: Lsn, for_ever: bool) -> "AsyncGenerator[Segment, None]":
    end = None if for_ever else await last_lsn(hw)
    while end is None or after < end:
        told = await hw.read(queue, after, limit=SEGMENTS_AT_ONCE, wait=0 if end is not None else SERVER_WAIT_SECONDS)
        for segment in told.segments:
            yield segment
        after = told.through


async def _follow_store(hw: "Headwater", queue: str, after: Lsn, for_ever: bool) -> "AsyncGenerator[Segment, None]":
    news = asyncio.Event()
    # Subscribed before the first read, or a commit between the two would be missed.
    unfollow = await hw.tail.follow(lambda touches: news.set())
    try:
        while True:
            news.clear()
            through = await hw.store.ask(FindLastLsn())
            async for segment in _stretch(hw, queue, after, through):
                yield segment
            after = max(after, through)
            if not for_ever:
                return
            await news.wait()
    finally:
        unfollow()


async def _stretch(hw: "Headwater", queue: str, after: Lsn, through: Lsn) -> "AsyncGenerator[Segment, None]":
    while after < through:
        segments = await hw.store.read(after, through, SEGMENTS_AT_ONCE, (hw.name, queue))
        if not segments:
            return
        for segment in segments:
            yield segment
        after = segments[-1].lsn


class Gaps:
    """Notices records that were dropped before they could be read: offsets of a partition have no holes."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}

    def before(self, segment: "Segment") -> int:
        """How many records are missing between this segment and the one before it."""
        end = self._ends.get(segment.partition_id, segment.first_offset)
        self._ends[segment.partition_id] = segment.first_offset + len(segment.records)
        return max(segment.first_offset - end, 0)
