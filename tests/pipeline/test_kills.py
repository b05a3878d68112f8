"""A driver that dies at the worst moment, again and again: what it copies is there once, in order, and complete."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import is_campaign
from tests.pipeline.store import Store
from tests.tidy.tree import ROOT

PLACES = ("after", "write", "before")
KILLS, KILLS_IN_A_CAMPAIGN = 3, 24


def run_driver(store: Store, folder: Path, *death: str, master: str = "local[2]") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.pipeline.driver", master, store.address, str(folder), *death],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
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


def batches_done(folder: Path) -> int:
    """How many micro-batches Spark has noted as done."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.timeout(3_600)
def test_a_driver_that_is_killed_copies_everything_once(
    store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(20_261_115)
    kills = 0
    for number in range(KILLS_IN_A_CAMPAIGN if is_campaign(request.config) else KILLS):
        push_some(store, chance)
        batch = batches_done(tmp_path) + chance.randrange(2)
        ended = run_driver(store, tmp_path, PLACES[number % len(PLACES)], str(batch))
        assert ended.returncode != 0, "the driver was to be killed and was not"
        kills += 1
    ended = run_driver(store, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert copies(store) == oracle(store)
    assert kills >= KILLS


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_copied_twice(store: Store, tmp_path: Path) -> None:
    push_some(store, random.Random(1))
    ended = run_driver(store, tmp_path, "worker", "1", master="local[2,4]")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "killed").exists()
    assert copies(store) == oracle(store)


def test_two_executors_of_a_cluster_read_and_write_the_same_store(store: Store, tmp_path: Path) -> None:
    push_some(store, random.Random(2))
    ended = run_driver(store, tmp_path, master="local-cluster[2,1,1024]")
    assert ended.returncode == 0, ended.stderr
    assert copies(store) == oracle(store)
