"""The real RxDB, from npm, in node: two replicas exchange documents through a server, part, and come together again."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import headwater
from tests.browser.npm import INSTALL_SECONDS_MAX, installed, needs_node
from tests.client.server import Server

# Version 17 wants a newer node.
PACKAGES = ("rxdb@16.21.1", "rxjs@7.8.2")
SCRIPT = Path(__file__).parent / "rxdb" / "replicas.mjs"
RUN_SECONDS_MAX = 120

pytestmark = [needs_node, pytest.mark.timeout(INSTALL_SECONDS_MAX + RUN_SECONDS_MAX)]


async def run_replicas(url: str, folder: Path) -> dict[str, Any]:
    """What both replicas hold, by stage."""
    # Modules are found from where a script lies.
    (folder / "node_modules").symlink_to(installed(*PACKAGES) / "node_modules")
    script = folder / SCRIPT.name
    script.write_text(SCRIPT.read_text())
    node = await asyncio.create_subprocess_exec("node", str(script), url, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(RUN_SECONDS_MAX):
            told, _ = await node.communicate()
    finally:
        if node.returncode is None:
            node.kill()
    assert node.returncode == 0
    return {stage["stage"]: stage for stage in map(json.loads, told.splitlines())}


def names(held: list[dict[str, Any]]) -> list[str]:
    return [document["id"] for document in held]


async def test_replicas_of_rxdb_exchange_part_and_come_together(tmp_path: Path) -> None:
    async with Server(tmp_path / "headwater.db") as server, headwater.connect(server.url) as hw:
        notes = hw.collection("notes")
        for number in range(7):
            await notes.create({"text": "from the server", "tags": []}, id=f"s{number}")
        await notes.create({"text": "first", "tags": []}, id="shared")
        stages = await run_replicas(server.url, tmp_path)
        kept = {document.id: document for document in await notes.query(show_deleted=True)}

    of_server = [*(f"s{number}" for number in range(7)), "shared"]
    begun, exchanged, apart, together = (stages[name] for name in ("begun", "exchanged", "apart", "together"))
    assert names(begun["one"]) == names(begun["other"]) == of_server
    assert begun["pulls"] >= 3, "in batches of three"
    assert names(exchanged["one"]) == names(exchanged["other"]) == ["from-one", "from-other", *of_server]

    assert "while-away" in names(apart["one"])
    assert "from-other" not in names(apart["one"])
    assert "while-away" not in names(apart["other"])

    assert together["one"] == together["other"]
    held = {document["id"]: document for document in together["one"]}
    assert sorted(held) == sorted(["from-one", "while-away", *of_server])
    # Both wrote to it: what the conflict handler made of it is what everybody has.
    assert held["shared"] == {"id": "shared", "text": "other was here", "tags": ["one", "other"]}

    assert kept["from-other"].deleted
    living = {name: {"id": name, **one.data} for name, one in kept.items() if not one.deleted}
    assert living == held
