"""A publication as the server has it, and whether everything of some tables is told by it. Nothing here asks anybody.

The server decodes its log by the publication as it stood at each moment. So what was altered in between has left a
hole even where it was undone: every row of the catalog has a number of its own and that of the transaction that wrote
it last, and these are the marks by which a publication is known again.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple


class Member(NamedTuple):
    """A table of a publication. `is_whole` where it has neither a row filter nor a list of columns."""

    mark: str
    is_whole: bool
    is_partitioned: bool


class Publication(NamedTuple):
    """A publication. `is_open` when it is not of some tables by name, but of all or of a schema's; `is_full` when it
    tells every kind of change; `is_by_root` when changes of a partition are told as those of its table; `is_own` when
    it belongs to the user who follows: nobody else's is altered or dropped."""

    number: int
    mark: str
    is_open: bool
    is_full: bool
    is_by_root: bool
    members: Mapping[str, Member]
    is_own: bool = True

    @property
    def marks(self) -> dict[str, str]:
        """Its own mark under '', and those of its tables."""
        return {"": self.mark, **{table: member.mark for table, member in self.members.items()}}


def faults_of(found: Publication, needed: Collection[str], allowed: Collection[str]) -> Iterator[str]:
    """Why a publication does not tell all of the tables that are needed, or tells of others than are allowed."""
    if found.is_open:
        yield "it is FOR ALL TABLES or TABLES IN SCHEMA"
    if not found.is_full:
        yield "it does not publish all of insert, update, delete and truncate"
    if not found.is_by_root and any(member.is_partitioned for member in found.members.values()):
        yield "it publishes partitions by their own names (publish_via_partition_root)"
    for table in sorted(set(needed) - found.members.keys()):
        yield f"it does not have {table}"
    for table in sorted(found.members.keys() - set(allowed)):
        yield f"it has {table}, which nobody asked for"
    for table, member in sorted(found.members.items()):
        if table in needed and not member.is_whole:
            yield f"{table} has a row filter or a list of columns in it"


def marks_differ(found: Publication, kept: Mapping[str, str], needed: Collection[str]) -> bool:
    """Whether the publication, or a table in it that is needed, is not as it was when the marks were kept."""
    return any(found.marks.get(name) != kept.get(name) for name in ("", *needed))
