"""Processes that run jobs.

Examples:
  queuectl worker start --count 4
  queuectl worker list
  queuectl worker stop
"""

import asyncio
import logging
import os
import signal
from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Self

import typer

from headwater.cli.commands import Result, Working, command, line, table
from headwater.cli.exits import ExitCode, Misuse
from headwater.cli.job_views import Watch
from headwater.cli.output import iso_time, note, plural, print_json
from headwater.cli.session import check_store_is_meant, make_headwater, opened, reached, run_fast, start
from headwater.cli.settings import Settings, settings_of
from headwater.cli.watching import watch
from headwater.errors import HeadwaterError, InvalidName
from headwater.model.job import LOAD_SECONDS_MAX, LOOP_SECONDS_MAX, JobState
from headwater.model.names import check_name

if TYPE_CHECKING:
    from headwater.app import Headwater
    from headwater.services.database import Database
    from headwater.services.jobs import JobService
    from headwater.stores.job_questions import WorkerStatus

log = logging.getLogger(__name__)

# A terminal that is closed says SIGHUP.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OTHER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)

Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", help="Only jobs of this queue; may be repeated.", show_default="all queues"),
]
Concurrency = Annotated[
    int, typer.Option(min=1, max=10_000, help="How many commands or async functions a worker runs at once.")
]
App = Annotated[str | None, typer.Option(help="The JobApp with your functions, as module:name.", show_default=False)]
Modules = Annotated[
    list[str] | None,
    typer.Option("--import", help="Run the decorated functions of this module; may be repeated.", show_default=False),
]
AllowedFunctions = Annotated[
    list[str] | None,
    typer.Option("--function", help="Run this function too, decorated or not, as module:function.", show_default=False),
]
RecycleAfter = Annotated[
    int,
    typer.Option(min=0, help="Run functions in a new process after so many of them.", show_default="never"),
]
LoadTimeout = Annotated[
    float, typer.Option(min=0.1, max=86_400, help="Seconds that importing your functions may take.")
]
LoopTimeout = Annotated[
    float, typer.Option(min=0.1, max=86_400, help="Seconds that an async function may hold up the others.")
]
Drain = Annotated[bool, typer.Option("--drain", help="End when nothing is due, and say what is left.")]


def start_workers(
    ctx: typer.Context,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="How many processes.")] = os.cpu_count() or 1,
    queue: Queues = None,
    concurrency: Concurrency = 1,
    app: App = None,
    modules: Modules = None,
    functions: AllowedFunctions = None,
    recycle_after: RecycleAfter = 0,
    load_timeout: LoadTimeout = LOAD_SECONDS_MAX,
    loop_timeout: LoopTimeout = LOOP_SECONDS_MAX,
    drain: Drain = False,
) -> None:
    """Run jobs until Ctrl-C, SIGTERM or `queuectl worker stop`.

    As many processes as there are processors suit jobs that compute, twice as many suit jobs that wait for others. The
    first signal lets running jobs finish, a second one ends them at once.

    Examples:
      queuectl worker start --count 4
      queuectl worker start --app tasks:app --concurrency 50
    """
    settings = settings_of(ctx)
    check_store_is_meant(settings)
    from headwater.cli.serve import set_logging

    set_logging(as_json=settings.json)
    for name in queue or []:
        check_queue(name)
    arguments = ["--store", settings.store, "--database", settings.database, "--concurrency", str(concurrency)]
    for name in queue or []:
        arguments += ["--queue", name]
    for name in modules or []:
        arguments += ["--import", name]
    for name in functions or []:
        arguments += ["--function", name]
    arguments += ["--app", app] if app else []
    arguments += ["--recycle-after", str(recycle_after)] if recycle_after else []
    arguments += ["--load-timeout", str(load_timeout), "--loop-timeout", str(loop_timeout)]
    arguments += ["--drain"] if drain else []
    code, ended_by = run_fast(_supervise(settings, count, tuple(arguments)))
    if ended_by == signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if code:
        raise typer.Exit(ExitCode.FAILED)


