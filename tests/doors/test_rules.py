"""Every operation and every question has a rule of who may ask for it over our own wire, or a reason why nobody may."""

from collections.abc import Container, Iterator
from typing import Any

import msgspec
import pytest

from headwater.doors.all_routes import ROUTES
from headwater.doors.native import documents, jobs, log_commits, messages, upkeep
from headwater.doors.native.rules import Rule, operation_routes
from headwater.log import (
    flow_operations,
    group_operations,
    job_operations,
    operations,
    room_operations,
    store_operations,
    stream_operations,
)
from headwater.log.operations import Operation
from headwater.model.principal import Scope
from headwater.services.wire_forms import operation_path, question_path
from headwater.stores import document_questions, job_questions, questions, room_questions
from headwater.stores.questions import Question

SERVED: dict[type[Any], Rule] = {
    **upkeep.OPERATIONS,
    **jobs.OPERATIONS,
    **log_commits.OPERATIONS,
    **documents.OPERATIONS,
    **upkeep.QUESTIONS,
    **jobs.QUESTIONS,
    **documents.QUESTIONS,
}
OWN_ROUTES = (operations.Push, operations.Pop, operations.Ack, operations.Extend)
NOT_SERVED: dict[str, tuple[type[Any], ...]] = {
    "goes with what it belongs to, by /v1/transaction or /v1/log/commit": (
        operations.Transaction,
        operations.Reach,
        flow_operations.Stage,
    ),
    "is of the wire of queen-mq": (
        operations.Clear,
        operations.Advance,
        operations.PassOver,
        operations.Subscribe,
        stream_operations.RegisterStream,
        stream_operations.ChangeState,
    ),
    "is said on the wire without saying who: /v1/send": (room_operations.RoomPush,),
    "is for whoever may open the store": (
        operations.AddAccessToken,
        operations.RevokeAccessToken,
        flow_operations.MarkArchived,
        flow_operations.AddRollups,
        store_operations.RenewIdentity,
        store_operations.GiveUpDamaged,
        room_questions.CheckRooms,
    ),
    "is a chore": (
        room_operations.TrimRoom,
        operations.Retain,
        operations.Reap,
        operations.Promote,
        operations.Forget,
        job_operations.Rescue,
        job_operations.SweepLanes,
        job_operations.Prune,
        job_operations.FireSchedules,
    ),
    "is a worker's": (
        job_operations.Claim,
        job_operations.Settle,
        job_operations.Heartbeat,
        job_operations.Depart,
    ),
    "is what others have in common": (job_operations.ChooseJobs,),
    "is asked by the server itself, or by routes that show less of it": (
        questions.FindIdentity,
        questions.FindKeyFit,
        questions.FindLastLsn,
        questions.FindLastLsnOf,
        questions.FindLoss,
        questions.FindLane,
        questions.ListReady,
        questions.ListExpired,
        questions.FindNextDue,
        questions.ListCursors,
        questions.ReadPartition,
        questions.ListTracesNamed,
        questions.ListTraceNames,
        questions.FindStream,
        questions.StateQuestion,
        questions.ListSwitches,
        questions.FindMilestone,
        questions.ListMilestones,
        questions.ListStaged,
        questions.ListPositions,
        questions.FindArchived,
        questions.ListRollups,
        questions.FindRollupState,
        questions.FindAccessToken,
        questions.ListAccessTokens,
        document_questions.ListUnfinishedIndexes,
        job_questions.FindJobStates,
        job_questions.FindJobsReady,
    ),
}


def kinds(of: type[Any]) -> Iterator[type[Any]]:
    """All types of operations or questions that the package declares."""
    for kind in of.__subclasses__():
        if kind.__module__.startswith("headwater.") and "[" not in kind.__name__:
            yield kind
        yield from kinds(kind)


def unruled(served: Container[type[Any]]) -> set[str]:
    """What is declared and has neither a rule nor a reason."""
    excused = {kind for some in NOT_SERVED.values() for kind in some} | set(OWN_ROUTES)
    return {kind.__name__ for kind in {*kinds(Operation), *kinds(Question)} - excused if kind not in served}


def test_every_operation_and_question_has_a_rule_or_a_reason_why_it_is_not_served() -> None:
    assert unruled(SERVED) == set()
    assert SERVED.keys().isdisjoint(kind for some in NOT_SERVED.values() for kind in some)
    assert set(messages.OPERATIONS) >= set(OWN_ROUTES)


def test_an_operation_or_a_question_without_a_rule_is_noticed() -> None:
    left_out = {group_operations.ReleaseLeases, questions.ListTraces}
    assert unruled(SERVED.keys() - left_out) == {"ReleaseLeases", "ListTraces"}


def test_what_has_a_rule_has_a_route_and_nothing_else_has() -> None:
    paths = {route.path for route in ROUTES if route.path.startswith(("/v1/operations/", "/v1/questions/"))}
    named = {operation_path(kind) if issubclass(kind, Operation) else question_path(kind) for kind in SERVED}
    assert paths == named


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.__name__)
def test_a_rule_says_who_may_and_about_which_queues(kind: type[Any]) -> None:
    """What names a queue or a partition is held to those of the caller by its rule, or by a check of its own."""
    rule = SERVED[kind]
    fields = set(kind.__struct_fields__)
    assert rule.scope in Scope
    if "queue" in fields and not (rule.check or rule.whole):
        assert rule.queue == "queue"
    assert rule.partition == ("partition_id" in fields)
    named = {"queue", "partition_id", "id", "ids", "jobs", "job", "name"} & fields
    assert not named or rule.queue or rule.partition or rule.check or rule.whole
    assert rule.queue or rule.partition or rule.check or rule.whole or rule.show or rule.reply or named == set()


def test_a_type_without_a_result_cannot_have_a_route() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        list(operation_routes({Operation: Rule(scope=Scope.ADMIN)}))


def roomy(kind: msgspec.inspect.Type) -> Iterator[str]:
    """The types within a type that take fields which nobody knows."""
    waiting, seen = [kind], set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, msgspec.inspect.StructType):
            if found.cls in seen:
                continue
            seen.add(found.cls)
            if not found.forbid_unknown_fields:
                yield found.cls.__name__
            waiting += [field.type for field in found.fields]
        for name in ("item_type", "key_type", "value_type", "type"):
            if isinstance(inner := getattr(found, name, None), msgspec.inspect.Type):
                waiting.append(inner)
        for name in ("item_types", "types"):
            waiting += getattr(found, name, ())


# A row as RxDB and its plugins send it.
THEIRS = {"DocumentRow"}


@pytest.mark.parametrize(
    "path", sorted(route.path for route in ROUTES if route.path.startswith("/v1/") and route.takes)
)
def test_our_own_wire_refuses_a_field_that_there_is_not_however_deep(path: str) -> None:
    """What is passed over in silence was meant to do something: a delay, or an id against doubling."""
    (taken,) = {route.takes for route in ROUTES if route.path == path}
    assert set(roomy(msgspec.inspect.type_info(taken))) <= THEIRS
