"""A campaign is written down: what was run, on what, and what each test told."""

from datetime import date
from pathlib import Path

import pytest

from tests.campaign_records import CampaignRecord, write_section

DAY = date(2026, 11, 16)
A_TEST = """
import pytest

@pytest.mark.parametrize("seed", range(3))
def test_cuts(seed, record_property):
    record_property("cuts", 100 + seed)

def test_red():
    assert False
"""


def test_a_run_leaves_counts_and_figures_under_its_command(tmp_path: Path) -> None:
    tried = tmp_path / "test_tried.py"
    tried.write_text(A_TEST)
    record = CampaignRecord(["--campaign", "tests/tried"], folder=tmp_path)
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--rootdir", str(tmp_path), str(tried)], plugins=[record]
    )
    [file] = tmp_path.glob("campaigns-*.md")
    text = file.read_text()
    assert "## `script/test --campaign tests/tried`" in text
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
