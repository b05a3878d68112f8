"""An answer that comes in pieces and cannot be finished does not look whole: it is refused before the first piece, and
broken off behind it, whatever carries it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.doors.native import upkeep
from headwater.model.document_rules import DocumentRule
from headwater.services import replication
from headwater.services.replication import Replica
from tests.doors.live_door import GUARDED_SERVINGS, LiveDoor
from tests.doors.realtime.test_filters_of_who_asks import run

Change = Callable[[], Awaitable[object]]
SCOPES = ["documents:read", "subscribe", "metrics"]


class Visitor:
    """A server, and somebody who has a token for it; something is done while they are answered."""

    def __init__(self, door: LiveDoor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hw = door.hw
        token, secret = run(door, door.hw.access_tokens().create("ada", SCOPES))
        self.client = door.client(headers={"authorization": f"Bearer {secret}"})
        self._patch = monkeypatch
        self.changes: dict[str, Change] = {
            "revoked": lambda: self.hw.access_tokens().revoke(token.id),
            "ruled": lambda: self.hw.set_document_rules([DocumentRule(pattern="notes", read="n < 1")]),
            "ruled elsewhere": lambda: self.hw.set_document_rules([DocumentRule(pattern="others", read="n < 1")]),
        }

    def change_at(self, kind: type, verb: str, call: int, change: Change) -> None:
        """Do this within the so-manieth call of a verb."""
        original, calls = getattr(kind, verb), iter(range(1, 1_000))

        async def changed(*asked: Any, **more: Any) -> Any:
            if next(calls) == call:
                await change()
            return await original(*asked, **more)

        self._patch.setattr(kind, verb, changed)

    def pull(self) -> httpx.Response:
        return self.client.post("/replication/v1/pull", json={"collection": "notes", "limit": 100})


@pytest.fixture(params=GUARDED_SERVINGS)
def visitor(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    monkeypatch.setattr(replication, "PART_BYTES", 1)
    serving = LiveDoor(tmp_path / "headwater.db", GUARDED_SERVINGS[request.param])
    serving.start()
    for number in range(5):
        run(serving, serving.hw.collection("notes").create({"n": number}, id=f"n{number}"))
    visitor = Visitor(serving, monkeypatch)
    yield visitor
    visitor.client.close()
    serving.stop()


@pytest.mark.parametrize("change", ["revoked", "ruled"])
@pytest.mark.parametrize("call", [3, 4, 5])
def test_a_pull_that_may_not_go_on_is_broken_off(visitor: Visitor, change: str, call: int) -> None:
    visitor.change_at(Replica, "pull", call, visitor.changes[change])
    with pytest.raises(httpx.TransportError):
        visitor.pull()


@pytest.mark.parametrize(("change", "status"), [("revoked", 401), ("ruled", 503)])
def test_a_pull_that_may_not_begin_is_refused(visitor: Visitor, change: str, status: int) -> None:
    visitor.change_at(Replica, "pull", 2, visitor.changes[change])
    assert visitor.pull().status_code == status


@pytest.mark.parametrize("call", [2, 4])
def test_rules_of_other_collections_end_no_pull(visitor: Visitor, call: int) -> None:
    visitor.change_at(Replica, "pull", call, visitor.changes["ruled elsewhere"])
    assert [one["id"] for one in visitor.pull().raise_for_status().json()["documents"]] == [f"n{n}" for n in range(5)]


def test_a_list_that_may_not_go_on_is_broken_off(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(*asked: object) -> AsyncIterator[list[str]]:
        for number in range(4):
            if number == 3:
                await visitor.changes["revoked"]()
            yield [f"q{number}"]

    monkeypatch.setattr(upkeep, "queue_pages", pages)
    with pytest.raises(httpx.TransportError):
        visitor.client.post("/v1/questions/list-queues", json={})
