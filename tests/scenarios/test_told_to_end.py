"""SIGTERM to a program in a consumer's loop of its own: with the lines that the document shows, and without."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headwater.sync
from tests.docs.samples import find_fences
from tests.doors.live_door import LiveDoor, on_the_edge
from tests.tidy.tree import ROOT
from tests.waiting import expect_soon

PATIENCE_SECONDS = 60
ASYNC, SYNC = "loop.py", "plain_loop.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with headwater.sync.open(str(tmp_path / "headwater.db")) as hw:
        hw.queue("orders").configure(lease_seconds=3_600)
    return tmp_path


def program_of(name: str) -> str:
    """The program of this name as `docs/queues.md` prints it."""
    document = (ROOT / "docs/queues.md").read_text(encoding="utf-8")
    [text] = [fence.text for fence in find_fences(document) if f"file={name}" in fence.words]
    return text


def bare(text: str) -> str:
    """The same loop without its block."""
    lines = []
    for line in text.splitlines():
        if "as messages:" in line:
            lines.append(line.replace("async with", "if").replace("with", "if").split(" hw.")[0] + " True:")
            loop = line.split(" as messages")[0].split("with ")[1]
        else:
            lines.append(line.replace("in messages:", f"in {loop}:") if "in messages:" in line else line)
    return "\n".join(lines)


def untold(text: str) -> str:
    """The same program without the line that tells it of the signal."""
    return "\n".join(line for line in text.splitlines() if "SIGTERM" not in line)


def told_to_end(folder: Path, text: str, *, working: bool) -> int:
    """Run a program, tell it to end while it works or waits, and say how it ended."""
    (folder / "program.py").write_text(text)
    process = subprocess.Popen([sys.executable, "program.py"], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        if working:
            assert process.stdout is not None
            assert process.stdout.readline() == "working on 1\n"
        else:
            expect_soon(lambda: groups(folder) == ["loop"], PATIENCE_SECONDS)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.communicate()


def groups(folder: Path) -> list[str]:
    with headwater.sync.open(str(folder / "headwater.db")) as hw:
        return [group.group for group in hw.queue("orders").groups()]


def found(folder: Path) -> list[tuple[object, int]]:
    """What another consumer of the group gets now."""
    with headwater.sync.open(str(folder / "headwater.db")) as hw:
        return [(message.payload, message.attempts) for message in hw.queue("orders").pop(group="loop")]


def push_one(folder: Path) -> None:
    with headwater.sync.open(str(folder / "headwater.db")) as hw:
        hw.queue("orders").push(1)


@pytest.mark.parametrize("name", [ASYNC, SYNC])
@pytest.mark.parametrize("shape", ["block", "bare"])
def test_the_lines_of_the_document_give_the_message_back_at_once(folder: Path, name: str, shape: str) -> None:
    text = program_of(name) if shape == "block" else bare(program_of(name))
    push_one(folder)
    assert told_to_end(folder, text, working=True) == 0
    assert found(folder) == [(1, 1)]


@pytest.mark.parametrize("name", [ASYNC, SYNC])
def test_the_lines_of_the_document_end_a_loop_that_waits(folder: Path, name: str) -> None:
    assert told_to_end(folder, program_of(name), working=False) == 0
    push_one(folder)
    assert found(folder) == [(1, 1)]


@pytest.mark.parametrize("name", [ASYNC, SYNC])
def test_the_lines_of_the_document_do_the_same_over_http(folder: Path, name: str) -> None:
    door = LiveDoor(folder / "headwater.db", on_the_edge)
    door.start()
    try:
        text = program_of(name).replace('open("headwater.db")', f'connect("{door.url}")')
        assert door.url in text
        push_one(folder)
        assert told_to_end(folder, text, working=True) == 0
        assert found(folder) == [(1, 1)]
    finally:
        door.stop()


@pytest.mark.parametrize("name", [ASYNC, SYNC])
def test_without_them_the_lease_stays_as_the_document_says(folder: Path, name: str) -> None:
    push_one(folder)
    assert told_to_end(folder, untold(program_of(name)), working=True) == -signal.SIGTERM
    assert found(folder) == []
