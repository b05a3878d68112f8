"""Keeps N workers alive. What a dead one held is taken back at once, and whatever it left running is killed."""

import asyncio
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import Closed, HeadwaterError, StoreReplaced
from headwater.log.job_operations import Depart, Rescue
from headwater.services.jobs import Jobs, JobService
from headwater.stores.job_questions import WorkerStatus
from headwater.worker.processes import adopting_orphans, children, describe_end, is_stopped, kill_strays
from headwater.worker.worker_options import TOLD_BY_SIGNAL, UNLOADABLE

log = logging.getLogger(__name__)

RESTART_SECONDS = 0.1
RESTART_SECONDS_MAX = 10.0
STEADY_SECONDS = 10.0
LOOK_SECONDS = 1.0
# Longer than leases commonly are: whoever stops a worker on purpose lets it go on, and its jobs are others' by then.
STOPPED_SECONDS_MAX = 120.0
# A worker whose loop does not turn is told from one that is slow by this.
SILENT_SECONDS_MAX = 120.0
SILENT_LOOKS = 12
# How long one may take that was told to end at once.
END_SECONDS_MAX = 10.0


Result = TypeVar("Result")
Reopen = Callable[[], Awaitable[JobService]]


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers of what kind: `arguments` are what each is started with, besides its id. One that was stopped
    (SIGSTOP) and does nothing for `stopped_seconds_max` is replaced, and so is one that runs and has not renewed its
    lease for `silent_seconds_max`. One that was told to end at once is killed after `end_seconds_max`."""

    database: str
    count: int
    arguments: tuple[str, ...]
    stopped_seconds_max: float = STOPPED_SECONDS_MAX
    silent_seconds_max: float = SILENT_SECONDS_MAX
    end_seconds_max: float = END_SECONDS_MAX


class _Child(msgspec.Struct):
    """A worker process."""

    id: str
    process: subprocess.Popen[bytes]
    started_at: float
    ended: asyncio.Future[None]
    stopped_at: float | None = None
    seen_at: Timestamp | None = None
    lease_seconds: float = 0.0
    silent_looks: int = 0


class Supervisor:
    """Starts workers and starts them again. `run` returns when all have ended because they were asked to: by this
    supervisor, by `queuectl worker stop`, or because nothing was left to drain. A worker that got a signal from anybody
    else, a job perhaps, is replaced."""

    def __init__(self, service: JobService, fleet: Fleet, reopen: Reopen | None = None) -> None:
        """`reopen` opens the store anew when it was away, and is back; without it one that was lost stays so."""
        self._service = service
        self._reopen = reopen
        self._reopening = asyncio.Lock()
        self._fleet = fleet
        self._children: dict[int, _Child] = {}
        # Whoever this process had started before is none of ours.
        self._others: set[int] = set()
        self._signals = 0
        self._killing: asyncio.TimerHandle | None = None
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.failed = False

    async def run(self) -> int:
        """Until every worker has ended; 0 when all ended well."""
        self._others = children()
        with adopting_orphans():
            loop = asyncio.get_running_loop()
            looking = (
                loop.create_task(self._look_for_stopped(), name="headwater-stopped-workers"),
                loop.create_task(self._look_for_silent(), name="headwater-silent-workers"),
            )
            try:
                await asyncio.gather(*(self._keep() for _ in range(self._fleet.count)))
            finally:
                for task in looking:
                    task.cancel()
                if self._killing is not None:
                    self._killing.cancel()
            kill_strays(self._others)
        return 1 if self.failed else 0

    def stop(self) -> None:
        """Tell the workers to finish; told again, to end at once."""
        self._signals += 1
        # Two that are alike may come from anybody: the one that ends jobs is of its own kind.
        number = signal.SIGTERM if self._signals == 1 else signal.SIGQUIT
        for child in self._children.values():
            child.process.send_signal(number)
            child.process.send_signal(signal.SIGCONT)
        if self._signals > 1 and self._killing is None:
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(self._fleet.end_seconds_max, self._kill_all)

    def _kill_all(self) -> None:
        """Whoever hears nothing any more cannot end by itself."""
        for child in self._children.values():
            log.warning("worker %s did not end when it was told to, and is killed", child.id)
            child.process.send_signal(signal.SIGKILL)

    def workers(self) -> Sequence[tuple[str, int]]:
        """Ids and processes of the workers that run."""
        return [(child.id, child.process.pid) for child in self._children.values()]

    async def _keep(self) -> None:
        """One worker after the other, until one ends because it was asked to."""
        pause = RESTART_SECONDS
        has_worked = False
        while not self._signals:
            child = self._start()
            await child.ended
            code = child.process.wait()
            del self._children[child.process.pid]
            if code == 0 or (code == TOLD_BY_SIGNAL and self._signals):
                return
            if code == TOLD_BY_SIGNAL:
                log.warning("worker %s was told to end by somebody else, a job perhaps, and is replaced", child.id)
                has_worked = True
                continue
            await self._bury(child, describe_end(code))
            is_steady = time.monotonic() - child.started_at > STEADY_SECONDS
            if not has_worked and (code == UNLOADABLE or (code == 1 and not is_steady)):
                # It said itself why it cannot work: starting it again would only say it again.
                self.failed = True
                return
            # An app that could be loaded once may only be under repair.
            has_worked = has_worked or code != UNLOADABLE
            pause = RESTART_SECONDS if is_steady and code != UNLOADABLE else pause * 2
            await asyncio.sleep(min(pause, RESTART_SECONDS_MAX))

    async def _look_for_stopped(self) -> None:
        """A stopped worker neither works nor ends, and nobody else would start another one."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for child in list(self._children.values()):
                self._look_at(child, time.monotonic())

    def _look_at(self, child: _Child, now: float) -> None:
        if not is_stopped(child.process.pid):
            child.stopped_at = None
            return
        child.stopped_at = now if child.stopped_at is None else child.stopped_at
        if now - child.stopped_at >= self._fleet.stopped_seconds_max:
            log.warning("worker %s was stopped by a signal %.0f s ago, and is ended", child.id, now - child.stopped_at)
            child.process.send_signal(signal.SIGKILL)

    async def _look_for_silent(self) -> None:
        """A worker that runs and does not get to renew its lease holds nothing any more, and would never end."""
        pause = self._fleet.silent_seconds_max / SILENT_LOOKS
        while True:
            await asyncio.sleep(pause)
            try:
                known = await self._reach(lambda service: Jobs(service, self._fleet.database).workers())
                found = {worker.id: worker for worker in known}
                silent = [one for one in self._children.values() if self._is_silent(one, found.get(one.id), pause)]
                if silent:
                    # Where nobody can write, a full disk say, no worker is at fault: this is an error then.
                    await self._reach(lambda service: service.run(Rescue()))
            except HeadwaterError as error:
                log.warning("whether workers renew their leases cannot be seen now: %s", error)
                continue
            for child in silent:
                log.warning("worker %s runs and has not renewed its lease for long, and is ended", child.id)
                child.process.send_signal(signal.SIGKILL)

    def _is_silent(self, child: _Child, status: WorkerStatus | None, pause: float) -> bool:
        """Looks are counted, not seconds: a machine or supervisor that slept is no fault of the worker. One that has
        no lease yet is still starting; a lease that is long is renewed seldom."""
        if status is not None and status.seen_at != child.seen_at:
            child.seen_at, child.silent_looks = status.seen_at, 0
            child.lease_seconds = (status.lease_until - status.seen_at) / SECOND
        elif child.seen_at is not None:
            child.silent_looks += 1
        return child.silent_looks * pause >= max(self._fleet.silent_seconds_max, 2 * child.lease_seconds)

    async def _reach(self, work: Callable[[JobService], Awaitable[Result]]) -> Result:
        """What the store answers. A handle whose store was away stays without it when that is back: workers that are
        started then find it, and so must whoever takes back what they held."""
        service = self._service
        try:
            return await work(service)
        except (StoreReplaced, Closed):
            if self._reopen is None:
                raise
        async with self._reopening:
            if self._service is service:
                self._service = await self._reopen()
                log.warning("the store was away; it is open again")
        return await work(self._service)

    def _start(self) -> _Child:
        name = f"{socket.gethostname().partition('.')[0]}-{secrets.token_hex(4)}"
        arguments = [sys.executable, "-m", "headwater.cli", "run-worker", name, self.name, *self._fleet.arguments]
        # A group of its own: Ctrl-C on the terminal reaches the supervisor alone, which passes it on.
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, process_group=0)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, _ended, loop, descriptor, ended)
        child = _Child(name, process, time.monotonic(), ended)
        self._children[process.pid] = child
        return child

    async def _bury(self, child: _Child, how: str) -> None:
        """Take back what a dead worker held, and kill what it left."""
        log.warning("worker %s %s", child.id, how)
        kill_strays(self._others | set(self._children))
        operation = Depart(database=self._fleet.database, worker=child.id, reason=f"the worker {how}")
        try:
            await self._reach(lambda service: service.run(operation))
        except HeadwaterError as error:
            log.warning("what worker %s held comes back when its lease runs out: %s", child.id, error)


def _ended(loop: asyncio.AbstractEventLoop, descriptor: int, ended: "asyncio.Future[None]") -> None:
    loop.remove_reader(descriptor)
    os.close(descriptor)
    if not ended.done():
        ended.set_result(None)
