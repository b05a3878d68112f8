"""What a broker that was killed left on its machine goes with the next one; what is in use stays."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
from headwater.stores.bucket import scratch_folder
from headwater.stores.bucket.scratch_folder import PREFIX, ScratchFolder, sweep

BROKER = """
import asyncio, sys
import headwater
from headwater.stores.bucket import scratch_folder

scratch_folder.MEMORY = sys.argv[2]

async def main():
    async with headwater.open(sys.argv[1]) as hw:
        await hw.queue("orders").push(1)
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scratch folders of this test lie: apart from those of others on this machine."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(scratch_folder, "MEMORY", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def begin(address: str, scratch: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BROKER, address, str(scratch)]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert broker.stdout is not None
    assert broker.stdout.readline() == "ready\n"
    return broker


def end(broker: "subprocess.Popen[str]") -> None:
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    assert broker.stdout is not None
    broker.stdout.close()


def left(scratch: Path) -> set[str]:
    return {path.name for path in scratch.glob(f"{PREFIX}*")}


async def test_the_next_broker_removes_what_a_killed_one_left_and_nothing_that_is_in_use(
    tmp_path: Path, scratch: Path
) -> None:
    lives = begin(f"file://{tmp_path}/one.sqlite?lease_seconds=0", scratch)
    in_use = left(scratch)
    killed = begin(f"file://{tmp_path}/two.sqlite?lease_seconds=0", scratch)
    end(killed)
    assert len(left(scratch)) == 4
    try:
        async with headwater.open(f"file://{tmp_path}/two.sqlite?lease_seconds=0") as hw:
            assert in_use < left(scratch)
            assert len(left(scratch)) == 4
            assert [message.payload for message in await hw.queue("orders").pop()] == [1]
        assert left(scratch) == in_use
        assert len(in_use) == 2
    finally:
        end(lives)
    assert sweep(scratch) == 1
    assert left(scratch) == set()


def test_a_folder_goes_with_its_lock(scratch: Path) -> None:
    folder = ScratchFolder(1)
    folder.claim()
    Path(folder.path).mkdir()
    assert sweep(scratch) == 0
    assert Path(folder.path).is_dir()
    folder.release()
    assert left(scratch) == set()
    folder.release()
