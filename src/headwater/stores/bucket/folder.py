"""A bucket on this machine: objects are files of one folder, for tests, demos and machines without an object store.

    create    the bytes are written beside it, synced, and linked to their name: the kernel lets one link win
    replace   the same, renamed over the old version, while a lock of the folder is held; its tag is compared there

A tag is a hash of the bytes, as it is in S3. Processes of one machine may share it; over a network file system neither
links nor locks can be relied on.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from headwater.errors import StoreMissing
from headwater.stores.bucket.objects import Found, Refused, Unsure
from headwater.stores.sqlite.connection import translated

LOCK = ".lock"
PART = ".part"
LOCK_SECONDS = 1.0
LOCK_LOOK_SECONDS = 0.002

Done = TypeVar("Done")


class FolderObjects:
    """The objects of one folder. Keys may have slashes: their folders are made when they are needed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        # Several at a time, as a bucket would take them.
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="headwater-bucket")

    async def get(self, key: str) -> Found | None:
        return await self._do(self._read, key)

    async def head(self, key: str, size: int) -> Found | None:
        found = await self._do(self._read, key)
        return None if found is None else Found(found.data[:size], found.tag)

    def peek(self, key: str, size: int) -> Found | None:
        found = self._read(key)
        return None if found is None else Found(found.data[:size], found.tag)

    async def create(self, key: str, data: bytes) -> str:
        return await self._do(self._create, key, data)

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        return await self._do(self._replace, key, data, tag)

    async def names(self, prefix: str) -> list[str]:
        return await self._do(self._names, prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._do(self._delete, keys)

    def close(self) -> None:
        self._threads.shutdown()

    async def _do(self, work: Callable[..., Done], *arguments: object) -> Done:
        with translated(f"the bucket in {self._folder}"):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _read(self, key: str) -> Found | None:
        try:
            data = (self._folder / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Found(data, _tag(data))

    def _create(self, key: str, data: bytes) -> str:
        path = self._folder / key
        if path.exists():
            raise Refused(key)
        with self._written(path, data) as part:
            try:
                os.link(part, path)
            except FileExistsError:
                raise Refused(key) from None
            _sync_folder(path.parent)
        return _tag(data)

    def _replace(self, key: str, data: bytes, tag: str) -> str:
        path = self._folder / key
        with self._written(path, data) as part, self._locked():
            found = self._read(key)
            if found is None or found.tag != tag:
                raise Refused(key)
            os.rename(part, path)
            _sync_folder(path.parent)
        return _tag(data)

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[Path]:
        """The bytes under a name of their own, on the disk."""
        if not self._folder.is_dir():
            raise StoreMissing(f"there is no folder {self._folder} to keep the store in")
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part = path.with_name(f"{path.name}-{secrets.token_hex(8)}{PART}")
        try:
            with open(part, "xb", opener=_for_owner) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield part
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process, and one thread of it, at a time: each opens the lock for itself."""
        descriptor = os.open(self._folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        """Whoever holds it may be stopped: it is not waited for without end, on one of few threads. Nobody knows then
        how things are, as with a bucket that does not answer."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Unsure(f"another process keeps {self._folder / LOCK} locked") from None
            time.sleep(LOCK_LOOK_SECONDS)

    def _names(self, prefix: str) -> list[str]:
        folder, _, begin = prefix.rpartition("/")
        try:
            names = os.listdir(self._folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        kept = [name for name in names if name.startswith(begin) and not name.endswith(PART) and name != LOCK]
        return sorted(f"{folder}/{name}" if folder else name for name in kept)

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                os.unlink(self._folder / key)


def _tag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
