"""Python functions as jobs: the decorator, what is kept of a call, and what a function can say about its own run.

A call is kept as JSON: arguments are checked against the signature when it is enqueued, and turned into the annotated
types when it runs. This module knows nothing of stores or processes; `worker/runner.py` calls the functions.
"""

import inspect
import logging
import sys
import typing
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from headwater.errors import Closed, InvalidInput, InvalidOption
from headwater.log.job_operations import NewJob, PutSchedule
from headwater.model.job import JobState
from headwater.model.job_policy import JobPolicy, policy_of
from headwater.services.callables import check_no_generator
from headwater.services.job_checks import SECONDS_MAX, check_declared, check_range, check_schedule
from headwater.services.job_options import (
    CallOptions,
    FunctionOptions,
    Seconds,
    encode_call,
    encode_json,
    newer_names,
    seconds_of,
    takes,
    with_options,
)
from headwater.services.jobs import DeclaredSchedule, JobHandle, Jobs


class EnqueuedJob(Protocol):
    """A job that was enqueued without async: a `headwater.sync.JobHandle`."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def duplicate(self) -> bool:
        """Whether one with the same unique key was there."""
        ...

    def wait(self, timeout_seconds: Seconds | None = None) -> JobState:
        """The state in which it ended."""
        ...

    def result(self, timeout_seconds: Seconds | None = None, *, type: Any = Any) -> Any:
        """What it returned."""
        ...


PROGRESS_BYTES_MAX = 65_536
P = ParamSpec("P")
R = TypeVar("R")


def check_after(after: object) -> float:
    """The seconds after which a job is to come again."""
    seconds = seconds_of("after", after)
    check_range("after", seconds, 0, SECONDS_MAX)
    return seconds


class Retry(Exception):
    """Raise it in a job to be run again after so many seconds, or a timedelta; it counts as an attempt."""

    def __init__(self, after: Seconds | None = None, reason: str = "the job asked for another attempt") -> None:
        super().__init__(reason)
        self.after = None if after is None else check_after(after)


class Snooze(Exception):
    """Raise it in a job that cannot run yet: it comes again after so many seconds, and no attempt is counted."""

    def __init__(self, after: Seconds, reason: str = "the job was snoozed") -> None:
        super().__init__(reason)
        self.after = check_after(after)


class Cancel(Exception):
    """Raise it in a job that need not be done any more."""


class Interrupted(BaseException):
    """Raised in a plain function whose time is over, or that was cancelled: there are `grace` seconds to clean up.

    An async function gets `asyncio.CancelledError` instead. Neither is an `Exception`, so that `except Exception` does
    not take it for a failure of the work.
    """


class JobContext:
    """What a running function can know and say about its job."""

    def __init__(self, about: "RunAbout", report_progress: Callable[[object], None]) -> None:
        self.id = about.id
        self.queue = about.queue
        self.attempt = about.attempt
        self.attempts_max = about.attempts_max
        self.token = about.token
        self.previous_error = about.previous_error
        self.log = logging.getLogger(f"headwater.job.{about.type}")
        self._results = about.results
        self._report_progress = report_progress

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now is for good."""
        return self.attempt >= self.attempts_max

    @property
    def results(self) -> dict[str, Any]:
        """What the jobs returned that this one depended on, by id."""
        return {name: msgspec.json.decode(result) for name, result in (self._results or {}).items()}

    def progress(self, value: object) -> None:
        """Show how far the job is: any JSON value of up to 64 KiB, for `queuectl show` and whoever follows the log."""
        size = len(encode_json(value))
        if size > PROGRESS_BYTES_MAX:
            raise ValueError(f"progress may have {PROGRESS_BYTES_MAX:,} bytes as JSON; got {size:,}")
        self._report_progress(value)


class RunAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a job to whoever runs it."""

    id: str
    queue: str
    type: str
    token: int
    attempt: int
    attempts_max: int
    previous_error: str = ""
    results: dict[str, bytes] | None = None


_current: ContextVar[JobContext] = ContextVar("headwater_job")


def current_job() -> JobContext:
    """The job that runs here; an error outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidOption("no job runs here: current_job() works inside a function that a worker runs") from None


def enter_job(context: JobContext) -> None:
    """From here on, in this context, this job runs."""
    _current.set(context)


_decode_call = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]] | None).decode


