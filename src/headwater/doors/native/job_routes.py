"""The routes of jobs on our own wire, as data."""

from typing import Any

from headwater.doors.jobs.own_names import with_own_names
from headwater.doors.native import jobs
from headwater.doors.routes import Route, RouteHandler
from headwater.log.job_operations import Changed, Enqueued, Limited, Scheduled
from headwater.model.job import JobState
from headwater.model.job_policy import JobPolicy
from headwater.model.principal import Scope
from headwater.services import job_requests as asked
from headwater.stores import job_questions


def _look(path: str, handler: RouteHandler, summary: str, gives: Any, **about: Any) -> Route:
    about = {"scope": Scope.ADMIN, **about}
    return Route(method="GET", path=f"/v1/jobs/{path}", handler=handler, summary=summary, gives=gives, **about)


def _change(path: str, handler: RouteHandler, summary: str, takes: Any, gives: Any, **about: Any) -> Route:
    about = {"scope": Scope.ADMIN, "takes": takes, "gives": gives, **about}
    return Route(method="POST", path=f"/v1/jobs/{path}", handler=handler, summary=summary, **about)


# Whoever adds jobs may see what became of them.
_one: dict[str, Any] = {"scope": Scope.SUBMIT_JOBS, "or_scope": Scope.ADMIN}
_submit: dict[str, Any] = {"scope": Scope.SUBMIT_JOBS}

ROUTES = with_own_names(
    (
        _change("add", jobs.add, "Add functions as jobs", asked.AddJobsRequest, Enqueued, **_submit, status=201),
        _change("cancel", jobs.cancel, "Cancel jobs", asked.ChooseJobsRequest, Changed),
        _change("retry", jobs.retry, "Give jobs all their attempts again", asked.ChooseJobsRequest, Changed),
        _change("drop", jobs.drop, "Forget jobs that have ended", asked.ChooseJobsRequest, Changed),
        _change("pause", jobs.pause, "Let a queue rest or go on", asked.PauseJobsRequest, Changed),
        _change("limit", jobs.limit, "Limit one type of job in one queue", asked.LimitRequest, Limited),
        _change("configure", jobs.configure, "Remember a setting", asked.SettingRequest, Changed),
        _change("register", jobs.register, "Remember how functions are run", asked.RegisterRequest, Changed),
        _change(
            "schedule",
            jobs.schedule,
            "Add or change a schedule",
            asked.ScheduleRequest,
            Scheduled,
            **_submit,
            and_scope=Scope.ADMIN,
        ),
        _change(
            "change-schedule",
            jobs.change_schedule,
            "Let a schedule rest or go on, or remove it",
            asked.ChangeScheduleRequest,
            Scheduled,
        ),
        _change("stop-workers", jobs.stop_workers, "Ask workers to end", asked.StopWorkersRequest, Changed),
        _look(
            "list", jobs.find, "Jobs by state, queue, type and batch", list[asked.JobAnswer], asks=asked.FindJobsQuery
        ),
        _look("show", jobs.show, "One job", asked.JobAnswer, asks=asked.JobQuery, **_one),
        _look("wait", jobs.wait, "One job once it has ended", asked.JobAnswer, asks=asked.WaitForJobQuery, **_one),
        _look(
            "attempts", jobs.attempts, "A job's attempts", list[job_questions.JobAttempt], asks=asked.JobQuery, **_one
        ),
        _look(
            "dependencies",
            jobs.dependencies,
            "The jobs that a job depends on",
            list[tuple[str, JobState]],
            asks=asked.JobQuery,
            **_one,
        ),
        _look("queues", jobs.queues, "Job queues by state", list[job_questions.JobQueueStatus]),
        _look(
            "minutes",
            jobs.minutes,
            "What was done in each minute",
            list[job_questions.JobMinute],
            asks=asked.MinutesQuery,
        ),
        _look("limits", jobs.limits, "The limits of types", list[job_questions.JobLimitStatus]),
        _look("config", jobs.config, "The settings that were set", list[asked.JobSetting]),
        _look("schedules", jobs.schedules, "The schedules", list[asked.ScheduleAnswer]),
        _look("types", jobs.types, "How registered functions are run", dict[str, JobPolicy]),
        _look("workers", jobs.workers, "The workers", list[job_questions.WorkerStatus]),
    )
)
