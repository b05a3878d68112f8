"""A process is stopped, or the disk refuses, at every single call that writes: for each kind of operation.

strace counts the calls of each name in each thread and acts on the n-th one: n goes up until the program survives. In a
check only some n are tried, all of them with --campaign.
"""

import asyncio
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from headwater import StoreError, errors
from tests.faults.scenarios import SCENARIOS, prepare, states_of
from tests.faults.tables import Rows, comparable, dump, find_damage, find_faults
from tests.faults.test_power_cuts import work_on

ROOT = Path(__file__).parents[2]
# The last three are made by opening, checkpointing and closing only, whatever is done in between.
RARE_CALLS = ("fsync", "ftruncate", "unlink")
KILLED = [(kind, call) for kind in SCENARIOS for call in ("pwrite64", "fdatasync")]
KILLED += [(kind, call) for kind in ("first open", "checkpoint") for call in RARE_CALLS]
SURVIVES_AFTER_MAX = 500
STORE_CODES = {
    error.code for error in vars(errors).values() if isinstance(error, type) and issubclass(error, StoreError)
}


@functools.cache
def reason_not_to() -> str:
    """Why strace cannot be used here; nothing when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = ["strace", "-f", "-e", "trace=none", "-e", "inject=fsync:error=EIO", "true"]
    ended = subprocess.run(probe, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else f"ptrace is not allowed here: {ended.stderr.strip()}"


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    if reason_not_to():
        pytest.skip(reason_not_to())


class Ended(NamedTuple):
    """How a run under strace came out."""

    code: int
    lines: list[str]
    hit: bool

    @property
    def done(self) -> int:
        """How many steps were answered."""
        return self.lines.count("done")


def run_under_strace(kind: str, path: Path, inject: str, *options: str) -> Ended:
    """Run a scenario with a fault."""
    calls, trace = inject.partition(":")[0], path.with_suffix(".trace")
    strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={inject}"]
    program = [sys.executable, "-m", "tests.faults.scenarios", kind, str(path), *options]
    ended = subprocess.run([*strace, *program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return Ended(ended.returncode, ended.stdout.splitlines(), "(INJECTED)" in trace.read_text(errors="replace"))


class Bench:
    """The file a scenario starts from, and the states it goes through."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.kind = kind
        asyncio.run(prepare(kind, str(folder / "before.db")))
        self.states = asyncio.run(states_of(kind, str(self.copy())))

    def copy(self) -> Path:
        """A fresh file, in a folder of its own."""
        self._number += 1
        place = self._folder / str(self._number)
        place.mkdir()
        if (self._folder / "before.db").exists():
            shutil.copy(self._folder / "before.db", place / "store.db")
        return place / "store.db"

    def done_in(self, path: Path) -> set[int]:
        """How many steps the file may have behind it: a checkpoint changes no table, so it cannot be told."""
        connection = apsw.Connection(str(path))
        try:
            assert find_damage(connection) == []
            assert find_faults(connection) == []
            return self._places_of(comparable(dump(connection)))
        finally:
            connection.close()

    def _places_of(self, state: dict[str, Rows]) -> set[int]:
        places = {place for place, known in enumerate(self.states) if known == state}
        # A file whose first open was cut short has no tables yet.
        if self.kind == "first open" and not state:
            places.add(0)
        assert places, "the file shows a state that no run goes through"
        return places


def copied(path: Path) -> str:
    """A second copy of the file and what lies beside it."""
    place = shutil.copytree(path.parent, path.parent.with_name(f"{path.parent.name}-copy"))
    return str(place / path.name)


def numbers(campaign: bool, call: str, kind: str) -> Iterator[int]:
    """Which calls to act on: all, or a few from a beginning that differs from kind to kind."""
    if campaign:
        yield from range(1, SURVIVES_AFTER_MAX)
        return
    step = 37 if call == "pwrite64" else 5
    yield from range(1 + len(kind) % step, SURVIVES_AFTER_MAX, step)


@pytest.mark.parametrize(("kind", "call"), KILLED)
def test_a_kill_at_any_call_leaves_what_was_answered(kind: str, call: str, folder: Path, campaign: bool) -> None:
    bench = Bench(kind, folder)
    for number in numbers(campaign, call, kind):
        path = bench.copy()
        ended = run_under_strace(kind, path, f"{call}:signal=SIGKILL:when={number}")
        where = f"{kind}: killed at {call} {number}"
        # On a copy: looking at a file with another program would mend what a kill has left.
        assert asyncio.run(work_on(copied(path))) == [], where
        if path.exists() and os.path.getsize(path):
            assert bench.done_in(path) & {ended.done, ended.done + 1}, where
        else:
            assert not ended.done, where
        if ended.code == 0:
            assert ended.done == len(SCENARIOS[kind].steps)
            return
    raise AssertionError(f"{kind} did not survive {SURVIVES_AFTER_MAX} calls of {call}")


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_refusal_by_the_disk_is_told_and_over_when_it_is_over(
    kind: str, call: str, error: str, folder: Path, campaign: bool
) -> None:
    bench = Bench(kind, folder)
    for number in numbers(campaign, call, kind + error):
        path = bench.copy()
        ended = run_under_strace(kind, path, f"{call}:error={error}:when={number}", "stubborn")
        where = f"{kind}: {error} from {call} {number}: {ended.lines}"
        assert not [line for line in ended.lines if line.startswith("untyped")], where
        assert ended.code == 0, where
        assert ended.done == len(SCENARIOS[kind].steps), where
        assert ended.done in bench.done_in(path), where
        check_refusals(ended.lines, error, where)
        if not ended.hit:
            return
    raise AssertionError(f"{kind} made more than {SURVIVES_AFTER_MAX} calls of {call}")


def check_refusals(lines: list[str], error: str, where: str) -> None:
    """A refusal says that trying again helps, and a full disk is called one."""
    for line in lines:
        if line.startswith("refused"):
            _, code, retryable, *_ = line.split()
            assert code in STORE_CODES, where
            assert retryable == "retryable=True", where
            # Busy: the log is moved into the file to recover, and somebody read at that very moment.
            assert code in ("store_full" if error == "ENOSPC" else "store_failed", "store_failed", "store_busy"), where


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_a_disk_that_refuses_for_good_never_yields_a_success_that_is_missing_later(
    call: str, error: str, folder: Path, campaign: bool
) -> None:
    bench = Bench("push", folder)
    for number in range(1, 40 if campaign else 20, 1 if campaign else 6):
        path = bench.copy()
        ended = run_under_strace("push", path, f"{call}:error={error}:when={number}+", "stubborn")
        where = f"{error} from {call} {number} on: {ended.lines}"
        assert not [line for line in ended.lines if line.startswith("untyped")], where
        assert asyncio.run(work_on(copied(path))) == [], where
        # A refused push may be there all the same: "not known" was the answer.
        assert bench.done_in(path) & {ended.done, ended.done + 1}, where
