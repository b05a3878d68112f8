"""Records of Headwater's own queues, as they are read by those who follow them.

What stands there only Headwater writes; still, one that cannot be read, of a newer version or from a damaged store,
must not keep everybody from all that comes after it. It is passed over, said in the log of the process, and counted.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from headwater.errors import StoreDamaged
from headwater.model.document import NULL, DocumentChange, decode_flat
from headwater.model.names import Offset
from headwater.model.record import Record
from headwater.stores.questions import Segment

log = logging.getLogger(__name__)

Told = TypeVar("Told")


class Passed:
    """How many records this process passed over."""

    count = 0


class OwnRecords(Generic[Told]):
    """Reads the records of one kind of queue. `decode` raises what msgspec does, or StoreDamaged."""

    def __init__(self, decode: Callable[[msgspec.Raw], Told]) -> None:
        self._decode = decode

    def read(self, segment: Segment) -> Iterator[tuple[Offset, Record, Told]]:
        """The records of one commit that can be read, each with its offset."""
        for offset, record in enumerate(segment.records, segment.first_offset):
            try:
                told = self._decode(record.data)
            except (msgspec.MsgspecError, StoreDamaged) as error:
                Passed.count += 1
                place = (segment.lsn, segment.partition_id, offset)
                log.warning("a record at LSN %d (partition %d, offset %d) is passed over: %s", *place, error)
            else:
                yield Offset(offset), record, told


# ── changes of documents ──

_decode_change = msgspec.json.Decoder(DocumentChange).decode

# The document before and after a change; None where it was or is not there.
Images = tuple[dict[str, Any] | None, dict[str, Any] | None]


def images_of(change: DocumentChange) -> Images:
    """The document before and after."""
    before = None if change.before == NULL else decode_flat(change.before)
    return before, None if change.op == "delete" else decode_flat(change.after)


def _change_of(data: msgspec.Raw) -> tuple[DocumentChange, Images]:
    change = _decode_change(data)
    return change, images_of(change)


document_changes = OwnRecords(_change_of)
