"""Ports for servers that must be told theirs before they start.

They lie below those that systems hand out for outgoing connections: from among those, any connection of another test
could take one between the moment it was found free and the moment its server listens, or while a server is down.
"""

import socket
from contextlib import closing
from itertools import islice
from random import SystemRandom

PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port that nobody listens at."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """So many of them, each another."""
    drawn = SystemRandom().sample(PORTS, len(PORTS))
    return list(islice(filter(_is_free, drawn), number))


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
