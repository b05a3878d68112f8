"""For the tests of programs that enqueue jobs: no store, no worker.

>>> from headwater.jobs import testing
>>> with testing.capture(app) as enqueued:
...     sign_up("ada@example.org")
>>> enqueued.assert_enqueued(send_email, to="ada@example.org")

`capture` writes down what is enqueued and runs nothing; `run_inline` runs each call where it is enqueued, with its
arguments turned to JSON and back as a worker would, so that what would fail there fails here.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, cast

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.config import Durability, load_config
from headwater.errors import InvalidOption, JobMissing, JobUnsuccessful
from headwater.log.job_operations import Enqueue, NewJob, Placed
from headwater.log.job_operations import Enqueued as Accepted
from headwater.log.operations import Operation
from headwater.model.job import QUEUE_DEFAULT, JobState, Work
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.job_functions import JobContext, JobFunction, JobRegistry, RunAbout, enter_job
from headwater.services.job_options import Seconds, decode_call
from headwater.services.job_verbs import Waiting
from headwater.services.jobs import Jobs
from headwater.stores.job_contract import JobQuestions, JobStatus

__all__ = ["Enqueued", "EnqueuedCall", "capture", "run_inline"]


class EnqueuedCall:
    """A call that was enqueued: its type, arguments and job; after it was run, what it returned and its progress."""

    duplicate = False

    def __init__(self, id: str, job: NewJob) -> None:
        self.id = id
        self.job = job
        self.type = job.type
        self.args, self.kwargs = decode_call(job.arguments)
        self.state = JobState.PENDING
        self.returned: Any = None
        self.progress: list[Any] = []

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.type}({', '.join(words)})"

    def wait(self, timeout_seconds: Seconds | None = None) -> JobState:
        """The state that it is in: nothing happens later here."""
        return self.state

    def result(self, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What it returned; JobUnsuccessful when it was not run."""
        if self.state is not JobState.COMPLETED:
            raise JobUnsuccessful(f"{self!r} was captured and not run: use testing.run_inline", self.state.value)
        return msgspec.convert(self.returned, type)


class Enqueued(list[EnqueuedCall]):
    """What was enqueued, in order."""

    def of(self, function: JobFunction[..., Any]) -> list[EnqueuedCall]:
        """The calls of one function."""
        return [call for call in self if call.type == function.name]

    def assert_enqueued(self, function: JobFunction[..., Any], *args: Any, **kwargs: Any) -> EnqueuedCall:
        """The call of this function with these arguments, however they were passed; AssertionError without one."""
        wanted = _bound(function, *decode_call(function.job(*args, **kwargs).arguments))
        for call in self.of(function):
            if _bound(function, call.args, call.kwargs) == wanted:
                return call
        raise AssertionError(f"{function.name} was not enqueued with {wanted}; there is {list(self) or 'nothing'}")

    def assert_nothing_enqueued(self) -> None:
        """AssertionError when anything was."""
        if self:
            raise AssertionError(f"something was enqueued: {list(self)}")


