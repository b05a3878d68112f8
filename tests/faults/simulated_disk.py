"""A disk that forgets: a VFS over real files that notes every write, and rebuilds what a power cut would have left.

    SQLite ──xWrite──► journal: Write ──xSync, barrier──► journal: Synced ──► Platter: what is safe, what is not yet

The running program sees its files as usual. Afterwards the journal is played back up to any point: what was synced by
then is there, and each write since is kept, dropped or torn by a seed, in any combination. One run of a program gives
as many power cuts as it made writes. The shared memory file is no part of this: it never outlives the machine.
"""

import asyncio
import errno
import os
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw

SECTOR_BYTES = 512
KEPT_ENDINGS = re.compile(r"(-wal|-journal)?$")


class Write(NamedTuple):
    """Bytes that a file got."""

    file: str
    offset: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        """Do to the image what the disk did, or would have done."""
        _put(image, self.offset, self.data)

    def tear(self, image: bytearray, chance: random.Random) -> None:
        """Do it to some sectors only: a beginning, or any of them."""
        pieces = list(self._sectors())
        beginning = chance.random() < 0.5
        kept = chance.randrange(len(pieces) + 1)
        for number, (start, end) in enumerate(pieces):
            if number < kept if beginning else chance.random() < 0.5:
                _put(image, self.offset + start, self.data[start:end])

    def _sectors(self) -> Iterator[tuple[int, int]]:
        """Where the data crosses from one sector of the disk to the next."""
        start = 0
        while start < len(self.data):
            end = min(start + SECTOR_BYTES - (self.offset + start) % SECTOR_BYTES, len(self.data))
            yield start, end
            start = end


class Truncate(NamedTuple):
    """A file that became shorter or longer."""

    file: str
    size: int

    def apply(self, image: bytearray) -> None:
        """Do to the image what the disk did."""
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))

    def tear(self, image: bytearray, chance: random.Random) -> None:
        """A file system changes a size as a whole."""
        if chance.random() < 0.5:
            self.apply(image)


class Delete(NamedTuple):
    """A file that was removed."""

    file: str

    def apply(self, image: bytearray) -> None:
        """A file without content: SQLite treats an empty log or journal like none."""
        image.clear()

    def tear(self, image: bytearray, chance: random.Random) -> None:
        """A name is there or it is not."""
        if chance.random() < 0.5:
            self.apply(image)


class Synced(NamedTuple):
    """Everything that was written to a file before event number `through` is safe."""

    file: str
    through: int


class SyncFailed(NamedTuple):
    """The disk refused what was written to a file before event `through`, and the system takes it for written.

    That is how Linux does it: the next sync succeeds without trying these again. Only writing them anew saves them.
    """

    file: str
    through: int


Change = Write | Truncate | Delete


