"""A driver that dies at the worst moment, again and again: what it copies is there once, in order, and complete."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import is_campaign
from tests.pipeline.driver import ATTEMPTS, DRIVER, batches_done
from tests.pipeline.store import JAVA_OPTIONS, Store
from tests.tidy.tree import ROOT

PLACES = ("after", "write", "before")
KILLS, KILLS_IN_A_CAMPAIGN = 1, 24
# A driver runs the source that its test does, also where a bug is planted in that.
SOURCE = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
DRIVER_ENVIRONMENT = {"PYTHONPATH": SOURCE, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}


def run_driver(store: Store, folder: Path, *death: str, master: str = "local[2]") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.pipeline.driver", master, store.address, str(folder), *death],
        cwd=ROOT,
        env={**os.environ, **DRIVER_ENVIRONMENT, "SPARK_WORKER_DIR": str(folder / "work")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def push_some(store: Store, chance: random.Random) -> None:
    """Ten commits, some of them large enough for a micro-batch of their own."""
    for _ in range(10):
        count = chance.choice([1, 3, 8, 30])
        begin = len(store.pushed)
        store.push(*({"id": begin + index} for index in range(count)), partition=f"p{chance.randrange(3)}")


def oracle(store: Store) -> list[tuple[str, int, Any]]:
    """What the copies must be, from what was pushed: offsets and payloads of every partition, in order."""
    return sorted(
        ((partition, offset, payload) for _, partition, offset, payload in store.pushed), key=lambda place: place[:2]
    )


def copies(store: Store) -> list[tuple[str, int, Any]]:
    found = store.records("copies")
    assert [(partition, offset) for partition, offset, _ in found] == [place[:2] for place in oracle(store)]
    return [(partition, copy["offset"], json.loads(copy["value"])) for partition, _, copy in found]


def finish(store: Store, folder: Path, *death: str, master: str = "local[2]") -> None:
    """Run a driver to its end. Spark gives a Python process ten seconds to start, which a busy machine may exceed."""
    for _ in range(ATTEMPTS):
        ended = run_driver(store, folder, *death, master=master)
        if "Python worker failed to connect back" not in ended.stderr:
            break
    assert ended.returncode == 0, ended.stderr


def deaths(folder: Path, whom: str = DRIVER) -> int:
    """How often the driver was killed, or a Python process of its query."""
    return len(list(folder.glob(f"death-{whom}-*")))


@pytest.mark.timeout(7_200)
def test_a_driver_that_is_killed_copies_everything_once(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(20_261_115)
    kills = KILLS_IN_A_CAMPAIGN if is_campaign(request.config) else KILLS
    for number in range(kills * ATTEMPTS):
        push_some(store, chance)
        batch = batches_done(tmp_path) + chance.randrange(2)
        ended = run_driver(store, tmp_path, PLACES[number % len(PLACES)], str(batch))
        assert ended.returncode != 0, "the driver was to be killed and was not"
        if deaths(tmp_path) == kills:
            break
    finish(store, tmp_path)
    assert copies(store) == oracle(store)
    assert deaths(tmp_path) == kills
    record_property("kills", kills)


@pytest.mark.timeout(1_200)
def test_a_cluster_replaces_what_is_killed_and_copies_nothing_twice(store: Store, tmp_path: Path) -> None:
    """Two executors, each a Java process of its own, read and write the same store; a worker and an executor die."""
    push_some(store, random.Random(1))
    finish(store, tmp_path, "worker", "1", master="local-cluster[2,1,1024]")
    assert {path.name for path in tmp_path.glob("killed-*")} == {"killed-worker", "killed-executor"}
    assert batches_done(tmp_path) > 3
    assert copies(store) == oracle(store)
