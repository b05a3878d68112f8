"""A table of somebody's on a real PostgreSQL server, and what a capture of it has brought."""

from typing import Any

import headwater
from headwater import capture
from headwater.model.capture import STEPS, CaptureState, decode_state
from headwater.stores.questions import ListMilestones
from tests.postgres_server import USER, Server

QUEUE = "changes"


class Shop:
    """A table in a schema of its own, and a capture of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = server.new_schema()
        self.connection = server.connect()
        self.address = f"postgresql://{USER}@/postgres?host={server.folder}"
        self.run(f"CREATE SCHEMA {self.name}")
        self.table = f"{self.name}.orders"
        self.run(f"CREATE TABLE {self.table} (id int PRIMARY KEY, note text, price numeric)")

    def run(self, statement: str, *bindings: Any) -> list[Any]:
        """A statement that commits by itself."""
        cursor = self.connection.execute(statement.encode(), bindings)
        return cursor.fetchall() if cursor.description else []

    def source(self, **options: Any) -> capture.PostgresTables:
        """A new source of its changes."""
        return capture.PostgresTables(self.address, [self.table], name=self.name, **options)

    def insert(self, *ids: int) -> None:
        for number in ids:
            self.run(f"INSERT INTO {self.table} VALUES (%s, %s, %s)", number, f"n{number}", number)

    @property
    def slots(self) -> list[Any]:
        """Its slot, as the server has it."""
        return self.run("SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", f"headwater_{self.name}")


async def follow(hw: headwater.Headwater, shop: Shop, **options: Any) -> capture.Captured:
    return await capture.follow(hw, shop.source(), QUEUE, once=True, **options)


async def changes(hw: headwater.Headwater) -> list[dict[str, Any]]:
    """What came since this was last asked."""
    messages = await hw.queue(QUEUE).pop(group="test", batch=1_000)
    for message in messages:
        await message.ack()
    return [message.payload for message in messages]


def short(found: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(one["op"], (one["key"] or {}).get("id")) for one in found]


async def state(hw: headwater.Headwater) -> CaptureState:
    [milestone] = await hw.store.ask(ListMilestones(hw.name, STEPS))
    return decode_state(milestone.note)


async def lag_of(shop: Shop) -> capture.Lag:
    source = shop.source()
    try:
        return await source.lag()
    finally:
        await source.close()


async def has_changes(hw: headwater.Headwater, count: int) -> bool:
    return sum(queue.records for queue in await hw.queues() if queue.queue == QUEUE) >= count
