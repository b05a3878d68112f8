"""How often somebody may do something: a token bucket as a rule. It fills at a steady rate, each use takes one."""

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """So many a second in the long run, and so many at once."""

    per_second: float
    burst: float


class Level(msgspec.Struct, frozen=True, gc=False):
    """How much was left at a time."""

    left: float
    at: float


def refill(level: Level, rate: Rate, now: float) -> Level:
    """What is left now; a clock that went back brings nothing and takes nothing."""
    gained = max(now - level.at, 0.0) * rate.per_second
    return Level(min(level.left + gained, rate.burst), now)


def wait_seconds(level: Level, rate: Rate) -> float:
    """How long until one more may be taken; 0 when that is now."""
    return max(1.0 - level.left, 0.0) / rate.per_second
