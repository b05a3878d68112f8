"""What a campaign found, kept beside the benchmarks: the command, the commit, the machine, and each test's figures.

`script/test --campaign …` writes `benchmarks/results/campaigns-<date>.md`, one section a command; running a command
again replaces its section. A test tells a figure with `record_property(name, value)`, which reaches here from the
processes that pytest-xdist starts, too.
"""

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from benchmarks.machine import Machine, describe_machine, without_folders

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TITLE = "# Campaigns of {day}: what was broken on purpose, how often, and what became of it"


@dataclass
class Tally:
    """How the runs of one test function ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)


class CampaignRecord:
    """Collects what the tests of a campaign tell, and writes it down when they are over."""

    def __init__(self, arguments: Sequence[str], folder: Path = RESULTS) -> None:
        self._arguments = arguments
        self._folder = folder
        self._tallies: dict[str, Tally] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one run."""
        tally = self._tallies.setdefault(function_of(report.nodeid), Tally())
        tally.seconds += report.duration
        if report.when == "call" and report.passed:
            tally.passed += 1
        tally.failed += report.failed
        tally.skipped += report.skipped
        if report.when == "teardown":
            tally.figures.extend(f"{name} {value}" for name, value in report.user_properties)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the section of this command."""
        if self._tallies and not hasattr(session.config, "workerinput"):
            command = shlex.join(["script/test", *map(without_folders, self._arguments)])
            today = datetime.now(UTC).date()
            write_section(self._folder, today, command, render(self._tallies, describe_machine(ROOT), commit()))


def function_of(nodeid: str) -> str:
    """The name of a test without its parameters."""
    return nodeid.partition("@")[0].partition("[")[0]


def render(tallies: dict[str, Tally], machine: Machine, version: str) -> str:
    """A section without its heading."""
    lines = [
        f"Commit {version}; {machine.cpu}, {machine.cores} cores, load {machine.load} at the end, {machine.kernel},"
        f" {machine.filesystem}, {machine.python}, SQLite {machine.sqlite_apsw}.",
        "",
        "| test | passed | failed | skipped | seconds | figures |",
        "|---|---|---|---|---|---|",
    ]
    for name, tally in sorted(tallies.items()):
        counts = f"{tally.passed:,} | {tally.failed:,} | {tally.skipped:,} | {tally.seconds:,.0f}"
        lines.append(f"| `{name}` | {counts} | {'; '.join(tally.figures)} |")
    return "\n".join(lines)


def write_section(folder: Path, day: date, command: str, body: str) -> Path:
    """Put a command's section into the day's file, in place of an older one."""
    file = folder / f"campaigns-{day}.md"
    text = file.read_text() if file.exists() else TITLE.format(day=day) + "\n"
    heading = f"## `{command}`"
    kept = [part for part in re.split(r"(?m)^(?=## )", text) if part.partition("\n")[0] != heading]
    file.write_text("".join(kept).rstrip() + f"\n\n{heading}\n\n{body}\n")
    return file


def commit() -> str:
    """The commit that was tried, and whether the tree had changes on it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"
