"""Has a change made it slower? This tree beside a commit of before: `script/bench compare COMMIT`.

    parent ─► this tree   ─┐  one slice of work each, in turns, on one core
           ─► that commit ─┘

Both live side by side the whole time, so what the machine does meanwhile meets both alike. What counts is the CPU of a
slice; a ratio is the median over the pairs of what it took before divided by what it takes now.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles

from rich.console import Console
from rich.table import Table

from benchmarks.slices import SLICES

ROOT = Path(__file__).parent.parent
END_SECONDS_MAX = 30.0


class Side:
    """A process that runs slices with the Headwater of one tree."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, name: str) -> float:
        """The CPU that one slice took, in seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(name, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())


@contextmanager
def start(source: Path, folder: Path, core: int) -> Iterator[Side]:
    """A side whose Headwater comes from `source` and whose store lies in `folder`."""
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.slices", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.sched_setaffinity(process.pid, {core})
    try:
        yield Side(process)
    finally:
        try:
            process.communicate(timeout=END_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()


def check_out(commit: str, folder: Path) -> Path:
    """The source of a commit, in an empty folder."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder / "src"


def compare(before: Side, now: Side, name: str, pairs: int) -> list[tuple[float, float]]:
    """What a slice takes before and now, so often; each side begins as often as the other."""
    for side in (before, now):
        side.run(name)  # warms up
    found = []
    for number in range(pairs):
        if number % 2:
            found.append((before.run(name), now.run(name)))
        else:
            later = now.run(name)
            found.append((before.run(name), later))
    return found


def row(name: str, found: list[tuple[float, float]]) -> tuple[str, ...]:
    """One line of the table: microseconds of a slice before and now, and the ratio with its quartiles."""
    low, middle, high = quantiles((before / now for before, now in found), n=4)
    micros = [f"{quantiles(side, n=4)[1] * 1e6 / SLICES[name].acts:,.1f}" for side in zip(*found, strict=True)]
    return name, *micros, f"{middle:.3f}", f"{low:.3f}-{high:.3f}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench compare", description=__doc__)
    parser.add_argument("commit", help="what this tree is compared with")
    parser.add_argument("--pairs", type=int, default=80, help="how many slices of each kind each side runs")
    parser.add_argument("--only", action="append", choices=SLICES, help="only slices of this kind; may be repeated")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="where both sides run")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the stores lie")
    options = parser.parse_args(arguments)
    table = Table("slice", "µs before", "µs now", "before ÷ now", "quartiles")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-", dir=options.folder)))
        source = check_out(options.commit, folder)
        before = stack.enter_context(start(source, folder / "before", options.core))
        now = stack.enter_context(start(ROOT / "src", folder / "now", options.core))
        for name in options.only or SLICES:
            table.add_row(*row(name, compare(before, now, name, options.pairs)))
    Console().print(table)
