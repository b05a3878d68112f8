"""What tests of the command line share."""

from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The command line in an empty folder."""
    return Program(tmp_path)
