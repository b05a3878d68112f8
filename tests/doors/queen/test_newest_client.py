"""The newest release of queen-mq, for the core calls."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.doors.live_door import LiveDoor
from tests.tidy.tree import ROOT

PROGRAM = Path(__file__).with_name("newest_client.py")
# script/bootstrap puts it there.
NEWEST = ROOT / ".venv" / "queen-newest"


def seen_by_it(door: LiveDoor, deed: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), door.url, deed],
        env={**os.environ, "PYTHONPATH": str(NEWEST)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_newest_client_pushes_pops_consumes_and_commits(door: LiveDoor) -> None:
    assert seen_by_it(door, "try_core_calls") == {
        "configured": True,
        "pushed": ["queued"] * 6,
        "popped": [0, 1],
        "renewed": True,
        "acked": [True, True],
        "committed": True,
        "invoices": [2],
        "letters": [[3, "broken"]],
        "consumed": [0, 1, 2, 3, 4, 5],
        "buffered": [9],
        "empty": [],
        "deleted": True,
    }


def test_the_newest_client_handles_all_in_order_though_one_of_a_batch_failed(door: LiveDoor) -> None:
    """It leaves the rest of the batch alone then, and counts on its being given back before the lease runs out."""
    assert seen_by_it(door, "fail_one_of_a_batch") == {"handled": [*range(8), *range(7, 12)]}
    with door.client() as client:
        [group] = client.get("/api/v1/consumer-groups").json()
        assert (group["name"], group["totalLag"], group["leased"]) == ("g", 0, 0)
        assert client.get("/api/v1/dlq?queue=orders").json()["total"] == 0
