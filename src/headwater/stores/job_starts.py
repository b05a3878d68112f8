"""What a worker has started, in a file that outlives it: whoever takes its jobs back can tell what has run.

A job is marked before anything of it runs, and the mark is made where the job runs: in the worker for commands, in its
runners for functions. Memory that is mapped stays when a process is killed, so a mark costs no call of the kernel and
no commit. It does not outlive the machine: a file of an earlier boot says nothing, and then every job that was held
counts as started.

The worker gives each job that it holds a slot for its mark, and no other job gets that before the store has taken what
the job came to: however long one runs, and however many run meanwhile, its mark stays.

Whoever takes the jobs back closes the file first and reads it then; whoever marks looks afterwards whether it was
closed. So a worker that slept through its lease either has marked a job in time, or does not start it.

Functions run where the file is mapped, and may write anything into it. Nothing that stands there is believed where it
would do harm, and the worker puts right what is not as it made it.
"""

import mmap
import os
import signal
import struct
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

_MAGIC = b"hwstart3"
_header = struct.Struct("<8s36sIQ")
_entry = struct.Struct("<qqqq")
_CLOSED_AT = 56
_OPEN, _CLOSED = 0, 1
_PLACE_AT = 96
_PLACE_BYTES = 16
_ENTRIES_AT = 4_096
# A mark that was made on another processor before the file was closed is seen after this long, by far.
_SETTLE_SECONDS = 0.002
WORKER_VARIABLE = "HEADWATER_JOB_WORKER"
# Beside the worker's name, which a worker of another store may have, also one of a copy of this one.
STARTS_VARIABLE = "HEADWATER_JOB_STARTS"


class Left(NamedTuple):
    """What a lost worker had started: jobs by number and token, and commands by process and when that began."""

    started: frozenset[tuple[int, int]]
    processes: dict[int, int]


class JobStarts:
    """The marks of one worker. The worker holds slots and lets them go, whoever starts a job marks it in its slot."""

    def __init__(self, file: int, path: str = "") -> None:
        self.file = file
        self.path = path
        size = os.fstat(file).st_size
        self._page = mmap.mmap(file, size)
        self._entries = _entries_in(size)
        self._free = deque(range(self._entries))
        self._slots: dict[tuple[int, int], int] = {}

    @classmethod
    def make(cls, path: str, jobs_max: int) -> Self:
        """New marks for a worker that holds no more jobs than this. Where there is no place for the file, as on a disk
        that is full, they are kept in memory, and nobody else will know them."""
        return cls._make(path, 1 << (jobs_max * 4 + 1_024).bit_length())

    @classmethod
    def _make(cls, path: str, entries: int) -> Self:
        try:
            return cls(_make_file(path, entries), path)
        except OSError:
            file = os.memfd_create("headwater-starts")
            _fill(file, entries, path)
            return cls(file, path)

    def renew(self, path: str) -> None:
        """Begin anew, after the jobs that were held were taken back."""
        fresh = JobStarts._make(path, self._entries)
        self.close()
        self.file, self._page = fresh.file, fresh._page
        self.let_all_go()

    @property
    def room(self) -> int:
        """How many more jobs can be held."""
        return len(self._free)

    def hold(self, number: int, token: int) -> int:
        """The slot of a job that this worker has, the same one until it is let go."""
        slot = self._slots.get((number, token))
        if slot is None:
            slot = self._slots[number, token] = self._free.popleft()
        return slot

    def let_go(self, number: int, token: int) -> None:
        """The store has taken what a job came to: nobody will ask whether it has started."""
        slot = self._slots.pop((number, token), None)
        if slot is not None:
            self._free.append(slot)

    def let_all_go(self) -> None:
        """Nothing that was held is this worker's any more."""
        self._free = deque(range(self._entries))
        self._slots.clear()

    def mark(self, slot: int, number: int, token: int) -> bool:
        """A job is about to start here; False when it is not this worker's any more."""
        _entry.pack_into(self._page, self._offset(slot), number, token, 0, 0)
        return not self.is_closed()

    def name_process(self, slot: int, number: int, token: int, process: int) -> None:
        """The command that was marked runs as this process."""
        _entry.pack_into(self._page, self._offset(slot), number, token, process, start_of(process))

    def is_marked(self, number: int, token: int) -> bool:
        """Whether a job that is held here was started."""
        slot = self._slots.get((number, token))
        return slot is not None and _entry.unpack_from(self._page, self._offset(slot))[:2] == (number, token)

    def started(self) -> set[tuple[int, int]]:
        """What was started, by number and token."""
        return {entry[:2] for entry in self._found()}

    def is_closed(self) -> bool:
        """Whether somebody has taken the jobs back."""
        return self._page[_CLOSED_AT] == _CLOSED

    def is_intact(self) -> bool:
        """Whether the file begins as it was made, and is as long."""
        place = self._page[_PLACE_AT : _PLACE_AT + _PLACE_BYTES]
        return (
            self._page[: _header.size] == _header_of(self._entries)
            and place == _place(self.path)
            and self._page[_CLOSED_AT] in (_OPEN, _CLOSED)
            and os.fstat(self.file).st_size == len(self._page)
        )

    def repair(self, waiting: Collection[tuple[int, int]]) -> None:
        """Put right a file that somebody has written to: with the marks of all that is held, except of what waits."""
        os.ftruncate(self.file, len(self._page))
        if self._page[_CLOSED_AT] not in (_OPEN, _CLOSED):
            self._page[_CLOSED_AT] = _OPEN
        self._page[_PLACE_AT : _PLACE_AT + _PLACE_BYTES] = _place(self.path)
        for (number, token), slot in self._slots.items():
            marked = _entry.unpack_from(self._page, self._offset(slot))[:2]
            if marked != (number, token) and (number, token) not in waiting:
                self.mark(slot, number, token)
        # Last: until then whoever reads it takes everything for started.
        self._page[: _header.size] = _header_of(self._entries)

    def read(self) -> Left:
        """Close the file, and say what was started."""
        self._page[_CLOSED_AT] = _CLOSED
        time.sleep(_SETTLE_SECONDS)
        found = self._found()
        return Left(
            frozenset((number, token) for number, token, _, _ in found),
            {process: start for _, _, process, start in found if process},
        )

    def close(self) -> None:
        """Let go of the file."""
        self._page.close()
        os.close(self.file)

    def _found(self) -> list[tuple[int, int, int, int]]:
        content = self._page[_ENTRIES_AT : _ENTRIES_AT + self._entries * _entry.size]
        return [entry for entry in _entry.iter_unpack(content) if entry[0]]

    def _offset(self, slot: int) -> int:
        return _ENTRIES_AT + slot % self._entries * _entry.size


