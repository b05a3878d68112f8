"""How full something is that others fill: calm, soft, hard, and calm again only when it is well below (S3-20)."""

from enum import IntEnum

SOFT = 0.7
HARD = 0.9
RECOVERED = 0.6


class Pressure(IntEnum):
    """How much is done about it: nothing; what is optional waits; what is too much is given up, and said so."""

    CALM = 0
    SOFT = 1
    HARD = 2


def next_pressure(now: Pressure, filled: float) -> Pressure:
    """The pressure at a share of what there is room for. It does not fall before it is below the last mark."""
    if filled >= HARD:
        return Pressure.HARD
    if filled < RECOVERED:
        return Pressure.CALM
    return max(now, Pressure.SOFT) if filled >= SOFT else now
