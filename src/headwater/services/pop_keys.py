"""What waiting pops (`intentions.py`) have in common when one look at the store can serve them all."""

from typing import NamedTuple

from headwater.log.operations import Pop
from headwater.model.lane import Lane
from headwater.model.selection import ANY, Selection


class Key(NamedTuple):
    """What intentions must have in common to be served together. A tuple: no two selections can look alike."""

    database: str
    queue: str
    partition: str
    namespace: str
    task: str
    group: str


def selection_of(key: Key) -> Selection:
    """What a key follows: its queue, or all queues when it names none."""
    return Selection(key.database, (key.queue or ANY,), (key.partition,) if key.partition else ())


def is_wanted(key: Key, lane: Lane) -> bool:
    """Whether a key that names no queue could want something of a partition."""
    return key.namespace in ("", lane.namespace) and key.task in ("", lane.task)


def key_of(operation: Pop) -> Key:
    """The line that a pop belongs to."""
    return Key(
        operation.database,
        operation.queue,
        operation.partition,
        operation.namespace,
        operation.task,
        operation.group,
    )
