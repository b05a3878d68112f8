"""What an archive or an export holds: its files with their LSN ranges and checksums, and how far each queue is in it.

    stage the files → move them to their places → write the manifest, whole and atomically

The manifest is written last. A file that it does not name is not there, whatever became of the run that wrote it; so a
run that dies leaves nothing half-visible, and the next one goes on from what the manifest says.

The folder is also a plain data set: what is no data begins with `_` or `.`, where readers of folders do not look.
"""

import errno
import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.errors import ArchiveDamaged, ArchiveFull, FlowError, FlowOvertaken, SourceUnfit
from headwater.stores.log_reader import Fingerprint

NAME = "_manifest.json"
# Where folders of older versions have it; readers of whole folders took it for data.
OLD_NAME = "manifest.json"
LOCK = ".lock"
STAGING = ".staging"
FORMAT = 1
CHUNK_BYTES = 1 << 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Entry(msgspec.Struct, frozen=True):
    """One file: records of one queue and one day, with LSNs from `first_lsn` to `last_lsn`."""

    path: str
    queue: str
    day: str
    first_lsn: int
    last_lsn: int
    records: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of `queues` up to the LSN beside each is in `entries`.

    `ends` has the next offset of every partition, by its number: where the next file must go on; `partitions` when each
    was made, which tells it from one of another store. `lost` counts, by queue, records that retention dropped before
    they could be written here.

    `identity` is that of the store whose `database` this is, `numbers` has those of its queues, `seen` the segment that
    the store's log had at the end of what was written; those of older versions have none of these (`belonging.py`).
    """

    format: int = FORMAT
    id: str
    kind: str
    store: str
    identity: str = ""
    database: str
    numbers: dict[str, int] = {}
    seen: Fingerprint | None = None
    about: dict[str, str] = {}
    queues: dict[str, int] = {}
    ends: dict[int, int] = {}
    partitions: dict[int, int] = {}
    lost: dict[str, int] = {}
    quarantined: int = 0
    entries: tuple[Entry, ...] = ()


class _Sealed(msgspec.Struct, frozen=True):
    """The manifest as its file has it, under its own checksum."""

    manifest: msgspec.Raw
    sha256: str


def new_manifest(kind: str, store: str, database: str, about: dict[str, str] | None = None) -> Manifest:
    """An empty manifest with an id of its own."""
    return Manifest(id=uuid.uuid4().hex, kind=kind, store=store, database=database, about=about or {})


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, None when there is none; one that is damaged is an error."""
    for name in (NAME, OLD_NAME):
        text = _read(folder / name)
        if text is not None:
            return _unseal(folder / name, text)
    return None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceUnfit(f"{path} cannot be read: {error.strerror}") from error


def _unseal(path: Path, text: bytes) -> Manifest:
    try:
        sealed = msgspec.json.decode(text, type=_Sealed)
        manifest = msgspec.json.decode(sealed.manifest, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ArchiveDamaged(f"{path} is damaged: {error}") from error
    if hashlib.sha256(sealed.manifest).hexdigest() != sealed.sha256:
        raise ArchiveDamaged(f"{path} is damaged: its checksum does not match")
    if manifest.format != FORMAT:
        raise SourceUnfit(f"{path} has format {manifest.format}; this Headwater reads format {FORMAT}: upgrade it")
    return manifest


def need_manifest(folder: Path, kind: str) -> Manifest:
    """The manifest of a folder that must have one."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise SourceUnfit(f"{folder} is no {kind}: it has no {NAME}")
    if manifest.kind != kind:
        raise SourceUnfit(f"{folder} holds something else than what is asked for: {manifest.kind}, not {kind}")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a folder: afterwards it is the new one, or it is still the old one.

    The one of an older version goes after the new one is there: the new one is read first.
    """
    body = msgspec.json.encode(manifest)
    sealed = _Sealed(msgspec.Raw(body), hashlib.sha256(body).hexdigest())
    replace_file(folder / NAME, msgspec.json.encode(sealed))
    (folder / OLD_NAME).unlink(missing_ok=True)


def replace_file(path: Path, body: bytes) -> None:
    """Write a file so that others see the old one or the whole new one, also after a power cut."""
    part = path.with_name(f"{path.name}.part")
    with telling_full(path.parent):
        with open(part, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)


@contextmanager
def telling_full(folder: Path) -> Iterator[None]:
    """A full disk as an error of its own."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise ArchiveFull(
                f"no space is left in {folder}: {error.strerror}; free some and run this again"
            ) from error
        raise


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The right to change a folder, which one run has at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SourceUnfit(f"{folder} cannot be written to: {error.strerror}") from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """The right that nobody changes a folder meanwhile; several may have it.

    One that was never written to here, or may not be, has no lock, and is read as it is.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _lock(descriptor, folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, kind: int = fcntl.LOCK_EX) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FlowOvertaken(f"another run works on {folder}; wait for its end") from error


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def verify(folder: Path, entry: Entry) -> None:
    """Raises, with the file's name, unless a file is what the manifest says."""
    path = folder / entry.path
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            raise ArchiveDamaged(f"{path} has {size:,} bytes; its manifest says {entry.bytes:,}")
        if digest(path) != entry.sha256:
            raise ArchiveDamaged(f"{path} is damaged: its checksum does not match")
    except OSError as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error.strerror}") from error


def put_in_place(staged: Path, folder: Path, relative: str) -> None:
    """Move a finished file to its place, for good.

    A folder that was moved away since it was taken has no lock any more. What went there before would be missing from
    what would be made anew in its place, and named in its manifest.
    """
    target = folder / relative
    if not (folder / LOCK).exists():
        raise FlowError(
            f"{folder} was moved away or replaced while it was written to; nothing of this step was kept: put it back, "
            "and run this again"
        )
    with telling_full(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        sync_file(staged)
        os.replace(staged, target)
        sync_folder(target.parent)


def begin_manifest(folder: Path, manifest: Manifest, patterns: Sequence[str]) -> None:
    """Write the first manifest of a folder, before any file.

    So files without a manifest are never those of a run that died: somebody lost it, and to clear them away would be to
    lose them too.
    """
    files = _files_like_ours(folder, patterns)
    if files:
        raise SourceUnfit(
            f"{folder} has files such as {files[0].relative_to(folder)} and no {NAME}: "
            "put that back, or choose another folder"
        )
    write_manifest(folder, manifest)


def resume_manifest(folder: Path, kind: str, patterns: Sequence[str]) -> Manifest | None:
    """The manifest of a folder that holds anything; None when there is none, or only that of a run that got nowhere.

    A first run that failed must not decide what the folder is for.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest.kind != kind or manifest.entries or manifest.queues:
        return manifest
    remove_strangers(folder, manifest, patterns)
    for name in (NAME, OLD_NAME):
        (folder / name).unlink(missing_ok=True)
    return None


def remove_strangers(folder: Path, manifest: Manifest, patterns: Sequence[str]) -> None:
    """Remove what runs that died have left: files like ours that the manifest does not name."""
    named = {entry.path for entry in manifest.entries}
    for path in _files_like_ours(folder, patterns):
        if str(path.relative_to(folder)) not in named:
            path.unlink()
            _drop_empty(path.parent, folder)


def _drop_empty(below: Path, folder: Path) -> None:
    """A folder of ours that holds nothing any more goes, too."""
    while below != folder and not any(below.iterdir()):
        below.rmdir()
        below = below.parent


def _files_like_ours(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    sync_file(path)
