"""All routes of jobs, as data."""

from typing import Any

from headwater.doors.jobs import events, handlers, shapes
from headwater.doors.jobs.own_names import with_own_names
from headwater.doors.routes import Route, RouteHandler
from headwater.model.principal import Scope
from headwater.services import job_documents as documents

BASE = "/api/v1"


def _read(path: str, handler: RouteHandler, summary: str, **about: Any) -> Route:
    return Route(method="GET", path=BASE + path, handler=handler, summary=summary, scope=Scope.ADMIN, **about)


def _change(path: str, handler: RouteHandler, summary: str, **about: Any) -> Route:
    about = {"method": "POST", "scope": Scope.ADMIN, **about}
    return Route(path=BASE + path, handler=handler, summary=summary, **about)


ROUTES = with_own_names(
    (
        Route(
            method="POST",
            path=f"{BASE}/jobs",
            handler=handlers.add,
            summary="Add functions and allowed commands as jobs, all of them or none",
            scope=Scope.SUBMIT_JOBS,
            gives=list[shapes.AddedJob],
            status=201,
        ),
        Route(
            method="GET",
            path=f"{BASE}/jobs/{{id}}",
            handler=handlers.show,
            summary="One job with its attempts",
            scope=Scope.SUBMIT_JOBS,
            or_scopes=(Scope.ADMIN,),
            gives=documents.FullJobDocument,
        ),
        Route(
            method="GET",
            path=f"{BASE}/jobs/{{id}}/wait",
            handler=handlers.wait,
            summary="One job once it has ended, or when the time is over",
            scope=Scope.SUBMIT_JOBS,
            or_scopes=(Scope.ADMIN,),
            gives=documents.FullJobDocument,
        ),
        _read(
            "/jobs",
            handlers.list_jobs,
            "Jobs by state, queue, type and batch",
            gives=list[documents.JobDocument],
        ),
        _read(
            "/job-queues",
            handlers.queues,
            "Job queues with how many jobs are in which state",
            gives=list[documents.JobQueueDocument],
        ),
        _read(
            "/job-stats",
            handlers.stats,
            "What was done in each minute",
            gives=list[documents.MinuteDocument],
        ),
        _read(
            "/job-events",
            events.events,
            "Every change of a job, as server-sent events",
            content_types=("text/event-stream",),
        ),
        _read("/job-config", handlers.config, "The settings of jobs and workers", gives=dict[str, float]),
        _read("/job-schedules", handlers.schedules, "The schedules", gives=list[documents.ScheduleDocument]),
        _read("/workers", handlers.workers, "The workers", gives=list[documents.WorkerDocument]),
        _change("/jobs/cancel", handlers.cancel, "Cancel jobs", gives=shapes.ChangedNames),
        _change(
            "/jobs/retry",
            handlers.retry,
            "Give jobs all their attempts again",
            gives=shapes.ChangedNames,
        ),
        _change("/jobs/drop", handlers.drop, "Forget jobs that have ended", gives=shapes.DroppedNames),
        _change(
            "/jobs/cleanup",
            handlers.clean_up,
            "Forget jobs that ended long ago",
            gives=shapes.Dropped,
        ),
        _change(
            "/job-queues/{queue}/pause", handlers.pause, "Hand out no more jobs of a queue", gives=shapes.QueuePaused
        ),
        _change(
            "/job-queues/{queue}/resume",
            handlers.resume,
            "Hand out the jobs of a queue again",
            gives=shapes.QueuePaused,
        ),
        _change(
            "/job-limits",
            handlers.limit,
            "Limit one type of job in one queue",
            gives=shapes.LimitedJobs,
        ),
        _read("/job-limits", handlers.limits, "The limits of types", gives=list[documents.LimitDocument]),
        _change(
            "/job-limits",
            handlers.clear_limit,
            "Lift the limits of a type in a queue",
            gives=shapes.LimitLifted,
            method="DELETE",
        ),
        _change(
            "/job-schedules/{name}/run",
            handlers.run_schedule,
            "Enqueue the job of a schedule now",
            gives=shapes.RanJob,
            status=201,
            scope=Scope.SUBMIT_JOBS,
            and_scope=Scope.ADMIN,
        ),
        _change(
            "/job-config/{name}",
            handlers.configure,
            "Remember a setting",
            gives=shapes.SettingNow,
            method="PUT",
        ),
        _change(
            "/job-schedules/{name}",
            handlers.put_schedule,
            "Add or change a schedule",
            gives=documents.ScheduleDocument,
            method="PUT",
            scope=Scope.SUBMIT_JOBS,
            and_scope=Scope.ADMIN,
        ),
        _change(
            "/job-schedules/{name}",
            handlers.remove_schedule,
            "Remove a schedule",
            method="DELETE",
            gives=shapes.ScheduleRemoved,
        ),
        _change(
            "/job-schedules/{name}/pause",
            handlers.pause_schedule,
            "Let a schedule rest",
            gives=documents.ScheduleDocument,
        ),
        _change(
            "/job-schedules/{name}/resume",
            handlers.resume_schedule,
            "Let a schedule go on",
            gives=documents.ScheduleDocument,
            scope=Scope.SUBMIT_JOBS,
            and_scope=Scope.ADMIN,
        ),
        _change(
            "/workers/stop",
            handlers.stop_workers,
            "Ask workers to finish and end",
            gives=shapes.ChangedNames,
        ),
    )
)
