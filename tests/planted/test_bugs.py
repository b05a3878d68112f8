"""The planted bugs themselves: each can still be planted, has a name of its own, and names tests that exist."""

import shutil
from pathlib import Path

import pytest

from tests.planted.__main__ import ROOT, TextMissing, plant, plant_edit
from tests.planted.bugs import BUGS, Bug, Edit


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_the_source_still_has_the_text_that_a_bug_changes(tmp_path: Path, bug: Bug) -> None:
    for edit in bug.edits:
        (tmp_path / edit.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / edit.file, tmp_path / edit.file)
    plant(bug, tmp_path)
    assert all((tmp_path / edit.file).read_text() != (ROOT / "src" / edit.file).read_text() for edit in bug.edits)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_the_tests_that_must_catch_a_bug_exist(bug: Bug) -> None:
    assert bug.tests
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text()


def test_no_two_bugs_have_one_name() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


@pytest.mark.parametrize("text", ["", "here here"])
def test_text_that_is_not_there_once_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(TextMissing):
        plant_edit("bug", Edit("a.py", "here", "there"), tmp_path / "a.py")
