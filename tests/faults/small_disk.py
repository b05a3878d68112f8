"""A real disk that is small enough to fill: a file system in memory, where this process may mount one."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_MIB = 40


@contextmanager
def mounted(folder: Path, size_mib: int = SIZE_MIB) -> Iterator[Path | None]:
    """The folder as a disk of its own; None where nothing may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=700", "tmpfs", str(folder)]
    try:
        ended = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        yield None
        return
    if ended.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all the room that is left."""
    filler = folder / "filler"
    block = bytes(65_536)
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(block) == len(block):
                pass
        except OSError as error:
            # Any other refusal would leave a disk with room, on which nothing is shown.
            if error.errno != errno.ENOSPC:
                raise
    return filler
