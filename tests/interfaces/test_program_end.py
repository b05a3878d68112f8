"""A program without `with` that ends in the middle: what its consumers held is everybody's again at once."""

import subprocess
import sys
from pathlib import Path

import pytest

import headwater.sync
from tests.doors.live_door import LiveDoor, on_the_edge

CONSUMER = """
import sys
import headwater.sync

hw = getattr(headwater.sync, sys.argv[1])(sys.argv[2])
for message in hw.queue("orders").consume():
    raise {error}
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(3)", "ValueError"])
@pytest.mark.parametrize("way", ["open", "connect"])
def test_a_program_that_ends_without_closing_gives_back_what_it_held(tmp_path: Path, way: str, error: str) -> None:
    store = str(tmp_path / "a.db")
    with headwater.sync.open(store) as hw:
        hw.queue("orders").push({"id": 7})
    if way == "open":
        end(way, store, error)
    else:
        door = LiveDoor(tmp_path / "a.db", on_the_edge)
        door.start()
        try:
            end(way, door.url, error)
        finally:
            door.stop()
    with headwater.sync.open(store) as hw:
        (message,) = hw.queue("orders").pop()
        assert message.payload == {"id": 7}
        assert message.attempts == 1


def end(way: str, address: str, error: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CONSUMER.format(error=error), way, address], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode != 0
    assert "atexit" not in ended.stderr
