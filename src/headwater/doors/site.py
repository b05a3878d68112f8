"""What routes act on: the services of one open store, and what this server counts of its own work."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence

from headwater.clock import Clock
from headwater.config import Config
from headwater.doors.board import Board
from headwater.doors.realtime.hall import Hall
from headwater.doors.realtime.limits import RealtimeLimits
from headwater.doors.realtime.rooms import Audience
from headwater.doors.realtime.table import HANDLERS
from headwater.doors.wire import Request
from headwater.doors.work import Work, effects_of
from headwater.errors import HeadwaterError, InvalidOption, NotAllowed, Overloaded
from headwater.log.committer import CommittedPush, Committer
from headwater.log.operations import Acked, Commit, Push
from headwater.log.tail import Tail
from headwater.model.command_template import CommandTemplate
from headwater.model.idempotency import scoped_key
from headwater.model.lane import Lane
from headwater.model.names import DATABASE_DEFAULT, PartitionId
from headwater.model.principal import Scope, require, require_queue
from headwater.model.room_settings import RoomSettings
from headwater.model.server_status import Figures
from headwater.services.checks import check_text
from headwater.services.jobs import JobService
from headwater.services.live_room import LiveRoom
from headwater.services.log_reading import LogReading
from headwater.services.queues import Queues
from headwater.services.rooms import Rooms
from headwater.services.roster import Roster
from headwater.services.subscriptions import Subscriptions
from headwater.stores.questions import FindLane, ListSwitches

# The name of a process that has no others beside it.
ALONE = "0"
PUSH_SWITCH = "hold pushes"
PUSHES_HELD_OFF = "pushes are held off for maintenance; try again later"
POP_SWITCH = "hold pops"
SWITCHES_SECONDS = 1.0
DOUBT_SECONDS = 0.05


class Switches:
    """What is turned on for whom, as the store said at most a second ago."""

    def __init__(self, queues: Queues, rooms: Rooms) -> None:
        self._queues = queues
        self._rooms = rooms
        self._on: frozenset[tuple[str, str]] = frozenset()
        self._looked_at = -math.inf
        self._is_doubtful = False
        self.any = False

    def is_on(self, database: str, name: str) -> bool:
        """Whether it is on."""
        return (database, name) in self._on

    def is_stale(self) -> bool:
        """Whether it is time to look again: sooner when others have committed something."""
        age = time.monotonic() - self._looked_at
        return age > SWITCHES_SECONDS or (self._is_doubtful and age > DOUBT_SECONDS)

    async def refresh(self) -> None:
        """Look again. Others who ask meanwhile go by what was known."""
        self._looked_at = time.monotonic()
        self._is_doubtful = False
        self._on = frozenset(await self._queues.ask(ListSwitches()))
        self._rooms.take_switches(self._on)
        self.any = bool(self._on)
        if self.any:
            self._queues.intentions.send_home()

    def check_sends_taken(self, database: str) -> None:
        """Raises while pushes are held off, as far as is known: for conversations that go on."""
        if self.any and self.is_on(database, PUSH_SWITCH):
            raise Overloaded(PUSHES_HELD_OFF)

    # ── the gate of pops that wait ──

    def is_shut(self, database: str) -> bool:
        """Whether pops are held off."""
        return self.is_on(database, POP_SWITCH)

    async def look(self) -> None:
        """Look again."""
        await self.refresh()

    def doubt(self) -> None:
        """Others have committed something."""
        self._is_doubtful = True


class Site:
    """Handed to every route. One for each open store that is served."""

    def __init__(
        self,
        queues: Queues,
        jobs: JobService,
        log_reading: LogReading,
        tail: Tail,
        committer: Committer,
        version: str,
        rooms: Rooms | None = None,
        realtime: RealtimeLimits | None = None,
    ) -> None:
        self.queues = queues
        self.jobs = jobs
        self.log_reading = log_reading
        self.large_commits = asyncio.Semaphore(1)
        self.tail = tail
        self.committer = committer
        committer.on_held.append(self.held)
        self.version = version
        self.process = ALONE
        self.commands: Mapping[str, CommandTemplate] = {}
        self.connections: Callable[[], int] = lambda: 0
        self.availability: Callable[[], dict[str, float]] = dict
        self.requests: dict[tuple[str, str, int], int] = {}
        self.work: dict[str, Work] = {}
        self.board = Board(1)
        self.rooms = rooms or Rooms(queues, RoomSettings())
        self.rooms.is_served = True
        self.switches = queues.intentions.gate = Switches(queues, self.rooms)
        self.audiences: dict[LiveRoom, Audience] = {}
        self.subscriptions = Subscriptions(queues)
        self.realtime = Hall(realtime or RealtimeLimits(), HANDLERS)
        watch = self.subscriptions.watch
        watch.is_auditing = self.realtime.limits.audit
        self.realtime.at_pressure.append(
            lambda before, now: watch.note(DATABASE_DEFAULT, "pressure", before=before.name, now=now.name)
        )
        self.roster = Roster(queues, self._figures)
        self.realtime.at_tick.append(self.roster.beat)
        self.realtime.at_empty.append(self.roster.leave)
        queues.before_close += (watch.close, self.roster.close)

    def _figures(self) -> Figures:
        """What this server says of itself to the others."""
        subscriptions = sum(feed.count() for feed in self.subscriptions.feeds())
        hall = self.realtime
        return Figures(hall.count(), subscriptions, self.subscriptions.count(), hall.pressure.name.lower())

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.queues.clock

    @property
    def config(self) -> Config:
        """The bounds."""
        return self.queues.config

    # ── counting ──

    def work_of(self, database: str) -> Work:
        """What this process did for a database."""
        work = self.work.get(database)
        if work is None:
            work = self.work[database] = Work()
        return work

    def answered(self, method: str, path: str, status: int) -> None:
        """Count a request by its route and how it ended."""
        key = (method, path, status)
        self.requests[key] = self.requests.get(key, 0) + 1

    def held(self, commit: Commit) -> None:
        """Count what a commit of this process did: every way in, and what no way in asked for, ends in one."""
        for database, name, count in effects_of(commit):
            self.work_of(database).add(name, count)

    def refuse_pushes(self, pushes: Sequence[Push], answers: Sequence[CommittedPush | HeadwaterError]) -> None:
        """Count the records of those pushes that were refused."""
        for push, answer in zip(pushes, answers, strict=True):
            if isinstance(answer, HeadwaterError):
                self.work_of(push.database).add("refused_records", len(push.records))

    def refuse_reports(
        self, database: str, reports: Sequence[Sequence[object]], outcomes: Sequence[Acked | HeadwaterError]
    ) -> None:
        """Count the records of those reports that were refused."""
        for said, outcome in zip(reports, outcomes, strict=True):
            if isinstance(outcome, HeadwaterError):
                self.work_of(database).add("refused_reports", len(said))


def check_scope(request: Request, scope: Scope, or_scopes: tuple[Scope, ...] = ()) -> None:
    """Raises unless the caller has a scope, or one of those that will do as well."""
    if not or_scopes:
        require(request.principal, scope)
    elif not any(request.principal.may(one) for one in (scope, *or_scopes)):
        raise NotAllowed(f"this needs the scope {' or '.join((scope, *or_scopes))}")


def check_use(request: Request, queue: str) -> None:
    """Raises when a queue is not among those that the caller may use: the same as when there is none of that name."""
    require_queue(request.principal, queue)
    note_use(request, queue)


def note_use(request: Request, *queues: str) -> None:
    """An answer is made of these: to whom they are not what they were any more, the rest of it is not given."""
    if request.used is not None:
        request.used.extend(queues)


def key_of(request: Request, key: str) -> str:
    """The idempotency key that a caller gave, as theirs alone. Every route that takes one takes it from here."""
    return scoped_key(request.principal, check_text("idempotency key", key))


def key_given(request: Request, in_body: str) -> str:
    """The key of a request that may have it in its body or as a header. Two that differ are refused: which one should
    hold?"""
    in_header = request.headers.get("idempotency-key", "")
    if in_header and in_body and in_header != in_body:
        raise InvalidOption("the header Idempotency-Key and idempotencyKey in the body differ: give one of them")
    return in_header or in_body


async def lane_of(site: Site, request: Request, partition_id: PartitionId) -> Lane | None:
    """Where a partition belongs; None when it is not there, or not theirs: nobody learns which."""
    lane = await site.queues.ask(FindLane(partition_id))
    principal = request.principal
    if lane is None or lane.database != principal.database or not principal.may_use(lane.queue):
        return None
    return lane
