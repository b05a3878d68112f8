"""Which records of its segments a batch gets: so many, of so many bytes, less what was settled before."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import cast

import msgspec

from headwater.clock import Timestamp
from headwater.model.cursor import Cursor
from headwater.model.names import Lsn, Offset
from headwater.model.record import Record, bytes_of
from headwater.stores.tables.segments import SegmentHeader


class Found(msgspec.Struct, gc=False):
    """Records gathered for one batch; `due_at` is when the first that may not be delivered yet may be.

    `cursor` is the group's, moved over what is not there any more: `lost` records that were dropped unread, and those
    whose own time is over. `room` is how many bytes more may be brought. `ids` are the transaction ids of the batch,
    which has `ended` before a record that has one of them.
    """

    cursor: Cursor
    room: int
    offsets: list[Offset] = []
    written_at: list[Timestamp] = []
    lsns: list[Lsn] = []
    records: list[Record] = []
    lost: int = 0
    due_at: int | None = None
    ids: set[str] = set()
    ended: bool = False


def collect(
    found: Found, header: SegmentHeader, records: list[Record], cursor: Cursor, limit: int, stop: int | None
) -> None:
    """Take the records of one segment that the lease may cover: a slice of it, less what was settled before."""
    begin, room = header.first_offset, limit - len(found.offsets)
    first = max(cursor.position - begin, 0)
    last = header.count if stop is None else min(header.count, stop - begin)
    if cursor.settled:
        settled = set(cursor.settled)
        places = [index for index in range(first, last) if begin + index not in settled][:room]
        count = _fitting(found, _apart(found, [records[index] for index in places]))
        found.offsets.extend([Offset(begin + index) for index in places[:count]])
    else:
        count = _fitting(found, _apart(found, records[first : min(last, first + room)]))
        found.offsets.extend(cast("Iterable[Offset]", range(begin + first, begin + first + count)))
    found.written_at.extend([header.written_at] * count)
    found.lsns.extend([header.lsn] * count)


def _apart(found: Found, records: list[Record]) -> list[Record]:
    """Those before the first whose transaction id the batch has already. An id that is pushed again after the queue's
    window is another message: in one lease with the first, a report by id could mean either."""
    ids = [record.transaction_id for record in records]
    named = [identity for identity in ids if identity]
    if len(set(named)) == len(named) and found.ids.isdisjoint(named):
        found.ids.update(named)
        return records
    for count, identity in enumerate(ids):
        if identity in found.ids:
            found.ended = True
            return records[:count]
        if identity:
            found.ids.add(identity)
    return records


def _fitting(found: Found, records: list[Record]) -> int:
    """Take those that there is room for, the first one always; how many. Behind one that does not fit there is none."""
    whole = bytes_of(records)
    count = len(records)
    if whole > found.room:
        reached = list(accumulate(bytes_of((record,)) for record in records))
        count = max(bisect_right(reached, found.room), 0 if found.offsets else 1)
        whole = max(reached[count - 1] if count else 0, found.room)
    found.room -= whole
    found.records.extend(records[:count])
    return count
