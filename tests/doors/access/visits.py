"""What tests of guards share: routes that say who came, a clock moved by hand, and a real store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headwater.app import Headwater
from headwater.config import Config
from headwater.doors.wire import Request, Response, json_response
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock


class Hand:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


async def say_who(request: Request) -> Response:
    """A route that answers with the principal it was given."""
    return json_response(msgspec.to_builtins(request.principal))


def visit(
    path: str = "/", method: str = "GET", body: bytes = b"", /, client: str = "192.0.2.1", **headers: str
) -> Request:
    """A request; underscores in the names of headers are dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(method=method, path=path, headers=named, client=client, id="request-1", body=body)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def header(response: Response, name: str) -> str | None:
    return dict(response.headers).get(name)


def document(response: Response) -> Any:
    return msgspec.json.decode(response.body)


@asynccontextmanager
async def opened(folder: Path, clock: FakeClock) -> AsyncIterator[Headwater]:
    """An open store at a time that the test says."""
    config = Config(housekeeping=False)
    headwater = Headwater(open_store(str(folder / "log.db"), config, clock), config, clock, "main")
    async with headwater:
        yield headwater
