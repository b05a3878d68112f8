"""Whether a file may be used: it is whole, it is ours or empty, and this program knows its version.

The first look is made without leaving a trace. A file that a log or journal lies beside cannot be read without it, so
there the connection that SQLite has recovered looks, before it writes anything of ours.
"""

import os
import stat
import struct
import time
from pathlib import Path
from urllib.parse import quote

import apsw

from headwater.errors import StoreDamaged, StoreForeign, StoreMissing
from headwater.stores.bucket_traces import LABEL, LOG, is_entry, is_note
from headwater.stores.sqlite.connection import APPLICATION_ID, SqliteConnection, translated
from headwater.stores.sqlite.migrate import refuse_newer
from headwater.stores.sqlite.one_name import check_names_here, check_new_name

LOOKS = 3
PAUSE_SECONDS = 0.02

_HEADER_BYTES = 100
_OWN_TABLES = {"hw_meta", "hw_queues", "hw_segments", "hw_cursors"}


def check_place(path: str, *, adopt: bool, create: bool) -> None:
    """Raises when the file at `path` must not be used; nothing is written, and no file is left beside it."""
    file = Path(path)
    with translated(f"opening {path}"):
        _refuse_log_of_bucket(path)
        found = _find(file)
        if found is None or (stat.S_ISREG(found.st_mode) and found.st_size == 0):
            _check_room(file, create, exists=found is not None)
        elif not stat.S_ISREG(found.st_mode):
            raise StoreForeign(f"{path} is not a file")
        else:
            check_names_here(path)
            _check_file(file, adopt=adopt)


def _refuse_log_of_bucket(path: str) -> None:
    """The folder stands for a bucket, which has a store of this name. Before its first base that has no file."""
    try:
        names = os.listdir(f"{path}{LOG}")
    except (FileNotFoundError, NotADirectoryError):
        return
    if any(is_entry(name) or is_note(name) for name in names):
        raise _of_bucket(path)


def _of_bucket(path: str) -> StoreForeign:
    return StoreForeign(
        f"{path} belongs to a store in a bucket, whose commits lie in {path}{LOG}: open it as file://{quote(path)}, "
        "or make a file of it with `headwater copy`"
    )


def _find(file: Path) -> os.stat_result | None:
    """What is there, seen once: another process may be making the file at this very moment."""
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _check_file(file: Path, *, adopt: bool) -> None:
    """Raises when the file must not be used, and several looks agree on that: one may fall into another's commit."""
    for _ in range(LOOKS - 1):
        try:
            _look(file, adopt=adopt)
        except (StoreDamaged, StoreForeign, apsw.Error):
            pause()
        else:
            return
    _look(file, adopt=adopt)


def pause() -> None:
    """Give whoever is at work on the file the time to finish."""
    time.sleep(PAUSE_SECONDS)


def _look(file: Path, *, adopt: bool) -> None:
    """Read the file as it lies there, without a lock. With a log or journal beside it, that would tell nothing."""
    if _needs_recovery(file):
        return
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    look = SqliteConnection(f"file:{quote(str(file))}?immutable=1", flags=flags)
    try:
        _check_whole(look, file)
        check_contents(look, str(file), adopt=adopt)
    finally:
        look.close()


def check_contents(connection: SqliteConnection, path: str, *, adopt: bool) -> None:
    """Raises when the tables are another program's, or of a newer version of this one."""
    # By SQLite's own hand. A file that is new is shorter.
    is_whole, header = connection.read("main", 0, 0, _HEADER_BYTES)
    if is_whole and any(header[LABEL]):
        raise _of_bucket(path)
    application = int(str(connection.pragma("application_id")))
    if application not in (0, APPLICATION_ID):
        raise StoreForeign(f"{path} belongs to another program (application_id {application:#x})")
    tables = {str(row[1]) for row in connection.execute("PRAGMA table_list")}
    if tables >= _OWN_TABLES:
        refuse_newer(connection, path)
        return
    foreign = sorted(name for name in tables if not name.startswith("sqlite_"))
    if foreign and not adopt:
        raise StoreForeign(
            f"{path} has tables of another program ({', '.join(foreign[:5])}); "
            "open it with adopt=True (--adopt on the command line) to add Headwater's tables beside them"
        )


def _check_room(file: Path, create: bool, *, exists: bool) -> None:
    if not create:
        raise StoreMissing(f"there is no store at {file}{': the file is empty' if exists else ''}")
    if not file.parent.is_dir():
        raise StoreMissing(f"there is no folder {file.parent} to make the store in")
    check_new_name(str(file))


def _needs_recovery(file: Path) -> bool:
    beside = [Path(f"{file}{suffix}") for suffix in ("-wal", "-journal")]
    return any(other.exists() and other.stat().st_size > 0 for other in beside)


def _check_whole(look: apsw.Connection, file: Path) -> None:
    """A file that is shorter than its header says was cut off."""
    look.execute("PRAGMA schema_version").fetchall()
    found, header = look.read("main", 0, 0, _HEADER_BYTES)
    (pages,) = struct.unpack(">I", header[28:32])
    (page_bytes,) = struct.unpack(">H", header[16:18])
    expected = pages * (65_536 if page_bytes == 1 else page_bytes)
    if not found or file.stat().st_size < expected:
        raise StoreDamaged(f"{file} was cut off: {file.stat().st_size:,} of {expected:,} bytes are there")
