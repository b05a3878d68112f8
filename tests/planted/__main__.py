"""Plants the bugs and prints which test caught which.

python -m tests.planted                    all bugs
python -m tests.planted NAME…              some of them
python -m tests.planted --list             their names
python -m tests.planted --no-baseline …    without looking first whether the tests are green on sound code

Before a bug is planted, its tests run on sound code: they must be green, or they show nothing. The time they take there
is the measure of how long they may take with the bug, so that a slow machine does not pass for a test that noticed.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.planted.bugs import BUGS, Bug, Edit

ROOT = Path(__file__).parents[2]
BUG_SECONDS_MAX = 150.0
# With a bug, tests may take so much longer than without it before that counts as noticing it.
SLOWER_MAX = 5
BASELINE_SECONDS_MAX = 1_200.0
_failed = re.compile(r"^(?:FAILED|ERROR) (tests.+?|the-time-limit)(?: - .*)?$", re.MULTILINE)


class Trial(NamedTuple):
    """What the tests said to one bug."""

    caught: bool
    by: str
    seconds: float


class TextMissing(Exception):
    """The place where a bug is planted is not in the source any more: look at the bug again."""


def plant(bug: Bug, source: Path) -> None:
    """Change the copy of the source."""
    for edit in bug.edits:
        plant_edit(bug.name, edit, source / edit.file)


def plant_edit(name: str, edit: Edit, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    count = text.count(edit.sound)
    if count != 1:
        raise TextMissing(f"{name}: {edit.file} has this {count} times, 1 was expected:\n{edit.sound}")
    file.write_text(text.replace(edit.sound, edit.broken), encoding="utf-8")


def run_tests(source: Path, tests: tuple[str, ...], seconds_max: float) -> tuple[int, str]:
    """The tests over a copy of the source: exit code and output. Whatever they start is ended with them."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line", "--timeout=60")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    started = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, 9)
        output, _ = started.communicate()
        return 1, f"{output}\nFAILED the-time-limit - {seconds_max:g} s\n"
    return started.returncode, output


def try_bug(bug: Bug, seconds_max: float) -> Trial:
    """Plant one bug and see whether a test turns red. Tests that cannot even be collected catch nothing."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-planted-") as name:
        source = Path(shutil.copytree(ROOT / "src", Path(name) / "src"))
        plant(bug, source)
        code, output = run_tests(source, bug.tests, seconds_max)
    seconds = time.monotonic() - begun
    if code == 1 and (found := _failed.search(output)):
        return Trial(True, found[1], seconds)
    return Trial(False, "nobody" if code == 0 else f"pytest ended with {code}: {output[-400:]}", seconds)


class Red(Exception):
    """Tests that are red on sound code; the message is what they said."""


@functools.cache
def seconds_on_sound_code(tests: tuple[str, ...]) -> float:
    """How long tests take when there is nothing to notice. Bugs that have their tests in common share the answer."""
    begun = time.monotonic()
    code, output = run_tests(ROOT / "src", tests, BASELINE_SECONDS_MAX)
    if code != 0:
        raise Red(output[-2_000:])
    return time.monotonic() - begun


def seconds_max(bug: Bug, *, baseline: bool) -> float:
    """How long the tests of a bug may take with it."""
    if not baseline:
        return BUG_SECONDS_MAX
    return max(BUG_SECONDS_MAX, SLOWER_MAX * seconds_on_sound_code(bug.tests))


def choose(names: list[str]) -> list[Bug]:
    """The bugs of these names, or all."""
    known = {bug.name: bug for bug in BUGS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no such bug: {', '.join(unknown)}; --list shows them")
    return [known[name] for name in names] or BUGS


def report(bug: Bug, outcome: Trial) -> str:
    """One line of the table."""
    mark = "caught  " if outcome.caught else "SURVIVED"
    by = outcome.by.removeprefix("tests/")
    return f"{mark} {bug.name:<34} {outcome.seconds:6.1f} s  {by}"


def main(arguments: list[str]) -> int:
    """The number that the program ends with."""
    if "--list" in arguments:
        print("\n".join(f"{bug.name:<34} {bug.about}" for bug in BUGS))
        return 0
    bugs = choose([argument for argument in arguments if not argument.startswith("--")])
    survived = 0
    for bug in bugs:
        try:
            outcome = try_bug(bug, seconds_max(bug, baseline="--no-baseline" not in arguments))
        except Red as red:
            outcome = Trial(False, f"its tests are red on sound code, so they show nothing:\n{red}", 0)
        survived += not outcome.caught
        print(report(bug, outcome), flush=True)
    print(f"{len(bugs) - survived} of {len(bugs)} planted bugs were caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
