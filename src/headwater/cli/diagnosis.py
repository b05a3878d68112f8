"""What the doctor makes of what was found: facts in, problems with their remedies out. No disk, no database."""

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headwater.cli.output import plural, show_bytes
from headwater.errors import HeadwaterError
from headwater.stores.bucket.address import RESERVE_BYTES

# fmt: off
NETWORK_FILESYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "fuse.cephfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs",
})
# fmt: on
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})
FREE_SHARE_MAX = 0.5
FREE_BYTES_MAX = 64 * 1_048_576
PINNED_PAGES_MAX = 1_000
FILE_MODE = 0o600


class FileFact(NamedTuple):
    """One file of the store."""

    path: str
    bytes: int
    mode: int
    owner: int


class PlaceFacts(NamedTuple):
    """What the file system says, without opening anything."""

    location: str
    files: tuple[FileFact, ...] = ()
    folder: str = ""
    folder_mode: int = 0o700
    filesystem: str = ""
    disk_free_bytes: int | None = None


class StoreFacts(NamedTuple):
    """What the open store says of itself."""

    kind: str
    engine: str
    durable_by: str
    durability: str
    wakeup: str
    wal_bytes_max: int
    last_lsn: int
    queues: int
    damage: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    locked_queues: tuple[str, ...] = ()
    # Whether the key that is set is the store's; None where nobody can know, or nothing is encrypted.
    key_fits: bool | None = None
    has_key: bool = False
    # What a store may have, and how it is called there; facts that have no line here are among the others.
    schema_version: int = 0
    identity: str = ""
    pages: int = 0
    page_bytes: int = 0
    free_pages: int = 0
    auto_vacuum: str = ""
    journal_mode: str = ""
    wal_bytes: int = 0
    wal_pinned_pages: int = 0
    others: tuple[tuple[str, str | int], ...] = ()


class Problem(NamedTuple):
    """Something that is wrong, and what to do about it."""

    code: str
    message: str
    remedy: str


def judge(place: PlaceFacts, store: StoreFacts | None) -> list[Problem]:
    """Everything that is wrong with a store, the worst first."""
    found = [*_judge_filesystem(place), *_judge_files(place)]
    if store is None:
        return found
    cautions = [Problem("server", caution, "see to the server; nothing is damaged") for caution in store.cautions]
    return [*_judge_damage(place, store), *cautions, *found, *_judge_space(place, store), *_judge_settings(store)]


def judge_error(error: HeadwaterError, location: str) -> Problem:
    """Why the store cannot be opened, and what to do about it."""
    scheme = location.partition("://")[0] if "://" in location else ""
    if not scheme:
        remedies, otherwise = _file_remedies(location), FILE_REMEDY
    elif scheme.startswith("postgres"):
        remedies, otherwise = SERVER_REMEDIES, SERVER_REMEDY
    else:
        remedies, otherwise = BUCKET_REMEDIES, BUCKET_REMEDY
    return Problem(error.code, str(error), (ANY_REMEDIES | remedies).get(error.code, otherwise))


ANY_REMEDIES = {
    "store_newer": "install the newer Headwater that wrote it",
    "store_busy": "wait for the program that writes, or end it, then ask again",
}
FILE_REMEDY = "look at the rights of the file and its folder, and at the space left on the disk"
SERVER_REMEDIES = {
    "store_older": "as the owner of the store, with this version: `headwater doctor --store postgresql://owner@…`",
    "store_damaged": "look at the server's own log, then put back a backup of its database",
    "store_foreign": "name another schema (`?schema=…`), or open this one once with --adopt",
    "store_replaced": "use the store that it names, with --store or HEADWATER_STORE; if none, put back a backup",
    "store_full": "free space on the server's disk",
}
SERVER_REMEDY = (
    "look at the address and whether the server runs; what a role needs is printed by `headwater store grants ROLE`, "
    "run as the owner of the store"
)
BUCKET_REMEDIES = {
    "store_damaged": "keep a copy of the objects, then put back a backup",
    "store_foreign": "name another place in the bucket with --store",
    "store_replaced": "use the store that it names, with --store or HEADWATER_STORE; if none, put the objects back",
}
BUCKET_REMEDY = "look at the address, and whether the credentials may list, read, write and delete there"


def _file_remedies(location: str) -> dict[str, str]:
    return {
        "store_damaged": f"keep a copy of {location}, then put back a backup, or save what can be read with `.recover` "
        "of the sqlite3 program",
        "store_foreign": "name another file with --store, or open this one once in Python with adopt=True",
        "store_linked": f"use one name for it everywhere; find other names with find / -xdev -samefile {location}",
        "store_replaced": "use the store that it names, with --store or HEADWATER_STORE; if none, put the file back",
    }


