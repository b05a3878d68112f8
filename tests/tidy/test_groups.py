"""Tests of one group share a process: those of a file what it makes for them, those of Spark a Java."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT, plant

CONFTEST = """
import pytest

from tests.groups import group_of


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if group := group_of(item):
            item.add_marker(pytest.mark.xdist_group(group))
"""
GROUPED = """
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def server():
    Path(f"made-{os.environ['PYTEST_XDIST_WORKER']}").touch()


@pytest.fixture
def client(server):
    return server


@pytest.mark.parametrize("number", range(8))
def test_of_a_group(client, number):
    pass
"""


def test_what_a_file_makes_for_its_tests_is_made_in_one_process(tmp_path: Path) -> None:
    plant(tmp_path, {"conftest.py": CONFTEST, "test_grouped.py": GROUPED, "pytest.ini": "[pytest]\n"})
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "test_grouped.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert len(list(tmp_path.glob("made-*"))) == 1
