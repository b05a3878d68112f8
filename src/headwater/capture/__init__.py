"""Change data capture: what is written to tables and collections of your own databases, as messages of a queue.

>>> from headwater import capture
>>> async with headwater.open("headwater.db") as hw:
...     shop = capture.PostgresTables("postgresql://db.example/shop", ["public.orders"])
...     await capture.follow(hw, shop, "orders.changes")
"""

from typing import TYPE_CHECKING, Any

from headwater.capture.contract import Change, Lag, Source, Taken
from headwater.capture.follower import Captured, Follower, drop, give_up
from headwater.services.database import Database

if TYPE_CHECKING:
    from headwater.capture.mongodb import MongoCollections
    from headwater.capture.postgres import PostgresTables

__all__ = [
    "Captured",
    "Change",
    "Lag",
    "MongoCollections",
    "PostgresTables",
    "Source",
    "Taken",
    "drop",
    "follow",
    "give_up",
]


async def follow(
    hw: Database,
    source: Source,
    queue: str,
    *,
    lanes: int = 1,
    resync: bool = False,
    alarm_bytes: int | None = None,
    once: bool = False,
) -> Captured:
    """Push every change of a source to a queue, once and in order, until it is cancelled.

    A table is a partition, in the order of commits; with `lanes` it is several, and the changes of one row stay in
    order. With `once` it ends when it has everything that was written before it began. Where the source has lost our
    place, `resync` begins anew: consumers get a change of kind `resync-required`, then every row as `read`.
    `alarm_bytes` is how much a source may keep for us before somebody is told.
    """
    follower = Follower(hw, source, queue, lanes=lanes, resync=resync, alarm_bytes=alarm_bytes)
    return await follower.run(once=once)


def __getattr__(name: str) -> Any:
    """Sources bring drivers that not everybody has installed."""
    if name == "PostgresTables":
        from headwater.capture.postgres import PostgresTables

        return PostgresTables
    if name == "MongoCollections":
        from headwater.capture.mongodb import MongoCollections

        return MongoCollections
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
