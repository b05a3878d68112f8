"""`POST /api/v1/configure` and `DELETE /api/v1/resources/queues/{queue}`: queues are made, changed and removed.

queen-mq's names of options and ours stand for the same things; a client may use either. Its times in milliseconds are
seconds here.
"""

from typing import Any, NamedTuple

import msgspec

from headwater.doors.queen.push import LANES
from headwater.doors.queen.shapes import ConfigureAnswer, ConfigureBody, DeleteAnswer, Options
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
    "encryptionEnabled": Option("encrypted"),
}
# How long a message may wait: one that has waited for longer is dropped, which is what retention does.
_longest_wait = "maxWaitTimeSeconds"
# Known to queen-mq, and of no effect by themselves: nothing waits in a buffer, and retention is told by other options.
_of_no_effect = {"ttl", "maxQueueSize", "retentionEnabled", _longest_wait, "maxPartitions"}
_plain = (bool, int, float, str)
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
        ConfigureAnswer(
            configured=True,
            queue=queue,
            namespace=configured.namespace,
            task=configured.task,
            options={**show_options(configured.options), **_said(body.options)},
        )
    )


def _said(asked: dict[str, Any]) -> Options:
    """What was said and is not kept in these words is said back, because clients look for it."""
    names = _of_no_effect | ({"retentionSeconds"} if asked.get(_longest_wait) else set())
    return {name: value for name, value in asked.items() if name in names and isinstance(value, _plain)}


def options_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Options by our names."""
    found: dict[str, Any] = {}
    for name, value in asked.items():
        if name in _of_no_effect or value is None:
            continue
        option = _options.get(name) or _ours.get(name)
        if option is None:
            raise InvalidOption(f"no such queue option: {name!r:.80}; there are {', '.join((*_options, *_ours))}")
        if option.scale != 1:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidOption(f"queue option {name} must be a number; got {value!r:.80}")
            value = value / option.scale
        found[option.name] = value
    return _with_longest_wait(found, asked.get(_longest_wait))


def _with_longest_wait(found: dict[str, Any], seconds: Any) -> dict[str, Any]:
    """The options with a retention that keeps nothing waiting for longer than this; 0 and nothing are no bound."""
    if not seconds:
        return found
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption(f"queue option {_longest_wait} must be a number; got {seconds!r:.80}")
    kept = found.get("retention_seconds") or seconds
    return {**found, "retention_seconds": min(kept, seconds) if isinstance(kept, int | float) else kept}


def show_options(options: QueueOptions) -> dict[str, Any]:
    """All options by the names of queen-mq, then by ours."""
    ours = msgspec.structs.asdict(options)
    theirs = {name: _scaled(ours[option.name], option.scale) for name, option in _options.items()}
    return {**theirs, **ours}


def _scaled(value: Any, scale: int) -> Any:
    return value if scale == 1 else value * scale


async def delete_queue(site: Site, request: Request, queue: str) -> Response:
    """Remove a queue with everything in it."""
    check_name("queue", queue)
    check_use(request, queue)
    deleted = await site.queues.run(DeleteQueue(database=request.principal.database, queue=queue))
    return json_response(DeleteAnswer(deleted=True, queue=queue, existed=bool(deleted.count)))
