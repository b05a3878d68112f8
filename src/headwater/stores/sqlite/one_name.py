"""A file that is open has one name: what lies beside it goes by that name.

SQLite keeps its write-ahead log and its locks in `NAME-wal` and `NAME-shm`, and our turnstile is `NAME-turn`. Who opens
the same file under another name has other ones: neither sees what the other commits, and both write over it. A second
name can be a hard link, or a file that was bound to another place, as containers do. Links by name (symlinks) and links
to folders lead to the same files beside it, and do no harm.

A hard link is seen by its count. For the rest the locks are asked: everybody who has a file in WAL mode open holds a
lock on the file, which belongs to the file, and one on `NAME-shm`, which belongs to the name. Where others hold the
first, and nobody the second, they came by another name. A descriptor of this process on the file must never be closed,
because that would give up the locks that SQLite holds: so SQLite's own is asked.
"""

import fcntl
import os
import struct
import time

from headwater.errors import InvalidOption, StoreLinked

LOOKS = 25
PAUSE_SECONDS = 0.02

# Where SQLite's locks are: https://www.sqlite.org/src/file/src/os.h and os_unix.c.
_SHARED_FIRST, _SHARED_BYTES = 0x40000000 + 2, 510
_SHM_OPEN = 128
_FLOCK = "hhqqi4x"
_DESCRIPTORS = "/proc/self/fd"

# What goes by the name of a store, its own and SQLite's.
BESIDE = ("-wal", "-shm", "-journal", "-turn", "-reserve")

_Place = tuple[int, int]

# Files that this process has open through apsw, by their real paths: how often, and which file that is.
_open_files: dict[str, tuple[int, _Place | None]] = {}


def check_new_name(path: str) -> None:
    """Raises for the name of a new store that is that of a file beside another one: whoever opens that one would write
    over it, or drop it."""
    for suffix in BESIDE:
        if path.endswith(suffix):
            raise InvalidOption(
                f"{path} is how a file beside the store {path.removesuffix(suffix)} is called; "
                "choose a name with another ending"
            )


def open_files() -> list[str]:
    """The files that this process has open, by their real path."""
    return list(_open_files)


def note_open(path: str, count: int) -> None:
    """A store on this file was opened (1) or closed (-1)."""
    real = os.path.realpath(path)
    before, place = _open_files.pop(real, (0, None))
    if before + count > 0:
        _open_files[real] = before + count, _place_of(real) if count > 0 else place


def check_links(path: str) -> None:
    """Raises when the file has more names than one."""
    try:
        links = os.stat(path).st_nlink
    except OSError:
        return
    if links > 1:
        others = links - 1
        raise StoreLinked(
            f"{path} has {others} more {'name' if others == 1 else 'names'} (hard links), and what is written under "
            "one is lost to the others; remove them (find them with: find / -xdev -samefile FILE), or make a copy with "
            "headwater store backup"
        )


def check_names_here(path: str) -> None:
    """Raises when the file has other names, or this process has it open by another one."""
    check_links(path)
    real = os.path.realpath(path)
    place = _place_of(real)
    here = [name for name, (_, theirs) in _open_files.items() if theirs == place and name != real]
    if here and place is not None:
        raise _opened_elsewhere(path, f"this process, as {here[0]}")


def check_one_name(path: str) -> None:
    """Raises when the file has other names, or somebody has it open by another one. It was just opened by this one."""
    check_names_here(path)
    real = os.path.realpath(path)
    place = _place_of(real)
    if place is None:
        return
    for _ in range(LOOKS):
        if not (_is_locked_by_others(place, _SHARED_FIRST, _SHARED_BYTES) and _is_in_wal_mode(real)):
            return
        beside = _place_of(f"{real}-shm")
        if beside is not None and _is_locked_by_others(beside, _SHM_OPEN, 1):
            return
        # They may be about to open what lies beside it.
        time.sleep(PAUSE_SECONDS)
    raise _opened_elsewhere(path, "another program")


def _opened_elsewhere(path: str, whom: str) -> StoreLinked:
    return StoreLinked(
        f"{path} is open under another name in {whom}, and what is written under one is lost to the other; use one "
        "name for it everywhere: where the file alone was bound to another place (as in a container), bind its folder"
    )


def _place_of(path: str) -> _Place | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_in_wal_mode(path: str) -> bool:
    """By the header. It is read through SQLite's own descriptor as well."""
    place = _place_of(path)
    descriptor = None if place is None else _descriptor_on(place)
    return descriptor is not None and os.pread(descriptor, 2, 18) == b"\x02\x02"


def _is_locked_by_others(place: _Place, start: int, length: int) -> bool:
    """Whether another process holds a lock there. False when nobody can say: no descriptor, no such system."""
    descriptor = _descriptor_on(place)
    if descriptor is None:
        return False
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    try:
        kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return False
    return bool(kind != fcntl.F_UNLCK)


def _descriptor_on(place: _Place) -> int | None:
    """A descriptor that this process, that is SQLite, has on a file."""
    try:
        numbers = [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:
        return None
    for number in numbers:
        try:
            found = os.fstat(number)
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == place:
            return number
    return None
