"""The format over Spark Connect, against the server that comes with PySpark, started as docs/spark.md has it.

Its client needs packages that the tests do without otherwise:
.venv/bin/pip install --require-hashes -r requirements/spark-connect.txt
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import InvalidOption
from headwater.pipeline import start_session
from headwater.pipeline.session import spark_environment
from tests.pipeline.store import JAVA_OPTIONS, Store
from tests.ports import free_port
from tests.tidy.tree import ROOT
from tests.waiting import expect_soon

PACKAGES = ("google.rpc", "grpc", "grpc_status", "zstandard")
SECONDS_MAX = 600


def is_missing(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is None
    except ModuleNotFoundError:
        return True


needs_client = pytest.mark.skipif(
    any(map(is_missing, PACKAGES)), reason="needs the extra spark-connect: requirements/spark-connect.txt"
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect."""
    port = free_port()
    environment = {**os.environ, **spark_environment(), "JAVA_TOOL_OPTIONS": JAVA_OPTIONS}
    # In front, so that it is ours to end.
    environment |= {"SPARK_NO_DAEMONIZE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(environment["SPARK_HOME"]) / "sbin" / "start-connect-server.sh"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            ["bash", str(script), "--master", "local[2]", *options],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            expect_soon(lambda: "Spark Connect server started" in (tmp_path / "server.log").read_text(), SECONDS_MAX)
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@needs_client
@pytest.mark.timeout(SECONDS_MAX * 2)
def test_tables_streams_the_sink_and_sql_work_over_spark_connect(store: Store, address: str, tmp_path: Path) -> None:
    for number in range(12):
        store.push({"customer": f"c{number % 2}", "amount": number}, partition=f"p{number % 3}")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.connected", address, store.address, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert "no such option: qeue (did you mean queue?)" in seen.pop("typo")
    assert (seen.pop("kept"), seen.pop("kept now")) == ([[1, 1, 1]] * 2, 3)
    assert seen == {"counts": [12, 4, 12], "sums": {"c0": 30, "c1": 36}, "by SQL": 13}
    assert ("sql", 0, {}) in store.records()
    copies = [copy for _, _, copy in store.records("copies")]
    orders = [{"customer": f"c{number % 2}", "amount": number} for number in range(12)]
    assert sorted(copies, key=lambda copy: copy.get("amount", -1)) == [{}, *orders]


def test_an_address_of_spark_connect_is_no_master() -> None:
    with pytest.raises(InvalidOption, match=r"SparkSession\.builder\.remote\('sc://there'\).*register"):
        start_session("sc://there")
