"""What waits in a database of the users' own on its way to the log, and what a drain came to. Values only."""

from typing import NamedTuple

import msgspec


class Staged(NamedTuple):
    """A message or job that waits, as its operation."""

    number: int
    kind: str
    body: str


class Verdicts(msgspec.Struct, frozen=True):
    """What becomes of rows: those that are in the log, and those that can never be, with why."""

    taken: list[int]
    refused: list[tuple[int, str]]


class SetAside(msgspec.Struct, frozen=True):
    """A row that can never be taken as it is. `queue` is "" where the row does not tell."""

    number: int
    kind: str
    queue: str
    error: str


class Left(msgspec.Struct, frozen=True):
    """What a drain left waiting because its queue refuses it for now."""

    database: str
    queue: str
    count: int
    reason: str


class Drained(msgspec.Struct, frozen=True):
    """What one drain did: of several that run at once each tells of its own rows.

    `moved` rows are out of the table and in the log. Of these, `duplicates` were there already by their transaction id
    (or a job by its unique key), so that the log has nothing more. `set_aside` rows can never be taken, `left` ones
    wait on.
    """

    moved: int = 0
    duplicates: int = 0
    set_aside: int = 0
    left: tuple[Left, ...] = ()
