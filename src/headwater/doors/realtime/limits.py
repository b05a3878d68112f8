"""The bounds of the realtime door: how long, how many, how often."""

import math
import os
from collections.abc import Mapping

import msgspec

from headwater.config import ENVIRONMENT_PREFIX, MIB, convert_settings
from headwater.errors import ConfigError

VARIABLE_PREFIX = f"{ENVIRONMENT_PREFIX}REALTIME_"


class RealtimeLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every bound with its default. Each is also a variable: HEADWATER_REALTIME_AUTH_SECONDS."""

    auth_seconds: float = 10.0
    """From connecting to a good token, where the server asks for one."""
    heartbeat_seconds: float = 25.0
    """Between two heartbeats."""
    connections_per_address_max: int = 10_000
    """Connections from one address at once, in each process."""
    connections_per_token_max: int = 10_000
    """Connections with one token at once, in each process."""
    messages_per_second: float = 200.0
    """Of one connection; a faster one is read more slowly. It may send as many at once as in two seconds."""
    messages_per_token_per_second: float = 20_000.0
    """Of all connections with one token, or from one address where nobody has a name; of these, too, as many at once as
    in two seconds."""
    rooms_per_connection_max: int = 100
    """Rooms that one connection may be in at once."""
    subscriptions_per_connection_max: int = 1_000
    """Live queries and streams that one connection may have at once."""
    subscriptions_bytes_per_token_max: int = 512 * MIB
    """What the live queries and streams of all connections with one token may hold, or of an address without one: each
    counts 2 KiB and 26 bytes for each character of its filter, which is about what it takes."""
    filters_cost_per_token_max: int = 200_000
    """What the filters of one token on a collection may cost together, beyond the conditions that they are found by."""
    audit: bool = False
    """Whether it is written down, in the queue `headwater/audit`, who begins and ends to follow what, what could not be
    gone on with, and when too much waits."""
    outboxes_bytes_max: int = 256 * MIB
    """What may wait for all connections together, in each process. From 70 % of it on subscriptions of low priority
    wait; at 90 % those of the slowest connections end, with `resync-required`; below 60 % all is as before."""


def load_limits(environment: Mapping[str, str] | None = None) -> RealtimeLimits:
    """The bounds from `HEADWATER_REALTIME_*` variables."""
    source = os.environ if environment is None else environment
    variables = {name: VARIABLE_PREFIX + name.upper() for name in RealtimeLimits.__struct_fields__}
    found = {name: source[variable] for name, variable in variables.items() if source.get(variable)}
    limits = convert_settings(found, RealtimeLimits)
    for name in variables:
        if name != "audit" and not 0 < getattr(limits, name) < math.inf:
            raise ConfigError(f"{variables[name]} must be above 0; got {getattr(limits, name)!r}")
    return limits
