"""Whether files are still at their names: asked at every commit, so the usual answer looks at the folder alone."""

import os
from pathlib import Path

import pytest

from headwater.errors import StoreReplaced
from headwater.stores.sqlite.presence import COMPANIONS, RESTED_NS, Presence


class Looks:
    """Counts how often the system is asked about a name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stat(self, path: str | bytes) -> os.stat_result:
        self.names.append(os.path.basename(os.fsdecode(path)))
        return os.lstat(path)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    for companion in COMPANIONS:
        Path(f"{path}{companion}").touch()
    rest(tmp_path)
    return path


def rest(folder: Path) -> None:
    """As if nothing had happened in the folder for long."""
    changed = os.stat(folder).st_mtime_ns - 10 * RESTED_NS
    os.utime(folder, ns=(changed, changed))


def test_a_folder_that_rests_is_looked_at_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presence, looks = Presence(str(store)), Looks()
    presence.remember()
    presence.check()
    monkeypatch.setattr(os, "stat", looks.stat)
    for _ in range(10):
        presence.check()
    assert looks.names == [store.parent.name] * 10


@pytest.mark.parametrize("companion", COMPANIONS)
def test_a_name_that_changes_is_noticed_by_the_next_look(store: Path, companion: str) -> None:
    presence = Presence(str(store))
    presence.remember()
    presence.check()
    Path(f"{store}{companion}").unlink()
    for _ in range(2):
        with pytest.raises(StoreReplaced):
            presence.check()


def test_a_change_in_the_same_tick_of_the_clock_is_noticed(store: Path) -> None:
    """Right after a change the folder's time says nothing yet, so the names are looked at."""
    presence = Presence(str(store))
    presence.remember()
    (store.parent / "other").touch()
    presence.check()
    changed = os.stat(store.parent).st_mtime_ns
    store.unlink()
    os.utime(store.parent, ns=(changed, changed))
    with pytest.raises(StoreReplaced):
        presence.check()


def test_a_link_that_is_turned_elsewhere_is_noticed(store: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "log.db").touch()
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    presence = Presence(str(link / "log.db"))
    presence.remember()
    rest(tmp_path)
    presence.check()
    link.unlink()
    link.symlink_to(elsewhere)
    rest(tmp_path)
    with pytest.raises(StoreReplaced):
        presence.check()
