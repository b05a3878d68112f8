"""A process is killed at any moment: what it was told holds, and others go on."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.faults.kill_rounds import Found

ROOT = Path(__file__).parents[2]
ROUNDS = {"one": 25, "two": 5}


def run_rounds(kind: str, folder: Path, seed: int) -> Found:
    """The rounds, in a process without threads."""
    command = [sys.executable, "-m", "tests.faults.kill_rounds", kind, str(folder), str(seed), str(ROUNDS[kind])]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    # What a writer that ended by itself had to say stands beside the faults when the test fails.
    print(ended.stderr)
    return msgspec.json.decode(ended.stdout, type=Found)


@pytest.mark.seeds(few=2, many=80)
def test_a_killed_process_leaves_what_was_answered_once_and_in_order(seed: int, folder: Path) -> None:
    found = run_rounds("one", folder, seed)
    assert found.faults == []
    assert found.rounds == ROUNDS["one"]
    assert found.answered > 0


@pytest.mark.seeds(few=2, many=40)
def test_a_killed_process_does_not_disturb_the_other_one(seed: int, folder: Path) -> None:
    found = run_rounds("two", folder, seed)
    assert found.faults == []
    assert found.rounds == ROUNDS["two"]
    assert found.answered > 0