def check_queue(name: str) -> None:
    """Wrong usage when it can be no queue's name: such a worker would never have anything to do."""
    try:
        check_name("queue", name)
    except InvalidName as error:
        raise Misuse(f"--queue: {error}") from error


async def _warn_of_unknown(hw: "Database", queues: Collection[str]) -> None:
    known = {one.queue for one in await hw.jobs.queues()}
    for name in sorted(set(queues) - known):
        there = ", ".join(sorted(known)[:10]) or "none yet"
        log.warning("there is no job queue %s so far: this waits until jobs are added to it; there is %s", name, there)


async def _supervise(settings: Settings, count: int, arguments: tuple[str, ...]) -> tuple[int, int]:
    from headwater.worker.supervisor import Fleet, Supervisor

    async with _Handle(settings) as handle:
        hw = handle.hw
        fleet = Fleet(database=settings.database, count=count, arguments=arguments)
        supervisor = Supervisor(hw.jobs_service, fleet, handle.reopen)
        received = [0]

        def stop(number: int) -> None:
            log.info("told to stop by %s", signal.Signals(number).name)
            received[0] = received[0] or number
            supervisor.stop()

        def ignore(number: int) -> None:
            log.warning("%s means nothing here; SIGTERM lets jobs finish and ends", signal.Signals(number).name)

        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        for number in OTHER_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, ignore, number)
        await _warn_of_unknown(hw, [name for flag, name in pairwise(arguments) if flag == "--queue"])
        if settings.json:
            print_json({"event": "ready", "workers": count, "store": settings.store, "supervisor": supervisor.name})
        else:
            print(f"queuectl runs {plural(count, 'worker')} on {settings.store}; Ctrl-C lets them finish", flush=True)
        code = await supervisor.run()
        if "--drain" in arguments and not received[0]:
            await _tell_left(handle.hw, settings, arguments)
        return code, received[0]


