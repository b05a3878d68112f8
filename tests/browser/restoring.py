"""A store that is put back from a copy while a page is away."""

import asyncio
import shutil
from pathlib import Path

import headwater


def write_backup(path: Path, backup: Path) -> None:
    """A copy of a store, as it is now."""

    async def write() -> None:
        async with headwater.open(str(path), housekeeping=False) as hw:
            await hw.store.backup(str(backup))  # type: ignore[attr-defined]

    asyncio.run(write())


def put_back(backup: Path, path: Path) -> None:
    """The copy in place of a store that nobody has open."""
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    shutil.copy(backup, path)
