"""Follows a system collection for all in this process who want to hear of it: a look in a second, for all of them.

What differs from the look before is a change, as one in the log would be. Nothing of it is kept, so nobody goes on from
a place: whoever was away begins anew.
"""

import asyncio
import logging

import msgspec

from headwater.errors import HeadwaterError
from headwater.model.document import NULL, DocumentChange, Fields, Op
from headwater.model.json_values import is_same_json
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.outage import level_of
from headwater.services.documents import SYSTEM_SECONDS
from headwater.services.feed import STOPPED, Changed, Feed
from headwater.services.system_collections import Rows, check_system, list_rows

log = logging.getLogger(__name__)

NO_PARTITION = PartitionId(0)


class SystemFeed(Feed):
    """The changes of a system collection."""

    rows: Rows

    async def start(self) -> None:
        """Look once, and then again and again."""
        check_system(self.collection)
        self.rows = await self._look()
        self._task = asyncio.ensure_future(self._run_looks())

    async def _look(self) -> Rows:
        return await list_rows(self._queues.store, self.database, self.collection, self._queues.clock.now())

    async def _run_looks(self) -> None:
        while True:
            await asyncio.sleep(SYSTEM_SECONDS)
            if not self._queues.life.is_open:
                self._stop_all(STOPPED)
                return
            try:
                await self.meet(await self._look())
            except HeadwaterError as error:
                log.log(level_of(error), "the system collection %s cannot be looked at: %s", self.collection, error)
            except Exception:
                log.exception("the system collection %s can no longer be followed", self.collection)
                self._stop_all(STOPPED)
                return

    async def meet(self, rows: Rows) -> None:
        """What was found now: tell what differs."""
        changes = self._differences(rows)
        matched = await self.match(changes)
        # In one turn of the loop: who begins now has either all of it in their rows, or is told.
        self.rows = rows
        self.position = Lsn(self.position + 1)
        for changed, hits in zip(changes, matched, strict=True):
            self.seq = changed[2][0]
            self.tell(changed, hits)

    def _differences(self, rows: Rows) -> list[Changed]:
        """What differs from the look before, as changes behind the last one."""
        found: list[tuple[Op, Fields, Fields | None]] = []
        for name, row in self.rows.items():
            if name not in rows:
                found.append(("delete", row, row))
        for name, row in rows.items():
            was = self.rows.get(name)
            if was is None:
                found.append(("insert", row, None))
            else:
                row["version"] = was["version"]
                if not is_same_json(row, was):
                    row["version"] += 1
                    found.append(("update", row, was))
        return [self._change(number, *one) for number, one in enumerate(found, 1)]

    def _change(self, number: int, op: Op, row: Fields, was: Fields | None) -> Changed:
        after, before = (NULL if one is None else msgspec.Raw(msgspec.json.encode(one)) for one in (row, was))
        change = DocumentChange(op, row["id"], row["version"], after, before)
        place = Offset(self.seq + number), Lsn(self.position + 1), NO_PARTITION, self._queues.clock.now()
        return change, (was, None if op == "delete" else row), place
