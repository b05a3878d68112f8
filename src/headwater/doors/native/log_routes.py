"""The routes of the log by LSN, as data."""

from headwater.doors.native import log, log_commits
from headwater.doors.routes import Route
from headwater.log.flow_operations import Staged
from headwater.model.principal import Scope
from headwater.services import log_requests
from headwater.stores.log_reader import Drops

ROUTES = (
    Route(
        method="GET",
        path="/v1/log",
        handler=log.about,
        summary="Which store it is, where its log begins and ends, and the queues that may be read",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.LogAbout,
    ),
    Route(
        method="GET",
        path="/v1/log/at",
        handler=log.at,
        summary="The LSN before the first segment that was written at a time or later",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.LogPlace,
    ),
    Route(
        method="GET",
        path="/v1/log/fingerprint",
        handler=log.fingerprint,
        summary="What the newest segment up to an LSN is known by",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.Seen,
    ),
    Route(
        method="POST",
        path="/v1/log/remembers",
        handler=log.remembers,
        summary="Whether the log has what a fingerprint was taken of",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.Remembered,
    ),
    Route(
        method="POST",
        path="/v1/log/newest",
        handler=log.newest,
        summary="The newest segment of some queues in a stretch of the log",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.Newest,
    ),
    Route(
        method="POST",
        path="/v1/log/outline",
        handler=log.outline,
        summary="Segments of some queues in a stretch of the log, without their records",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.Outline,
    ),
    Route(
        method="POST",
        path="/v1/log/partitions",
        handler=log.partitions,
        summary="The partitions of a queue, with where their records begin and end",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.Partitions,
    ),
    Route(
        method="POST",
        path="/v1/log/drops",
        handler=log.drops,
        summary="What some queues lost to retention after an LSN",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        gives=Drops,
    ),
    Route(
        method="POST",
        path="/v1/log/segments",
        handler=log.segments,
        summary="Segments of some queues in a stretch of the log, with their records",
        scope=Scope.SUBSCRIBE,
        or_scopes=(Scope.CONSUME,),
        content_types=(log_requests.CONTENT_TYPE,),
    ),
    Route(
        method="POST",
        path="/v1/log/stage",
        handler=log_commits.stage,
        summary="Upload a part of a commit that is too large for one request",
        scope=Scope.PUBLISH,
        gives=Staged,
    ),
    Route(
        method="POST",
        path="/v1/log/commit",
        handler=log_commits.commit,
        summary="Take a step of a query's work once, with its pushes and the groups that it moves",
        scope=Scope.PUBLISH,
        or_scopes=(Scope.CONSUME,),
        gives=log_requests.CommitResponse,
    ),
)
