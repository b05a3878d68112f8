"""A bucket in a folder that remembers everything that was ever put there: each base and each chain is restored from it.

A base that was shipped at some position must be, page for page, what the entries up to that position make of an empty
file; and both must be whole to SQLite.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import apsw

from headwater.stores.bucket.address import Place
from headwater.stores.bucket.entries import Entry, counts, decode
from headwater.stores.bucket.folder import FolderObjects
from headwater.stores.bucket.label import Kind, read_label, unlabelled
from headwater.stores.bucket.objects import Objects

IMAGES_CHECKED = 3


class Witness:
    """What was put under the keys of one folder: all entries, and all versions of what is replaced."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.versions: dict[str, list[bytes]] = {}
        self.restored = 0

    def check(self) -> None:
        """Restore all of it."""
        for key, versions in self.versions.items():
            if key.endswith((".sqlite", ".sqlite-two")):
                self._check_store(key, versions)

    def _check_store(self, key: str, versions: list[bytes]) -> None:
        if read_label(versions[-1], key).kind is not Kind.CHAIN:
            for data in versions[-IMAGES_CHECKED:]:
                self._check_whole(unlabelled(data), key)
            return
        images = dict(self.rebuild(key, {read_label(data, key).position for data in versions}))
        for data in versions:
            position = read_label(data, key).position
            assert images[position] == unlabelled(data), f"the base at {position} is not what its entries make"
            self._check_whole(images[position], key)

    def rebuild(self, key: str, wanted: set[int]) -> Iterator[tuple[int, bytearray]]:
        """The file after the entries up to each of these positions, from an empty one, and at the end."""
        image, tip, epoch, position = bytearray(), 0, 0, 0
        while (data := self.entries.get(f"{key}-log/{position + 1:012d}")) is not None:
            position += 1
            entry: Entry = decode(data, key)
            if counts(entry.header, tip, epoch):
                tip, epoch = entry.header.put_id, entry.header.epoch
                changes = entry.changes()
                if changes is not None:
                    changes.apply(image)
            if position in wanted:
                yield position, as_kept(image)
        self._check_whole(image, key)

    def _check_whole(self, image: bytearray, key: str) -> None:
        self.restored += 1
        if image:
            check_image(bytes(image), key)


def as_kept(image: bytearray) -> bytearray:
    """The bytes as they come out of the bucket again."""
    return unlabelled(bytes(image)) if image else bytearray()


def check_image(image: bytes, name: str) -> None:
    """Raises when SQLite finds anything wrong with a file."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        path = os.path.join(folder, "restored.db")
        with open(path, "wb") as file:
            file.write(image[:18] + b"\x01\x01" + image[20:])
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], name
        finally:
            connection.close()


class WitnessedFolder(FolderObjects):
    """A folder, and who remembers what was put there. Told after it is there: what is refused was not put."""

    def __init__(self, folder: str, witness: Witness) -> None:
        super().__init__(folder)
        self._witness = witness

    async def create(self, key: str, data: bytes) -> str:
        tag = await super().create(key, data)
        if "-log/" in key:
            # A place that was collected may be taken once more, by somebody who slept; that counts for nothing.
            self._witness.entries.setdefault(key, data)
        else:
            self._witness.versions.setdefault(key, []).append(data)
        return tag

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        told = await super().replace(key, data, tag)
        self._witness.versions.setdefault(key, []).append(data)
        return told


@contextmanager
def witnessed() -> Iterator[Witness]:
    """Buckets in folders are watched meanwhile, and what they were given is restored at the end."""
    witness = Witness()

    def open_watched(place: Place) -> Objects:
        return WitnessedFolder(place.bucket, witness)

    with patch("headwater.stores.bucket.store.open_objects", open_watched):
        yield witness
    witness.check()
