"""The newest release of queen-mq, for the core calls, and for what it asks for that is not served."""

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


def test_the_newest_client_is_told_what_is_not_served_and_nothing_of_such_a_transaction_is_done(
    door: LiveDoor,
) -> None:
    told = seen_by_it(door, "ask_for_what_is_not_served")
    assert told.pop("charges") == []
    wanted = {
        "once": ["'kv': this server has no key-value store"],
        "put": ["'kv': this server has no key-value store"],
        "put alone": ["'kv': this server has no key-value store"],
        "timer": ["'timers': this server has no timers"],
        "both": ["'kv': this server has no key-value store", "'timers': this server has no timers"],
        "kv": ["this server has no key-value store"],
        "lock": ["this server has no locks"],
        "fetch": ["this server has no reads by offset"],
        "changed": ["this server does not tell which partitions"],
        "schedule": ["this server has no timers"],
    }
    assert {name: [text for text in texts if text in told[name]] for name, texts in wanted.items()} == wanted, told
