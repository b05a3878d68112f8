"""All routes of jobs, as data."""

from typing import Any

from headwater.doors.jobs import events, handlers, shapes
from headwater.doors.routes import Route, RouteHandler
from headwater.model.principal import Scope

BASE = "/api/v1"


def _read(path: str, handler: RouteHandler, summary: str, **about: Any) -> Route:
    return Route(method="GET", path=BASE + path, handler=handler, summary=summary, scope=Scope.ADMIN, **about)


def _change(path: str, handler: RouteHandler, summary: str, **about: Any) -> Route:
    about = {"method": "POST", "scope": Scope.ADMIN, **about}
    return Route(path=BASE + path, handler=handler, summary=summary, **about)


ROUTES = (
    Route(
        method="POST",
        path=f"{BASE}/jobs",
        handler=handlers.add,
        summary="Add functions and allowed commands as jobs, all of them or none",
        scope=Scope.SUBMIT_JOBS,
        takes=shapes.AddJobs,
        status=201,
    ),
    Route(method="GET", path=f"{BASE}/jobs/{{id}}", handler=handlers.show, summary="One job with its attempts"),
    Route(
        method="GET",
        path=f"{BASE}/jobs/{{id}}/wait",
        handler=handlers.wait,
        summary="One job once it has ended, or when the time is over",
        asks=shapes.WaitQuery,
    ),
    _read("/jobs", handlers.list_jobs, "Jobs by state, queue, type and batch", asks=shapes.JobsQuery),
    _read("/job-queues", handlers.queues, "Job queues with how many jobs are in which state"),
    _read("/job-stats", handlers.stats, "What was done in each minute", asks=shapes.StatsQuery),
    _read(
        "/job-events",
        events.events,
        "Every change of a job, as server-sent events",
        asks=shapes.EventsQuery,
        content_types=("text/event-stream",),
    ),
    _read("/job-config", handlers.config, "The settings of jobs and workers"),
    _read("/job-schedules", handlers.schedules, "The schedules"),
    _read("/workers", handlers.workers, "The workers"),
    _change("/jobs/cancel", handlers.cancel, "Cancel jobs", takes=shapes.JobNames),
    _change("/jobs/retry", handlers.retry, "Give jobs all their attempts again", takes=shapes.JobNames),
    _change("/jobs/drop", handlers.drop, "Forget jobs that have ended", takes=shapes.JobNames),
    _change("/jobs/cleanup", handlers.clean_up, "Forget jobs that ended long ago", takes=shapes.CleanUp),
    _change("/job-queues/{queue}/pause", handlers.pause, "Hand out no more jobs of a queue"),
    _change("/job-queues/{queue}/resume", handlers.resume, "Hand out the jobs of a queue again"),
    _change("/job-limits", handlers.limit, "Limit one type of job in one queue", takes=shapes.LimitType),
    _change("/job-config/{name}", handlers.configure, "Remember a setting", takes=shapes.Setting, method="PUT"),
    _change(
        "/job-schedules/{name}",
        handlers.put_schedule,
        "Add or change a schedule",
        takes=shapes.AddSchedule,
        method="PUT",
        scope=Scope.SUBMIT_JOBS,
    ),
    _change("/job-schedules/{name}", handlers.remove_schedule, "Remove a schedule", method="DELETE"),
    _change("/job-schedules/{name}/pause", handlers.pause_schedule, "Let a schedule rest"),
    _change("/job-schedules/{name}/resume", handlers.resume_schedule, "Let a schedule go on"),
    _change("/workers/stop", handlers.stop_workers, "Ask workers to finish and end", takes=shapes.StopNames),
)
