"""What a source of changes is: somebody else's database that tells, in order, what was written to it.

    open(position) ─► read ─► read ─► …      confirm(position): what lies before it is in the log, and may be forgotten

A source tells of every change at least once and always in the same order, with the position after it. Who follows it
keeps the position in the same commit as the changes, so that each is in the log once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from headwater.clock import Timestamp

# `read` is a row as it was when the first copy was made; `resync-required` says that what came before may have a hole.
Kind = Literal["read", "insert", "update", "delete", "truncate", "resync-required"]
Row = Mapping[str, Any]


class Change(msgspec.Struct, frozen=True):
    """One change, as it is the payload of a message.

    `before` is what the source kept of the row as it was, which may be its key alone. `unchanged` names the large
    values that the change did not touch and that the source therefore did not send.
    """

    op: Kind
    table: str = ""
    key: Row | None = None
    before: Row | None = None
    after: Row | None = None
    unchanged: Sequence[str] = ()
    position: str = ""
    reason: str = ""


class Taken(NamedTuple):
    """Changes, when each was committed (None where nobody knows), and where the source stands after them.

    While a first copy is made there is no such place: a copy that was interrupted begins anew.
    """

    changes: Sequence[Change]
    times: Sequence[Timestamp | None]
    position: str
    copying: bool = False


class Lag(msgspec.Struct, frozen=True):
    """How far the log is behind a source. Of what a source does not tell, None."""

    # What was written there since the position that was confirmed last.
    bytes: int | None = None
    # What the source keeps for us and may not delete, and after how much of it it gives up on us.
    kept_bytes: int | None = None
    kept_bytes_max: int | None = None


class Source(Protocol):
    """One stream of changes. Made with its settings, opened once or again after it failed."""

    @property
    def name(self) -> str:
        """What it is called, in metrics and where its position is kept."""
        ...

    @property
    def tables(self) -> Sequence[str]:
        """What it follows, as changes name it."""
        ...

    @property
    def caught_up(self) -> bool:
        """Whether everything was read that had been written there when it was opened."""
        ...

    async def keeps_place(self) -> bool:
        """Whether the source keeps a place under this name, whoever followed it."""
        ...

    async def check(self) -> None:
        """Raises when there is nothing that could be followed. Asked before anything is noted of it."""
        ...

    async def open(self, position: str) -> str:
        """Go on after a position; from '' on with a first copy, if one is wanted, and then with what changes. The
        position where it stands now, '' when a first copy comes before there is one.

        Raises ResyncRequired when what comes after the position is not to be had any more, and SourceUnreachable when
        trying again may help.
        """
        ...

    async def read(self, seconds: float) -> Taken | None:
        """The next changes; None when there were none for so long. A `Taken` without changes moves the position on."""
        ...

    async def confirm(self, position: str) -> None:
        """What lies before the position is in the log."""
        ...

    async def lag(self) -> Lag:
        """How far behind we are."""
        ...

    async def forget(self) -> None:
        """Give up what the source keeps for us, so that it can be opened anew with ''."""
        ...

    async def close(self) -> None:
        """Let go of the connections; the source keeps our place."""
        ...
