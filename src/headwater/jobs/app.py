"""The app: functions, the store that their calls are enqueued in, and the ways to get them there.

Which store that is: what `JobApp(...)` names, or else `HEADWATER_STORE`, or else `headwater.db`. A worker that is
started on another one than the app names says so and ends: two programs that mean one queue must not talk past each
other.
"""

import asyncio
import logging
import os
from types import TracebackType
from typing import Any, Self

from headwater import sync
from headwater.app import Headwater, open_headwater
from headwater.config import Durability
from headwater.errors import Closed, InvalidOption
from headwater.forks import Origin, OwnLock
from headwater.log.job_operations import NewJob
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.bridge import Bridge, Hand, Runs
from headwater.services.job_functions import EnqueuedJob, JobRegistry
from headwater.services.jobs import Jobs
from headwater.services.other_loop import OtherLoop

log = logging.getLogger(__name__)

STORE_VARIABLE = "HEADWATER_STORE"
STORE_DEFAULT = "headwater.db"
# What to call an app that is open, and how to open it where there is none.
NAME, LINE = "this JobApp", "with app:"


class JobApp(JobRegistry):
    """Functions, and the store that their calls are enqueued in: open it with `async with app:`, or with `with app:`
    where there is no async."""

    def __init__(
        self,
        store: str | None = None,
        *,
        database: str = DATABASE_DEFAULT,
        adopt: bool = False,
        durability: Durability | str | None = None,
        housekeeping: bool | None = None,
        lock_wait_seconds: float | None = None,
        record_bytes_max: int | None = None,
        encryption_key: str | None = None,
    ) -> None:
        """The settings are those of `headwater.open`; others come from their `HEADWATER_*` variables."""
        super().__init__()
        self._store_given = store
        self.store = store or os.environ.get(STORE_VARIABLE) or STORE_DEFAULT
        self.database = database
        self._settings: dict[str, Any] = {
            "adopt": adopt,
            "durability": durability,
            "housekeeping": housekeeping,
            "lock_wait_seconds": lock_wait_seconds,
            "record_bytes_max": record_bytes_max,
            "encryption_key": encryption_key,
        }
        self._headwater: Headwater | None = None
        self._hand: Hand | None = None
        self._line: _Line | None = None
        self._making = OwnLock()
        self._origin = Origin()
        self._of_parent: list[object] = []
        self._is_in_worker = False

    # ── opening ──

    async def __aenter__(self) -> Self:
        self._leave_to_parent()
        if self._headwater is not None:
            raise InvalidOption("this JobApp is open already: open it once, where your program starts")
        if self.stand_in is not None:
            return self  # Tests that take what is enqueued need no store.
        self._tell_conflict()
        opened = open_headwater(self.store, database=self.database, **self._settings)
        await opened.start()
        self._headwater = opened
        self.use(opened.jobs)
        try:
            await opened.jobs.register(self.policies())
            await opened.jobs.declare(self.schedules)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._headwater is not None:
            self.use(None)
            await self._headwater.close()
            self._headwater = None

    def __enter__(self) -> Self:
        if self.stand_in is None:
            self._leave_to_parent()
            self._own_line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store that `with app:` or `enqueue_sync` have opened."""
        if not self._origin.is_here:
            return
        with self._making:
            line, self._line = self._line, None
        if line is not None:
            line.close()

    def use(self, jobs: Jobs | None) -> None:
        """Enqueue calls here from now on: `app.use(hw.jobs)`."""
        if jobs is not None:
            self._leave_to_parent()
        super().use(jobs)
        self._hand = None if jobs is None or not _is_in_loop() else Hand(asyncio.get_running_loop(), NAME, LINE)

    def _leave_to_parent(self) -> None:
        """What the parent of this process had open at the fork is the parent's, and is opened anew here. It is kept
        untouched: closing its files would drop the parent's locks."""
        if not self._origin.is_here:
            self._of_parent += [self._headwater, self._jobs, self._line]
            self._headwater = self._jobs = self._hand = self._line = None
            self._origin = Origin()

    def work_for(self, store: str, database: str) -> None:
        """This process runs jobs of that store: calls are enqueued there. An app that names another one is refused."""
        if self._store_given is not None and not _is_same(self._store_given, store):
            raise InvalidOption(
                f"this app keeps its jobs in {self._store_given}, and the worker was started on {store}:"
                f" start it with --store {self._store_given}, or let JobApp() take the store from {STORE_VARIABLE}"
            )
        if self.database not in (DATABASE_DEFAULT, database):
            raise InvalidOption(
                f"this app keeps its jobs in the database {self.database}, and the worker serves {database}:"
                f" start it with --database {self.database}"
            )
        self.store, self.database = store, database
        self._is_in_worker = True

    # ── enqueueing ──

    @property
    def jobs(self) -> Jobs:
        """The jobs of the database that calls are enqueued in."""
        if self.stand_in is None and self._jobs is None and self._is_in_worker:
            return self._own_line().jobs_of_any_loop
        if self.stand_in is None and self._jobs is not None:
            self._origin.check(NAME, f"async with app:, or {LINE}")
        return super().jobs

    def add_sync(self, job: NewJob) -> EnqueuedJob:
        """Enqueue a call that is a job already, without async."""
        if _is_in_loop():
            raise InvalidOption(
                "an event loop runs here, and enqueue_sync would stop it until the disk answers:"
                " write `await function.enqueue(...)`, or call it from a thread (asyncio.to_thread)"
            )
        if self.stand_in is not None:
            return self.stand_in.add_sync(job)
        bridge, jobs = self._sync_way()
        return sync.JobHandle(bridge, bridge.run(jobs.add(job)))

    def _sync_way(self) -> "tuple[Runs, Jobs]":
        """Where a thread hands in its calls: the loop that the app is open on, or else one of its own."""
        if self._jobs is not None:
            if self._hand is None:
                raise Closed(f"{NAME} was opened on no event loop: use `{LINE}` instead")
            self._hand.check()
            return self._hand, self._jobs
        line = self._own_line()
        return line.bridge, line.opened.jobs

    def _own_line(self) -> "_Line":
        self._leave_to_parent()
        with self._making:
            if self._line is None:
                self._tell_conflict()
                self._line = _Line(self)
            return self._line

    def _tell_conflict(self) -> None:
        named = os.environ.get(STORE_VARIABLE)
        if (
            self._store_given is not None
            and named
            and not _is_same(self._store_given, named)
            and not self._is_in_worker
        ):
            log.warning(
                "JobApp(%r) goes before %s=%s: jobs are kept in the first", self._store_given, STORE_VARIABLE, named
            )

    def open_for_line(self) -> Headwater:
        """The store, to be started on a loop of its own."""
        chores = bool(self._settings["housekeeping"])
        return open_headwater(self.store, database=self.database, **{**self._settings, "housekeeping": chores})


class _Line:
    """An open store on an event loop of its own thread. A program may end without closing it: what `enqueue_sync` has
    returned for is on stable storage, and the file is in order whenever a process ends."""

    def __init__(self, app: JobApp) -> None:
        self.bridge = Bridge(LINE, NAME)
        self.opened = app.open_for_line()
        self.opened.life.line = LINE
        try:
            self.bridge.run(self.opened.start())
            if app.functions:
                self.bridge.run(self.opened.jobs.register(app.policies()))
                self.bridge.run(self.opened.jobs.declare(app.schedules))
        except BaseException:
            self.bridge.close()
            raise
        other = OtherLoop(self.opened.jobs_service, Hand(self.bridge.loop, NAME, LINE))
        self.jobs_of_any_loop = Jobs(other, self.opened.name)

    def close(self) -> None:
        """Close the store and end the thread, once, and only in the process that opened them."""
        self.bridge.finish(self.opened.close)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_same(one: str, other: str) -> bool:
    """Whether two names of stores mean the same: paths as they are resolved, addresses as they are written."""
    if "://" in one or "://" in other:
        return one == other
    return os.path.realpath(one) == os.path.realpath(other)
