"""The client without async: the bridge of the sync interface, over a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater.sync
from headwater.errors import ServerUnreachable
from tests.doors.live_door import LiveDoor, on_the_edge


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    running = LiveDoor(tmp_path / "headwater.db", on_the_edge)
    running.start()
    yield running
    running.stop()


def test_the_verbs_work_without_async(door: LiveDoor) -> None:
    with headwater.sync.connect(door.url) as hw:
        orders = hw.queue("orders")
        orders.push_many([1, 2, 3])
        for message in orders.consume(group="g"):
            if message.payload == 3:
                break
        [first] = orders.pop(group="h")
        with hw.transaction() as together:
            together.ack(first)
            together.push("bills", first.payload)
        assert [message.payload for message in hw.queue("bills").pop()] == [1]
        assert sorted(group.group for group in orders.groups()) == ["g", "h"]


def test_an_address_with_nobody_is_told_and_leaves_no_thread() -> None:
    with pytest.raises(ServerUnreachable):
        headwater.sync.connect("http://127.0.0.1:1", retry_seconds=0)
