"""Jobs for Python programs: the app that functions are registered with, and what functions can say while they run.

>>> from headwater.jobs import JobApp
>>> app = JobApp("headwater.db")
>>> @app.job(retries=5)
... async def send_email(to: str) -> None: ...
>>> async with app:
...     await send_email.enqueue(to="ada@example.org")

Where nothing can be awaited: `send_email.enqueue_sync(to="ada@example.org")`. Inside a job both work as they are, and
go to the store of the worker that runs it. `queuectl worker start --app tasks:app` runs them.
"""

from headwater.jobs.app import JobApp
from headwater.services.job_functions import (
    Cancel,
    Interrupted,
    JobContext,
    JobFunction,
    Retry,
    Snooze,
    current_job,
)
from headwater.services.jobs import JobHandle, Jobs

__all__ = [
    "Cancel",
    "Interrupted",
    "JobApp",
    "JobContext",
    "JobFunction",
    "JobHandle",
    "Jobs",
    "Retry",
    "Snooze",
    "current_job",
]
