"""The newest release of queen-mq, for the core calls."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.doors.live_door import LiveDoor
from tests.tidy.tree import ROOT

PROGRAM = Path(__file__).with_name("newest_client.py")
# script/bootstrap puts it there.
NEWEST = ROOT / ".venv" / "queen-newest"


def test_the_newest_client_pushes_pops_consumes_and_commits(door: LiveDoor) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), door.url],
        env={**os.environ, "PYTHONPATH": str(NEWEST)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
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
