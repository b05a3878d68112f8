"""Names of queues, partitions, groups and databases: one alphabet, one length, checked at the service's edge."""

import re
from typing import NewType

from headwater.errors import InvalidName

Lsn = NewType("Lsn", int)
Offset = NewType("Offset", int)
QueueId = NewType("QueueId", int)
PartitionId = NewType("PartitionId", int)
GroupId = NewType("GroupId", int)
Token = NewType("Token", int)

DATABASE_DEFAULT = "main"
PARTITION_DEFAULT = "Default"
GROUP_DEFAULT = "__QUEUE_MODE__"
NAME_LENGTH_MAX = 256

# Groups of streaming queries: they let a lease run out to be given the same records later, so that is no failure.
STREAM_GROUP_PREFIX = "streams."

# Queues whose name begins like this are the program's own: people may read them, not push to them.
SYSTEM_PREFIX = "headwater/"

# Names come again and again; those that were right once need no second look.
_known: set[str] = set()
KNOWN_MAX = 10_000

_allowed = re.compile(r"[A-Za-z0-9._:/-]{1,256}")


def check_name(kind: str, name: object, length_max: int = NAME_LENGTH_MAX) -> str:
    """The name itself when it is one; `kind` says in the error what it was meant for.

    >>> check_name("queue", "orders/eu-1")
    'orders/eu-1'
    """
    if isinstance(name, str) and len(name) <= length_max:
        if name in _known:
            return name
        if _allowed.fullmatch(name):
            if len(_known) < KNOWN_MAX:
                _known.add(name)
            return name
    shown = repr(name)[:80]
    raise InvalidName(f"{kind} name must be 1 to {length_max} characters of A-Z a-z 0-9 . _ : / - ; got {shown}")
