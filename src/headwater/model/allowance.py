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
    left = level.left
    # Asked twice for every message of a client: comparing costs half as much as `min` and `max` do.
    if now > level.at:
        left += (now - level.at) * rate.per_second
    return Level(left if left < rate.burst else rate.burst, now)


def owed_seconds(level: Level, rate: Rate) -> float:
    """How long until what was taken beyond what was there has come; 0 when there was enough."""
    return 0.0 if level.left >= 0.0 else -level.left / rate.per_second


def wait_seconds(level: Level, rate: Rate) -> float:
    """How long until one more may be taken; 0 when that is now."""
    return 0.0 if level.left >= 1.0 else (1.0 - level.left) / rate.per_second
