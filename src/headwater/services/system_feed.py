"""Follows a system collection for all in this process who want to hear of it: a look in a second, for all of them.

What differs from the look before is a change, as one in the log would be. Nothing of it is kept, so nobody goes on from
a place: whoever was away begins anew.
"""

import asyncio
import logging

import msgspec

from headwater.errors import HeadwaterError
from headwater.model.document import NULL, DocumentChange, Fields
from headwater.model.names import Lsn, Offset, PartitionId
from headwater.services.documents import SYSTEM_SECONDS
from headwater.services.feed import STOPPED, Feed
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
                self.meet(await self._look())
            except HeadwaterError as error:
                log.warning("the system collection %s cannot be looked at: %s", self.collection, error)
            except Exception:
                log.exception("the system collection %s can no longer be followed", self.collection)
                self._stop_all(STOPPED)
                return

    def meet(self, rows: Rows) -> None:
        """What was found now: tell what differs."""
        before, self.rows = self.rows, rows
        self.position = Lsn(self.position + 1)
        for name, row in before.items():
            if name not in rows:
                self._tell_of("delete", row, row)
        for name, row in rows.items():
            was = before.get(name)
            if was is None:
                self._tell_of("insert", row, None)
            else:
                row["version"] = was["version"]
                if row != was:
                    row["version"] += 1
                    self._tell_of("update", row, was)

    def _tell_of(self, op: str, row: Fields, was: Fields | None) -> None:
        after, before = (NULL if one is None else msgspec.Raw(msgspec.json.encode(one)) for one in (row, was))
        self.seq = Offset(self.seq + 1)
        change = DocumentChange(op, row["id"], row["version"], after, before)  # type: ignore[arg-type]
        self.tell(
            change,
            (was, None if op == "delete" else row),
            (self.seq, self.position, NO_PARTITION, self._queues.clock.now()),
        )
