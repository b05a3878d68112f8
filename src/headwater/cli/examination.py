"""What the doctor looks at: the files, the file system under them, the open store. Nothing that is kept is touched."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.diagnosis import FileFact, PlaceFacts, StoreFacts
from headwater.stores.questions import FindKeyFit, FindLastLsn

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.app import Headwater
    from headwater.model.names import Lsn

MOUNTS = Path("/proc/self/mountinfo")
COMPANIONS = ("", "-wal", "-shm", "-turn", "-reserve")
SEGMENTS_AT_ONCE = 16
UNREADABLE_MAX = 1_000


def is_file(location: str) -> bool:
    """Whether a store lies in a file of this machine."""
    return "://" not in location


def examine_place(location: str) -> PlaceFacts:
    """What the file system says. Files are looked at by name: to open and close one would drop SQLite's locks on it."""
    if not is_file(location):
        return PlaceFacts(location)
    folder = os.path.dirname(location)
    disk = os.statvfs(folder)
    return PlaceFacts(
        location=location,
        files=tuple(_file(location + end) for end in COMPANIONS if os.path.exists(location + end)),
        folder=folder,
        folder_mode=os.stat(folder).st_mode & 0o7777,
        filesystem=filesystem_of(folder, MOUNTS.read_text() if MOUNTS.exists() else ""),
        disk_free_bytes=disk.f_bavail * disk.f_frsize,
    )


def _file(path: str) -> FileFact:
    about = os.stat(path)
    return FileFact(path, about.st_size, about.st_mode & 0o777, about.st_uid)


def filesystem_of(path: str, mounts: str) -> str:
    """The kind of file system that a path is on, '' when the system does not say."""
    real = os.path.realpath(path)
    found, kind = "", ""
    for line in mounts.splitlines():
        fields, _, source = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4])
        # Of two mounts at one point the later one lies on top.
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(found):
            found, kind = point, source.split()[0]
    return kind


async def examine_store(hw: "Headwater") -> StoreFacts:
    """What the open store says of itself."""
    traits, config = hw.store.traits, hw.config
    findings = await hw.store.examine()
    queues = await hw.queues()
    fits = await hw.store.ask(FindKeyFit())
    is_locked = fits is False or not config.encryption_key
    locked = tuple(status.queue for status in queues if status.options.encrypted and is_locked)
    own = {fact.name: fact.value for fact in findings.facts if fact.name in StoreFacts._fields}
    return StoreFacts(
        kind=traits.name,
        engine=traits.engine,
        durable_by=traits.durable_by,
        durability=config.durability.value,
        wakeup="none" if hw.wakeup is None else hw.wakeup.name,
        wal_bytes_max=config.wal_bytes_max,
        last_lsn=await hw.store.ask(FindLastLsn()),
        queues=len(queues),
        damage=tuple(findings.problems),
        cautions=tuple(findings.cautions),
        locked_queues=locked,
        key_fits=fits,
        has_key=bool(config.encryption_key),
        others=tuple((fact.name, fact.value) for fact in findings.facts if fact.name not in own),
        **own,  # type: ignore[arg-type]
    )


class Unreadable(NamedTuple):
    """A segment that cannot be read, and why."""

    lsn: "Lsn"
    reason: str
    is_damaged: bool


async def read_everything(hw: "Headwater", tell: "Callable[[float], None]") -> list[Unreadable]:
    """Read every record, which checks its checksum; the segments that cannot be read."""
    from headwater.errors import EncryptionKeyMissing, StoreDamaged
    from headwater.model.names import Lsn

    found: list[Unreadable] = []
    after, through = Lsn(0), await hw.store.ask(FindLastLsn())
    while after < through and len(found) < UNREADABLE_MAX:
        try:
            segments = await hw.store.read(after, through, SEGMENTS_AT_ONCE)
        except (StoreDamaged, EncryptionKeyMissing):
            unreadable = await _first_unreadable(hw, after, through)
            found.append(unreadable)
            after = unreadable.lsn
            continue
        if not segments:
            break
        after = segments[-1].lsn
        tell(after)
    return found


async def _first_unreadable(hw: "Headwater", after: "Lsn", through: "Lsn") -> Unreadable:
    """The segment at which reading stops; there is one, and LSNs of dropped ones are empty."""
    from headwater.errors import EncryptionKeyMissing, StoreDamaged
    from headwater.model.names import Lsn

    for number in range(after + 1, through + 1):
        try:
            await hw.store.read(Lsn(number - 1), Lsn(number), 1)
        except (StoreDamaged, EncryptionKeyMissing) as error:
            return Unreadable(Lsn(number), str(error), isinstance(error, StoreDamaged))
    return Unreadable(through, "it could be read the second time", is_damaged=False)
