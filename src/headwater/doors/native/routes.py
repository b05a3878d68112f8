"""All routes of our own wire, as data: one for each operation and question that has a rule, and those that are more
than one of them."""

from headwater.doors.jobs.own_names import in_own_names, with_own_names
from headwater.doors.native import documents, jobs, log_commits, messages, questions, upkeep
from headwater.doors.native.rules import operation_routes, question_routes
from headwater.doors.routes import Route
from headwater.log.operations import Acked, Extended, Transacted
from headwater.model.principal import Scope
from headwater.services import requests
from headwater.services.wire_forms import wire_kind
from headwater.stores.job_questions import JobStatus

_OWN = (
    Route(
        method="GET",
        path="/v1/bounds",
        handler=questions.bounds,
        summary="What this server takes at most, and where its log ends",
        gives=requests.Bounds,
    ),
    Route(
        method="POST",
        path="/v1/push",
        handler=messages.push,
        summary="Append records to partitions",
        scope=Scope.PUBLISH,
        gives=list[requests.PushResponse],
        status=201,
    ),
    Route(
        method="POST",
        path="/v1/send",
        handler=messages.send,
        summary="Say something in rooms",
        scope=Scope.PUBLISH,
        gives=list[requests.PushResponse],
        status=201,
    ),
    Route(
        method="POST",
        path="/v1/pop",
        handler=messages.pop,
        summary="Lease the next records, with reports on the last; wait when there are none",
        scope=Scope.CONSUME,
        gives=requests.PopResponse,
    ),
    Route(
        method="POST",
        path="/v1/report",
        handler=messages.report,
        summary="Report on records",
        scope=Scope.CONSUME,
        gives=list[Acked],
    ),
    Route(
        method="POST",
        path="/v1/extend",
        handler=messages.extend,
        summary="Keep leases for longer",
        scope=Scope.CONSUME,
        gives=list[Extended],
    ),
    Route(
        method="POST",
        path="/v1/transaction",
        handler=in_own_names(messages.transaction),
        summary="Pushes, messages of rooms, reports, jobs and documents that take effect together or not at all",
        # Whoever may do one of its steps alone; each step is asked for its own scope then.
        scope=Scope.CONSUME,
        or_scopes=tuple(sorted({rule.scope for rule in messages.OPERATIONS.values()} - {Scope.CONSUME})),
        gives=Transacted,
    ),
    Route(
        method="GET",
        path="/v1/segments",
        handler=questions.segments,
        summary="Read the log of a queue without a group; wait when there is no more",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.READ_DOCUMENTS,),
        gives=requests.SegmentsResponse,
    ),
    Route(
        method="GET",
        path="/v1/jobs/wait",
        handler=in_own_names(jobs.wait),
        summary="One job once it has ended, or when the time is over",
        scope=Scope.SUBMIT_JOBS,
        or_scopes=(Scope.ADMIN,),
        gives=wire_kind(JobStatus),
    ),
)

ROUTES: tuple[Route, ...] = (
    *_OWN,
    *operation_routes({**upkeep.OPERATIONS, **log_commits.OPERATIONS, **documents.OPERATIONS}),
    *question_routes({**upkeep.QUESTIONS, **documents.QUESTIONS}),
    *with_own_names((*operation_routes(jobs.OPERATIONS), *question_routes(jobs.QUESTIONS))),
)
