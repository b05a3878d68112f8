"""Whether a file may be used: it is whole, it is ours or empty, and this program knows its version.

The first look is made without leaving a trace. A file that a log or journal lies beside cannot be read without it, so
there the connection that SQLite has recovered looks, before it writes anything of ours.
"""

import struct
from pathlib import Path
from urllib.parse import quote

import apsw

from headwater.errors import StoreDamaged, StoreForeign, StoreMissing
from headwater.stores.sqlite.connection import APPLICATION_ID, translated
from headwater.stores.sqlite.migrate import refuse_newer

_HEADER_BYTES = 100
_OWN_TABLES = {"hw_meta", "hw_queues", "hw_segments", "hw_cursors"}


def check_place(path: str, *, adopt: bool, create: bool) -> None:
    """Raises when the file at `path` must not be used; nothing is written, and no file is left beside it."""
    file = Path(path)
    with translated(f"opening {path}"):
        empty = file.is_file() and file.stat().st_size == 0
        if empty and not create:
            raise StoreMissing(f"there is no store at {path}: the file is empty")
        if empty or not file.exists():
            _check_room(file, create)
            return
        if not file.is_file():
            raise StoreForeign(f"{path} is not a file")
        if _needs_recovery(file):
            return
        look = apsw.Connection(
            f"file:{quote(str(file))}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            _check_whole(look, file)
            check_contents(look, path, adopt=adopt)
        finally:
            look.close()


def check_contents(connection: apsw.Connection, path: str, *, adopt: bool) -> None:
    """Raises when the tables are another program's, or of a newer version of this one."""
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
            "open it with adopt=True to add Headwater's tables beside them"
        )


def _check_room(file: Path, create: bool) -> None:
    if not create and not file.exists():
        raise StoreMissing(f"there is no store at {file}")
    if not file.parent.is_dir():
        raise StoreMissing(f"there is no folder {file.parent} to make the store in")


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
