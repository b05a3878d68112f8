"""Tables of somebody's PostgreSQL database as a source of changes, by logical replication (`pgoutput`).

    first      slot with a snapshot ─► every row as `read`, out of that snapshot ─► what came after it
    later      the slot, from the position in the log on

The server keeps what is behind the position that was confirmed last, so a slot that nobody follows fills its disk:
`lag` tells how much it keeps. Only positions that are in the log are confirmed. So a log that is behind its slot is
one that was put back from an older copy, and what lies between is gone.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import msgspec
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from headwater.capture.contract import Change, Lag, Taken
from headwater.capture.pgoutput import Begin, Commit, Decoder
from headwater.capture.postgres_control import Control, Table, rows_at
from headwater.capture.publication import Publication, faults_of, marks_differ
from headwater.capture.replication import ReplicationLink, parse_lsn, show_lsn
from headwater.clock import Timestamp
from headwater.errors import InvalidOption, ResyncRequired, StoreDamaged

CHANGES_PER_READ = 1_000
# Longer names are cut off by the server.
NAME_LENGTH_MAX = 50
PREFIX = "headwater_"

Result = TypeVar("Result")
_name = re.compile(rf"[a-z0-9_]{{1,{NAME_LENGTH_MAX}}}")


class Position(msgspec.Struct, frozen=True):
    """How far a slot was followed: to the end of a transaction, and so many changes into the one whose commit lies at
    `commit`. `tables` are the numbers of those that were followed, `publication` is that of the publication: another
    one of the same name has another number. `marks` are those of the publication and its tables, as they stood when
    this began. Positions of before have none."""

    system: str
    lsn: int
    commit: int = 0
    changes: int = 0
    tables: dict[str, int] = {}
    publication: int = 0
    marks: dict[str, str] = {}


class PostgresTables:
    """The changes of some tables of one database. `address` is what libpq connects by; the user has REPLICATION, and
    either owns the tables or finds a publication `headwater_NAME` of just these."""

    def __init__(self, address: str, tables: Sequence[str], *, name: str = "", snapshot: bool = True) -> None:
        if isinstance(tables, str) or not tables:
            raise InvalidOption("tables must be a list of names: ['public.orders']")
        self._address = _check_address(address)
        self._names = self._tables = tuple(tables)
        self._snapshot = snapshot
        self.name = _check_name(name or re.sub(r"[^a-z0-9_]", "_", tables[0].rpartition(".")[2].lower()))
        self._slot = self._publication = PREFIX + self.name
        self._control = Control(self._address)
        self._link: ReplicationLink | None = None
        self._forget_the_stream()

    def _forget_the_stream(self) -> None:
        self._decoder = Decoder()
        self._position = Position("", 0)
        self._copy: Iterator[Taken] | None = None
        self._transaction: Begin | None = None
        # Changes of the transaction so far, how far the server has sent, where its log ended when this was opened, and
        # what was confirmed.
        self._counted = self._sent = self._target = self._confirmed = 0

    @property
    def caught_up(self) -> bool:
        """Whether everything was read that had been written when it was opened."""
        is_between = self._copy is None and self._transaction is None
        return is_between and max(self._position.lsn, self._sent) >= self._target

    @property
    def tables(self) -> Sequence[str]:
        """As changes name them, from when it was opened on."""
        return self._tables

    async def keeps_place(self) -> bool:
        """Whether the server has a slot of this name, in this database."""
        return await _in_thread(self._keeps_place)

    async def check(self) -> None:
        """Raises when the server or a table of these names cannot be followed."""
        await _in_thread(self._look_at_tables)

    async def open(self, position: str) -> str:
        """Begin with a first copy, or go on where the log is. What `keeps_place` claimed stays so meanwhile: whoever
        begins at the same time for another log finds the slot, and not that there is none."""
        await self._hang_up()
        self._forget_the_stream()
        await _in_thread(self._open, position)
        return "" if self._copy is not None else _encode(self._position)

    async def read(self, seconds: float) -> Taken | None:
        """The next rows of the first copy, or the next changes."""
        if self._copy is not None:
            copied: Taken | None = await _in_thread(next, self._copy, None)
            if copied is not None:
                return copied
            self._copy = None
            await _in_thread(self._start)
        return await self._read(seconds)

    async def confirm(self, position: str) -> None:
        """Let the server forget what lies before it."""
        self._confirmed = _decode(position).lsn
        if self._link is not None and self._copy is None:
            self._link.confirm(self._confirmed)

    async def lag(self) -> Lag:
        """What the slot has not sent, and what it keeps on the server's disk. Raises when a table that is followed is
        not there any more or the publication was altered: the stream says nothing of that."""
        return await _in_thread(self._lag)

    async def forget(self) -> None:
        """Drop the slot and the publication: the server keeps nothing for us any more."""
        await self.close()
        await _in_thread(self._forget)

    async def close(self) -> None:
        """Let go of the connections; the slot stays."""
        await self._hang_up()
        await _in_thread(self._control.close)

    async def _hang_up(self) -> None:
        self._copy = None
        link, self._link = self._link, None
        if link is not None:
            await _in_thread(link.close)

    # ── the stream ──

    async def _read(self, seconds: float) -> Taken | None:
        assert self._link is not None
        changes: list[Change] = []
        times: list[Timestamp | None] = []
        before = self._position
        arrived = None
        while len(changes) < CHANGES_PER_READ:
            arrived = await self._link.receive(0 if changes else seconds)
            if arrived is None:
                break
            if arrived.message is None:
                self._sent = max(self._sent, arrived.sent)
                if arrived.asks:
                    self._link.confirm(self._confirmed)
                if not changes:
                    break
                continue
            for change, at in self._take(arrived.message):
                changes.append(change)
                times.append(at)
        if not changes and self._transaction is None and self._sent > self._position.lsn:
            # Nothing of ours was in it, so the server need not keep it for us. A transaction that was taken in part is
            # still to come.
            self._position = msgspec.structs.replace(self._position, lsn=self._sent)
        if arrived is None and not changes:
            # Asked for in silence only: each answer would be followed by the next question.
            self._link.confirm(self._confirmed, ask=True)
        if not changes and self._position == before:
            return None
        return Taken(changes, times, _encode(self._position))

    def _take(self, message: bytes) -> Iterator[tuple[Change, Timestamp]]:
        """The changes in a message that are not in the log yet, and when; the position goes on with each."""
        decoded = self._decoder.decode(message)
        if isinstance(decoded, Begin):
            self._transaction, self._counted = decoded, 0
        elif isinstance(decoded, Commit):
            self._transaction = None
            end = max(self._position.lsn, decoded.end_lsn)
            self._position = msgspec.structs.replace(self._position, lsn=end, commit=0, changes=0)
        elif self._transaction is not None:
            commit = self._transaction.commit_lsn
            for change in decoded:
                self._counted += 1
                if self._is_new(commit):
                    self._position = msgspec.structs.replace(self._position, commit=commit, changes=self._counted)
                    if change.table not in self._tables:
                        # It has left this capture, or somebody else has added it to the publication.
                        continue
                    place = f"{show_lsn(commit)}/{self._counted}"
                    yield msgspec.structs.replace(change, position=place), self._transaction.at

    def _is_new(self, commit_lsn: int) -> bool:
        """Whether this change of a transaction is not in the log: the stream begins with what was not confirmed."""
        if commit_lsn == self._position.commit:
            return self._counted > self._position.changes
        return commit_lsn >= self._position.lsn

    # ── on a thread: the slot and the first copy ──

    def _lag(self) -> Lag:
        for table, number in self._position.tables.items():
            if self._control.name_of(number) != table:
                raise ResyncRequired(_is_another(table))
        if self._position.publication:
            self._refuse_another_publication(self._position, self._position.tables)
        return self._control.lag(self._slot)

    def _keeps_place(self) -> bool:
        self._control.claim(self._slot)
        return self._control.find_slot(self._slot) is not None

    def _look_at_tables(self) -> list[Table]:
        self._control.check_server()
        self._control.claim(self._slot)
        return self._control.look_at(self._names)

    def _open(self, position: str) -> None:
        tables = self._look_at_tables()
        self._tables = tuple(table.shown for table in tables)
        if position:
            self._position = self._resume(_decode(position), tables)
        names = {table.number: table.shown for table in tables}
        self._decoder = Decoder({table.shown: table.key for table in tables}, names)
        published = self._control.publish(self._publication, tables)
        self._target = parse_lsn(self._control.flushed())
        self._link = ReplicationLink(self._address)
        if position:
            self._position = _named(self._position, tables, published)
            self._confirmed = self._position.lsn
            self._start()
        else:
            self._begin(tables, published)

    def _refuse_others(self, tables: Sequence[Table], position: Position) -> None:
        """What was written to a table before we published it is not in the stream: of one that took the place of
        another that may be anything. And where none of the tables was followed, this is another capture."""
        if position.tables and position.tables.keys().isdisjoint(_numbers(tables)):
            followed = ", ".join(position.tables)
            raise InvalidOption(f"the capture {self.name} follows {followed}; give this one a name of its own (--name)")
        for table in tables:
            if position.tables.get(table.shown, table.number) != table.number:
                raise ResyncRequired(_is_another(table.shown))

    def _refuse_another_publication(self, position: Position, wanted: Collection[str]) -> None:
        """What was written while there was none, or one that told less, is not in the stream. Tables that join or
        leave are our own doing, also where we died before that was noted."""
        found = self._control.find_publication(self._publication)
        if found is None or position.publication not in (0, found.number):
            raise ResyncRequired(f"the publication {self._publication} was dropped")
        needed = set(wanted).intersection(position.tables or wanted)
        faults = list(faults_of(found, needed, {*wanted, *position.tables}))
        if faults or (position.marks and marks_differ(found, position.marks, needed)):
            reason = "; ".join(faults) or "somebody else has changed it meanwhile"
            raise ResyncRequired(f"the publication {self._publication} was altered: {reason}")

    def _begin(self, tables: Sequence[Table], published: Publication) -> None:
        assert self._link is not None
        slot = self._link.create_slot(self._slot, export=self._snapshot)
        self._position = _named(Position(self._control.identity(), slot.lsn), tables, published)
        self._confirmed = slot.lsn
        if self._snapshot:
            self._copy = self._copies(tables, slot.snapshot)
        else:
            self._start()

    def _resume(self, position: Position, tables: Sequence[Table]) -> Position:
        """The position, if everything since is in the stream."""
        self._refuse_others(tables, position)
        if position.system != self._control.identity():
            raise ResyncRequired("this is another server than the one that was followed")
        slot = self._control.wait_for_slot(self._slot)
        if slot is None:
            raise ResyncRequired(f"the slot {self._slot} is gone from the server")
        if slot.status == "lost":
            raise ResyncRequired(f"the server has given up on the slot {self._slot}: it kept too much for it")
        if parse_lsn(slot.confirmed) > position.lsn:
            raise ResyncRequired(
                f"the slot {self._slot} was followed up to {slot.confirmed}, and the log has {show_lsn(position.lsn)}: "
                "the log was put back from an older copy, or another log follows this slot"
            )
        self._refuse_another_publication(position, _numbers(tables))
        return position

    def _start(self) -> None:
        assert self._link is not None
        self._link.start(self._slot, self._position.lsn, self._publication)
        # Whoever waits only for what was written before need not wait for silence.
        self._link.confirm(self._confirmed, ask=True)

    def _copies(self, tables: Sequence[Table], snapshot: str) -> Iterator[Taken]:
        """Every row as it was when the slot was made, some at a time; then the position from which changes follow."""
        for table, rows in rows_at(self._address, tables, snapshot):
            changes = [
                Change("read", table.shown, {name: row[name] for name in table.key} or None, after=row) for row in rows
            ]
            yield Taken(changes, [None] * len(changes), "", copying=True)
        yield Taken([], [], _encode(self._position))

    def _forget(self) -> None:
        try:
            self._control.claim(self._slot)
            self._control.drop_slot(self._slot)
            self._control.unpublish(self._publication)
        finally:
            self._control.close()


async def _in_thread(work: Callable[..., Result], *arguments: object) -> Result:
    """Whoever is cancelled meanwhile waits for it to end: nothing may be opened behind what closes it."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _numbers(tables: Sequence[Table]) -> dict[str, int]:
    return {table.shown: table.number for table in tables}


def _named(position: Position, tables: Sequence[Table], published: Publication) -> Position:
    return msgspec.structs.replace(
        position, tables=_numbers(tables), publication=published.number, marks=published.marks
    )


def _is_another(table: str) -> str:
    return f"the table {table} is not the one that was followed: it was dropped or renamed"


def _check_address(address: str) -> str:
    try:
        conninfo_to_dict(address)
    except ProgrammingError as error:
        raise InvalidOption(f"the address of the source cannot be read: {error}") from error
    return address


def _check_name(name: str) -> str:
    if not _name.fullmatch(name):
        raise InvalidOption(
            f"the name of a capture of PostgreSQL has 1 to {NAME_LENGTH_MAX} of a-z, 0-9 and _, because its slot is "
            f"called by it; got {name!r:.80}"
        )
    return name


def _encode(position: Position) -> str:
    return msgspec.json.encode(position).decode()


def _decode(text: str) -> Position:
    try:
        return msgspec.json.decode(text, type=Position)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the position of a capture cannot be read: {error}") from error
