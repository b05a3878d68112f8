"""Access rules that fit a system collection hold for it by whatever way it is read."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import headwater
from headwater.app import open_door
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.model.document_rules import DocumentRule
from headwater.model.principal import Scope
from headwater.services import system_collections
from headwater.services.system_collections import SCOPES

SEEN = [name for name, scopes in SCOPES.items() if scopes != (Scope.ADMIN,)]
BASE = "/api/v1/databases/main"
TRIGGER = "/trigger/v1/databases/main"


async def rows(*asked: object) -> AsyncIterator[dict[str, Any]]:
    for name in ("mine", "theirs"):
        yield {"id": name, "queue": name}


@pytest.fixture
async def hw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[headwater.Headwater]:
    monkeypatch.setattr(system_collections, "_rooms", rows)
    monkeypatch.setattr(system_collections, "_readers", dict.fromkeys(SCOPES, rows))
    async with headwater.open(str(tmp_path / "headwater.db")) as opened:
        yield opened


@pytest.fixture
async def url(hw: headwater.Headwater) -> AsyncIterator[str]:
    async with open_door(hw, load_access(auth="token")) as door:
        edge = Edge(door)
        await edge.start("127.0.0.1", 0)
        yield f"http://127.0.0.1:{edge.port}"
        edge.abort()
        await edge.stop()


@pytest.fixture
async def secret(hw: headwater.Headwater) -> str:
    return (await hw.access_tokens().create("ada", ["documents:read", "subscribe", "metrics"]))[1]


async def by_http(page: httpx.AsyncClient, collection: str) -> dict[str, list[str]]:
    """What each way of asking tells, as ids."""
    query = {"collection": collection}
    found: dict[str, list[str]] = {}
    for way, path in (("query", f"{BASE}/query"), ("trigger", f"{TRIGGER}/query")):
        found[way] = ids((await page.post(path, json=query)).raise_for_status().json()["docs"])
    asked = await page.post("/v1/questions/query-documents", json={"query": query})
    found["question"] = ids(asked.raise_for_status().json()["documents"])
    for name in ("mine", "theirs"):
        got = await page.get(f"{BASE}/documents/{collection}/{name}")
        found.setdefault("get", []).extend([name] if got.status_code == 200 else [])
        told = await page.post(f"{TRIGGER}/get", json={"path": f"{collection}/{name}"})
        found.setdefault("trigger get", []).extend(ids(told.raise_for_status().json()["docs"]))
        one = await page.post("/v1/questions/find-document", json={"collection": collection, "id": name})
        found.setdefault("find", []).extend([name] if one.raise_for_status().json() else [])
    return found


def ids(documents: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in documents]


async def live(page: httpx.AsyncClient, collection: str) -> list[str]:
    """What the snapshot of a live query tells; nothing when it is refused."""
    path = f"/realtime/v1/databases/main/sse?collection={collection}&sendSnapshot=true"
    async with page.stream("GET", path) as stream:
        if stream.status_code == 403:
            return []
        async for line in stream.aiter_lines():
            if '"snapshot"' in line and line.startswith("data:"):
                return ids(json.loads(line.removeprefix("data:"))["payload"]["documents"])
    return ["no snapshot"]


async def by_client(url: str, secret: str, collection: str) -> dict[str, list[str]]:
    async with headwater.connect(url, token=secret) as client:
        asked = client.collection(collection)
        changes = asked.follow()
        snapshot = await anext(changes)
        await changes.aclose()
        return {
            "client": [one.id for one in await asked.query()],
            "client get": [name for name in ("mine", "theirs") if await asked.get(name) is not None],
            "client follow": [one.id for one in snapshot.documents],
        }


RULES: list[tuple[list[DocumentRule], list[str]]] = [
    ([], ["mine", "theirs"]),
    ([DocumentRule(pattern="other", read="false")], ["mine", "theirs"]),
    ([DocumentRule(pattern="_*", read='queue == "mine"')], ["mine"]),
    ([DocumentRule(pattern="*", read='queue == "mine" && auth.sub == "ada"')], ["mine"]),
    ([DocumentRule(pattern="*", read='auth.sub == "bob"')], []),
    ([DocumentRule(pattern="*", create="true")], []),
]


@pytest.mark.parametrize("collection", SEEN)
@pytest.mark.parametrize(("rules", "expected"), RULES)
async def test_every_way_to_read_a_system_collection_tells_what_the_rules_allow(
    hw: headwater.Headwater, url: str, secret: str, collection: str, rules: list[DocumentRule], expected: list[str]
) -> None:
    await hw.set_document_rules(rules)
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {secret}"}) as page:
        found = await by_http(page, collection)
        found["live"] = await live(page, collection)
    found |= await by_client(url, secret, collection)
    assert found == dict.fromkeys(found, expected)


async def test_through_a_server_a_system_collection_is_asked_and_followed_page_by_page(
    hw: headwater.Headwater, url: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.services.documents.QUERY_LIMIT_MAX", 1)
    async with headwater.connect(url, token=secret) as client:
        queues = client.collection("_queues")
        first = await queues.query(limit=1, order_by="-queue")
        rest = await queues.query(limit=1, order_by="-queue", start_after=first.next_cursor)
        assert ([one.id for one in first], [one.id for one in rest], rest.next_cursor) == (["theirs"], ["mine"], "")
        assert [one.id for one in await queues.query("auth.sub == queue || queue == 'mine'")] == ["mine"]
        changes = queues.follow()
        assert [one.id for one in (await anext(changes)).documents] == ["mine", "theirs"]
        await changes.aclose()
