"""What a commit did to the log, for those who follow it in the same process."""

from collections.abc import Sequence

import msgspec

from headwater.clock import Timestamp


class Added(msgspec.Struct, frozen=True, gc=False):
    """The records of the segments that a commit added, segment by segment, as `encode_records` made them.

    `rewrote` says that what was on the log before may read otherwise now: records were dropped or given up, a queue was
    deleted or is described anew.
    """

    bodies: Sequence[bytes]
    origin: int
    written_at: Timestamp
    rewrote: bool = False
