"""Who may hand in an operation or ask a question of our own wire: a rule for each type, and routes made of the rules.

    body ─► form ─► operation (database and key: who asks) ─► rule ─► service ─► its result, as far as they may see it

What has no rule has no route. `tests/doors/test_rules.py` fails on a type that has neither a rule nor a reason.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from headwater.config import Durability
from headwater.doors.routes import Route, RouteHandler
from headwater.doors.site import Site, check_use, key_of, lane_of
from headwater.doors.wire import Request, Response, json_response
from headwater.errors import QueueMissing
from headwater.log.operations import Operation
from headwater.model.names import PartitionId, check_name
from headwater.model.principal import Scope, require_all
from headwater.services.wire_forms import answer_kind, form, from_wire, operation_path, question_path, result_kind
from headwater.stores.questions import Question

# An operation or a question.
Asked = TypeVar("Asked", bound=msgspec.Struct)
# Called with the site, the request and the operation or question; gives it as it may be asked.
Check = Callable[[Site, Request, Any], Awaitable[Any]]
# Called with the site, the request, what was asked and what it came to; gives what they may see of it.
Show = Callable[[Site, Request, Any, Any], Awaitable[Any]]
# Answers in a way of its own.
Reply = Callable[[Site, Request, Any], Awaitable[Response]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody needs for one type: a scope, or one of those that will do as well, and the one beside it.

    `queue` is the field that names the queue, which must be theirs; where it is empty, all of the database are meant
    and must be theirs, or, with `some`, the answer has those that are. `queue_too` is a second one that may be empty.
    With `partition` the field `partition_id` must be theirs. `whole` is for what concerns the whole database. `check`
    says what else must hold, `show` what they may see of the result.
    """

    scope: Scope
    or_scopes: tuple[Scope, ...] = ()
    and_scope: Scope | None = None
    queue: str = ""
    queue_too: str = ""
    some: bool = False
    partition: bool = False
    whole: bool = False
    check: Check | None = None
    show: Show | None = None
    reply: Reply | None = None
    durability: Durability | None = None
    status: int = 200


async def allowed(site: Site, request: Request, rule: Rule, asked: Asked) -> Asked:
    """An operation or question as it may be asked; raises when it may not. What is not theirs is not there."""
    if rule.whole:
        require_all(request.principal, rule.scope)
    if rule.queue:
        queue = getattr(asked, rule.queue)
        if queue:
            check_use(request, check_name("queue", queue))
        elif not rule.some:
            require_all(request.principal, rule.scope)
    if rule.queue_too and (queue := getattr(asked, rule.queue_too)):
        check_use(request, check_name("queue", queue))
    if rule.partition:
        named: Any = asked
        await check_partition(site, request, named.partition_id)
    return asked if rule.check is None else await rule.check(site, request, asked)


async def check_partition(site: Site, request: Request, partition_id: PartitionId) -> None:
    """Raises when a partition is not there, or not theirs: nobody learns which."""
    if await lane_of(site, request, partition_id) is None:
        raise QueueMissing(f"there is no partition {partition_id}")


# ── routes ──


def operation_routes(rules: Mapping[type[Operation], Rule]) -> Iterable[Route]:
    """A route for each operation."""
    for kind, rule in rules.items():
        yield _route(operation_path(kind), kind, rule, result_kind(kind), _run(rule))


def question_routes(rules: Mapping[type[Question[Any]], Rule]) -> Iterable[Route]:
    """A route for each question."""
    for kind, rule in rules.items():
        yield _route(question_path(kind), kind, rule, answer_kind(kind), _ask(rule))


def _route(path: str, kind: type[msgspec.Struct], rule: Rule, gives: object, handler: RouteHandler) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=summary_of(kind),
        scope=rule.scope,
        or_scopes=rule.or_scopes,
        and_scope=rule.and_scope,
        takes=form(kind),
        gives=gives,
        status=rule.status,
    )


def summary_of(kind: type[msgspec.Struct]) -> str:
    """What a type is for, in the first sentence that is said of it."""
    said = " ".join((kind.__doc__ or "").split())
    return said.partition(". ")[0].rstrip(".")


def _run(rule: Rule) -> RouteHandler:
    async def run(site: Site, request: Request, body: Any) -> Response:
        says = {"database": request.principal.database, "key": key_of(request, body.key)}
        operation = await allowed(site, request, rule, from_wire(body, **says))
        result = await site.queues.run(operation, rule.durability)
        if rule.show is not None:
            result = await rule.show(site, request, operation, result)
        return json_response(result, status=rule.status)

    return run


def _ask(rule: Rule) -> RouteHandler:
    async def ask(site: Site, request: Request, body: Any) -> Response:
        says = {"database": request.principal.database}
        question = await allowed(site, request, rule, from_wire(body, **says))
        if rule.reply is not None:
            return await rule.reply(site, request, question)
        answer = await site.queues.ask(question)
        if rule.show is not None:
            answer = await rule.show(site, request, question, answer)
        return json_response(answer)

    return ask