def _bound(function: JobFunction[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function.function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


class _Captured:
    """Stands in for the store, whichever way calls get there: writes them down, and runs nothing."""

    def __init__(self, app: JobRegistry) -> None:
        self.app = app
        self.enqueued = Enqueued()
        self.clock: Clock = SystemClock()
        self.config = load_config()
        self.jobs = Jobs(self, DATABASE_DEFAULT)
        self.store = cast(JobQuestions, _Answers(self.enqueued))
        self.waits = cast(Waiting, self.store)

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        """Take what is enqueued; there is nothing here to change otherwise."""
        if not isinstance(operation, Enqueue):
            raise InvalidOption(
                f"{type(operation).__name__} needs a store, and the tests of this block have none:"
                " headwater.jobs.testing takes what is enqueued"
            )
        return Accepted([await self.taken(job) for job in operation.jobs])

    async def taken(self, job: NewJob) -> Placed:
        """A call, written down."""
        call = self.write_down(job)
        return Placed(call.id, call.state)

    def write_down(self, job: NewJob) -> EnqueuedCall:
        """The call, in its place."""
        call = EnqueuedCall(job.id or f"call-{len(self.enqueued) + 1}", job)
        self.enqueued.append(call)
        return call

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        """Take one that was enqueued where nothing can be awaited."""
        (checked,) = self.jobs.check_all([job])
        return self.write_down(checked)


class _Inline(_Captured):
    """Stands in for the store and its workers: runs each call on the spot. What it raises, whoever enqueued it gets."""

    async def taken(self, job: NewJob) -> Placed:
        call = self.write_down(job)
        function, context = self._prepared(call)
        arguments, options = function.bind(bytes(job.arguments))

        async def run() -> Any:
            enter_job(context)
            return await function.function(*arguments, **options)

        def run_plain() -> Any:
            enter_job(context)
            return function.function(*arguments, **options)

        if function.is_async:
            returned = await asyncio.get_running_loop().create_task(run(), context=copy_context())
        else:
            returned = copy_context().run(_without_loop, run_plain)
        self._end(call, returned)
        return Placed(call.id, call.state)

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        (checked,) = self.jobs.check_all([job])
        call = self.write_down(checked)
        function, context = self._prepared(call)
        arguments, options = function.bind(bytes(checked.arguments))

        def run() -> Any:
            enter_job(context)
            found = function.function(*arguments, **options)
            return asyncio.run(_awaited(found)) if inspect.isawaitable(found) else found

        self._end(call, copy_context().run(run))
        return call

    def _prepared(self, call: EnqueuedCall) -> tuple[JobFunction[..., Any], JobContext]:
        function = self.app.functions.get(call.type)
        if function is None:
            raise InvalidOption(f"no function of this app is named {call.type!r:.80}")
        about = RunAbout(
            id=call.id, queue=call.job.queue or QUEUE_DEFAULT, type=call.type, token=1, attempt=1, attempts_max=1
        )
        return function, JobContext(about, call.progress.append)

    def _end(self, call: EnqueuedCall, returned: Any) -> None:
        call.returned = msgspec.json.decode(msgspec.json.encode(returned))
        call.state = JobState.COMPLETED


class _Answers:
    """What can be asked of calls that were written down: how they stand, and nothing else."""

    def __init__(self, enqueued: Enqueued) -> None:
        self._enqueued = enqueued

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state that a call is in: nothing happens later here."""
        return self._call(name).state

    async def job(self, database: str, name: str) -> JobStatus | None:
        """A call as a job."""
        call = self._call(name)
        ran = call.state is JobState.COMPLETED
        now = SystemClock().now()
        return JobStatus(
            number=self._enqueued.index(call) + 1,
            id=call.id,
            queue=call.job.queue or QUEUE_DEFAULT,
            type=call.type,
            state=call.state,
            work=Work(arguments=call.job.arguments),
            progress=msgspec.Raw(msgspec.json.encode(call.progress[-1])) if call.progress else None,
            result=msgspec.Raw(msgspec.json.encode(call.returned)) if ran else None,
            priority=call.job.priority or 0,
            attempts=int(ran),
            attempts_max=1,
            token=int(ran),
            waits=0,
            worker=None,
            batch=call.job.batch or None,
            created_at=now,
            changed_at=now,
            run_at=now,
            started_at=now if ran else None,
            finished_at=now if ran else None,
            error=None if ran else "it was captured and not run: use testing.run_inline",
        )

    def _call(self, name: str) -> EnqueuedCall:
        for call in self._enqueued:
            if call.id == name:
                return call
        raise JobMissing(f"no call {name!r} was enqueued in this block")

    def __getattr__(self, name: str) -> Any:
        raise InvalidOption(f"{name} needs a store, and the tests of this block have none")


def _without_loop(work: Callable[[], Any]) -> Any:
    """A worker runs plain functions where no loop runs: what they may do there, they may do here, on this thread."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return work()
    finally:
        asyncio._set_running_loop(loop)


async def _awaited(work: Any) -> Any:
    return await work


@contextmanager
def capture(app: JobRegistry) -> Iterator[Enqueued]:
    """Write down what is enqueued within the block, and run nothing."""
    with _standing_in(app, _Captured(app)) as enqueued:
        yield enqueued


@contextmanager
def run_inline(app: JobRegistry) -> Iterator[Enqueued]:
    """Run what is enqueued within the block at once, where it is enqueued."""
    with _standing_in(app, _Inline(app)) as enqueued:
        yield enqueued


@contextmanager
def _standing_in(app: JobRegistry, stand_in: _Captured) -> Iterator[Enqueued]:
    before, app.stand_in = app.stand_in, stand_in
    try:
        yield stand_in.enqueued
    finally:
        app.stand_in = before
