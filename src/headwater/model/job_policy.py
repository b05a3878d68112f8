"""How a job is to be run, as far as somebody has said so: the options that a function, a schedule or a caller can give.

What wins, for each option on its own: what the job itself says; then what the function of its type was declared with
(`@app.job(retries=5)`), wherever the job is added; then the settings of its queue; then those of the database.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The options of a job that its function can have, too. Empty and None mean: nobody has said. Times are seconds."""

    queue: str = ""
    priority: int | None = None
    delay: float | None = None
    timeout: float | None = None
    retries: int | None = None
    backoff_base: float | None = None
    backoff_max: float | None = None
    backoff_jitter: float | None = None
    result_ttl: float | None = None
    unique_key: str = ""
    unique_seconds: float | None = None
    unique_mode: str = ""
    concurrency_key: str = ""
    concurrency_limit: int | None = None
    limit_key: str = ""


POLICY_FIELDS = JobPolicy.__struct_fields__
# Where a caller has said one of these, the other is no longer open: they answer the same question in two ways.
_instead = {"delay": "run_at", "concurrency_key": "limit_key", "limit_key": "concurrency_key"}
_plain = JobPolicy()

Job = TypeVar("Job", bound=JobPolicy)


def options_given(policy: JobPolicy) -> dict[str, Any]:
    """The options that a policy has something to say about."""
    found = {name: getattr(policy, name) for name in POLICY_FIELDS}
    return {name: value for name, value in found.items() if value != getattr(_plain, name)}


def policy_of(job: JobPolicy) -> JobPolicy:
    """What a job says about how it is run, without what it does."""
    return JobPolicy(**options_given(job))


def filled(job: Job, standing: Mapping[str, object]) -> Job:
    """A job that says nothing about these options takes them from its function; what it says itself stays."""
    open_options = {name: value for name, value in standing.items() if _is_open(job, name)}
    return msgspec.structs.replace(job, **open_options) if open_options else job


def _is_open(job: JobPolicy, name: str) -> bool:
    if getattr(job, name) != getattr(_plain, name):
        return False
    other = _instead.get(name)
    return other is None or not getattr(job, other, None)
