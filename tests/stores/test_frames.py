"""The pages that commits change, read from the write-ahead log: with them, a copy of the file becomes the file."""

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headwater.errors import StoreFailed
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges, WalFrames


class Scene:
    """A database in WAL mode, and what its commits changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("auto_vacuum", 2)
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("wal_autocheckpoint", 0)
        self.connection.set_wal_hook(self.committed)
        self.frames = WalFrames(f"{path}-wal")
        self.commits: list[PageChanges] = []
        self.connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, value BLOB)")

    def committed(self, connection: apsw.Connection, schema: str, frames: int) -> int:
        self.commits.append(self.frames.take(frames))
        return apsw.SQLITE_OK

    def put(self, number: int, size: int) -> None:
        self.connection.execute("INSERT OR REPLACE INTO items VALUES (?, ?)", (number, bytes([number % 256]) * size))

    def rows(self) -> list[tuple[int, bytes]]:
        return list(self.connection.execute("SELECT * FROM items ORDER BY id"))

    def rebuilt(self) -> list[tuple[int, bytes]]:
        """The rows of a file that has nothing but the changes."""
        image = bytearray()
        for changes in self.commits:
            changes.apply(image)
        copy = self.path.with_name("copy.db")
        copy.write_bytes(image)
        connection = apsw.Connection(str(copy))
        try:
            assert connection.pragma("integrity_check") == "ok"
            return list(connection.execute("SELECT * FROM items ORDER BY id"))
        finally:
            connection.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "store.db")
    yield made
    made.frames.close()
    made.connection.close()


def test_the_changes_of_every_commit_make_the_file(scene: Scene) -> None:
    for number in range(30):
        scene.put(number, 700 * number)
    assert scene.rebuilt() == scene.rows()


def test_a_log_that_starts_over_between_commits_is_followed(scene: Scene) -> None:
    for number in range(30):
        scene.put(number, 3_000)
        if number % 3 == 0:
            scene.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if number % 10 == 0:
            scene.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert scene.rebuilt() == scene.rows()


def test_a_file_that_shrinks_is_followed(scene: Scene) -> None:
    for number in range(60):
        scene.put(number, 5_000)
    largest = scene.commits[-1].page_count
    scene.connection.execute("DELETE FROM items WHERE id > 3")
    scene.connection.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    assert scene.commits[-1].page_count < largest // 4
    assert scene.rebuilt() == scene.rows()


@pytest.mark.parametrize("seed", range(5))
def test_changes_of_several_commits_put_together_come_to_the_same(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(60):
        scene.put(chance.randrange(20), chance.choice((10, 900, 9_000)))
        if chance.random() < 0.2:
            scene.connection.execute("DELETE FROM items WHERE id % 3 = ?", (number % 3,))
            scene.connection.execute("PRAGMA incremental_vacuum(1000)").fetchall()
    together: list[PageChanges] = []
    for changes in scene.commits:
        if together and chance.random() < 0.7:
            together[-1].add(changes)
        else:
            together.append(changes)
    assert all(number <= changes.page_count for changes in together for number in changes.pages)
    scene.commits = together
    assert scene.rebuilt() == scene.rows()


def test_a_commit_that_was_not_told_is_not_passed_over(scene: Scene) -> None:
    """Two commits told as one are two commits: the frames of both are read."""
    before = len(scene.commits)
    frames = scene.frames
    scene.connection.set_wal_hook(None)
    scene.put(1, 9_000)
    scene.connection.set_wal_hook(scene.committed)
    scene.put(2, 9_000)
    assert len(scene.commits) == before + 1
    assert scene.frames is frames
    assert scene.rebuilt() == scene.rows()


def test_a_log_that_is_shorter_than_was_told_is_an_error(scene: Scene) -> None:
    scene.put(1, 10)
    part = WalFrames(f"{scene.path}-wal")
    with pytest.raises(StoreFailed, match="ends before"):
        part.take(1)
    part.close()
    whole = WalFrames(f"{scene.path}-wal")
    told = (scene.path.with_name("store.db-wal").stat().st_size - 32) // (PAGE_BYTES + 24)
    whole.take(told)
    with pytest.raises(StoreFailed, match="ends before"):
        whole.take(told + 1)
    whole.close()