class Journal:
    """What happened, in order. Notes of the test itself (commits, answers) stand among the writes."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.recording = True
        self.refusals = 0

    def __len__(self) -> int:
        return len(self.events)

    def note(self, event: Any) -> None:
        """Add an event, unless the run is over."""
        if self.recording:
            self.events.append(event)

    def note_refused(self, file: str, through: int) -> None:
        """What was written to `file` before event `through` was tried and given up."""
        self.refusals += 1
        self.note(SyncFailed(file, through))

    def note_synced(self, file: str, through: int) -> None:
        """What was written to `file` before event `through` is safe."""
        self.note(Synced(file, through))


class PowerCutDisk(apsw.VFS):
    """The VFS; connections ask for it by `name`. Files are known by their ending: "" (database), "-wal", "-journal"."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.journal = Journal()
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file that tells the journal."""
        return _File(name, flags, self.journal, self.ending(name))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Remove a file."""
        super().xDelete(filename, syncdir)
        ending = self.ending(filename)
        if ending is not None:
            self.journal.note(Delete(ending))
            if syncdir:
                self.journal.note_synced(ending, len(self.journal))

    def sync_folder(self) -> None:
        """What the store does itself once it is open on a real disk: names that came or went are safe."""
        self.journal.note_synced("-journal", len(self.journal))

    def ending(self, name: str | apsw.URIFilename | None) -> str | None:
        """How the journal calls a file; None for those it does not follow."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or not path.startswith(self.path):
            return None
        ending = path[len(self.path) :]
        return ending if KEPT_ENDINGS.fullmatch(ending) else None


class _File(apsw.VFSFile):
    """A file of the disk."""

    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], journal: Journal, ending: str | None
    ) -> None:
        self._journal = journal
        self._ending = ending
        self._refusals_told = journal.refusals
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write, and note it."""
        if self._ending is not None:
            self._journal.note(Write(self._ending, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        """Change the size, and note it."""
        if self._ending is not None:
            self._journal.note(Truncate(self._ending, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        """Nothing here needs the real disk: only the note. Each open file hears once of what the disk has refused."""
        if self._ending is None:
            return
        self._journal.note_synced(self._ending, len(self._journal))
        if self._ending == "-wal" and self._refusals_told < self._journal.refusals:
            self._refusals_told = self._journal.refusals
            raise apsw.IOError("the disk says no")


class NoBarrier:
    """A barrier that says yes at once: what SQLite itself makes durable is all there is."""

    def wait(self, callers: int) -> asyncio.Future[None]:
        """Done before it began."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def rewrite(self) -> None:
        """Nothing was refused."""

    def close(self) -> None:
        """Nothing to stop."""


class SimulatedBarrier:
    """The store's barrier over the simulated disk: now and then at once, mostly some turns of the event loop later."""

    def __init__(self, path: str, journal: Journal, chance: random.Random, refusals: float) -> None:
        self._path = path
        self._journal = journal
        self._chance = chance
        self._refusals = refusals

    def wait(self, callers: int) -> asyncio.Future[None]:
        """Safe is what was written before this call; told is it only when the disk has answered."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._answer_later(loop, done, len(self._journal), self._chance.choice((0, 1, 3, 8, 20)))
        return done

    def rewrite(self) -> None:
        """Write the whole log once more and sync it: the one way to save what the disk has refused."""
        with open(self._path, "rb") as file:
            self._journal.note(Write("-wal", 0, file.read()))
        self._journal.note_synced("-wal", len(self._journal))

    def close(self) -> None:
        """Nothing to stop."""

    def _answer_later(
        self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], through: int, turns: int
    ) -> None:
        if turns:
            loop.call_soon(self._answer_later, loop, done, through, turns - 1)
            return
        if self._chance.random() < self._refusals:
            self._journal.note_refused("-wal", through)
            done.set_exception(OSError(errno.EIO, "the disk says no"))
        else:
            self._journal.note_synced("-wal", through)
            done.set_result(None)


def barrier_factory(
    disk: PowerCutDisk, chance: random.Random, refusals: float = 0
) -> Callable[[str], SimulatedBarrier]:
    """What `SharedFile(barrier=…)` takes; `refusals` is how likely the disk says no."""
    return lambda wal_path: SimulatedBarrier(wal_path, disk.journal, chance, refusals)


class _FileState:
    """One file while the journal is played back."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.pending: list[tuple[int, Change]] = []
        self.refused: list[Write] = []

    def add(self, number: int, change: Change) -> None:
        """Something was written; what the disk had refused at the same place does not matter any more."""
        self.pending.append((number, change))
        self.refused = [write for write in self.refused if not _covers(change, write)]

    def sync(self, through: int) -> None:
        """Move what was written before event `through` to the safe side."""
        while self.pending and self.pending[0][0] < through:
            self.pending.pop(0)[1].apply(self.safe)

    def fail(self, through: int) -> None:
        """What was written before event `through` will not be tried again."""
        while self.pending and self.pending[0][0] < through:
            change = self.pending.pop(0)[1]
            if isinstance(change, Write):
                self.refused.append(change)
            else:
                change.apply(self.safe)

    def image(self, chance: random.Random) -> bytearray:
        """What is safe, with some of what was refused: the disk may have got a part of it."""
        image = bytearray(self.safe)
        for write in self.refused:
            if chance.random() < 0.3:
                write.apply(image)
        return image


class Platter:
    """The journal played back up to a point; points only go forward."""

    def __init__(self, journal: Journal) -> None:
        self._events = journal.events
        self._files: dict[str, _FileState] = {}
        self.position = 0

    def advance(self, to: int) -> Iterator[Any]:
        """Play back up to event `to`; yields the notes of the test on the way."""
        for number in range(self.position, to):
            event = self._events[number]
            if isinstance(event, Write | Truncate | Delete):
                self._file(event.file).add(number, event)
            elif isinstance(event, Synced):
                self._file(event.file).sync(event.through)
            elif isinstance(event, SyncFailed):
                self._file(event.file).fail(event.through)
            else:
                yield event
        self.position = to

    def cut_power(self, chance: random.Random) -> dict[str, bytes]:
        """The files as they are found when the power is back."""
        fate = chance.choice((_keep_all, _drop_all, _keep_beginning, _any_fate, _any_fate, _any_fate))
        return {ending: fate(state, chance) for ending, state in self._files.items()}

    def unsynced(self) -> int:
        """How many writes a power cut could take away now."""
        return sum(len(state.pending) for state in self._files.values())

    def _file(self, name: str) -> _FileState:
        return self._files.setdefault(name, _FileState())


def restore(files: dict[str, bytes], path: str) -> None:
    """Lay the surviving files down at `path`, for a program to find. Empty logs and journals are left out."""
    for ending, content in files.items():
        if content or not ending:
            with open(path + ending, "wb") as file:
                file.write(content)
        elif os.path.exists(path + ending):
            os.unlink(path + ending)


def _keep_all(state: _FileState, chance: random.Random) -> bytes:
    image = state.image(chance)
    for _, change in state.pending:
        change.apply(image)
    return bytes(image)


def _drop_all(state: _FileState, chance: random.Random) -> bytes:
    return bytes(state.image(chance))


def _keep_beginning(state: _FileState, chance: random.Random) -> bytes:
    """The disk wrote in order and was stopped in the middle of one write."""
    image = state.image(chance)
    kept = chance.randrange(len(state.pending) + 1)
    for _, change in state.pending[:kept]:
        change.apply(image)
    for _, change in state.pending[kept : kept + 1]:
        change.tear(image, chance)
    return bytes(image)


def _any_fate(state: _FileState, chance: random.Random) -> bytes:
    """The disk wrote in any order it liked."""
    image = state.image(chance)
    for _, change in state.pending:
        fate = chance.random()
        if fate < 0.45:
            change.apply(image)
        elif fate < 0.65:
            change.tear(image, chance)
    return bytes(image)


def _covers(change: Change, write: Write) -> bool:
    """Whether nothing of an earlier write is left under a later change."""
    if not isinstance(change, Write):
        return True
    end = change.offset + len(change.data)
    return change.offset <= write.offset and write.offset + len(write.data) <= end


def _put(image: bytearray, offset: int, data: bytes) -> None:
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data
