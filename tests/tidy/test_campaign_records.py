"""A campaign is written down: what was run, on what, and what each test told."""

import subprocess
import sys
from datetime import date
from pathlib import Path

from tests.campaign_records import write_section
from tests.tidy.tree import ROOT, plant

DAY = date(2026, 11, 16)
A_TEST = """
import pytest

@pytest.mark.parametrize("seed", range(3))
def test_cuts(seed, record_property):
    record_property("cuts", 100 + seed)

def test_red():
    assert False
"""


RECORDED = """
from pathlib import Path

from tests.campaign_records import CampaignRecord

COMMAND = ["--campaign", "tests/faults/test_tried.py", "-k", "cuts or red", f"--basetemp={Path.cwd()}/kept"]


def pytest_configure(config):
    config.pluginmanager.register(CampaignRecord(COMMAND, folder=Path.cwd()))
"""


def test_a_run_leaves_counts_and_figures_under_its_command(tmp_path: Path) -> None:
    plant(tmp_path, {"test_tried.py": A_TEST, "conftest.py": RECORDED, "pytest.ini": "[pytest]\n"})
    # In a process of its own: pytest leaves its modules and paths behind.
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    [file] = tmp_path.glob("campaigns-*.md")
    text = file.read_text()
    assert "## `script/test --campaign tests/faults/test_tried.py -k 'cuts or red' '--basetemp=…/kept'`" in text
    assert "`test_tried.py::test_cuts` | 3 | 0 | 0 |" in text
    assert "cuts 100; cuts 101; cuts 102" in text
    assert "`test_tried.py::test_red` | 0 | 1 | 0 |" in text
    assert str(tmp_path) not in text


def test_a_command_that_runs_again_replaces_its_section_and_no_other(tmp_path: Path) -> None:
    for command, body in (("one", "first"), ("two", "other"), ("one", "second")):
        file = write_section(tmp_path, DAY, command, body)
    text = file.read_text()
    assert text.count("# Campaigns of 2026-11-16") == 1
    assert "first" not in text
    assert text.index("other") < text.index("second")
