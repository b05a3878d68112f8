"""Jobs for Python programs: the app that functions are registered with, and what functions can say while they run.

>>> from headwater.jobs import JobApp
>>> app = JobApp("headwater.db")
>>> @app.job(retries=5)
... async def send_email(to: str) -> None: ...
>>> async with app:
...     await send_email.enqueue(to="ada@example.org")

`queuectl worker start --app tasks:app` runs them.
"""

from types import TracebackType
from typing import Any, Self

from headwater.app import Headwater, open_headwater
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.job_functions import (
    Cancel,
    JobContext,
    JobFunction,
    JobRegistry,
    Retry,
    Snooze,
    current_job,
)
from headwater.services.jobs import JobHandle, Jobs

__all__ = [
    "Cancel",
    "JobApp",
    "JobContext",
    "JobFunction",
    "JobHandle",
    "Jobs",
    "Retry",
    "Snooze",
    "current_job",
]


class JobApp(JobRegistry):
    """Functions, and the store that their calls are enqueued in. Open it with `async with app:`."""

    def __init__(self, store: str = "headwater.db", *, database: str = DATABASE_DEFAULT, **settings: Any) -> None:
        super().__init__()
        self.store = store
        self.database = database
        self._settings = settings
        self._headwater: Headwater | None = None

    async def __aenter__(self) -> Self:
        self._headwater = open_headwater(self.store, database=self.database, **self._settings)
        await self._headwater.start()
        self.use(self._headwater.jobs)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.use(None)
        if self._headwater is not None:
            await self._headwater.close()
            self._headwater = None
