"""A copy of the whole store in one file, taken while others go on writing; and what makes it a store of its own.

The copy is another store than the one it was taken of: the log goes on differently from there. It gets an identity of
its own when it is first opened for writing, because one backup may be put back twice. Until then it has none for
readers: what they read of it is in every store that it becomes.
"""

import os
from uuid import uuid4

import apsw

from headwater.errors import InvalidOption
from headwater.stores.sqlite.one_name import check_new_name
from headwater.stores.statements import load_statements
from headwater.stores.tables.identity import IDENTITY_KEY

sql = load_statements(__package__)

BACKUP_KEY = "is_backup"
PAGES_AT_ONCE = 1_000


def write_backup(source: apsw.Connection, path: str) -> None:
    """Copy everything that is committed to a new file at `path`, for its owner alone. One that is there is refused."""
    check_new_name(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise InvalidOption(f"{path} is there already; name a file that is not") from error
    try:
        _copy(source, path)
    except BaseException:
        os.unlink(path)
        raise


def _copy(source: apsw.Connection, path: str) -> None:
    target = apsw.Connection(path)
    try:
        # One read transaction, or the copy would begin anew whenever somebody commits.
        source.execute("BEGIN")
        try:
            with target.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(PAGES_AT_ONCE)
        finally:
            source.execute("COMMIT")
        # A single file: no log lies beside it.
        target.pragma("journal_mode", "delete")
        target.execute(sql.set_meta, (IDENTITY_KEY, str(uuid4())))
        target.execute(sql.set_meta, (BACKUP_KEY, 1))
    finally:
        target.close()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_backup(connection: apsw.Connection) -> bool:
    """Whether this is a backup that nobody has opened for writing yet."""
    return connection.execute(sql.get_meta, (BACKUP_KEY,)).fetchone() is not None


def become_a_store(connection: apsw.Connection) -> None:
    """When this is a backup that is opened for the first time, give it an identity of its own."""
    if not is_backup(connection):
        return
    with connection:
        connection.execute(sql.set_meta, (IDENTITY_KEY, str(uuid4())))
        connection.execute(sql.drop_meta, (BACKUP_KEY,))
