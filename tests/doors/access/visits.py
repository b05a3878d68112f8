"""What tests of guards share: routes that say who came, a clock moved by hand, and a real store."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headwater.app import Headwater
from headwater.config import Config
from headwater.doors.routes import Route
from headwater.doors.wire import Request, Response, json_response
from headwater.model.room_settings import load_room_settings
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
    """An open store at a time that the test says, in a server whose name is not made anew each time."""
    config = Config(housekeeping=False)
    rooms = load_room_settings({"server_instance_id": "one"})
    headwater = Headwater(open_store(str(folder / "log.db"), config, clock), config, clock, "main", rooms)
    async with headwater:
        yield headwater


def fitting(route: Route, names: Mapping[str, str]) -> dict[str, Any]:
    """A body that a route of our own wire takes, with these names in all its fields that could name something."""
    one = {"partition_id": int(names["partition_id"]), "token": 1, "group": names["group"]}
    job = {"type": "app:work", "queue": names["queue"]}
    known: dict[str, Any] = {
        **names,
        **one,
        "transaction_id": names["transaction"],
        "id": names["job"],
        "ids": [1] if route.path.endswith(("requeue", "purge")) else [names["job"]],
        "name": {"set-job-config": "max-retries", "set-switch": "rooms in memory"}.get(
            route.path.rpartition("/")[2], names["schedule"]
        ),
        "to": "beginning" if route.path.endswith("seek") else names["queue"],
        "queues": [names["queue"]],
        "jobs": [job],
        "job": job,
        "type": "app:work",
        "types": {"app:work": {"queue": names["queue"]}},
        "records": [{"data": 1}],
        "pushes": [{"queue": names["queue"], "partition": names["partition"], "records": [{"data": 1}]}],
        "reports": [one],
        "leases": [one],
        "operations": [{"kind": "report", **one}, {"kind": "push", "queue": names["queue"], "records": [{"data": 1}]}],
        "moves": [{"queue": names["queue"], "group": names["group"], "lsn": 0}],
        "chosen": {"queue": names["queue"]},
        "source": "a-file",
        "covers": [[0, 1]],
        "positions": [0],
        "upload": "0" * 32,
        "part": {"limit": 2} if "questions" in route.path else 0,
        "value": 3,
        "concurrency": 3,
        "cron": "@daily",
        "paused": True,
        "is_on": True,
        "rules": [{"pattern": "things", "read": "true"}],
        "messages": [{"room": "canvas", "type": "chat", "data": {"n": 1}}],
        "lsn": 0,
        "mark": "x",
        "after": 0,
        "pop_key": "once",
        "since": 0,
        "through": 2**61,
        "collection": "things",
        "query": {"collection": "things"},
        "data": {"n": 1},
        "rows": [{"newDocumentState": {"id": names["job"], "n": 1}}],
        "pattern": "things",
        "field": "n",
    }
    fields = {field.encode_name for field in msgspec.structs.fields(route.takes)}
    # These say the same in another way.
    left_out = {"seek": {"lsn", "to"}, "requeue": {"to"}, "commit": {"upload"}, "pop": {"since"}}.get(
        route.path.rpartition("/")[2], set()
    )
    return {name: value for name, value in known.items() if name in fields - left_out}
