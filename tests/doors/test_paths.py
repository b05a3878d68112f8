"""Names in paths are UTF-8: bytes that are not would all come to one and the same name, so they are refused on every
route, whatever carries it."""

import re
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import headwater
from headwater.app import open_door
from headwater.doors.all_routes import ROUTES
from headwater.doors.routes import Route
from headwater.doors.wire import Request

NAMED = [route for route in ROUTES if "{" in route.path]
NO_UTF_8 = ("%ff", "a%C3", "%C3%28", "%ed%a0%80", "%c0%af", "a%2F%fe")
DOCUMENTS = "/api/v1/databases/main/documents/notes"


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", NAMED, ids=name_of)
def test_a_name_that_is_no_utf_8_is_refused_on_every_route(shared: httpx.Client, route: Route) -> None:
    for place in re.findall(r"\{\w+\}", route.path):
        for bad in NO_UTF_8:
            path = re.sub(r"\{\w+\}", "name", route.path.replace(place, bad))
            refused = shared.request(route.method, path, json={})
            assert (refused.status_code, "UTF-8" in refused.json()["detail"]) == (400, True), path


def test_documents_whose_ids_are_no_utf_8_are_not_written(shared: httpx.Client) -> None:
    for bad in NO_UTF_8:
        shared.put(f"{DOCUMENTS}/{bad}", json={"doc": {"n": 1}})
    assert shared.post("/api/v1/databases/main/query", json={"collection": "notes"}).json()["docs"] == []


def test_a_query_that_is_no_utf_8_is_refused(shared: httpx.Client) -> None:
    for bad in NO_UTF_8:
        assert shared.get(f"/realtime/sse?collection={bad}").status_code == 400


async def test_bytes_of_a_path_mean_what_they_mean_with_percent_signs(tmp_path: Path) -> None:
    """As some servers of ASGI hand on what programs send that write a path as it is; the edge refuses it."""
    async with headwater.open(str(tmp_path / "log.db")) as hw, open_door(hw) as door:
        await hw.collection("notes").create({"n": 1}, id="Füße")
        found = [
            await door(Request(method="GET", path=f"{DOCUMENTS}/{name}"))
            for name in (quote("Füße"), "Füße".encode().decode("latin-1"), "Füße")
        ]
        assert [answer.status for answer in found] == [200, 200, 400]
