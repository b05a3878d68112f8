"""A store whose write lock another program holds: a flow waits for its turn, or says so and changes nothing."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.errors import StoreBusy
from headwater.pipeline.failures import told_in_one_line
from headwater.pipeline.flows import load
from headwater.pipeline.flows.load import LoadFiles
from headwater.pipeline.summary import Summary
from tests.pipeline.flows.logs import fill, oracle
from tests.waiting import expect_soon

HOLDER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""
LINES = [{"id": number} for number in range(500)]
PATIENCE_SECONDS = 120


@contextmanager
def held_lock(store: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the write lock until it is sent a line."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


def is_open_here(store: Path) -> bool:
    """Whether this process has the file open: the flow is at its door, and the lock is not its own."""
    return any(os.path.realpath(link) == str(store) for link in Path("/proc/self/fd").iterdir())


def test_a_flow_waits_for_the_lock_or_says_who_has_it_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    store, file = tmp_path / "hw.db", tmp_path / "a.ndjson"
    fill(store, 30, queue="others")
    file.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    job = LoadFiles(store=str(store), queue="orders", files=(str(file),))
    with (
        held_lock(store),
        pytest.raises(StoreBusy, match=r"another program (holds|held) the write lock"),
        told_in_one_line(),
    ):
        load.run(spark, job)
    assert oracle(store) == {}
    assert not is_open_here(store)

    done: list[Summary] = []
    with held_lock(store) as holder:
        flow = threading.Thread(target=lambda: done.append(load.run(spark, job)))
        flow.start()
        expect_soon(lambda: is_open_here(store), PATIENCE_SECONDS)
        holder.communicate("let go\n")
        flow.join(PATIENCE_SECONDS)
    assert done[0].facts["loaded"] == len(LINES)
    assert [kept.payload for kept in oracle(store)["Default"]] == LINES
