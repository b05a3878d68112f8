"""A server that holds documents to access rules, and people who ask it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.app import Headwater, make_guarded_door
from headwater.doors.access.settings import load_access
from headwater.doors.wire import Handler
from headwater.model.document_rules import DocumentRule
from tests.contracts.clock import FakeClock
from tests.doors.access.visits import bearer, opened, visit

BASE = "/api/v1/databases/main"
NOTES = f"{BASE}/documents/notes"
EVERYTHING = ["documents:read", "documents:create", "documents:update", "documents:delete", "subscribe", "consume"]
OWN = DocumentRule(
    pattern="notes",
    read='owner == auth.sub || shared == true || auth.sub == "auditor"',
    create="owner == auth.sub",
    update='owner == auth.sub && before.state != "closed"',
    delete="owner == auth.sub",
)
Answer = tuple[int, Any]


class Office:
    """A server that asks who it is, and the tokens of some people."""

    def __init__(self, hw: Headwater, door: Handler) -> None:
        self.hw = hw
        self._door = door
        self._tokens: dict[str, str] = {}

    async def employ(self, *names: str, scopes: list[str] = EVERYTHING) -> None:
        for name in names:
            _, self._tokens[name] = await self.hw.access_tokens().create(name, scopes)

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        text = b"" if body is None else json.dumps(body).encode()
        headers = {**bearer(self._tokens[who]), "content_type": "application/json"}
        response = await self._door(visit(path, method, text, **headers))
        answer = response.body
        if response.chunks is not None:
            answer += b"".join([chunk async for chunk in response.chunks])
        return response.status, json.loads(answer) if answer else None

    async def query(self, who: str, **query: Any) -> list[str]:
        status, found = await self.ask(who, "POST", f"{BASE}/query", {"collection": "notes", **query})
        assert status == 200, found
        return [one["id"] for one in found["docs"]]


@asynccontextmanager
async def opened_office(folder: Path) -> AsyncIterator[Office]:
    """With two people who have notes of their own, one who may read all of them, and an administrator."""
    async with opened(folder, FakeClock()) as hw:
        office = Office(hw, make_guarded_door(hw, load_access(auth="token")))
        await office.employ("ada", "bob", "auditor")
        await office.employ("root", scopes=["admin"])
        await hw.set_document_rules([OWN])
        for name, owner in (("a1", "ada"), ("b1", "bob"), ("a2", "ada")):
            await hw.collection("notes").create({"owner": owner, "state": "open"}, id=name)
        yield office
