"""The door suite runs over every transport."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.doors.live_door import SERVINGS, TRANSPORTS, LiveDoor

MakeDoor = Callable[..., LiveDoor]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """What carries the routes."""
    return str(request.param)


@pytest.fixture
def make_door(transport: str, tmp_path: Path) -> Iterator[MakeDoor]:
    """Makes servers over one file, and stops them."""
    made: list[LiveDoor] = []

    def make(**settings: object) -> LiveDoor:
        door = LiveDoor(tmp_path / "headwater.db", SERVINGS[transport], **settings)
        made.append(door)
        door.start()
        return door

    yield make
    for door in made:
        door.stop()


@pytest.fixture
def door(make_door: MakeDoor) -> LiveDoor:
    """A server over an empty store."""
    return make_door()


@pytest.fixture
def client(door: LiveDoor) -> Iterator[httpx.Client]:
    """A client of that server."""
    with door.client() as client:
        yield client


@pytest.fixture(scope="module", params=TRANSPORTS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that many tests share, because none of them leaves anything behind."""
    door = LiveDoor(tmp_path_factory.mktemp("shared") / "headwater.db", SERVINGS[request.param])
    door.start()
    with door.client() as client:
        yield client
    door.stop()
