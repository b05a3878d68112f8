"""A pooler in front of PostgreSQL: PgBouncer itself, where it is installed."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

import headwater
from headwater.errors import ConfigError
from tests.parent_death import end_with_parent
from tests.ports import free_port
from tests.postgres_server import USER, Server, server

PROGRAM = shutil.which("pgbouncer")
START_SECONDS_MAX = 30.0

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed here")

StartPooler = Callable[[str], str]


@pytest.fixture(scope="module")
def of() -> Server:
    return server()


@pytest.fixture
def start_pooler(of: Server) -> Iterator[StartPooler]:
    """Starts one in a mode; what is answered is the address of the database by way of it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        port = free_port()
        config = of.folder / f"pooler-{port}.ini"
        config.write_text(
            f"[databases]\npostgres = host={of.folder} port={of.port} user={USER}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
        )
        started.append(run(of, config))
        address = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        wait_for(address, started[-1])
        return address

    yield start
    for process in started:
        process.terminate()
        process.wait(START_SECONDS_MAX)


def run(of: Server, config: Path) -> "subprocess.Popen[bytes]":
    assert PROGRAM is not None
    return subprocess.Popen(
        [PROGRAM, "-q", str(config)],
        cwd="/",
        user=of._user(),
        group=of._group(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=partial(end_with_parent, signal.SIGTERM),
    )


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            assert process.poll() is None, "the pooler has ended"
            assert time.monotonic() < deadline, "the pooler did not start"
            time.sleep(0.05)
        else:
            return


async def test_a_pooler_that_lends_sessions_is_refused_and_nobody_meets_our_settings(start_pooler: StartPooler) -> None:
    address = start_pooler("transaction")
    with closing(psycopg.connect(address, autocommit=True, prepare_threshold=None)) as neighbour:
        before = neighbour.execute("SHOW search_path").fetchone()
        for _ in range(2):
            with pytest.raises(ConfigError, match="pool_mode=session"):
                await headwater.open(f"{address}?schema=lent").__aenter__()
        assert neighbour.execute("SHOW search_path").fetchone() == before
        assert neighbour.execute("SELECT to_regnamespace('lent')::text").fetchone() == (None,)


async def test_a_pooler_that_gives_a_session_to_one_works(start_pooler: StartPooler, of: Server) -> None:
    address = f"{start_pooler('session')}?schema={of.new_schema()}"
    async with headwater.open(address, housekeeping=False) as hw:
        await hw.queue("orders").push(1)
        assert [message.payload for message in await hw.queue("orders").pop()] == [1]
