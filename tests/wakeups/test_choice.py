"""Which wake-up a store gets: the best that there is, or the one that was asked for."""

from pathlib import Path

import pytest

import headwater
from headwater.stores.sqlite import shared_file
from headwater.wakeups.inotify import is_available


def no_more_watches(path: str, changed: object) -> None:
    raise OSError(24, "inotify cannot be used; set wakeup=data_version")


@pytest.mark.parametrize("wanted", ["inotify", "data_version"])
async def test_the_wakeup_that_was_asked_for_is_used(tmp_path: Path, wanted: str) -> None:
    if wanted == "inotify" and not is_available():
        pytest.skip("this system has no inotify")
    async with headwater.open(str(tmp_path / "log.db"), wakeup=wanted) as hw:
        assert hw.wakeup is not None
        assert hw.wakeup.name == wanted


async def test_the_kernel_is_asked_where_it_can_tell(tmp_path: Path) -> None:
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        assert hw.wakeup is not None
        assert hw.wakeup.name == ("inotify" if is_available() else "data_version")


async def test_without_inotify_the_store_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_file, "is_available", lambda: False)
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        assert hw.wakeup is not None
        assert hw.wakeup.name == "data_version"


async def test_when_the_kernel_has_no_watch_left_the_store_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "InotifyWakeup", no_more_watches)
    async with headwater.open(str(tmp_path / "log.db")) as hw:
        assert hw.wakeup is not None
        assert hw.wakeup.name == "data_version"
        await hw.queue("orders").push(1)


async def test_a_wakeup_that_was_asked_for_and_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "InotifyWakeup", no_more_watches)
    with pytest.raises(OSError, match="data_version"):
        async with headwater.open(str(tmp_path / "log.db"), wakeup="inotify"):
            pass
    async with headwater.open(str(tmp_path / "log.db"), wakeup="data_version") as hw:
        await hw.queue("orders").push(1)
