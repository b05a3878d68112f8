"""For the tests of programs that enqueue jobs: no store, no worker.

>>> from headwater.jobs import testing
>>> with testing.capture(app) as enqueued:
...     sign_up("ada@example.org")
>>> enqueued.assert_enqueued(send_email, to="ada@example.org")

`capture` writes down what is enqueued and runs nothing; `run_inline` runs each call where it is enqueued, with its
arguments turned to JSON and back as a worker would, so that what would fail there fails here. It is tried again as
often as a worker would, without waiting; what it fails with for good comes out.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, cast

import msgspec

from headwater.clock import Clock, SystemClock
from headwater.config import Durability, load_config
from headwater.errors import InvalidOption, JobExists, JobMissing, JobUnsuccessful
from headwater.log.job_operations import Enqueue, NewJob, Placed
from headwater.log.job_operations import Enqueued as Accepted
from headwater.log.operations import Operation
from headwater.model.job import FINISHED, QUEUE_DEFAULT, Defaults, JobNumber, JobOutcome, JobState, Work
from headwater.model.names import DATABASE_DEFAULT
from headwater.services.job_functions import JobContext, JobFunction, JobRegistry, RunAbout, enter_job
from headwater.services.job_options import Seconds, decode_call
from headwater.services.job_verbs import Waiting
from headwater.services.jobs import Jobs
from headwater.stores.contract import Answerer
from headwater.stores.job_questions import FindJob, JobStatus
from headwater.stores.questions import Question
from headwater.worker.outcomes import completed, failed

__all__ = ["Enqueued", "EnqueuedCall", "capture", "run_inline"]


class EnqueuedCall:
    """A call that was enqueued: its type, arguments and job; after it was run, what it returned, its progress, how
    often it was tried, its last error, and for how long it asked to be snoozed."""

    duplicate = False

    def __init__(self, id: str, job: NewJob) -> None:
        self.id = id
        self.job = job
        self.type = job.type
        self.args, self.kwargs = decode_call(job.arguments)
        self.state = JobState.PENDING
        self.returned: Any = None
        self.progress: list[Any] = []
        self.attempts = 0
        self.error = ""
        self.snoozed_seconds: float | None = None

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.type}({', '.join(words)})"

    def why(self) -> str:
        """Why there is no result."""
        if self.state is JobState.PENDING:
            return "was captured and not run: use testing.run_inline"
        if self.state is JobState.WAITING:
            return "waits for others that did not end as it needs them to"
        if self.snoozed_seconds is not None:
            return f"asked to come again after {self.snoozed_seconds:g} s: nothing happens later here"
        return f"is {self.state.value}: {self.error}"

    def wait(self, timeout_seconds: Seconds | None = None) -> JobState:
        """The state that it is in: nothing happens later here."""
        return self.state

    def result(self, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What it returned; JobUnsuccessful when it did not get to that."""
        if self.state is not JobState.COMPLETED:
            raise JobUnsuccessful(f"{self!r} {self.why()}", self.state.value)
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
        self.store = cast(Answerer, _Answers(self.enqueued))
        self.waits = cast(Waiting, self.store)

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        """Take what is enqueued; there is nothing here to change otherwise."""
        if not isinstance(operation, Enqueue):
            raise InvalidOption(
                f"{type(operation).__name__} needs a store, and the tests of this block have none:"
                " headwater.jobs.testing takes what is enqueued"
            )
        self.refuse_known(operation.jobs)
        return Accepted([await self.taken(job) for job in operation.jobs])

    async def taken(self, job: NewJob) -> Placed:
        """A call, written down."""
        call = self.write_down(job)
        return Placed(call.id, call.state)

    def refuse_known(self, jobs: Sequence[NewJob]) -> None:
        """Ids are given once, as in a store: all of these jobs are taken, or none."""
        known = {call.id for call in self.enqueued}
        for job in jobs:
            if job.id and job.id in known:
                raise JobExists(f"there is a job {job.id} already in this block; choose another id")
            known.add(job.id)

    def write_down(self, job: NewJob) -> EnqueuedCall:
        """The call, in its place."""
        call = EnqueuedCall(job.id or f"call-{len(self.enqueued) + 1}", job)
        self.enqueued.append(call)
        return call

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        """Take one that was enqueued where nothing can be awaited."""
        (checked,) = self.jobs.check_all([job])
        self.refuse_known([checked])
        return self.write_down(checked)


class _Trial:
    """A call that is run on the spot, as often as a worker would, and without waiting in between."""

    def __init__(self, call: EnqueuedCall, function: JobFunction[..., Any], results: dict[str, bytes]) -> None:
        self._call = call
        self._results = results
        self._previous_error = ""
        retries = call.job.retries if call.job.retries is not None else function.policy.retries
        self._attempts_max = 1 + (Defaults().max_retries if retries is None else retries)
        self.function = function
        self.goes_on = True

    def bind(self) -> tuple[JobContext, list[Any], dict[str, Any]]:
        """What the function gets at its next attempt."""
        self._call.attempts += 1
        about = RunAbout(
            id=self._call.id,
            queue=self._call.job.queue or QUEUE_DEFAULT,
            type=self._call.type,
            token=self._call.attempts,
            attempt=self._call.attempts,
            attempts_max=self._attempts_max,
            previous_error=self._previous_error,
            results=self._results,
        )
        arguments, options = self.function.bind(bytes(self._call.job.arguments))
        return JobContext(about, self._call.progress.append), arguments, options

    def returned(self, value: Any) -> None:
        """It returned; what cannot be kept as JSON is an error, as it is in a worker."""
        self.goes_on = False
        done = completed(JobNumber(0), value, 0.0)
        if done.outcome is not JobOutcome.COMPLETED:
            self._call.state, self._call.error = JobState.DEAD, done.error
            raise InvalidOption(f"{self._call.type}: {done.error}")
        self._call.returned = None if done.result is None else msgspec.json.decode(done.result)
        self._call.state = JobState.COMPLETED

    def raised(self, error: Exception) -> None:
        """It raised: what it asked for is done, and what is for good is raised again."""
        done = failed(JobNumber(0), self.function, error, 0.0)
        self._call.error = self._previous_error = done.error
        self.goes_on = done.outcome is JobOutcome.FAILED and self._call.attempts < self._attempts_max
        if done.outcome is JobOutcome.SNOOZED:
            self._call.attempts -= 1
            self._call.state, self._call.snoozed_seconds = JobState.SCHEDULED, done.after_seconds
        elif done.outcome is JobOutcome.CANCELLED:
            self._call.state = JobState.CANCELLED
        elif not self.goes_on:
            self._call.state = JobState.DEAD
            raise error


