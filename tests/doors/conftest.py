"""The door suite runs over every transport, and once over a store on a server; for a release, with
`DOORS_OVER_BUCKET=1`, over one in a bucket.

The rules of every store are held by the contract suite. What is asked here once more is that nothing between a request
and its answer counts on a file: that a commit is there at once, that it takes no waiting, that a version is at hand.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.doors.live_door import SERVINGS, TRANSPORTS, LiveDoor
from tests.postgres_schemas import schemas
from tests.postgres_server import server

MakeDoor = Callable[..., LiveDoor]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A server that several tests share is started before anybody looks at what a test leaves behind."""
    if isinstance(item, pytest.Function) and "postgres" in item.name:
        server()


@contextmanager
def in_a_file(folder: Path) -> Iterator[str]:
    """A store in an empty folder."""
    yield str(folder / "headwater.db")


@contextmanager
def on_a_server(folder: Path) -> Iterator[str]:
    """An empty store in a schema of a database."""
    with schemas().lend() as schema:
        yield server().address(schema)


@contextmanager
def in_a_bucket(folder: Path) -> Iterator[str]:
    """A store in a folder that stands for a bucket; several servers of a test take it from each other."""
    yield f"file://{folder}/log.sqlite?lease_seconds=0"


Place = Callable[[Path], AbstractContextManager[str]]


class Arrangement(NamedTuple):
    """What carries the routes, and where the store is that lies under them."""

    transport: str
    place: Place

    @property
    def written(self) -> str:
        """What is answered to who asks for `written`: a commit that a bucket has taken is more than that."""
        return "synced" if self.place is in_a_bucket else "written"


PLACES: dict[str, Place] = {"file": in_a_file, "postgresql": on_a_server}
ARRANGEMENTS = {
    **{transport: Arrangement(transport, in_a_file) for transport in TRANSPORTS},
    "postgresql": Arrangement("edge", on_a_server),
}

if os.environ.get("DOORS_OVER_BUCKET"):
    PLACES, ARRANGEMENTS = {"bucket": in_a_bucket}, {"bucket": Arrangement("edge", in_a_bucket)}


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of an empty store, for routes that are asked without a transport."""
    with PLACES[request.param](tmp_path) as address:
        yield address


@pytest.fixture(params=ARRANGEMENTS)
def arrangement(request: pytest.FixtureRequest) -> Arrangement:
    """What a server of a test is made of."""
    return ARRANGEMENTS[request.param]


@pytest.fixture
def make_door(arrangement: Arrangement, tmp_path: Path) -> Iterator[MakeDoor]:
    """Makes servers over one store, and stops them."""
    made: list[LiveDoor] = []
    with arrangement.place(tmp_path) as store:

        def make(**settings: object) -> LiveDoor:
            door = LiveDoor(store, SERVINGS[arrangement.transport], **settings)
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


@pytest.fixture(scope="module", params=ARRANGEMENTS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that many tests share, because none of them leaves anything behind."""
    arrangement = ARRANGEMENTS[request.param]
    with arrangement.place(tmp_path_factory.mktemp("shared")) as address:
        door = LiveDoor(address, SERVINGS[arrangement.transport])
        door.start()
        with door.client() as client:
            yield client
        door.stop()
