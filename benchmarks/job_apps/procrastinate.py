"""procrastinate's tasks, over PostgreSQL."""

import procrastinate

from benchmarks import job_apps

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=job_apps.address()))


@app.task(name="mark", pass_context=False)  # type: ignore[untyped-decorator]
async def mark(path: str) -> None:
    job_apps.mark(path)
