"""What an operator asks of the store as a whole, as data: after a restore, and after damage."""

import msgspec

from headwater.log.operations import Operation
from headwater.model.lane import Lane
from headwater.model.names import Lsn, Offset


class Identified(msgspec.Struct, frozen=True):
    """The identity that the store had, and the one it has."""

    before: str
    identity: str


class RenewIdentity(Operation[Identified], frozen=True, kw_only=True):
    """Give the store a new identity: it was restored, and what others know of its log may not be so any more."""


class GivenUp(msgspec.Struct, frozen=True):
    """The records that were given up; their offsets stay theirs."""

    lsn: Lsn
    lane: Lane
    first_offset: Offset
    count: int


class GiveUpDamaged(Operation[GivenUp], frozen=True, kw_only=True):
    """Give up the records of a segment that cannot be read, so that those behind them are delivered; refused when it
    can be."""

    lsn: Lsn
