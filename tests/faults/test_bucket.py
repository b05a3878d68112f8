"""Brokers over a real S3 server with a bad way to it: answers get lost, refusals mean nothing, brokers are stopped and
killed. Nothing that was answered is lost, nothing is there twice, and who wakes up late answers nobody."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.config import Config
from headwater.model.names import Lsn
from headwater.model.record import decode_payload
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.log import LSN_MAX
from tests.faults.conftest import Rounds
from tests.faults.s3_proxy import S3Proxy, bad_way
from tests.seaweed_server import BUCKET, SeaweedServer, environment_for
from tests.waiting import expect_soon

BROKERS = 3
LEASE_SECONDS = 0.5
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seaweed() -> Iterator[SeaweedServer]:
    made = SeaweedServer()
    yield made
    made.stop()


class Fleet:
    """Brokers that are started again when they are killed, and what they wrote down."""

    def __init__(self, folder: Path, address: str, port: int, pushes: int) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "tests.faults.bucket_broker", address]
        self._environment = {**os.environ, **environment_for(port)}
        self._pushes = str(pushes)
        self.running = [self._begin(number) for number in range(BROKERS)]

    def _begin(self, number: int) -> "subprocess.Popen[bytes]":
        command = [*self._command, str(self._folder / f"{number}.jsonl"), f"b{number}", self._pushes]
        return subprocess.Popen(command, env=self._environment, cwd=ROOT)

    @property
    def alive(self) -> list[int]:
        return [number for number, process in enumerate(self.running) if process.poll() is None]

    def kill(self, number: int) -> None:
        """As a machine that fails; another takes its place."""
        self.running[number].kill()
        self.running[number].wait()
        self.running[number] = self._begin(number)

    def sleep(self, number: int, seconds: float) -> None:
        """As a machine that is suspended, and goes on as if nothing had been."""
        self.running[number].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.running[number].send_signal(signal.SIGCONT)

    def told(self) -> list[dict[str, Any]]:
        """All that was written down, of each line the whole."""
        lines = [line for path in sorted(self._folder.glob("*.jsonl")) for line in path.read_text().splitlines(True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def end(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


def disturb(fleet: Fleet, chance: random.Random, kills_max: int) -> tuple[int, int]:
    """Until all brokers are through: how often one slept, and how often one was killed."""
    sleeps, kills = 0, 0
    while fleet.alive:
        time.sleep(chance.uniform(0.1, 0.8))
        number = chance.choice(fleet.alive or [0])
        if fleet.running[number].poll() is not None:
            continue
        if chance.random() < 0.25 and kills < kills_max:
            fleet.kill(number)
            kills += 1
        elif chance.random() < 0.5:
            fleet.sleep(number, LEASE_SECONDS * chance.choice((0.5, 2.0, 4.0)))
            sleeps += 1
    return sleeps, kills


async def kept(address: str, server: SeaweedServer) -> list[tuple[str, int, int]]:
    """Payload, offset and LSN of all that is there, read without faults."""
    with patch.dict(os.environ, environment_for(server.port)):
        store = open_store(address, Config(), FakeClock())
        await store.open()
    try:
        assert (await store.examine()).problems == []
        segments = await store.read(Lsn(0), LSN_MAX, 1_000_000)
    finally:
        await store.close()
    return [
        (decode_payload(record.data), segment.first_offset + place, segment.lsn)
        for segment in segments
        for place, record in enumerate(segment.records)
    ]


def check(told: list[dict[str, Any]], found: list[tuple[str, int, int]]) -> None:
    places = {payload: (offset, lsn) for payload, offset, lsn in found}
    assert len(places) == len(found), "something was applied twice"
    assert [offset for _, offset, _ in found] == list(range(len(found)))
    pushes = [line for line in told if "push" in line]
    lost = [line["push"] for line in pushes if line["push"] not in places]
    assert lost == []
    elsewhere = [line["push"] for line in pushes if places[line["push"]] != (line["offset"], line["lsn"])]
    assert elsewhere == []
    answered = sorted((line["told"], line["lsn"]) for line in pushes)
    for read in (line for line in told if "read" in line):
        before = [lsn for at, lsn in answered if at < read["asked"]]
        assert read["read"] >= max(before, default=0), "a read missed what was answered before it was asked"


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("ship", ["chain", "image"])
async def test_three_brokers_on_a_bad_way_lose_nothing_and_repeat_nothing(
    seaweed: SeaweedServer,
    tmp_path: Path,
    rounds: Rounds,
    ship: str,
    record_property: Callable[[str, object], None],
) -> None:
    pushes = rounds(24, 5_000 // BROKERS)
    address = f"s3://{BUCKET}/{seaweed.new_key()}?ship={ship}&lease_seconds={LEASE_SECONDS}&wait_seconds=3600"
    with bad_way(seaweed.port, seed=7) as proxy:
        fleet = Fleet(tmp_path, address, proxy.port, pushes)
        try:
            sleeps, kills = disturb(fleet, random.Random(11), rounds(2 * BROKERS, 20 * BROKERS))
            assert [process.returncode for process in fleet.running] == [0] * BROKERS
        finally:
            fleet.end()
    told = fleet.told()
    answered = len([line for line in told if "push" in line])
    assert answered >= 3 * pushes * BROKERS
    check(told, await kept(address, seaweed))
    assert_it_was_bad(proxy)
    record_property(f"{ship}: pushes answered, all there once", f"{answered:,}")
    record_property("reads answered, none of an older state", f"{len(told) - answered:,}")
    record_property("brokers killed by -9", kills)
    record_property("brokers stopped and woken", sleeps)
    record_property("what became of requests to the bucket", dict(sorted(proxy.met.items())))


def assert_it_was_bad(proxy: S3Proxy) -> None:
    puts = sum(proxy.met.values())
    assert puts > 100
    assert all(proxy.met[fate] for fate in ("lose", "conflict", "busy"))


async def test_a_broker_that_wakes_late_tells_nobody_what_it_knew(seaweed: SeaweedServer, tmp_path: Path) -> None:
    address = f"s3://{BUCKET}/{seaweed.new_key()}?lease_seconds={LEASE_SECONDS}&wait_seconds=3600"
    fleet = Fleet(tmp_path, address, seaweed.port, 10_000)
    try:
        expect_soon(lambda: len(fleet.told()) > 20, seconds=60)
        for _ in range(2):
            for number in range(BROKERS):
                fleet.sleep(number, 3 * LEASE_SECONDS)
        count = len(fleet.told())
        expect_soon(lambda: len(fleet.told()) > count + 20, seconds=60)
    finally:
        fleet.end()
    check(fleet.told(), await kept(address, seaweed))
