"""The same verbs without async: every call is handed to an event loop in a thread of its own.

>>> import headwater.sync
>>> with headwater.sync.open("headwater.db") as hw:
...     hw.queue("orders").push({"id": 7})

Nothing is written twice: `bridged` turns a coroutine of the async face into a plain call with the same arguments.
"""

import asyncio
import builtins
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack

from headwater import app
from headwater.errors import Closed
from headwater.log.job_operations import NewJob
from headwater.services import database as async_database
from headwater.services import jobs as async_jobs
from headwater.services import queue as async_queue
from headwater.services.consumption import Consumption
from headwater.services.job_options import JobOptions, takes
from headwater.services.messages import Message
from headwater.services.transaction import Together

if TYPE_CHECKING:
    from headwater.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")


class Runs(Protocol):
    """Brings coroutines to the loop that they belong to."""

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The outcome of a coroutine, from the loop's thread."""
        ...


class Bridge:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="headwater-loop")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """The outcome of a coroutine, from the loop's thread."""
        if self._loop.is_closed():
            work.close()
            raise Closed("Headwater is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop."""
        return self._loop

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bridged:
    """Something of the async face, held together with the loop it lives on."""

    def __init__(self, bridge: Runs, inner: Any) -> None:
        self._bridge = bridge
        self._inner = inner


def bridged(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """A method that runs `method` of the inner object on the bridge's loop."""

    @wraps(method)
    def call(self: Bridged, /, *arguments: P.args, **options: P.kwargs) -> R:
        return self._bridge.run(method(self._inner, *arguments, **options))

    return call


class Queue(Bridged):
    """One queue, without async."""

    push = bridged(async_queue.Queue.push)
    push_many = bridged(async_queue.Queue.push_many)
    pop = bridged(async_queue.Queue.pop)
    ack = bridged(async_queue.Queue.ack)
    fail = bridged(async_queue.Queue.fail)
    release = bridged(async_queue.Queue.release)
    extend = bridged(async_queue.Queue.extend)
    configure = bridged(async_queue.Queue.configure)
    seek = bridged(async_queue.Queue.seek)
    delete = bridged(async_queue.Queue.delete)
    status = bridged(async_queue.Queue.status)
    groups = bridged(async_queue.Queue.groups)
    delete_group = bridged(async_queue.Queue.delete_group)
    dead_letters = bridged(async_queue.Queue.dead_letters)
    requeue = bridged(async_queue.Queue.requeue)
    purge = bridged(async_queue.Queue.purge)
    trace = bridged(async_queue.Queue.trace)
    traces = bridged(async_queue.Queue.traces)

    def consume(self, **options: Any) -> "Messages":
        """Messages one after the other: acked when the loop's body ends, failed and retried when it raises."""
        return Messages(self._bridge, self._inner.consume(**options))


class Messages(Bridged):
    """The endless loop of a consumer, without async. A loop that is left is noticed by the consumption inside."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        return self._bridge.run(_next_of(self._inner))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bridge.run(self._inner.aclose(error))


class Jobs(Bridged):
    """The jobs of one database, without async."""

    show = bridged(async_jobs.Jobs.show)
    list = bridged(async_jobs.Jobs.list)
    attempts = bridged(async_jobs.Jobs.attempts)
    dependencies = bridged(async_jobs.Jobs.dependencies)
    queues = bridged(async_jobs.Jobs.queues)
    minutes = bridged(async_jobs.Jobs.minutes)
    wait = bridged(async_jobs.Jobs.wait)
    result = bridged(async_jobs.Jobs.result)
    cancel = bridged(async_jobs.Jobs.cancel)
    retry = bridged(async_jobs.Jobs.retry)
    retry_dead = bridged(async_jobs.Jobs.retry_dead)
    drop = bridged(async_jobs.Jobs.drop)
    cleanup = bridged(async_jobs.Jobs.cleanup)
    pause = bridged(async_jobs.Jobs.pause)
    resume = bridged(async_jobs.Jobs.resume)
    limit = bridged(async_jobs.Jobs.limit)
    limits = bridged(async_jobs.Jobs.limits)
    config = bridged(async_jobs.Jobs.config)
    configure = bridged(async_jobs.Jobs.configure)
    schedule = bridged(async_jobs.Jobs.schedule)
    schedules = bridged(async_jobs.Jobs.schedules)
    pause_schedule = bridged(async_jobs.Jobs.pause_schedule)
    resume_schedule = bridged(async_jobs.Jobs.resume_schedule)
    unschedule = bridged(async_jobs.Jobs.unschedule)
    workers = bridged(async_jobs.Jobs.workers)
    stop_workers = bridged(async_jobs.Jobs.stop_workers)

    register = bridged(async_jobs.Jobs.register)
    types = bridged(async_jobs.Jobs.types)

    @takes(JobOptions)
    def add(self, job: NewJob | None = None, /, **options: Unpack[JobOptions]) -> "JobHandle":
        """Add one job: a `NewJob`, or its options."""
        return JobHandle(self._bridge, self._bridge.run(self._inner.add(job, **options)))

    def add_many(self, jobs: Iterable[NewJob], *, idempotency_key: str = "") -> "builtins.list[JobHandle]":
        """Add jobs in one transaction."""
        added = self._bridge.run(self._inner.add_many(jobs, idempotency_key=idempotency_key))
        return [JobHandle(self._bridge, job) for job in added]

    def add_batch(
        self, jobs: Iterable[NewJob], *, batch: str, callback: NewJob | None = None
    ) -> "builtins.list[JobHandle]":
        """Add jobs that belong together."""
        added = self._bridge.run(self._inner.add_batch(jobs, batch=batch, callback=callback))
        return [JobHandle(self._bridge, job) for job in added]


class JobHandle(Bridged):
    """A job that was handed in, without async."""

    wait = bridged(async_jobs.JobHandle.wait)
    result = bridged(async_jobs.JobHandle.result)
    show = bridged(async_jobs.JobHandle.show)
    cancel = bridged(async_jobs.JobHandle.cancel)

    @property
    def id(self) -> str:
        """Its id."""
        return str(self._inner.id)

    @property
    def duplicate(self) -> bool:
        """Whether one with the same unique key was there."""
        return bool(self._inner.duplicate)


class Database(Bridged):
    """The queues and jobs of one tenant, without async."""

    push_all = bridged(async_database.Database.push_all)
    pop = bridged(async_database.Database.pop)
    queues = bridged(async_database.Database.queues)
    groups = bridged(async_database.Database.groups)
    delete_group = bridged(async_database.Database.delete_group)

    @property
    def jobs(self) -> Jobs:
        """The jobs of the database."""
        return Jobs(self._bridge, self._inner.jobs)

    def queue(self, name: str) -> Queue:
        """The queue of this name."""
        return Queue(self._bridge, self._inner.queue(name))

    @contextmanager
    def transaction(self, *, idempotency_key: str = "") -> Iterator[Together]:
        """Pushes and reports that take effect together when the block ends."""
        together: Together = self._inner.transaction(idempotency_key=idempotency_key)
        yield together
        self._bridge.run(together.__aexit__(None, None, None))


class Headwater(Database):
    """An open store, without async. Made by `headwater.sync.open`."""

    _bridge: Bridge

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what was taken and let go of the store."""
        self._bridge.run(self._inner.close())
        self._bridge.close()

    def database(self, name: str) -> Database:
        """The queues of another tenant in the same store."""
        return Database(self._bridge, self._inner.database(name))


def open(store: str = "headwater.db", **settings: Any) -> Headwater:
    """A Headwater over the store at `store`, for use from any thread; settings are those of `headwater.open`."""
    return _started(app.open_headwater(store, **settings))


def connect(url: str, *, token: str = "", **options: Any) -> Headwater:
    """The queues of the server at `url`, for use from any thread; options are those of `headwater.connect`."""
    return _started(app.connect(url, token=token, **options))


def _started(inner: "app.Headwater | Client") -> Headwater:
    bridge = Bridge()
    try:
        bridge.run(inner.start())
    except BaseException:
        bridge.close()
        raise
    return Headwater(bridge, inner)


async def _next_of(consumption: Consumption) -> Message:
    return await anext(consumption)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