def starts_path(store: str, worker: str) -> str:
    """The file of a worker of this store: a worker may be called anything."""
    return f"{store}-starts-{sha256(worker.encode()).hexdigest()[:16]}"


def _entries_in(size: int) -> int:
    """How many entries a file of this size has: what it says itself may be anybody's words, and so may be its end."""
    entries = (size - _ENTRIES_AT) // _entry.size
    if entries < 1:
        raise ValueError(f"a file of {size:,} bytes holds no marks of starts")
    return entries


def _header_of(entries: int) -> bytes:
    return _header.pack(_MAGIC, boot(), entries, 0)


def _make_file(path: str, entries: int) -> int:
    with suppress(FileNotFoundError):
        os.unlink(path)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _fill(file, entries, path)
    except BaseException:
        os.close(file)
        os.unlink(path)
        raise
    return file


def _fill(file: int, entries: int, path: str) -> None:
    # Room on the disk is taken now: a page that cannot be had later would be the end of whoever writes to it.
    os.posix_fallocate(file, 0, _ENTRIES_AT + entries * _entry.size)
    os.pwrite(file, _header_of(entries), 0)
    os.pwrite(file, _place(path), _PLACE_AT)


def read_starts(path: str) -> Left | None:
    """What the worker of this file had started; None when nobody can know. The file is closed, and gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        os.unlink(path)
    place = _place(path)
    try:
        magic, booted, entries, _ = _header.unpack(os.pread(file, _header.size, 0))
        size = os.fstat(file).st_size
    except (OSError, struct.error):
        os.close(file)
        return None
    is_ours = magic == _MAGIC and booted == boot() and os.pread(file, len(place), _PLACE_AT) == place
    if not is_ours or entries < 1 or size != _ENTRIES_AT + entries * _entry.size:
        # Also one that was copied with its folder: what it names belongs to the worker of the other.
        os.close(file)
        return None
    starts = JobStarts(file)
    try:
        return starts.read()
    finally:
        starts.close()


def marks_of(path: str, worker: str) -> dict[str, str]:
    """What names a worker in the environment of what it starts: itself, and the file of its marks, which is its own."""
    return {WORKER_VARIABLE: worker, STARTS_VARIABLE: _place(path).decode()}


def _place(path: str) -> bytes:
    """Names where a file lies, and so its store."""
    return sha256(os.path.realpath(path).encode()).hexdigest()[:_PLACE_BYTES].encode()


def kill_left(path: str, worker: str, left: Left | None) -> int:
    """Kill whatever a lost worker left running, so that no command runs beside its second attempt; how many there were.

    Commands are known by their process, everything else that jobs started by the worker's marks in its environment. So
    a copy of a store, in which the workers of the other seem lost, harms none of them.
    """
    processes = {} if left is None else left.processes
    found = {process for process, start in processes.items() if start and start_of(process) == start}
    for process in found:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)
    marks = {f"{name}={value}".encode() for name, value in marks_of(path, worker).items()}
    marked = {process for process in _processes() if marks <= _environment(process)} - {os.getpid()}
    for process in marked:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return len(found | marked)


def start_of(process: int) -> int:
    """When a process began, in ticks since the machine did: with it a number means one process; 0 when it is gone."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and int(entry.name) > 1]


def _environment(process: int) -> set[bytes]:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


@cache
def boot() -> bytes:
    """What names this run of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
