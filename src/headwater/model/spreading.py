"""Messages without a partition: over which lanes they are spread, so that many consumers work at the same time.

A lane is a partition that nobody has named. Within a lane order holds as in any partition; between lanes there is
none. What is decided here depends on nothing but its arguments, so every store and every process decides the same.
"""

import re
from functools import lru_cache
from zlib import crc32

from headwater.errors import InvalidOption
from headwater.model.names import PARTITION_DEFAULT, SYSTEM_PREFIX

# Each priority that is in use has lanes of its own; ten of them are as many as anybody can tell apart.
PRIORITY_MAX = 9
_PRIORITY_PREFIX = f"{PARTITION_DEFAULT}/priority-"
REQUEUED_PREFIX = f"{SYSTEM_PREFIX}requeued/"
_plain_lane = re.compile(rf"{PARTITION_DEFAULT}(?:/[1-9][0-9]{{0,2}})?")
_urgent_requeued = re.compile(rf"{REQUEUED_PREFIX}[0-9]{{1,3}}-([1-{PRIORITY_MAX}])/")
_priority_lane = re.compile(rf"{_PRIORITY_PREFIX}([1-{PRIORITY_MAX}])(?:/[1-9][0-9]{{0,2}})?")


@lru_cache(maxsize=1_024)
def lane_name(lane: int, priority: int = 0) -> str:
    """The name of a lane; the first is the partition that a queue of one lane has."""
    base = f"{_PRIORITY_PREFIX}{priority}" if priority else PARTITION_DEFAULT
    return f"{base}/{lane}" if lane else base


def priority_of(partition: str) -> int:
    """The priority of the messages in a partition: that of the lane it is, 0 for any other."""
    if partition.startswith(_PRIORITY_PREFIX):
        found = _priority_lane.fullmatch(partition)
    elif partition.startswith(REQUEUED_PREFIX):
        found = _urgent_requeued.match(partition)
    else:
        return 0
    return int(found[1]) if found else 0


def is_lane(partition: str) -> bool:
    """Whether a partition is one that nobody has named."""
    return bool(_plain_lane.fullmatch(partition)) or bool(priority_of(partition)) or bool(reader_of(partition))


def check_priority(priority: object, partition: str) -> int:
    """The priority of a message that goes to this partition, '' for none, once it is one that can be kept."""
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidOption(
            f"priority must be a whole number from 0 to {PRIORITY_MAX}, the highest first; got {priority!r:.80}"
        )
    if priority and partition:
        raise InvalidOption(
            f"messages of one partition keep their order, so none can have a priority; got priority {priority} for "
            f"partition {partition!r:.80}: leave the partition out, or the priority"
        )
    return priority


def lane_of_id(transaction_id: str, lanes: int) -> int:
    """The lane of a message with this transaction id: always the same, so that a second push of it is recognised."""
    return crc32(transaction_id.encode("utf-8", "surrogatepass")) % lanes


def requeued_name(group: str, lane: int, priority: int = 0) -> str:
    """The partition for what only this group is to get once more."""
    return f"{REQUEUED_PREFIX}{lane}-{priority}/{group}" if priority else f"{REQUEUED_PREFIX}{lane}/{group}"


def reader_of(partition: str) -> str:
    """The only group that a partition is for; '' when it is for all."""
    if not partition.startswith(REQUEUED_PREFIX):
        return ""
    return partition[len(REQUEUED_PREFIX) :].partition("/")[2]


def deal(count: int, lanes: int, turn: int) -> list[tuple[int, int, int]]:
    """So many messages over as many lanes as there are, from the lane whose turn it is on: (lane, first, end).

    Each lane gets neighbours, as evenly as can be: few lanes for few messages, and one row for each lane.

    >>> deal(5, 3, 1)
    [(1, 0, 2), (2, 2, 4), (0, 4, 5)]
    """
    used = min(count, lanes)
    size, larger = divmod(count, max(used, 1))
    dealt = []
    begin = 0
    for place in range(used):
        end = begin + size + (place < larger)
        dealt.append(((turn + place) % lanes, begin, end))
        begin = end
    return dealt


def share_of(ready: int, sharers: int) -> int:
    """How many of the ready partitions one pop may take while so many, itself among them, want some: at least one."""
    return max(ready // max(sharers, 1), 1)
