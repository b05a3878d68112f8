"""pgqueuer's entry points, over PostgreSQL. `pgq run benchmarks.job_apps.pgqueuer:make_queuer` opens it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import PsycopgDriver
from pgqueuer.models import Job

from benchmarks import job_apps


@asynccontextmanager
async def make_queuer() -> AsyncIterator[PgQueuer]:
    async with await psycopg.AsyncConnection.connect(job_apps.address(), autocommit=True) as connection:
        queuer = PgQueuer(PsycopgDriver(connection))

        @queuer.entrypoint("mark")  # type: ignore[untyped-decorator]
        async def mark(job: Job) -> None:
            job_apps.mark((job.payload or b"").decode())

        yield queuer