def _judge_damage(place: PlaceFacts, store: StoreFacts) -> Iterator[Problem]:
    for damage in store.damage:
        remedy = "stop writing, keep a copy, then put back a backup"
        if place.folder:
            remedy += " or save what can be read with `.recover` of sqlite3"
        if damage.startswith("LSN "):
            remedy = "keep a copy, then put back a backup, or pass it over with `headwater store give-up-damaged`"
        yield Problem("damaged", damage, remedy)


def _judge_filesystem(place: PlaceFacts) -> Iterator[Problem]:
    if place.filesystem in NETWORK_FILESYSTEMS:
        message = f"{place.folder} is on a network file system ({place.filesystem}), where locks cannot be trusted"
        yield Problem("network_filesystem", message, "move the store to a disk of this machine")
    if place.filesystem in MEMORY_FILESYSTEMS:
        message = f"{place.folder} is in memory ({place.filesystem}): a restart of the machine loses everything"
        yield Problem("memory_filesystem", message, "move the store to a disk")


def _judge_files(place: PlaceFacts) -> Iterator[Problem]:
    open_files = [file for file in place.files if file.mode & 0o077]
    if open_files:
        named = ", ".join(f"{os.path.basename(file.path)} ({file.mode:04o})" for file in open_files)
        paths = " ".join(file.path for file in open_files)
        yield Problem("permissions", f"others may read or write: {named}", f"chmod {FILE_MODE:o} {paths}")
    if len({file.owner for file in place.files}) > 1:
        owner = place.files[0].owner
        strangers = " ".join(file.path for file in place.files if file.owner != owner)
        message = "the files of the store have different owners: one of them may not be able to open it"
        yield Problem("owners", message, f"chown {owner} {strangers}")
    if place.folder_mode & 0o022 and not place.folder_mode & 0o1000:
        message = f"others may replace the store: {place.folder} is writable by them ({place.folder_mode & 0o7777:04o})"
        yield Problem("folder_permissions", message, f"chmod go-w {place.folder}")


def _judge_space(place: PlaceFacts, store: StoreFacts) -> Iterator[Problem]:
    if place.disk_free_bytes is not None and place.disk_free_bytes < 2 * store.wal_bytes_max:
        message = (
            f"only {show_bytes(place.disk_free_bytes)} are left on the disk; pushes will be refused when it is full"
        )
        yield Problem("disk_nearly_full", message, "free space, or shorten retention with `headwater queues configure`")
    yield from _judge_cap(dict(store.others))
    if store.wal_pinned_pages > PINNED_PAGES_MAX:
        message = f"a reader pins {plural(store.wal_pinned_pages, 'page')} of the write-ahead log, which cannot shrink"
        yield Problem("wal_pinned", message, "end the program that keeps an old read transaction open on the file")
    elif store.wal_bytes > 2 * store.wal_bytes_max:
        message = f"the write-ahead log has {show_bytes(store.wal_bytes)}, over {show_bytes(store.wal_bytes_max)}"
        yield Problem("wal_large", message, "let one `headwater serve` run: its checkpoints make the log start over")
    if store.auto_vacuum == "none":
        message = "auto_vacuum is off: space of dropped records is used again but never given back to the disk"
        remedy = "with nobody on the file, in sqlite3: `PRAGMA auto_vacuum = INCREMENTAL; VACUUM;`"
        yield Problem("auto_vacuum", message, remedy)
    free_bytes = store.free_pages * store.page_bytes
    if free_bytes > FREE_BYTES_MAX and store.free_pages > FREE_SHARE_MAX * store.pages:
        message = f"{show_bytes(free_bytes)} of the file are unused"
        yield Problem("free_pages", message, "let one `headwater serve` run: it gives unused pages back bit by bit")


def _judge_cap(facts: Mapping[str, str | int]) -> Iterator[Problem]:
    """Of a store that has a cap: how near it is, or that it was lowered below what is there."""
    used, most = int(facts.get("bucket_used_bytes", 0)), int(facts.get("bucket_bytes_max", 0))
    if most and used > most - RESERVE_BYTES:
        kept = f"the last {show_bytes(RESERVE_BYTES)} of which are kept for what drops records"
        message = f"{show_bytes(used)} are used of a bytes_max of {show_bytes(most)}, {kept}: pushes are refused"
        yield Problem("bytes_max", message, "drop records, or open it everywhere with a larger bytes_max")


def _judge_settings(store: StoreFacts) -> Iterator[Problem]:
    if store.locked_queues or store.key_fits is False:
        named = ", ".join(store.locked_queues) or "those of other databases"
        what = "the key that is set is not that of" if store.has_key else "no key is set for"
        remedy = "set HEADWATER_ENCRYPTION_KEY to the key they were made with"
        yield Problem("encryption_key", f"{what} encrypted queues: {named}", remedy)
    if store.durability != "synced":
        message = f"durability is {store.durability}: what was answered may be lost in a power cut"
        yield Problem("durability", message, "unset HEADWATER_DURABILITY, or set it to synced")
