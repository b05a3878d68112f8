"""The options of jobs as programs write them: one name for each idea, wherever it is said; lengths of time as seconds
or as `timedelta`. `JobOptions` is what `Jobs.add`, `Jobs.schedule` and `using` take, `FunctionOptions` what
`@app.job` does; both are typed keywords, so that an editor knows them and a mistyped one is an error.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, get_type_hints

import msgspec

from headwater.clock import Timestamp
from headwater.errors import InvalidOption, InvalidPayload
from headwater.log.job_operations import NewJob
from headwater.model.record import DEPTH_MAX, is_too_deep
from headwater.services.checks import check_time

Seconds = float | timedelta


class PolicyOptions(TypedDict, total=False):
    """How a job is run; `headwater.model.job_policy` says what wins when several say it."""

    queue: str
    priority: int
    delay: Seconds
    timeout: Seconds
    retries: int
    backoff_base: float
    backoff_max: Seconds
    backoff_jitter: float
    result_ttl: Seconds
    unique_key: str
    unique_seconds: Seconds
    unique_mode: str
    concurrency_key: str
    concurrency_limit: int
    limit_key: str


class CallOptions(PolicyOptions, total=False):
    """What can be said of one call of a function."""

    id: str
    run_at: datetime | Timestamp | str
    depends_on: Sequence[str]
    depends_when: str
    batch: str


class JobOptions(CallOptions, total=False):
    """Everything that can be said of a job: what it does, and how."""

    type: str
    command: str
    argv: Sequence[str]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    arguments: msgspec.Raw
    env: Mapping[str, str]
    cwd: str


class FunctionOptions(PolicyOptions, total=False):
    """What a function is declared with: its name, after which exceptions it is (not) tried again, and its policy."""

    name: str
    retry_for: tuple[type[BaseException], ...]
    give_up_for: tuple[type[BaseException], ...]
    depends_on: Sequence[str]
    depends_when: str
    batch: str


# Read, and no longer written anywhere.
OLDER_NAMES = {
    "max_retries": "retries",
    "delay_seconds": "delay",
    "timeout_seconds": "timeout",
    "backoff_max_seconds": "backoff_max",
    "result_seconds": "result_ttl",
}
_lengths_of_time = {"delay", "timeout", "backoff_max", "result_ttl", "unique_seconds"}
_lists = {"argv", "depends_on"}

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(job: NewJob | None, options: Mapping[str, Any]) -> NewJob:
    """A job, new or given, with these options; a name that there is not, or that is there twice, is an error."""
    if job is not None and not isinstance(job, NewJob):
        raise InvalidOption(f"a headwater.NewJob is expected; got a {type(job).__name__}")
    named = newer_names(options)
    unknown = sorted(set(named) - set(JobOptions.__annotations__) - set(NewJob.__struct_fields__))
    if unknown:
        raise InvalidOption(
            f"no such job option: {', '.join(unknown)}; there are {', '.join(get_type_hints(JobOptions))}"
        )
    if "args" in named or "kwargs" in named:
        if "arguments" in named:
            raise InvalidOption("give the arguments of a function as args and kwargs, or encoded as arguments")
        named["arguments"] = encode_call(named.pop("args", ()), named.pop("kwargs", {}))
    fields = {name: _value(name, value) for name, value in named.items()}
    return msgspec.structs.replace(job or NewJob(), **fields)


def newer_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under the names that they have now; an older one beside the newer is an error."""
    named = dict(options)
    for older in OLDER_NAMES.keys() & named.keys():
        newer = OLDER_NAMES[older]
        if newer in named:
            raise InvalidOption(f"{older} is the older name of {newer}: give one of them")
        named[newer] = named.pop(older)
    return named


def encode_call(args: Sequence[Any], kwargs: Mapping[str, Any], of: str = "a function") -> msgspec.Raw:
    """The arguments of a call as they are kept."""
    if isinstance(args, str | bytes) or not isinstance(kwargs, Mapping):
        raise InvalidOption("args is a list and kwargs an object with names")
    try:
        return msgspec.Raw(encode_json([list(args), dict(kwargs)]))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"arguments of {of} must be JSON values: {error}") from error


def encode_json(value: object) -> bytes:
    """A value as JSON; ValueError when it is too deep, or holds a number that JSON has not, which would be kept as null
    otherwise."""
    kept = msgspec.json.encode(value)
    if is_too_deep(kept):
        raise ValueError(f"it may be nested {DEPTH_MAX} levels deep")
    if b"null" in kept and not _is_finite(msgspec.to_builtins(value)):
        raise ValueError("NaN and Infinity are no numbers in JSON; give None, or a text")
    return kept


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list | tuple | set | frozenset) else True


_decode_call = msgspec.json.Decoder(tuple[list[Any], dict[str, Any]] | None).decode


def decode_call(kept: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
    """The args and kwargs of a call that is kept."""
    try:
        return _decode_call(kept) or ([], {})
    except msgspec.MsgspecError as error:
        raise InvalidPayload(f"the arguments of a function are a list of two, args and kwargs: {error}") from error


def seconds_of(name: str, value: object) -> float:
    """A length of time in seconds; the bounds are checked with the job."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{name} must be a number of seconds or a timedelta; got {value!r:.80}")
    return float(value)


def time_of(value: datetime | int | str) -> Timestamp:
    """The time that a job is to run at."""
    if not isinstance(value, str):
        return check_time(value)
    try:
        return check_time(datetime.fromisoformat(value))
    except ValueError:
        raise InvalidOption(f"run_at must be a time like 2026-01-31T08:00:00Z; got {value!r:.80}") from None


def list_of(name: str, value: object) -> tuple[str, ...]:
    """Several texts; one alone is no list of its letters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidOption(f"{name} must be a list of texts, like ['a', 'b']; got {value!r:.80}")
    return tuple(value)


def _value(name: str, value: Any) -> object:
    if value is None:
        return getattr(_plain, name)
    if name in _lengths_of_time:
        return seconds_of(name, value)
    if name == "run_at":
        return time_of(value)
    if name in _lists:
        return list_of(name, value)
    return dict(value) if name == "env" and isinstance(value, Mapping) else value


_plain = NewJob()


def takes(options: type) -> Callable[[Function], Function]:
    """Show the keywords of `options` one by one in the signature of a function that takes them together."""

    def show(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in get_type_hints(options).items()
        ]
        plain = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        names = {one.name for one in plain}
        shown = [*plain, *(one for one in named if one.name not in names)]
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return function

    return show
