"""The room that is set aside: taken, given up, and what a full disk lets through."""

import errno
import os
from pathlib import Path

import pytest

from headwater.errors import StoreFull
from headwater.log.job_operations import DropJobs, Prune
from headwater.log.operations import (
    Ack,
    Clear,
    Commit,
    Configure,
    DeleteGroup,
    DeleteQueue,
    Forget,
    Operation,
    Pop,
    Purge,
    Push,
    Retain,
    RevokeAccessToken,
)
from headwater.stores.sqlite.reserve import NO_SPACE, Reserve, freeing, with_refusals

SIZE = 65_536


def refuse_beyond(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A disk that has room for a file of this size and no larger."""
    allocate = os.posix_fallocate

    def posix_fallocate(descriptor: int, offset: int, wanted: int) -> None:
        if offset + wanted > size:
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "full")
        allocate(descriptor, offset, wanted)

    monkeypatch.setattr(os, "posix_fallocate", posix_fallocate)


def test_room_is_taken_once_and_belongs_to_the_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "a-reserve"
    reserve = Reserve(str(file), SIZE)
    assert not reserve.give_up()
    assert reserve.take()
    assert reserve.take()
    assert (file.stat().st_size, file.stat().st_mode & 0o777) == (SIZE, 0o600)
    assert file.stat().st_blocks * 512 >= SIZE
    assert reserve.give_up()
    assert not reserve.give_up()
    assert file.stat().st_size == 0


def test_no_reserve_is_no_file(tmp_path: Path) -> None:
    assert Reserve(str(tmp_path / "a-reserve"), 0).take()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("room", "kept"), [(SIZE, SIZE), (SIZE - 1, SIZE * 7 // 8), (SIZE // 8, SIZE // 8), (99, 0)])
def test_what_there_is_of_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, kept: int) -> None:
    file = tmp_path / "a-reserve"
    refuse_beyond(monkeypatch, room)
    assert not Reserve(str(file), SIZE).take()
    assert file.stat().st_size == kept


def test_a_disk_that_fails_otherwise_is_not_taken_for_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, offset: int, wanted: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="broken"):
        Reserve(str(tmp_path / "a-reserve"), SIZE).take()


MAKE_ROOM: list[Operation] = [
    Clear(queue="a"),
    DeleteGroup(group="g"),
    DeleteQueue(queue="a"),
    DropJobs(),
    Forget(before=0, limit=1),  # type: ignore[arg-type]
    Prune(),
    Purge(queue="a"),
    Retain(),
    RevokeAccessToken(id="t"),
]
NEED_ROOM: list[Operation] = [
    Push(queue="a", records=[]),
    Pop(queue="a"),
    Configure(queue="a"),
    Ack(partition_id=1, group="g", token=1),  # type: ignore[arg-type]
]


def test_only_what_makes_room_is_let_through() -> None:
    assert freeing([*NEED_ROOM, *MAKE_ROOM]) == MAKE_ROOM


def test_those_that_were_left_out_are_told_each_in_its_place() -> None:
    let_through = Commit(["done"], [], wrote=True, operations=[MAKE_ROOM[0]])
    asked = [NEED_ROOM[0], MAKE_ROOM[0], NEED_ROOM[1]]
    told = with_refusals(asked, let_through, NO_SPACE)
    assert [type(result) for result in told.results] == [StoreFull, str, StoreFull]
    assert told.operations == asked
    assert told.full is told.results[0]
    assert with_refusals([MAKE_ROOM[0]], let_through, NO_SPACE).full is None
