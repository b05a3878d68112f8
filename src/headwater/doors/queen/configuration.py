"""`POST /api/v1/configure` and `DELETE /api/v1/resources/queues/{queue}`: queues are made, changed and removed.

queen-mq's names of options and ours stand for the same things; a client may use either. Its times in milliseconds are
seconds here. The answer says what is in force, and nothing else: several of its names are views of one option of ours.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.doors.queen.push import LANES
from headwater.doors.queen.shapes import ConfigureBody, ConfigureResponse, DeleteResponse, Options
from headwater.doors.site import Site, check_use
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import InvalidOption
from headwater.log.operations import Configure, Configured, DeleteQueue
from headwater.model.names import check_name
from headwater.model.queue import OPTION_NAMES, QueueOptions
from headwater.services.checks import check_optional_name


class Option(NamedTuple):
    """An option of queen-mq: what it is called here, and by how much its number is larger there."""

    name: str
    scale: int = 1


_options = {
    "leaseTime": Option("lease_seconds"),
    "retryLimit": Option("retry_limit"),
    "retryDelay": Option("retry_delay_seconds", 1_000),
    "deadLetterQueue": Option("dead_letters"),
    "dlqAfterMaxRetries": Option("dead_letters"),
    "priority": Option("priority"),
    "delayedProcessing": Option("delay_seconds"),
    "windowBuffer": Option("window_seconds"),
    "retentionSeconds": Option("retention_seconds"),
    "completedRetentionSeconds": Option("completed_retention_seconds"),
    "maxSize": Option("size_max"),
    "maxQueueSize": Option("size_max"),
    "maxPartitions": Option("partitions_max"),
    "encryptionEnabled": Option("encrypted"),
}
# How long a message may wait or live: one that is older is dropped, which is what retention does. The shortest counts.
_lifetimes = ("maxWaitTimeSeconds", "ttl")
# Whether anything is dropped for its age at all.
_retention = "retentionEnabled"
_ours = {name: Option(name) for name in OPTION_NAMES}


async def configure(site: Site, request: Request, body: ConfigureBody) -> Response:
    """Make a queue, or change it."""
    queue = check_name("queue", body.queue)
    check_use(request, queue)
    for kind, name in (("namespace", body.namespace), ("task", body.task)):
        if name is not None:
            check_optional_name(kind, name)
    operation = Configure(
        database=request.principal.database,
        queue=queue,
        namespace=body.namespace,
        task=body.task,
        options=options_of(body.options),
        lanes=LANES,
    )
    configured: Configured = await site.queues.run(operation)
    return json_response(
        ConfigureResponse(
            configured=True,
            queue=queue,
            namespace=configured.namespace,
            task=configured.task,
            options=show_options(configured.options),
        )
    )


def options_of(asked: Mapping[str, object]) -> dict[str, object]:
    """Options by our names."""
    found: dict[str, object] = {}
    for name, value in asked.items():
        if value is None or name in _lifetimes or name == _retention:
            continue
        option = _options.get(name) or _ours.get(name)
        if option is None:
            known = ", ".join((*_options, *_lifetimes, _retention, *_ours))
            raise InvalidOption(f"no such queue option: {name!r:.80}; there are {known}")
        if option.scale != 1:
            value = _number(name, value) / option.scale
        if found.setdefault(option.name, value) != value:
            raise InvalidOption(f"queue option {name} and another name for it say different things: {value!r:.80}")
    if asked.get("retryDelay") is not None:
        # There it is the same before every retry.
        found = {"retry_factor": 1.0, "retry_jitter": 0.0, **found}
    for name in _lifetimes:
        found = _with_lifetime(found, name, asked.get(name))
    return _with_retention(found, asked.get(_retention))


def _with_lifetime(found: dict[str, object], name: str, seconds: object) -> dict[str, object]:
    """The options with a retention that keeps nothing for longer than this; 0 and nothing are no bound."""
    if not seconds:
        return found
    bound = _number(name, seconds)
    kept = found.get("retention_seconds") or bound
    return {**found, "retention_seconds": min(kept, bound) if isinstance(kept, int | float) else kept}


def _with_retention(found: dict[str, object], enabled: object) -> dict[str, object]:
    """The options with nothing dropped for its age when that is switched off; switched on, the others say how long."""
    if enabled is None or enabled is True:
        return found
    if enabled is not False:
        raise InvalidOption(f"queue option {_retention} must be true or false; got {enabled!r:.80}")
    return {**found, "retention_seconds": 0.0, "completed_retention_seconds": 0.0}


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"queue option {name} must be a number; got {value!r:.80}")
    return value


def show_options(options: QueueOptions) -> Options:
    """All options that are in force, by the names of queen-mq, then by ours."""
    ours = msgspec.structs.asdict(options)
    theirs = {name: _scaled(ours[option.name], option.scale) for name, option in _options.items()}
    lifetimes = dict.fromkeys(_lifetimes, options.retention_seconds)
    is_retained = bool(options.retention_seconds or options.completed_retention_seconds)
    return {**theirs, **lifetimes, _retention: is_retained, **ours}


def _scaled(value: Any, scale: int) -> Any:
    return value if scale == 1 else value * scale


async def delete_queue(site: Site, request: Request, queue: str) -> Response:
    """Remove a queue with everything in it."""
    check_name("queue", queue)
    check_use(request, queue)
    deleted = await site.queues.run(DeleteQueue(database=request.principal.database, queue=queue))
    return json_response(DeleteResponse(deleted=bool(deleted.count), queue=queue, existed=bool(deleted.count)))
