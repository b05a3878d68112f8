"""pgqueuer's entry points, over PostgreSQL. `pgq run benchmarks.job_apps.pgqueuer:main` calls `main`."""

import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import PsycopgDriver
from pgqueuer.models import Job

from benchmarks import job_apps


async def main() -> PgQueuer:
    connection = await psycopg.AsyncConnection.connect(job_apps.address(), autocommit=True)
    queuer = PgQueuer(PsycopgDriver(connection))

    @queuer.entrypoint("mark")  # type: ignore[untyped-decorator]
    async def mark(job: Job) -> None:
        job_apps.mark((job.payload or b"").decode())

    return queuer
