"""One Spark session for all tests of a run that use it: `tests/groups.py` keeps them in one process, so that one Java
starts for them and no more; a test that starts a Java of its own, or needs none, may run in any.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater.sync
from headwater.pipeline import start_session
from tests.pipeline.store import JAVA_OPTIONS, Store

KEY = "5a" * 32


@pytest.fixture(autouse=True)
def imports_undone(tmp_path: Path) -> Iterator[None]:
    """Commands run in the process of the tests: where one imports a flow from, and the flow, goes with its test."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Executors find the key of encrypted queues where every program of Headwater does.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HEADWATER_ENCRYPTION_KEY", KEY)
        environment.setenv("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
        events = tmp_path_factory.mktemp("events")
        on_interrupt = signal.getsignal(signal.SIGINT)
        session = start_session(
            "local[2]",
            log=tmp_path_factory.mktemp("spark") / "spark.log",
            # What Spark would tell its history server: no secret may be in it.
            settings={
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": f"file:{events}",
                # Where tables of the catalog are; else in the folder that the tests run in.
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    # PySpark sets one that ends the program. The tests that run in this process afterwards, of signals among them, are
    # to meet what they would meet in any other.
    signal.signal(signal.SIGINT, on_interrupt)
    yield session
    session.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, open for pushes."""
    with headwater.sync.open(str(tmp_path / "log.db"), housekeeping=False, encryption_key=KEY) as opened:
        yield Store(opened, str(tmp_path / "log.db"))
