"""Whether an offset still means what it meant: which store, which queues and which log it was taken of. Rules only.

    the store has another identity, or another segment where the offset stood     store_replaced
    a queue has another number, is gone, or is not read any more                  data_lost

A store that is put back from a copy keeps its identity until somebody renews it, so the segment is looked at as well.
"""

import msgspec

from headwater.errors import DataLost, HeadwaterError, StoreReplaced
from headwater.model.names import Lsn
from headwater.pipeline.planning import StreamOffset
from headwater.stores.open import is_server


class Here(msgspec.Struct, frozen=True):
    """What a reader finds: where, which store it is, queues with their numbers, the end of the log.

    `others` are the queues that are there and that it does not read.
    """

    address: str
    store: str
    queues: dict[str, int]
    last: Lsn
    others: dict[str, int] = {}


def find_change(offset: StreamOffset, here: Here, remembered: bool | None) -> HeadwaterError | None:
    """What changed since an offset was made, so that it cannot be gone on from; None when it can.

    `remembered` is whether the log has the segment that the offset stood at, None when nobody can tell.
    """
    return (
        _find_replaced(offset.store, here)
        or _find_going_back(offset, here, remembered)
        or _find_remade(offset.queues, here)
    )


def _find_replaced(store: str, here: Here) -> StoreReplaced | None:
    """Another store is there than the one with this identity."""
    if store in ("", here.store):
        return None
    mine = here.store or "is a backup that was put back"
    return StoreReplaced(
        f"{here.address} is not the store that was read: that one has the identity {store}, this one {mine}"
    )


def _find_going_back(offset: StreamOffset, here: Here, remembered: bool | None) -> StoreReplaced | None:
    """The log went back, or never was where the offset says."""
    read = offset.last
    if is_server(here.address):
        # A server tells where the log ends for this reader. That lies before an offset that counts in others' segments,
        # and goes back when a queue is deleted: only what was seen, in queues that are there, says anything.
        read = Lsn(0) if offset.seen is None or _find_remade(offset.queues, here) else offset.seen.lsn
    if read > here.last:
        return StoreReplaced(
            f"{here.address} ends at LSN {here.last}, but LSN {read} was read before: the store was replaced, or put "
            "back from an older copy"
        )
    if remembered is False and offset.seen is not None:
        return StoreReplaced(
            f"{here.address} has another segment at LSN {offset.seen.lsn} than the one that was read: the store was "
            "put back from an older copy and written to since"
        )
    return None


def _find_remade(numbers: dict[str, int], here: Here) -> DataLost | None:
    """A queue that was read is gone, another one has its name, or it is not read any more."""
    gone = sorted(name for name, number in numbers.items() if here.queues.get(name) != number)
    if not gone:
        return None
    left_out = [name for name in gone if here.others.get(name) == numbers[name]]
    if left_out:
        return DataLost(
            f"{', '.join(left_out)} was read before, and the options do not name it now: what was not read of it "
            "would be left out; name it again"
        )
    again = "and made again " if any(name in here.queues for name in gone) else ""
    return DataLost(f"{', '.join(gone)} was deleted {again}since it was read: what was not read of it is gone")


def begin_anew(
    offset: StreamOffset, change: HeadwaterError, here: Here, remembered: bool | None, drops: int
) -> StreamOffset:
    """Where a query goes on that may lose data.

    In the same log at the same place, with those of its queues that are left. In another one at its beginning, and what
    was dropped from it before is no loss. A store with another identity may have the same log: then so.
    """
    if isinstance(change, DataLost) or remembered:
        left = {name: number for name, number in offset.queues.items() if here.queues.get(name) == number}
        return msgspec.structs.replace(offset, store=here.store, queues=left, seen=None)
    return StreamOffset(Lsn(0), drops)
