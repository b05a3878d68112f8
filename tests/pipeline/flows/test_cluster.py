"""The flows on a cluster: executors are processes of their own, in folders of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.flows.logs import oracle
from tests.tidy.tree import ROOT

LINES = [{"id": number, "lane": f"p{number % 3}"} for number in range(300)]


@pytest.mark.timeout(900)
def test_every_flow_runs_on_two_executors_and_keeps_every_record(tmp_path: Path) -> None:
    (tmp_path / "orders.ndjson").write_text("".join(f"{json.dumps(line)}\n" for line in LINES) + "{broken\n")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.flows.cluster", "orders.ndjson"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_WORKER_DIR": str(tmp_path / "work")},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    facts = json.loads(ended.stdout.splitlines()[-1])
    assert facts["executors"] == 2
    assert (facts["load"]["rows in"], facts["load"]["rows out"], facts["load"]["quarantined"]) == (301, 300, 1)
    assert (facts["archive"]["archived"], facts["restore"]["restored"]) == (300, 300)
    assert facts["rollup"]["messages"] == 600
    assert facts["export"]["rows out"] == 300
    assert facts["rows"] == [[f"p{lane}", offset] for lane in range(3) for offset in range(100)]
    assert facts["typed"] == [line["id"] for line in LINES]
    store = tmp_path / "hw.db"
    assert oracle(store, "copy") == oracle(store)
    exported = [json.loads(line) for path in (tmp_path / "out").glob("lsn-*") for line in path.read_text().splitlines()]
    assert sorted(exported, key=lambda line: line["id"]) == LINES
