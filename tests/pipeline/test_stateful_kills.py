"""A query that remembers (a join of two streams, windows over it) while everything around it is killed, and again.

Python processes of the query die, which ends it, and it begins again from its checkpoint; then its driver does, a Java
process, and the next one goes on. Over a server that one is killed, too, amid reads and commits, and started
again. What comes out is what a few lines of Python make of everything that was pushed: each window once, none missing.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import is_campaign
from tests.pipeline.driver import ATTEMPTS, DRIVER, PYTHON
from tests.pipeline.stateful_driver import ORDERS, PAID_WITHIN_SECONDS, PAYMENTS, TOTALS, WINDOW_SECONDS
from tests.pipeline.store import Store
from tests.pipeline.test_kills import DRIVER_ENVIRONMENT, PLACES, deaths
from tests.scenarios.servers import Server
from tests.tidy.tree import ROOT

# How many drivers (`--rounds` of a campaign), and how many kills each of them sees, of which the last is its own: 32 in
# a campaign, each way.
DRIVERS, DRIVERS_IN_A_CAMPAIGN = 1, 4
KILLS, KILLS_IN_A_CAMPAIGN = 2, 8
# So many micro-batches pass before windows end: from then on there is something to push twice.
BEFORE_THE_FIRST = 4
ORDERS_PER_ROUND = 16
# What Spark says when a Python process was too slow to start.
TOO_BUSY = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
BEGIN = 1_800_000_000
SECONDS_BETWEEN = 25
LOOK_SECONDS = 0.05


class Shop:
    """Orders and payments in the order of their times, and what the query must make of them."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self._orders = 0
        self.expected: dict[tuple[int, str], list[int]] = {}

    def trade(self) -> None:
        """Orders of some minutes, each in a commit of its own; most are paid, some too late, some never."""
        for _ in range(ORDERS_PER_ROUND):
            number, self._orders = self._orders, self._orders + 1
            at = BEGIN + number * SECONDS_BETWEEN
            customer, amount = f"c{number % 3}", self._chance.randrange(100)
            order = {"id": number, "customer": customer, "amount": amount, "at": at}
            self._store.push(order, queue=ORDERS, partition=f"p{number % 3}")
            if self._chance.random() < 0.8:
                self._store.push({"id": number, "at": at}, queue=PAYMENTS, partition=f"p{number % 2}")
                start = at - at % WINDOW_SECONDS
                total = self.expected.setdefault((start, customer), [0, 0])
                total[0] += 1
                total[1] += amount

    def close(self) -> None:
        """The next day: every window that is open ends. Nobody pays."""
        self._orders += 100_000
        at = BEGIN + self._orders * SECONDS_BETWEEN
        self._store.push({"id": -self._orders, "customer": "nobody", "amount": 0, "at": at}, queue=ORDERS)
        self._store.push({"id": -1, "at": at + 2 * PAID_WITHIN_SECONDS}, queue=PAYMENTS)

    def totals(self) -> dict[tuple[int, str], list[int]]:
        """What came out; a window that came twice is no good whatever it says."""
        found: dict[tuple[int, str], list[int]] = {}
        for _, _, total in self._store.records(TOTALS):
            window = (total["start"], total["customer"])
            assert window not in found, f"{window} came twice"
            found[window] = [total["orders"], total["amount"]]
        return found


class Unsteady:
    """Kills a server soon after a micro-batch was planned or done, and starts it again: reads and commits are hit."""

    def __init__(self, server: Server, folder: Path, chance: random.Random) -> None:
        self._server = server
        self._checkpoint = folder / "checkpoint"
        self._chance = chance
        self._seen = self._files()
        self._ended = threading.Event()
        self.kills = 0

    @contextmanager
    def at_work(self, kills_max: int) -> Iterator[None]:
        self._ended.clear()
        thread = threading.Thread(target=self._run, args=(self.kills + kills_max,))
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self, kills_max: int) -> None:
        while not self._ended.wait(LOOK_SECONDS) and self.kills < kills_max:
            files = self._files()
            if files == self._seen:
                continue
            self._seen = files
            self._ended.wait(self._chance.random())
            self._server.kill()
            self.kills += 1
            self._server.start()

    def _files(self) -> set[str]:
        kinds = ("offsets", "commits")
        return {f"{kind}/{path.name}" for kind in kinds for path in (self._checkpoint / kind).glob("[0-9]*")}


