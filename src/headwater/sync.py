"""The same verbs without async: every call is handed to an event loop in a thread of its own.

>>> import headwater.sync
>>> with headwater.sync.open("headwater.db") as hw:
...     hw.queue("orders").push({"id": 7})

Nothing is written twice: `bridged` turns a coroutine of the async interface into a plain call with the same arguments.
"""

import builtins
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar, Unpack, cast

from headwater import app
from headwater.config import Config
from headwater.errors import Closed, InvalidInput
from headwater.log.job_operations import NewJob
from headwater.model.room import RoomMessage
from headwater.services import database as async_database
from headwater.services import documents as async_documents
from headwater.services import jobs as async_jobs
from headwater.services import messages as async_messages
from headwater.services import queue as async_queue
from headwater.services import room as async_room
from headwater.services import signals
from headwater.services.bridge import Bridge, Runs
from headwater.services.callables import check_no_awaitable, check_plain
from headwater.services.consumption import Consumption, Loop
from headwater.services.documents import Conditions, LiveChange
from headwater.services.job_options import JobOptions, takes
from headwater.services.running import Handler, check_handler
from headwater.services.streams import Stream
from headwater.services.transaction import Together

if TYPE_CHECKING:
    from headwater.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")


class Bridged:
    """Something of the async interface, held together with the loop it lives on."""

    def __init__(self, bridge: Runs, inner: Any) -> None:
        self._bridge = bridge
        self._inner = inner


def streamed(bridge: Runs, stream: Stream[R]) -> Generator[R, None, None]:
    """What comes on a stream, one after the other."""

    async def next_one() -> R:
        return await anext(stream)

    try:
        while True:
            yield bridge.run(next_one())
    finally:
        # Of what is closed there is nothing left to let go of.
        with suppress(Closed):
            bridge.run(stream.aclose())


def bridged(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """A method that runs `method` of the inner object on the bridge's loop."""

    @wraps(method)
    def call(self: Bridged, /, *arguments: P.args, **options: P.kwargs) -> R:
        return self._bridge.run(method(self._inner, *arguments, **options))

    return call


def bridged_report(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, P], None]:
    """The same for a message, which knows its bridge."""

    @wraps(method)
    def call(self: "Message", /, *arguments: P.args, **options: P.kwargs) -> None:
        self.bridge.run(method(self, *arguments, **options))

    return call


def bridged_pop(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, list[async_messages.Message]]],
) -> Callable[Concatenate[Any, P], "list[Message]"]:
    """The same for a pop: its messages are reported on without async."""

    @wraps(method)
    def call(self: Bridged, /, *arguments: P.args, **options: P.kwargs) -> "list[Message]":
        found = self._bridge.run(method(self._inner, *arguments, **options))
        return [_plain(self._bridge, message) for message in found]

    return call


