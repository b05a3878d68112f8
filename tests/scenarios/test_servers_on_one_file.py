"""Several servers on one file, and servers that are killed: nothing answered is lost, leases exclude, order is kept."""

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.servers import Load, Server

ROUNDS = 3
ROUNDS_OF_A_CAMPAIGN = 100


def test_two_servers_share_a_file_and_one_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "headwater.db"
    servers = [Server(store), Server(store)]
    load = Load([server.url for server in servers], seed=1)
    try:
        load.start()
        load.wait_for(100)
        servers[0].kill()
        load.wait_for(100)
        servers[0].start()
        load.wait_for(50)
        load.finish()
    finally:
        for server in servers:
            server.stop()
    load.verify()


def test_a_server_that_is_killed_again_and_again_loses_nothing_it_answered(
    tmp_path: Path, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    is_campaign = pytestconfig.getoption("campaign")
    server = Server(tmp_path / "headwater.db")
    load = Load([server.url], seed=2)
    recoveries: list[float] = []
    try:
        load.start()
        for _ in range(ROUNDS_OF_A_CAMPAIGN if is_campaign else ROUNDS):
            load.wait_for(40)
            server.kill()
            killed = time.monotonic()
            server.start()
            recoveries.append(load.wait_for_answer(killed))
        load.wait_for(20)
        load.finish()
    finally:
        server.stop()
    load.verify()
    recoveries.sort()
    median, p99 = recoveries[len(recoveries) // 2], recoveries[math.ceil(len(recoveries) * 0.99) - 1]
    record_property("kills", len(recoveries))
    record_property("seconds until it answers again, median", f"{median:.2f}")
    record_property("p99", f"{p99:.2f}")