def run_driver(address: str, folder: Path, token: Path, *deaths: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.pipeline.stateful_driver", "local[2]", address, str(folder), *deaths],
        cwd=ROOT,
        env={**os.environ, **DRIVER_ENVIRONMENT, "HEADWATER_TOKEN_FILE": str(token)},
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )


def fate(chance: random.Random, number: int, kills: int) -> list[str]:
    """What befalls one driver: Python processes of its query are killed, then it is, each at another place."""
    whom = [PYTHON] * (kills - 1) + [DRIVER]
    places = [PLACES[(number + index) % len(PLACES)] for index in range(kills)]
    steps = [chance.randrange(2) for _ in range(kills)]
    steps[0] += 0 if number else BEFORE_THE_FIRST
    return [f"{place},{step},{who}" for place, step, who in zip(places, steps, whom, strict=True)]


def finish(address: str, folder: Path, token: Path) -> None:
    """Run a driver to its end. Spark gives a Python process ten seconds to start, which a busy machine may exceed."""
    for _ in range(ATTEMPTS):
        ended = run_driver(address, folder, token)
        if ended.returncode == 0 or not any(text in ended.stderr for text in TOO_BUSY):
            break
    assert ended.returncode == 0, ended.stderr[-4_000:]


def ways(campaign: bool) -> list[str]:
    """What is tried with every check is the harder one."""
    return ["file", "server"] if campaign else ["server"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames:
        metafunc.parametrize("way", ways(is_campaign(metafunc.config)))


@pytest.fixture
def token(store: Store, tmp_path: Path) -> Path:
    """A file with a token that allows what such a query needs, and no more."""
    path = tmp_path / "token"
    tokens: Any = store.opened._inner.access_tokens()
    scopes = ("subscribe", "publish")
    _, secret = store.opened._bridge.run(tokens.create("spark", scopes, queues=(ORDERS, PAYMENTS, TOTALS)))
    path.write_text(secret)
    return path


@pytest.mark.timeout(10_800)
def test_a_query_with_state_comes_out_right_whatever_is_killed(
    store: Store,
    token: Path,
    tmp_path: Path,
    way: str,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(20_261_116)
    drivers, kills = DRIVERS, KILLS
    if is_campaign(request.config):
        told: int | None = request.config.getoption("--rounds", default=None)
        drivers, kills = DRIVERS_IN_A_CAMPAIGN if told is None else told, KILLS_IN_A_CAMPAIGN
    shop = Shop(store, chance)
    server = Server(Path(store.address), "--auth", "token") if way == "server" else None
    address = store.address if server is None else server.url
    unsteady = None if server is None else Unsteady(server, tmp_path, chance)
    try:
        for number in range(drivers * ATTEMPTS):
            for _ in range(kills if number else kills + BEFORE_THE_FIRST):
                shop.trade()
            with unsteady.at_work(kills) if unsteady else nullcontext():
                run_driver(address, tmp_path, token, *fate(chance, number, kills))
            if deaths(tmp_path, DRIVER) >= drivers:
                break
        shop.close()
        finish(address, tmp_path, token)
    finally:
        if server is not None:
            server.stop()
    assert shop.totals() == shop.expected
    assert deaths(tmp_path, DRIVER) == drivers
    assert deaths(tmp_path, PYTHON) >= drivers * (kills - 1)
    assert unsteady is None or unsteady.kills >= drivers
    record_property(f"over a {way}, kills of the driver:", drivers)
    record_property("of Python processes of the query:", deaths(tmp_path, PYTHON))
    if unsteady is not None:
        record_property("of the server:", unsteady.kills)
    record_property("windows right, each once:", f"{len(shop.expected):,}")
