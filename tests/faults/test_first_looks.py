"""The first look at a file: others may be at work on it, and what it holds may not be what was written."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.config import Config
from headwater.errors import StoreDamaged
from headwater.model.names import Lsn
from headwater.stores.codec import Codec
from headwater.stores.sqlite import place
from headwater.stores.sqlite.store import open_file
from headwater.stores.tables.segments import open_body
from tests.faults.test_bad_files import open_and_close, stock


def test_a_file_that_another_process_makes_at_this_very_moment_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has made the file and has not written to it yet, just after we saw that there was none."""
    path, look = tmp_path / "store.db", Path.stat

    def look_and_lose_the_race(self: Path, **options: Any) -> os.stat_result:
        try:
            return look(self, **options)
        except FileNotFoundError:
            path.touch()
            raise

    monkeypatch.setattr(Path, "stat", look_and_lose_the_race)
    asyncio.run(open_and_close(path))
    assert path.read_bytes().startswith(b"SQLite format 3")


def test_a_look_that_falls_into_the_moving_of_a_log_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page says already how long the file will be, and the rest is still on its way."""
    path = tmp_path / "store.db"
    asyncio.run(stock(path))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    looks: list[int] = []

    def the_rest_arrives() -> None:
        looks.append(path.write_bytes(whole))

    monkeypatch.setattr(place, "pause", the_rest_arrives)
    asyncio.run(open_and_close(path))
    assert looks == [len(whole)]


@pytest.mark.parametrize(
    ("kind", "checksum", "kept"),
    [(0, 0, "a text"), (0, 0, None), (0, 0, 7), (b"\0", 0, b""), (None, 0, b""), (0, "0", b""), (0, 1, b"")],
)
def test_a_segment_whose_fields_changed_their_type_is_called_damaged(kind: Any, checksum: Any, kept: Any) -> None:
    with pytest.raises(StoreDamaged, match="segment 7 is damaged"):
        open_body(Codec(""), 7, kind, checksum, 1, 0, kept)


async def test_a_segment_that_only_an_index_knows_is_called_damaged(tmp_path: Path) -> None:
    store = open_file(str(tmp_path / "store.db"), Config())
    await store.open()
    with pytest.raises(StoreDamaged, match="segment 7 is damaged"):
        store._writer.segments.records(Lsn(7))
    await store.close()
