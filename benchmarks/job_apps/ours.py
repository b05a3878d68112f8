"""Headwater's functions."""

from benchmarks import job_apps
from headwater.jobs import JobApp

app = JobApp(job_apps.address() or f"{job_apps.folder()}/headwater.db")
mark = app.job(job_apps.mark)