class _Handle:
    """The store of a supervisor, open. It outlives a store that is moved away and back."""

    hw: "Headwater"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __aenter__(self) -> Self:
        await self._open(create=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hw.close()

    async def reopen(self) -> "JobService":
        """Let go of the store that was lost, and open the one that is there now; one that is not there is not made."""
        try:
            await self.hw.close()
        except HeadwaterError as error:
            log.debug("the store that was lost could not be closed: %s", error)
        await self._open(create=False)
        return self.hw.jobs_service

    async def _open(self, *, create: bool) -> None:
        hw = make_headwater(self._settings, create=create, housekeeping=None)
        await start(hw, self._settings)
        self.hw = hw
        await hw.keeper.prepare()


async def _tell_left(hw: "Database", settings: Settings, arguments: tuple[str, ...]) -> None:
    """What a drain has left, because it is not due yet, rests, waits for others, or is for other workers."""
    chosen = {name for flag, name in pairwise(arguments) if flag == "--queue"}
    left: dict[str, int] = {}
    for queue in await hw.jobs.queues():
        if not chosen or queue.queue in chosen:
            for state, words in _LEFT.items():
                words = f"{state} in {queue.queue}, which is paused" if queue.paused else words
                left[words] = left.get(words, 0) + queue.counts.get(JobState(state), 0)
    found = {words: count for words, count in left.items() if count}
    if settings.json:
        print_json({"event": "drained", "left": sum(found.values()), "why": found})
    elif found:
        note("left: " + "; ".join(f"{plural(count, 'job')} {words}" for words, count in found.items()))


_LEFT = {
    "pending": "that no worker here may run",
    "scheduled": "for later",
    "failed": "to be tried again later",
    "waiting": "waiting for others",
    "processing": "that other workers run",
}


def run_worker(
    ctx: typer.Context,
    worker: Annotated[str, typer.Argument(help="The worker's id.")],
    supervisor: Annotated[str, typer.Argument(help="Who started it.")],
    queue: Queues = None,
    concurrency: Concurrency = 1,
    app: App = None,
    modules: Modules = None,
    functions: AllowedFunctions = None,
    recycle_after: RecycleAfter = 0,
    load_timeout: LoadTimeout = LOAD_SECONDS_MAX,
    loop_timeout: LoopTimeout = LOOP_SECONDS_MAX,
    drain: Drain = False,
) -> None:
    """One worker of a supervisor; `queuectl worker start` runs it.

    Examples:
      queuectl worker start
    """
    from headwater.cli.serve import set_logging
    from headwater.worker.loading import FunctionSources
    from headwater.worker.processes import adopt_orphans, end_with_parent
    from headwater.worker.worker_options import WorkerOptions

    settings = settings_of(ctx)
    set_logging(as_json=settings.json)
    parent = int(supervisor.rpartition(":")[2])
    end_with_parent(signal.SIGUSR1, parent)
    adopt_orphans()
    options = WorkerOptions(
        id=worker,
        database=settings.database,
        queues=tuple(queue or ()),
        concurrency=concurrency,
        sources=FunctionSources(
            app=app or "",
            modules=tuple(modules or ()),
            functions=tuple(functions or ()),
            store=settings.store if "://" in settings.store else os.path.realpath(settings.store),
            database=settings.database,
        ),
        supervisor=supervisor,
        drain=drain,
        sweeps=True,
        recycle_after=recycle_after,
        load_seconds_max=load_timeout,
        loop_seconds_max=loop_timeout,
    )
    code = run_fast(_work(settings, options))
    if code:
        raise typer.Exit(code)


async def _work(settings: Settings, options: object) -> int:
    from headwater.model.job import WorkerSettings
    from headwater.worker.worker import Worker
    from headwater.worker.worker_options import WorkerOptions

    assert isinstance(options, WorkerOptions)
    # The supervisor has made the store: one that is not there now was moved away, and jobs would come to an empty one.
    async with opened(settings) as hw:
        found = await hw.jobs.config()
        names = WorkerSettings.__struct_fields__
        chosen = WorkerSettings(**{name: found[name.replace("_", "-")] for name in names})  # type: ignore[arg-type]
        worker = Worker(hw.jobs_service, options, chosen)
        for number in (*STOP_SIGNALS, *OTHER_SIGNALS, signal.SIGQUIT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop_by_signal, number)
        return await worker.run()


@command
def list_workers(settings: Settings, watching: Watch = False) -> Working:
    """List workers with what they hold and when they were last heard of.

    Examples:
      queuectl worker list
      queuectl worker list --json
    """
    return watch(settings, _look_at_workers, watching=watching, or_empty=True)


async def _look_at_workers(hw: "Database") -> Result:
    from headwater.services.job_documents import worker_document

    columns = ("WORKER", "HOST", "PID", "QUEUES", "JOBS", "STARTED", "SEEN", "")
    return table(await hw.jobs.workers(), worker_document, columns, _row, empty="no workers run")


def _row(worker: "WorkerStatus") -> tuple[object, ...]:
    about = worker.about
    where = (worker.id, about.host, str(about.pid), ", ".join(about.queues) or "all", worker.held)
    times = (iso_time(worker.started_at), iso_time(worker.seen_at))
    return (*where, *times, "stopping" if worker.stopping else "")


@command
async def stop_workers(
    settings: Settings,
    ids: Annotated[list[str] | None, typer.Argument(help="Workers by id.", metavar="ID...", show_default="all")] = None,
) -> Result:
    """Ask workers to finish what they run and end.

    Examples:
      queuectl worker stop
    """
    async with reached(settings) as hw:
        found = list(await hw.jobs.stop_workers(*(ids or ())))
    code = ExitCode.OK if found else ExitCode.NOTHING
    words = f"asked {plural(len(found), 'worker')} to stop"
    return line({"ids": found, "count": len(found)}, (words, ""), code=code)
