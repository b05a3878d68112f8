"""Ports for servers that must be told theirs before they start.

They lie outside those that the system hands out for outgoing connections: from among those, any connection of another
test could take one between the moment it was found free and the moment its server listens, or while a server is down.
"""

import socket
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import SystemRandom

HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
WANTED = 2_000


def free_port() -> int:
    """A port that nobody listens at."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """So many of them, each another."""
    ports = _outside(*_handed_out())
    drawn = SystemRandom().sample(ports, len(ports))
    return list(islice(filter(_is_free, drawn), number))


def _handed_out() -> tuple[int, int]:
    """The first and the last port of outgoing connections, which differ from system to system."""
    if not HANDED_OUT.exists():
        return 32_768, 65_535
    first, last = HANDED_OUT.read_text().split()
    return int(first), int(last)


def _outside(first: int, last: int) -> range:
    """The ports below those, or above them where hardly any are left below; any of them where that is so too."""
    below, above = range(LOWEST, first), range(last + 1, 65_536)
    return next((ports for ports in (below, above) if len(ports) >= WANTED), range(LOWEST, 65_536))


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
