"""Filters, paths, patches and documents that nobody means well with: refused with a code that says why, over HTTP and
in a live query; nothing is written by them, and who asks next is answered."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.app import open_door
from headwater.doors.site import Site
from headwater.doors.wire import Handler, Request
from tests.doors.realtime.pages import Page

BASE = "/api/v1/databases/main"
NOTE = f"{BASE}/documents/notes/n1"
KEPT = {"text": "as it was", "n": 1}

FILTERS = {
    "deep": "(" * 4_000 + "a" + ")" * 4_000,
    "deep by not": "!" * 500 + "a",
    "long": "a == 1 && " * 900 + "a == 1",
    "longer than may be": "a == 1 || " * 1_000 + "a == 1",
    "a huge list": "a in [" + "1," * 2_000 + "1]",
    "a huge text": f'a == "{"x" * 9_000}"',
    "many searches": " || ".join(f'text.contains("{letter}a")' for letter in "abcdefgh" * 30),
    "regex-like": 'text.matches("(a+)+$")',
    "a call": "__import__('os').system('true')",
    "no end": 'text == "',
    "nothing printable": "a == \x00",
    "half a pair": 'a == "\\ud800"',
    "arithmetic": "9**9**9 == a",
}
CONDITIONS: dict[str, Any] = {
    "many": [{"field": "a", "op": "==", "value": 1}] * 2_000,
    "a huge list": [{"field": "a", "op": "in", "value": list(range(5_000))}],
    "a deep value": [{"field": "a", "op": "==", "value": [[[[{"x": []}]]]]}],
    "no operator": [{"field": "a", "op": "regex", "value": "(a+)+$"}],
    "a huge field": [{"field": "a." * 5_000 + "a", "op": "==", "value": 1}],
    "no list": {"field": "a", "op": "==", "value": 1},
}
PATHS = ["../../etc/passwd", "notes//n1", "notes/", "/notes/n1", "notes/%00", "notes/" + "x" * 300, "n" * 300 + "/x"]
PATHS += ["notes/..", "notes/.", "a/./c/n1", "_jobs/j1", "_servers/s1", "no tes/n1", "notes/n1/more", "notes/%0a"]


def nested(levels: int) -> str:
    return '{"doc": {"a": ' + "[" * levels + "]" * levels + "}}"


PATCHES = {
    "nothing": "{}",
    "no fields": '{"doc": {}}',
    "only ours": '{"doc": {"version": 9, "id": "x", "createdAt": 1, "deleted": true}}',
    "a list": '{"doc": [1]}',
    "deep": nested(150),
    "very deep": nested(20_000),
    "large": json.dumps({"doc": {"a": "x" * 300_000}}),
    "two documents": '{"doc": {"a": 1}} {"doc": {"a": 2}}',
    "U+0000": '{"doc": {"a": "\\u0000"}}',
    "half a pair": '{"doc": {"a": "\\ud800"}}',
    "no JSON": '{"doc": {"a": NaN}}',
    "conditions without end": json.dumps({"doc": {"a": 1}, "ifMatch": CONDITIONS["many"]}),
}


class Door:
    """Routes, asked without a network."""

    def __init__(self, handler: Handler, hw: headwater.Headwater) -> None:
        self._handler = handler
        self.hw = hw

    async def ask(self, method: str, path: str, body: str = "") -> tuple[int, dict[str, Any]]:
        headers = {"content-type": "application/json", "host": "localhost"}
        asked = Request(method=method, path=path, headers=headers, body=body.encode("utf-8", "surrogatepass"))
        response = await self._handler(asked)
        return response.status, json.loads(response.body) if response.body else {}

    async def expect_refusal(self, method: str, path: str, body: str = "") -> None:
        status, answer = await self.ask(method, path, body)
        assert 400 <= status < 500, (status, answer)
        assert answer["code"], answer
        assert len(str(answer)) < 2_000, "what was sent is not sent back"
        kept = await self.hw.collection("notes").query(show_deleted=True)
        assert [(one.id, one.version, one.data) for one in kept] == [("n1", 1, KEPT)]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False, durability="written") as hw:
        await hw.collection("notes").create(KEPT, id="n1")
        async with open_door(hw) as handler:
            yield Door(handler, hw)


@pytest.mark.parametrize("name", FILTERS)
async def test_a_hostile_filter_is_refused_by_queries_rules_and_live_queries(door: Door, name: str) -> None:
    text = FILTERS[name]
    asked = json.dumps({"collection": "notes", "filter": text})
    await door.expect_refusal("POST", f"{BASE}/query", asked)
    await door.expect_refusal("POST", "/trigger/v1/databases/main/query", asked)
    rules = json.dumps({"rules": [{"pattern": "notes", "read": text}]})
    await door.expect_refusal("POST", "/v1/operations/set-document-rules", rules)
    hw = door.hw
    site = Site(hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer, "test")
    page = Page(site)
    await page.say("subscribe", {"query": {"collection": "notes", "filter": text}})
    assert (await page.hear("error"))[0]["code"] in ("invalid_filter", "filter_too_large")
    # The conversation goes on.
    await page.subscribe("good", collection="notes", filter="n == 1")
    page.cut()


@pytest.mark.parametrize("name", CONDITIONS)
async def test_hostile_conditions_are_refused(door: Door, name: str) -> None:
    asked = json.dumps({"collection": "notes", "filters": CONDITIONS[name]})
    await door.expect_refusal("POST", f"{BASE}/query", asked)
    await door.expect_refusal("DELETE", NOTE, json.dumps({"ifMatch": CONDITIONS[name]}))


@pytest.mark.parametrize("path", PATHS)
async def test_a_hostile_path_names_nothing(door: Door, path: str) -> None:
    for method, body in (("GET", ""), ("PUT", '{"doc": {"a": 1}}'), ("PATCH", '{"doc": {"a": 1}}'), ("DELETE", "")):
        await door.expect_refusal(method, f"{BASE}/documents/{path}", body)
    write = {"writes": [{"type": "set", "path": path, "data": {"a": 1}}]}
    if "%" not in path:
        await door.expect_refusal("POST", "/trigger/v1/databases/main/write", json.dumps(write))


@pytest.mark.parametrize("name", PATCHES)
async def test_a_hostile_patch_changes_nothing(door: Door, name: str) -> None:
    await door.expect_refusal("PATCH", NOTE, PATCHES[name])


@pytest.mark.parametrize(
    "name", sorted(PATCHES.keys() - {"nothing", "no fields", "only ours", "conditions without end"})
)
async def test_a_hostile_document_is_not_taken_in(door: Door, name: str) -> None:
    text = PATCHES[name]
    if name != "two documents":
        fields = text.removeprefix('{"doc": ')[:-1]
        await door.expect_refusal("POST", f"{BASE}/documents/notes", fields)
        state = fields.replace("{", '{"id": "x",', 1)
        rows = f'{{"collection": "notes", "rows": [{{"newDocumentState": {state}}}]}}'
        await door.expect_refusal("POST", "/replication/v1/push", rows)
    await door.expect_refusal("PUT", f"{BASE}/documents/notes/x", text)
