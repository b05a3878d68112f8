"""How hard the faults are tried: a little with every check, all of it with `--campaign`."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marker that says how many seeds a test gets."""
    config.addinivalue_line("markers", "seeds(few, many): run with this many seeds; `many` with --campaign")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that is marked with seeds one run for each."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is not None:
        count = marker.kwargs["many" if is_campaign(metafunc.config) else "few"]
        metafunc.parametrize("seed", range(count))


def is_campaign(config: pytest.Config) -> bool:
    """Whether everything is to be tried."""
    return bool(config.getoption("--campaign", default=False))


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> bool:
    """Whether everything is to be tried."""
    return is_campaign(request.config)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: what is broken here does not need a real disk."""
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="headwater-faults-") as name:
        yield Path(name)
