"""Tests of one group share a process: Spark's tests one Java, the documents' samples one port."""

import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import plant

GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_of_a_group(number):
    Path(f"worker-{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    plant(tmp_path, {"test_grouped.py": GROUPED, "pytest.ini": "[pytest]\n"})
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "test_grouped.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert len({file.read_text() for file in tmp_path.glob("worker-*")}) == 1
