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
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, cast

import msgspec

from headwater.errors import InvalidOption, JobUnsuccessful
from headwater.log.job_operations import NewJob
from headwater.model.job import QUEUE_DEFAULT, JobState
from headwater.services.job_functions import JobContext, JobFunction, JobRegistry, RunAbout, enter_job
from headwater.services.job_options import Seconds, decode_call
from headwater.services.jobs import JobHandle

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
    """Stands in for the store: writes down, and runs nothing."""

    def __init__(self, app: JobRegistry) -> None:
        self.app = app
        self.enqueued = Enqueued()

    def taken(self, job: NewJob) -> EnqueuedCall:
        """The call, written down."""
        call = EnqueuedCall(job.id or f"call-{len(self.enqueued) + 1}", job)
        self.enqueued.append(call)
        return call

    async def add(self, job: NewJob) -> JobHandle:
        """Take a call that was enqueued on a loop."""
        return _awaited_handle(self.taken(job))

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        """Take one that was enqueued without."""
        return self.taken(job)


class _Inline(_Captured):
    """Stands in for the store and its workers: runs each call on the spot. What it raises, whoever enqueued it gets."""

    async def add(self, job: NewJob) -> JobHandle:
        call = self.taken(job)
        function, context = self._prepared(call)
        arguments, options = function.bind(bytes(job.arguments))

        async def run() -> Any:
            enter_job(context)
            found = function.function(*arguments, **options)
            return await found if inspect.isawaitable(found) else found

        self._end(call, await asyncio.get_running_loop().create_task(run(), context=copy_context()))
        return _awaited_handle(call)

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        call = self.taken(job)
        function, context = self._prepared(call)
        arguments, options = function.bind(bytes(job.arguments))

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


class _Awaited:
    """A call whose fate is asked for with await."""

    def __init__(self, call: EnqueuedCall) -> None:
        self.call = call
        self.id, self.duplicate = call.id, False

    async def wait(self, timeout_seconds: Seconds | None = None) -> JobState:
        """The state that it is in."""
        return self.call.state

    async def result(self, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What it returned."""
        return self.call.result(type=type)


def _awaited_handle(call: EnqueuedCall) -> JobHandle:
    return cast(JobHandle, _Awaited(call))


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
