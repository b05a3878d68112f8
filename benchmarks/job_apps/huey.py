"""huey's tasks, in SQLite with fsync."""

from huey import SqliteHuey

from benchmarks import job_apps

huey = SqliteHuey("bench", filename=f"{job_apps.folder()}/huey.db", fsync=True, results=False)
mark = huey.task(name="mark")(job_apps.mark)
