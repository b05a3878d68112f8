"""Descriptors for as many connections as a server may take: most systems give a process 1,024 until it asks for more.

A process without a free descriptor takes no connection, says so to nobody, and cannot open a file of its store either.
So `serve` asks for what its connections need, and takes no more of them than there are descriptors for.
"""

import logging
import resource
from typing import NamedTuple

log = logging.getLogger(__name__)

# For the store, its readers, the log and connections that are only told to come back.
OTHERS = 256
_UNLIMITED = resource.RLIM_INFINITY


class Room(NamedTuple):
    """How many descriptors to ask for, and how many connections those are enough for."""

    descriptors: int
    connections: int


def room_for(connections: int, soft: int, hard: int) -> Room:
    """What a process asks for that has `soft` descriptors and may have `hard`."""
    wanted = connections + OTHERS
    if soft == _UNLIMITED or soft >= wanted:
        return Room(soft, connections)
    had = wanted if hard == _UNLIMITED else min(wanted, hard)
    # Of very few, half of them.
    return Room(had, min(connections, max(had - OTHERS, had // 2)))


def make_room(connections: int) -> int:
    """Ask for the descriptors of so many connections; how many of them there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = room_for(connections, soft, hard)
    if room.descriptors != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (room.descriptors, hard))
    if room.connections < connections:
        log.warning(
            "this process may have %d open files, so it takes %d connections and not %d: raise the limit "
            "(ulimit -Hn, LimitNOFILE), or set --connections-max",
            room.descriptors,
            room.connections,
            connections,
        )
    return room.connections