class JobFunction(Generic[P, R]):
    """A function that can be called as ever, and enqueued."""

    def __init__(
        self,
        app: "JobRegistry",
        function: Callable[P, R],
        template: NewJob,
        *,
        retry_for: tuple[type[BaseException], ...] = (Exception,),
        give_up_for: tuple[type[BaseException], ...] = (),
    ) -> None:
        check_no_generator("a job", function)
        self.app = app
        self._template = template
        self.function = function
        self.name = template.type
        self.is_async = inspect.iscoroutinefunction(function)
        self.retry_for = retry_for
        self.give_up_for = give_up_for
        self._signature = inspect.signature(function)
        self._types: dict[str, Any] | None = None
        self._places: list[Any] | None = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        return self.function(*arguments, **options)

    def job(self, *arguments: P.args, **options: P.kwargs) -> NewJob:
        """The call as a job, to be handed in anywhere: with others, in a transaction, in an outbox, on a schedule."""
        try:
            self._signature.bind(*arguments, **options)
            kept = encode_call(arguments, options, self.name)
            self._check_types(bytes(kept))
        except (TypeError, msgspec.ValidationError) as error:
            raise InvalidOption(f"{self.name} cannot be called like this: {error}") from None
        return msgspec.structs.replace(self._template, arguments=kept)

    @property
    def policy(self) -> JobPolicy:
        """How it is declared to be run: that holds wherever its type is named."""
        return policy_of(self._template)

    async def enqueue(self, *arguments: P.args, **options: P.kwargs) -> JobHandle:
        """Enqueue a call."""
        return await self.app.add(self.job(*arguments, **options))

    def enqueue_sync(self, *arguments: P.args, **options: P.kwargs) -> EnqueuedJob:
        """Enqueue a call from where nothing can be awaited: a script, a Django view, a plain job."""
        return self.app.add_sync(self.job(*arguments, **options))

    @takes(CallOptions)
    def using(self, **options: Unpack[CallOptions]) -> "JobFunction[P, R]":
        """The same function with other options: `send.using(delay=60, priority=5).enqueue(…)`."""
        template = check_declared(with_options(self._template, options))
        return JobFunction(self.app, self.function, template, retry_for=self.retry_for, give_up_for=self.give_up_for)

    def bind(self, kept: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a kept call, as the types that the function asks for."""
        arguments, options = _decode_call(kept or b"null") or ([], {})
        places = self._plain_places()
        if not options and len(arguments) == len(places):
            return list(map(_as, arguments, places)), options
        bound = self._signature.bind(*arguments, **options)
        types = self._annotations()
        for name, value in bound.arguments.items():
            if name in types:
                bound.arguments[name] = _convert(value, types[name], self._signature.parameters[name].kind)
        return list(bound.args), dict(bound.kwargs)

    def _check_types(self, kept: bytes) -> None:
        """Bind a call as a worker will: what would fail there, again and again, fails here at once."""
        try:
            self._annotations()
        except Exception:
            return  # Types that this program does not have; the worker's may.
        self.bind(kept)

    def _plain_places(self) -> list[Any]:
        """The types of the parameters, in order, where all can be given by their place: binding such a call is easy."""
        if self._places is None:
            parameters = self._signature.parameters.values()
            plain = all(one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in parameters)
            types = self._annotations()
            self._places = [types.get(one.name, Any) for one in parameters] if plain else []
        return self._places

    def _annotations(self) -> dict[str, Any]:
        if self._types is None:
            hints = typing.get_type_hints(self.function)
            hints.pop("return", None)
            self._types = hints
        return self._types


def _convert(value: Any, wanted: Any, kind: Any) -> Any:
    """An argument as its annotation says, which is that of each of them for `*args` and `**kwargs`."""
    if typing.get_origin(wanted) is Unpack:
        return _as(value, typing.get_args(wanted)[0])
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return tuple(_as(one, wanted) for one in value)
    if kind is inspect.Parameter.VAR_KEYWORD:
        return {name: _as(one, wanted) for name, one in value.items()}
    return _as(value, wanted)


def _as(value: Any, wanted: Any) -> Any:
    """A value of JSON as this type. The keys of its objects are texts, whatever they stand for."""
    if isinstance(wanted, type) and issubclass(wanted, Enum) and _has_many_kinds(wanted):
        try:
            return wanted(value)
        except ValueError as error:
            raise msgspec.ValidationError(str(error)) from None
    return msgspec.convert(value, wanted, str_keys=True)


def _has_many_kinds(wanted: type[Enum]) -> bool:
    """Whether its values are neither all texts nor all whole numbers: such an enumeration msgspec does not know."""
    kinds = {type(one.value) for one in wanted}
    return kinds not in ({str}, {int})


class StandIn(Protocol):
    """Takes calls in place of a store, in tests."""

    @property
    def jobs(self) -> Jobs:
        """The jobs that an app has then: whatever is added to them is taken."""
        ...

    def add_sync(self, job: NewJob) -> EnqueuedJob:
        """A call that is enqueued where nothing can be awaited."""
        ...


class JobRegistry:
    """Functions by the names under which they are enqueued."""

    def __init__(self) -> None:
        self.functions: dict[str, JobFunction[..., Any]] = {}
        self.schedules: list[DeclaredSchedule] = []
        self.stand_in: StandIn | None = None
        self._jobs: Jobs | None = None

    @property
    def jobs(self) -> Jobs:
        """The jobs of the database that calls are enqueued in."""
        if self.stand_in is not None:
            return self.stand_in.jobs
        if self._jobs is None:
            raise Closed(
                "this JobApp is not open: use `async with app:`, or `app.use(hw.jobs)`; without async, `with app:` and "
                "enqueue_sync"
            )
        return self._jobs

    def use(self, jobs: Jobs | None) -> None:
        """Enqueue calls here from now on: `app.use(hw.jobs)`."""
        self._jobs = jobs

    def work_for(self, store: str, database: str) -> None:
        """This process runs jobs of that store."""

    def policies(self) -> dict[str, JobPolicy]:
        """How its functions are declared to be run, by type."""
        return {name: function.policy for name, function in self.functions.items()}

    async def add(self, job: NewJob) -> JobHandle:
        """Enqueue a call that is a job already."""
        return await self.jobs.add(job)

    def schedule(self, name: str, job: NewJob, *, cron: str = "", every: Seconds = 0.0, timezone: str = "UTC") -> None:
        """Declare a schedule: `app.schedule("nightly", report.job(), cron="0 3 * * *")`. Apps and workers that start
        bring the store up to date with it; one that somebody has paused stays so. What is wrong is refused here."""
        if any(known.name == name for known in self.schedules):
            raise InvalidOption(f"there is a schedule {name!r} already")
        seconds = seconds_of("every", every)
        asked = PutSchedule(name=name, job=job, cron=cron, every_seconds=seconds, timezone=timezone)
        try:
            # How large a job may be, the store says that it goes to.
            job = check_schedule(asked, bytes_max=sys.maxsize)
        except InvalidInput as error:
            raise InvalidOption(f"schedule {name!r:.80}: {error}") from error
        self.schedules.append(DeclaredSchedule(name, job, cron, seconds, timezone))

    def add_sync(self, job: NewJob) -> EnqueuedJob:
        """The same without async."""
        raise Closed("functions are enqueued without async through a JobApp, which knows its store")

    @overload
    def job(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...

    @overload
    def job(self, **options: Unpack[FunctionOptions]) -> Callable[[Callable[P, R]], JobFunction[P, R]]: ...

    @takes(FunctionOptions)
    def job(self, *functions: Any, **options: Unpack[FunctionOptions]) -> Any:
        """Make a function a job: `@app.job` or `@app.job(retries=5, queue="mail", timeout=30)`.

        `retry_for` and `give_up_for` are exceptions after which it is, or is not, tried again. The other options are
        those of jobs; they hold wherever a job of this type is added, where that says nothing else.
        """
        for function in functions:
            return self._add(function, dict(options))
        return lambda decorated: self._add(decorated, dict(options))

    def allow(self, name: str, function: Callable[..., Any]) -> JobFunction[..., Any]:
        """Make a function a job under the name by which an operator has allowed it."""
        if name in self.functions:
            raise InvalidOption(f"there is a job function {name!r} already")
        self.functions[name] = JobFunction(self, function, NewJob(type=name))
        return self.functions[name]

    def _add(self, function: Callable[..., Any], options: dict[str, Any]) -> JobFunction[..., Any]:
        exceptions = {name: options.pop(name) for name in ("retry_for", "give_up_for") if name in options}
        if not options.get("name") and not hasattr(function, "__qualname__"):
            raise InvalidOption(
                f"a job is a function with a name of its own, by which workers find it; got {function!r:.80}: "
                "write a function (def) that calls it, or say name="
            )
        name = options.pop("name", "") or f"{_module_name(function)}:{function.__qualname__}"
        unknown = sorted(set(newer_names(options)) - set(FunctionOptions.__annotations__))
        if unknown:
            raise InvalidOption(
                f"no such option of a function: {', '.join(unknown)};"
                f" there are {', '.join(FunctionOptions.__annotations__)}"
            )
        if "<" in name:
            raise InvalidOption(
                f"{name} cannot be found again by its name: define it at the top of a module, or name it"
            )
        if name in self.functions:
            raise InvalidOption(f"there is a job function {name!r} already")
        template = check_declared(with_options(NewJob(type=name), options))
        made = JobFunction(self, function, template, **exceptions)
        self.functions[name] = made
        return made


def _module_name(function: Callable[..., object]) -> str:
    """The module that a worker can import; a program that is run as a script is known by its file."""
    if function.__module__ != "__main__":
        return function.__module__
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).stem if file else "__main__"
