"""How hard the faults are tried: a little with every check, all of it with `--campaign`."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.known_gaps import KNOWN_GAPS

FOLDER = "tests/faults/"
Rounds = Callable[[int, int], int]


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marker that says how many seeds a test gets."""
    config.addinivalue_line("markers", "seeds(few, many): run with this many seeds; `many` with --campaign")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that is marked with seeds one run for each."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is not None:
        count = marker.kwargs["many" if is_campaign(metafunc.config) else "few"]
        metafunc.parametrize("seed", range(count))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is known to be wrong, before pytest-xdist adds groups to the names. A campaign tries more, so there a
    known fault need not show each time.
    """
    reasons = dict(known_gaps())
    for item in items:
        if item.nodeid in reasons:
            item.add_marker(pytest.mark.xfail(reason=reasons[item.nodeid], strict=not is_campaign(config)))


def known_gaps() -> Iterator[tuple[str, str]]:
    """The full names of the tests that are known to fail, each with the reason."""
    for reason, tests in KNOWN_GAPS.items():
        for name, cases in tests.items():
            yield from ((f"{FOLDER}{name}[{case}]" if case else f"{FOLDER}{name}", reason) for case in cases or ("",))


def is_campaign(config: pytest.Config) -> bool:
    """Whether everything is to be tried."""
    return bool(config.getoption("--campaign", default=False))


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether everything is to be tried."""
    return is_campaign(request.config)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Rounds:
    """How often a test does by itself what it does: a few times, as often as a release asks for, or as it is told."""
    told: int | None = request.config.getoption("--rounds", default=None)
    return lambda few, many: few if not is_campaign(request.config) else many if told is None else told


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is broken here does not need a real disk."""
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="headwater-faults-") as name:
        yield Path(name)