def bridged_run(
    method: Callable[Concatenate[Any, Handler, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, Handler, P], None]:
    """The same for a run: its handler is a plain function, and the signals are those of the caller's thread."""

    @wraps(method)
    def call(self: Bridged, handler: Handler, /, *arguments: P.args, **options: P.kwargs) -> None:
        check_handler(handler)
        check_plain(handler)
        work = method(self._inner, _Plain(self._bridge, handler), *arguments, **options)
        with signals.listening() if options.get("stop_on_signals", True) else nullcontext():
            self._bridge.run(work)

    return call


def bridged_consume(
    method: Callable[Concatenate[Any, P], Consumption],
) -> Callable[Concatenate[Any, P], "Messages"]:
    """The same for a consumer's loop."""

    @wraps(method)
    def call(self: Bridged, /, *arguments: P.args, **options: P.kwargs) -> "Messages":
        return Messages(cast(Bridge, self._bridge), method(self._inner, *arguments, **options))

    return call


class Message(async_messages.Message, eq=False):
    """A delivered message, reported on without async."""

    bridge: Any = None

    ack = bridged_report(async_messages.Message.ack)  # type: ignore[assignment]
    fail = bridged_report(async_messages.Message.fail)  # type: ignore[assignment]
    release = bridged_report(async_messages.Message.release)  # type: ignore[assignment]
    extend = bridged_report(async_messages.Message.extend)  # type: ignore[assignment]


def _plain(bridge: Runs, message: async_messages.Message) -> Message:
    return Message(message.batch, message.index, message.delivery, bridge=bridge)


class _Plain:
    """A handler that gets messages of this interface."""

    def __init__(self, bridge: Runs, handler: Handler) -> None:
        self._bridge = bridge
        self._handler = handler

    def __call__(self, message: async_messages.Message) -> object:
        return check_no_awaitable(self._handler(_plain(self._bridge, message)))


class Queue(Bridged):
    """One queue, without async."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._inner.name)

    @property
    def database(self) -> str:
        """The database (tenant) that it is in."""
        return str(self._inner.database)

    push = bridged(async_queue.Queue.push)
    push_many = bridged(async_queue.Queue.push_many)
    pop = bridged_pop(async_queue.Queue.pop)
    consume = bridged_consume(async_queue.Queue.consume)
    run = bridged_run(async_queue.Queue.run)
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
    configure_group = bridged(async_queue.Queue.configure_group)
    leases = bridged(async_queue.Queue.leases)
    release_leases = bridged(async_queue.Queue.release_leases)
    dead_letters = bridged(async_queue.Queue.dead_letters)
    requeue = bridged(async_queue.Queue.requeue)
    purge = bridged(async_queue.Queue.purge)
    trace = bridged(async_queue.Queue.trace)
    traces = bridged(async_queue.Queue.traces)


class Messages:
    """The loop of a consumer, without async: `with queue.consume() as messages: for message in messages: …`."""

    def __init__(self, bridge: Bridge, inner: "Consumption | Loop", received: int = 0) -> None:
        self._bridge = bridge
        self._inner = inner
        self._received = received
        self._in_block = False

    def __iter__(self) -> "Messages":
        if self._in_block or isinstance(self._inner, Loop):
            return self
        # As in the async interface: the loop alone holds its iterator, so that leaving it is noticed.
        received, self._received = self._received, 0
        return Messages(self._bridge, cast(Loop, aiter(self._inner)), received)

    def __next__(self) -> Message:
        try:
            message = self._bridge.run(self._inner.take(self._received, threading.current_thread()))
        except StopAsyncIteration:
            raise StopIteration from None
        self._received += 1
        return _plain(self._bridge, message)

    def __enter__(self) -> Self:
        if isinstance(self._inner, Loop):
            raise InvalidInput("a loop that has begun takes no block; write `with queue.consume() as messages:`")
        self._bridge.run(self._inner.__aenter__())
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._in_block = False
        # Another block begins anew.
        self._received = 0
        # Closing has said all there was to say; and a process that was forked has nothing to say.
        if self._bridge.is_open:
            self._bridge.run(cast(Consumption, self._inner).__aexit__(kind, error, trace))

    def release(self) -> None:
        """Leave it without a word on the current message: it is released. (A method `close` would be called by every
        `yield from` that is left.)"""
        self._bridge.run(self._inner.aclose())

    def __aiter__(self) -> NoReturn:
        raise TypeError("consume() of headwater.sync is for a plain `for`; `async for` needs headwater.open")


class Room(Bridged):
    """One room, without async."""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._inner.name)

    @property
    def database(self) -> str:
        """The database (tenant) that it is in."""
        return str(self._inner.database)

    @property
    def queue(self) -> str:
        """The queue that it is in the log."""
        return str(self._inner.queue)

    send = bridged(async_room.Room.send)
    members = bridged(async_room.Room.members)
    watermarks = bridged(async_room.Room.watermarks)
    lowest_watermark = bridged(async_room.Room.lowest_watermark)

    def follow(self, since: int | str = "now") -> Generator[RoomMessage, None, None]:
        """Messages as they come: those behind an offset first, all that are kept with "beginning"."""
        return streamed(self._bridge, self._inner.follow(since))


class Jobs(Bridged):
    """The jobs of one database, without async."""

    @property
    def database(self) -> str:
        """The database (tenant) that they are in."""
        return str(self._inner.database)

    show = bridged(async_jobs.Jobs.show)
    list = bridged(async_jobs.Jobs.list)
    attempts = bridged(async_jobs.Jobs.attempts)
    dependencies = bridged(async_jobs.Jobs.dependencies)
    queues = bridged(async_jobs.Jobs.queues)
    minutes = bridged(async_jobs.Jobs.minutes)
    wait = bridged(async_jobs.Jobs.wait)
    result = bridged(async_jobs.Jobs.result)
    cancel = bridged(async_jobs.Jobs.cancel)
    change = bridged(async_jobs.Jobs.change)
    retry = bridged(async_jobs.Jobs.retry)
    retry_dead = bridged(async_jobs.Jobs.retry_dead)
    drop = bridged(async_jobs.Jobs.drop)
    cleanup = bridged(async_jobs.Jobs.cleanup)
    drop_old = bridged(async_jobs.Jobs.drop_old)
    pause = bridged(async_jobs.Jobs.pause)
    resume = bridged(async_jobs.Jobs.resume)
    limit = bridged(async_jobs.Jobs.limit)
    limits = bridged(async_jobs.Jobs.limits)
    clear_limit = bridged(async_jobs.Jobs.clear_limit)
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
    declare = bridged(async_jobs.Jobs.declare)

    def run_schedule(self, name: str) -> "JobHandle":
        """Enqueue the job of a schedule now; its times stay what they are."""
        return JobHandle(self._bridge, self._bridge.run(self._inner.run_schedule(name)))

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


class Collection(Bridged):
    """A collection of documents, without async."""

    get = bridged(async_documents.Collection.get)
    create = bridged(async_documents.Collection.create)
    set = bridged(async_documents.Collection.set)
    update = bridged(async_documents.Collection.update)
    delete = bridged(async_documents.Collection.delete)
    query = bridged(async_documents.Collection.query)
    index = bridged(async_documents.Collection.index)
    drop_index = bridged(async_documents.Collection.drop_index)

    @property
    def name(self) -> str:
        """The name of the collection."""
        return str(self._inner.name)

    def follow(self, where: str = "", *, filters: Conditions = ()) -> Generator[LiveChange, None, None]:
        """A live query: a snapshot of the documents, then each that enters, changes or leaves."""
        return streamed(self._bridge, self._inner.follow(where, filters=filters))


class Database(Bridged):
    """The queues and jobs of one tenant, without async."""

    push_all = bridged(async_database.Database.push_all)
    pop = bridged_pop(async_database.Database.pop)
    queues = bridged(async_database.Database.queues)
    groups = bridged(async_database.Database.groups)
    leases = bridged(async_database.Database.leases)
    delete_group = bridged(async_database.Database.delete_group)
    document_rules = bridged(async_database.Database.document_rules)
    set_document_rules = bridged(async_database.Database.set_document_rules)

    @property
    def name(self) -> str:
        """The name of the database."""
        return str(self._inner.name)

    @property
    def jobs(self) -> Jobs:
        """The jobs of the database."""
        return Jobs(self._bridge, self._inner.jobs)

    def room(self, name: str) -> Room:
        """The room of this name; it is there as soon as somebody says something or comes."""
        return Room(self._bridge, self._inner.room(name))

    def queue(self, name: str) -> Queue:
        """The queue of this name."""
        return Queue(self._bridge, self._inner.queue(name))

    def collection(self, name: str) -> Collection:
        """The collection of documents of this name."""
        return Collection(self._bridge, self._inner.collection(name))

    @contextmanager
    def transaction(self, *, idempotency_key: str = "") -> Iterator[Together]:
        """Pushes and reports that take effect together when the block ends."""
        together: Together = self._inner.transaction(idempotency_key=idempotency_key)
        try:
            yield together
            self._bridge.run(together.__aexit__(None, None, None))
        finally:
            together.end()


class Headwater(Database):
    """An open store, without async. Made by `headwater.sync.open`."""

    _bridge: Bridge

    def __enter__(self) -> Self:
        self._bridge.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        self.close()
        raise TypeError(
            "headwater.sync is for a plain `with`; for async, write `async with headwater.open(...) as hw:`"
        )

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def config(self) -> Config:
        """The settings in force: of the store, or what the server takes."""
        return cast(Config, self._inner.config)

    def close(self) -> None:
        """Give back what consumers hold, finish what was taken and let go of the store. A second caller waits."""
        self._bridge.finish(self._inner.close)

    def database(self, name: str) -> Database:
        """The queues of another tenant in the same store."""
        return Database(self._bridge, self._inner.database(name))


def _opened(make: "Callable[P, app.Headwater | Client]", line: str) -> Callable[P, Headwater]:
    """What `make` makes, opened, for use from any thread."""

    @wraps(make)
    def call(*arguments: P.args, **options: P.kwargs) -> Headwater:
        inner = make(*arguments, **options)
        inner.life.line = line
        bridge = Bridge(line)
        try:
            bridge.run(inner.start())
        except BaseException:
            bridge.close()
            raise
        bridge.at_exit = inner.queues_service.holdings.close
        return Headwater(bridge, inner)

    return call


open = _opened(app.open_headwater, "with headwater.sync.open(...) as hw:")
connect = _opened(app.connect, "with headwater.sync.connect(...) as hw:")
