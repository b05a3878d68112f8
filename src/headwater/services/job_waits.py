"""Waiting for jobs to end: one question for all who wait, each time the log says that jobs have changed."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from headwater.errors import HeadwaterError, JobMissing
from headwater.log.operations import Touch
from headwater.model.job import FINISHED, JOBS_QUEUE, JobState
from headwater.model.selection import Selection
from headwater.outage import tell, through_outages
from headwater.services.follow import Followers
from headwater.stores.contract import Store
from headwater.stores.job_questions import FindJobStates

log = logging.getLogger(__name__)


class JobWaits:
    """Everybody in this process who waits for a job."""

    def __init__(self, store: Store, followers: Followers) -> None:
        self._store = store
        self._followers = followers
        self._waiting: dict[str, dict[str, list[asyncio.Future[JobState]]]] = {}
        self._unwatch: dict[str, Callable[[], None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._again: set[str] = set()

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state in which a job ended; TimeoutError when it has not in that time."""
        future: asyncio.Future[JobState] = asyncio.get_running_loop().create_future()
        await self._followers.ready()
        # Registered before the first look, or an end in between would be missed.
        self._remember(database, name, future)
        try:
            states = await self._store.ask(FindJobStates(database, [name]))
            if name not in states:
                raise JobMissing(f"there is no job {name!r}")
            if states[name] in FINISHED:
                return states[name]
            async with asyncio.timeout(timeout_seconds):
                return await future
        finally:
            self._forget(database, name, future)

    def fail(self, error: HeadwaterError) -> None:
        """End all waits with this error: no job will end any more."""
        for future in self._futures():
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Tell those who still wait that nothing more will come."""
        if self._asking is not None:
            # In an outage it would ask for as long as that lasts.
            self._asking.cancel()
            await asyncio.wait([self._asking])
        for future in self._futures():
            future.cancel()

    def _futures(self) -> list[asyncio.Future[JobState]]:
        return [future for names in self._waiting.values() for futures in names.values() for future in futures]

    def _touched(self, database: str, touches: Sequence[Touch]) -> None:
        """Jobs of a database changed, and somebody waits for one: ask. Of a lost store everybody is told anyway."""
        if touches:
            self._again.add(database)
        if touches and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._look(), name="headwater-job-waits")

    async def _look(self) -> None:
        try:
            while self._again:
                database = self._again.pop()
                names = list(self._waiting.get(database, ()))
                if names:
                    asked = partial(self._store.ask, FindJobStates(database, names))
                    self._settle(database, names, await through_outages(asked))
        except Exception as error:
            tell(log, "those who wait for jobs could not be answered; the next change of a job tries again", error)
        finally:
            self._asking = None

    def _settle(self, database: str, asked: list[str], states: dict[str, JobState]) -> None:
        """Answer those who were asked for; whoever came meanwhile has a look of their own."""
        waiting = self._waiting.get(database, {})
        for name in asked:
            state = states.get(name)
            for future in waiting.get(name, ()):
                if future.done():
                    continue
                if state is None:
                    future.set_exception(JobMissing(f"job {name!r} was dropped"))
                elif state in FINISHED:
                    future.set_result(state)

    def _remember(self, database: str, name: str, future: asyncio.Future[JobState]) -> None:
        if database not in self._waiting:
            jobs = Selection(database, (JOBS_QUEUE,))
            self._unwatch[database] = self._followers.watch(jobs, partial(self._touched, database))
        self._waiting.setdefault(database, {}).setdefault(name, []).append(future)

    def _forget(self, database: str, name: str, future: asyncio.Future[JobState]) -> None:
        names = self._waiting.get(database, {})
        if future in names.get(name, ()):
            names[name].remove(future)
        if name in names and not names[name]:
            del names[name]
        if not names and self._waiting.pop(database, None) is not None:
            self._unwatch.pop(database)()