class _Inline(_Captured):
    """Stands in for the store and its workers: runs each call on the spot. What it fails with for good, whoever
    enqueued it gets."""

    async def run(self, operation: Operation, durability: Durability | None = None) -> Any:
        if not isinstance(operation, Enqueue):
            return await super().run(operation, durability)
        self.refuse_known(operation.jobs)
        calls = [self.write_down(job) for job in operation.jobs]
        for call in _in_order(calls):
            if trial := self._trial(call):
                await self._run(trial)
        return Accepted([Placed(call.id, call.state) for call in calls])

    def add_sync(self, job: NewJob) -> EnqueuedCall:
        (checked,) = self.jobs.check_all([job])
        self.refuse_known([checked])
        call = self.write_down(checked)
        if trial := self._trial(call):
            self._run_sync(trial)
        return call

    async def _run(self, trial: _Trial) -> None:
        while trial.goes_on:
            context, arguments, options = trial.bind()
            work = partial(_entered, context, trial.function.function, arguments, options)
            try:
                if trial.function.is_async:
                    found = await asyncio.get_running_loop().create_task(_awaited_in(work), context=copy_context())
                else:
                    found = copy_context().run(_without_loop, work)
            except Exception as error:
                trial.raised(error)
            else:
                trial.returned(found)

    def _run_sync(self, trial: _Trial) -> None:
        while trial.goes_on:
            context, arguments, options = trial.bind()
            work = partial(_entered, context, trial.function.function, arguments, options)
            try:
                if trial.function.is_async:
                    found = copy_context().run(asyncio.run, _awaited_in(work))
                else:
                    found = copy_context().run(work)
            except Exception as error:
                trial.raised(error)
            else:
                trial.returned(found)

    def _trial(self, call: EnqueuedCall) -> _Trial | None:
        """The call, ready to be run; None when it waits for others that have not ended as it needs them to."""
        function = self.app.functions.get(call.type)
        if function is None:
            raise InvalidOption(f"no function of this app is named {call.type!r:.80}")
        known = {one.id: one for one in self.enqueued}
        missing = [name for name in call.job.depends_on if name not in known]
        if missing:
            raise JobMissing(f"{call!r} depends on {missing[0]!r}, which was not enqueued in this block")
        needed = [known[name] for name in call.job.depends_on]
        enough = FINISHED if call.job.depends_when == "finished" else {JobState.COMPLETED}
        if any(one.state not in enough for one in needed):
            call.state = JobState.WAITING
            return None
        results = {one.id: msgspec.json.encode(one.returned) for one in needed}
        return _Trial(call, function, results)


def _in_order(calls: list[EnqueuedCall]) -> list[EnqueuedCall]:
    """Calls that others of them depend on come before those."""
    left = {call.id: call for call in calls}
    ordered: list[EnqueuedCall] = []
    while left:
        ready = [call for call in left.values() if not left.keys() & set(call.job.depends_on)]
        ordered += ready or left.values()
        left = {name: call for name, call in left.items() if call not in ready} if ready else {}
    return ordered


def _entered(context: JobContext, function: Callable[..., Any], arguments: list[Any], options: dict[str, Any]) -> Any:
    enter_job(context)
    return function(*arguments, **options)


async def _awaited_in(work: Callable[[], Any]) -> Any:
    return await work()


class _Answers:
    """What can be asked of calls that were written down: how they stand, and nothing else."""

    def __init__(self, enqueued: Enqueued) -> None:
        self._enqueued = enqueued

    async def wait(self, database: str, name: str, timeout_seconds: float | None = None) -> JobState:
        """The state that a call is in: nothing happens later here."""
        return self._call(name).state

    async def ask(self, question: Question[Any]) -> JobStatus:
        """A call as a job."""
        if not isinstance(question, FindJob):
            raise InvalidOption(f"{type(question).__name__} needs a store, and the tests of this block have none")
        call = self._call(question.id)
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
            attempts=call.attempts,
            attempts_max=max(call.attempts, 1),
            token=call.attempts,
            waits=0,
            worker=None,
            batch=call.job.batch or None,
            created_at=now,
            changed_at=now,
            run_at=now,
            started_at=now if ran else None,
            finished_at=now if ran else None,
            error=None if ran else f"it {call.why()}",
        )

    def _call(self, name: str) -> EnqueuedCall:
        for call in self._enqueued:
            if call.id == name:
                return call
        raise JobMissing(f"no call {name!r} was enqueued in this block")


def _without_loop(work: Callable[[], Any]) -> Any:
    """A worker runs plain functions where no loop runs: what they may do there, they may do here, on this thread."""
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return work()
    finally:
        asyncio._set_running_loop(loop)


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
