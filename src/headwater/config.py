"""Settings: read once, checked at once, passed on as a value. Every bound has a default and a unit in its name."""

import math
import os
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from headwater.errors import ConfigError

ENVIRONMENT_PREFIX = "HEADWATER_"
KIB = 1_024
MIB = 1_024 * KIB


Settings = TypeVar("Settings", bound=msgspec.Struct)


class Durability(StrEnum):
    """What an answer promises: on stable storage, committed but not synced, or only taken."""

    SYNCED = "synced"
    WRITTEN = "written"
    MEMORY = "memory"


def strongest(*levels: Durability) -> Durability:
    """The safest of them."""
    return min(levels, key=list(Durability).index)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set for one open store."""

    durability: Durability = Durability.SYNCED
    """What answers promise unless a call asks for something else."""
    record_bytes_max: int = 256 * KIB
    """The largest payload."""
    batch_max: int = 1_000
    """The most records in one push or pop."""
    batch_bytes_max: int = 16 * MIB
    """The most bytes in one push."""
    wait_seconds_max: float = 60.0
    """The longest a pop may wait."""
    pop_batch: int = 1
    """How many records a pop over HTTP gets that does not say how many."""
    pop_wait_seconds: float = 30.0
    """How long a pop over HTTP waits that does not say how long."""
    waiters_max: int = 10_000
    """The most pops that may wait at once."""
    pending_max: int = 100_000
    """The most operations that may wait for a commit at once."""
    lock_wait_seconds: float = 10.0
    """How long a commit waits for other programs that hold the write lock."""
    cache_bytes: int = 16 * MIB
    """The database's page cache."""
    wal_bytes_max: int = 64 * MIB
    """The write-ahead log is made to start over beyond this size."""
    reserve_bytes: int = 8 * MIB
    """Room that is set aside, so that records can be dropped on a full disk; 0 for none."""
    deduplication_ids_max: int = 400_000
    """The most transaction ids remembered at once, over all queues."""
    wakeup: str = "auto"
    """How other processes' commits are noticed: auto, inotify or data_version."""
    wakeup_redis: str = ""
    """A Redis (redis://host:port) that tells servers on other machines of what is said in rooms; '' for none."""
    housekeeping: bool = True
    """Whether this process does chores (retention, expired leases, checkpoints)."""
    housekeeping_seconds: float = 30.0
    """Between two rounds of chores."""
    idempotency_seconds: float = 86_400.0
    """How long the answer for an idempotency key is kept."""
    log_readers_max: int = 2
    """The most threads that read the log for programs elsewhere (Spark through a server)."""
    log_requests_max: int = 64
    """The most requests of such programs at once; the next one is told to come back."""
    log_answer_bytes_max: int = 4 * MIB
    """The most bytes of records in one answer to such a program, before compression; one segment at least."""
    staged_bytes_max: int = 64 * MIB
    """The most bytes of records in one commit that comes in several requests (Spark's micro-batches, tables)."""
    recent_bytes_max: int = 8 * MIB
    """The most bytes of its own newest commits that a process keeps for those who follow the log; 0 for none."""
    recent_segments_max: int = 10_000
    """The most segments among them."""
    encryption_key: str = ""
    """64 hexadecimal digits; needed by queues with `encrypted`."""

    def __repr__(self) -> str:
        shown = {**msgspec.structs.asdict(self), "encryption_key": "***" if self.encryption_key else ""}
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_positive = (
    "record_bytes_max",
    "batch_max",
    "batch_bytes_max",
    "pop_batch",
    "waiters_max",
    "pending_max",
    "cache_bytes",
    "wal_bytes_max",
    "deduplication_ids_max",
    "housekeeping_seconds",
    "lock_wait_seconds",
    "log_readers_max",
    "log_requests_max",
    "log_answer_bytes_max",
    "staged_bytes_max",
    "recent_segments_max",
)


def load_config(environment: Mapping[str, str] | None = None, **settings: Any) -> Config:
    """The settings from `HEADWATER_*` variables, with those given by name laid over them; None is not given."""
    settings = {name: value for name, value in settings.items() if value is not None}
    source = os.environ if environment is None else environment
    names = Config.__struct_fields__
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise ConfigError(f"no such setting: {', '.join(unknown)}; there are {', '.join(names)}")
    found = {
        name: source[ENVIRONMENT_PREFIX + name.upper()] for name in names if ENVIRONMENT_PREFIX + name.upper() in source
    }
    config = convert_settings({**found, **settings}, Config)
    _check(config)
    return config


def convert_settings(values: Mapping[str, Any], kind: type[Settings]) -> Settings:
    """Settings as they were written, as a value; the first that cannot be one is named with what it may be."""
    for name, field in typing.get_type_hints(kind).items():
        if name not in values:
            continue
        try:
            msgspec.convert(values[name], field, strict=False)
        except msgspec.ValidationError:
            is_secret = "secret" in name or name.endswith("_key")
            came = "something else" if is_secret else f"{values[name]!r:.80}"
            raise ConfigError(f"{name} must be {_expected(field)}; got {came}") from None
    return msgspec.convert(dict(values), kind, strict=False)


def _expected(field: Any) -> str:
    """What a setting may be, in words."""
    inside = [part for part in typing.get_args(field) if part is not Ellipsis]
    if inside:
        return f"a list, written with commas, of {_expected(inside[0])}"
    if isinstance(field, type) and issubclass(field, StrEnum):
        *others, last = field
        return f"{', '.join(others)} or {last}" if others else str(last)
    return {bool: "true or false", int: "a whole number", float: "a number"}.get(field, "a text")


def _check(config: Config) -> None:
    for name in _positive:
        if not 0 < getattr(config, name) < math.inf:
            raise ConfigError(f"{name} must be above 0; got {getattr(config, name)!r}")
    for name in ("wait_seconds_max", "pop_wait_seconds", "idempotency_seconds", "reserve_bytes", "recent_bytes_max"):
        if not 0 <= getattr(config, name) < math.inf:
            raise ConfigError(f"{name} must be 0 or above; got {getattr(config, name)!r}")
    if config.wakeup not in ("auto", "inotify", "data_version"):
        raise ConfigError(f"wakeup must be auto, inotify or data_version; got {config.wakeup!r}")
    key = config.encryption_key
    if key and (len(key) != 64 or not all(letter in "0123456789abcdefABCDEF" for letter in key)):
        raise ConfigError("encryption_key must be 64 hexadecimal digits (256 bit)")
