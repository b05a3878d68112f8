"""What lies under the tables: where the pages of a store are, who may write them, and what makes a commit survive.

    tables   SqliteStore: connections, Writer, answers; the same on every medium
    medium   SharedFile: the user's file, in WAL mode, written by several processes, made durable by `fdatasync`
             others: a scratch file of this process alone, whose commits are kept elsewhere

A store asks its medium to lay out a file, prepares the tables in it while it has the turn, and lets it serve. From then
on the medium sees every commit through SQLite's own hook. One that can lose a race keeps nothing of what has not
landed: its store then lays out a fresh file, and whoever was not answered is applied again.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from headwater.stores.contract import Chore, Fact, Traits
from headwater.stores.sqlite.connection import SqliteConnection
from headwater.stores.sqlite.presence import Presence
from headwater.stores.sqlite.reserve import Reserve
from headwater.wakeups.contract import Wakeup

Result = TypeVar("Result")


class Turn(Protocol):
    """The right to write, held for one transaction."""

    def try_enter(self) -> bool:
        """Take the turn if nobody has it."""
        ...

    async def enter(self) -> None:
        """Wait for the turn. Raises RaceLost when it will not come before the store has recovered."""
        ...

    async def within(self, work: Callable[[], Result]) -> Result:
        """Do this in a turn, the moment that it comes."""
        ...

    def leave(self) -> None:
        """Let the next one in."""
        ...


class Medium(Protocol):
    """Where the pages of a store lie, and what makes a commit survive."""

    # Of the store as a whole: a medium decides what callers may rely on.
    traits: Traits
    presence: Presence
    reserve: Reserve

    @property
    def turn(self) -> Turn:
        """Whose turn it is at the file that was laid out last."""
        ...

    async def lay_out(self) -> None:
        """Make sure that there is a file to open, as new as can be: the user's own, or a fresh one of this process."""
        ...

    def connect(self, cache_bytes: int) -> SqliteConnection:
        """One more connection to that file."""
        ...

    def preparing(self, connection: SqliteConnection) -> AbstractAsyncContextManager[None]:
        """The turn to bring the tables up to date, through the connection that will commit. By then the file is known
        to be ours, and its journal is set; what is written counts like any other commit."""
        ...

    def serve(self, connection: SqliteConnection) -> None:
        """The tables are up to date: from now on commits come through this connection."""
        ...

    def make_way(self) -> bool:
        """Opening failed, perhaps for want of room: whether some was found for another try."""
        ...

    def make_durable(self, callers: int) -> asyncio.Future[None] | None:
        """As `Store.make_durable`; fails with RaceLost when nothing stands of what has not landed yet."""
        ...

    def landed(self) -> asyncio.Future[None] | None:
        """As `Store.landed`."""
        ...

    async def recover(self) -> bool:
        """After `make_durable` failed: True when what was applied stands after all, False when the store must lay out
        and open anew."""
        ...

    def wakeup(self, changed: Callable[[], bool]) -> Wakeup:
        """How to learn of others' commits; `changed` looks whether there was one."""
        ...

    def chores(self) -> Sequence[Chore]:
        """What the file needs again and again."""
        ...

    async def has_room(self) -> bool:
        """As `Store.has_room`."""
        ...

    async def examine(self) -> list[Fact]:
        """What is to be known about the file, beside its tables."""
        ...

    def stop(self) -> None:
        """Before it is closed: whatever lays out waits for nothing any more."""
        ...

    async def close(self, let_go: Callable[[], None]) -> None:
        """Stop serving. `let_go` closes the store's own connections and may take a while: it belongs in a thread."""
        ...
