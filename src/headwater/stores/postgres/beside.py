"""Files of this machine that belong to a store on a server: workers note there what they have started."""

import os
import stat
import tempfile
from pathlib import Path

from headwater.errors import StoreFailed


def place_beside(identity: str) -> str:
    """What names of such files begin with: in a folder that only this user can use, by the store's identity."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"headwater-{os.geteuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be made for the files of workers: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreFailed(
            f"{folder} must be a folder that only its owner, this user, can use: workers keep files there"
        )
    return str(folder / identity)
