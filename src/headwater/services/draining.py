"""Moving what waits in a database of the users' own to the log, in bites, each row once.

    after ─► read ─► wave ─► committer ─► settle ─► after …

Rows of one queue and partition form a line: they are taken in their order. A line whose queue refuses it for now is
held back, and the others go on. What is in the log is dropped from the table before anything else is read; who dies in
between moves it again, and its idempotency key makes that one message.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headwater.config import Config
from headwater.errors import (
    EncryptionKeyMissing,
    HeadwaterError,
    InvalidInput,
    JobError,
    QueueError,
    StoreDamaged,
    StoreForeign,
    TooLarge,
)
from headwater.log.committer import CommittedResult, Committer
from headwater.log.job_operations import Enqueue, Enqueued
from headwater.log.operations import Push, Pushed
from headwater.model.names import SYSTEM_PREFIX, check_name
from headwater.model.outbox import Drained, Left, Staged, Verdicts
from headwater.services.job_checks import check_job
from headwater.services.records import check_record
from headwater.services.verbs import check_push

log = logging.getLogger(__name__)

BITE = 200
PAUSE_SECONDS_MAX = 30.0
# A database that is away comes back at a moment that nobody tells: it is asked again at least this often.
AWAY_SECONDS_MAX = 5.0

Result = TypeVar("Result")

_kinds: dict[str, type[Push | Enqueue]] = {"push": Push, "enqueue": Enqueue}


class Table(Protocol):
    """Where the rows wait."""

    async def after(self, number: int, limit: int) -> list[Staged]:
        """The oldest that wait after a number and were not set aside."""
        ...

    async def settle(self, verdicts: Verdicts) -> Verdicts:
        """Drop those that are in the log, set the refused aside; those of them that nobody else settled meanwhile."""
        ...


class Line(NamedTuple):
    """What has to stay in order."""

    database: str
    queue: str
    partition: str


class Row(NamedTuple):
    """A row that could be read."""

    number: int
    line: Line
    operation: Push | Enqueue


class Hold(NamedTuple):
    """A line whose queue refuses it for now."""

    tries: int
    retry_at: float
    reason: str


class Fate(Enum):
    """What an outcome means for its row."""

    TAKEN = "taken"
    REFUSED = "refused"
    HELD = "held"
    TROUBLE = "trouble"


def judge(outcome: object) -> Fate:
    """Whether a row is in the log, can never be, has to wait with its line, or everything has to wait."""
    if not isinstance(outcome, BaseException):
        return Fate.TAKEN
    if isinstance(outcome, (InvalidInput, QueueError, JobError)):
        return Fate.HELD if outcome.retryable else Fate.REFUSED
    # A key that is missing and an answer that cannot be read are matters of one queue or row; a disk is everybody's.
    return Fate.HELD if isinstance(outcome, (EncryptionKeyMissing, StoreDamaged)) else Fate.TROUBLE


def first_wave(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Rows that can share a commit and still be in order, and those that come after.

    One commit makes one segment of all records of a partition with the same time to live, so that others would be
    overtaken.
    """
    wave: list[Row] = []
    later: list[Row] = []
    lifetimes: dict[Line, float | None] = {}
    cut: set[Line] = set()
    for row in rows:
        lifetime = row.operation.ttl_seconds if isinstance(row.operation, Push) else None
        if row.line not in cut and lifetimes.setdefault(row.line, lifetime) == lifetime:
            wave.append(row)
        else:
            cut.add(row.line)
            later.append(row)
    return wave, later


def pause_seconds(tries: int, every_seconds: float) -> float:
    """How long to wait after so many refusals in a row: twice as long each time, up to half a minute."""
    return min(every_seconds * 2.0 ** min(tries, 30), max(every_seconds, PAUSE_SECONDS_MAX))


def away_seconds(tries: int, every_seconds: float) -> float:
    """The same for a database that is away."""
    return min(pause_seconds(tries, every_seconds), max(every_seconds, AWAY_SECONDS_MAX))


def read_row(staged: Staged, config: Config) -> Row | str:
    """What a row asks for, or why it can never be done. Anybody may have written it, so everything is checked again."""
    kind = _kinds.get(staged.kind)
    if kind is None:
        return f"no such kind: {staged.kind!r:.80}"
    try:
        operation = msgspec.json.decode(staged.body, type=kind)
        check_name("database", operation.database)
        if not operation.key:
            raise InvalidInput(
                "it has no key, by which it would be known again; write rows with headwater.outbox.stage"
            )
        return Row(staged.number, _checked_line(operation, config), operation)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return f"it cannot be read: {error}"
    except HeadwaterError as error:
        return f"{error.code}: {error}"


def _checked_line(operation: Push | Enqueue, config: Config) -> Line:
    if isinstance(operation, Push):
        check_push(operation, config)
        for record in operation.records:
            check_record(record, config.record_bytes_max)
        return Line(operation.database, operation.queue, operation.partition)
    if not 1 <= len(operation.jobs) <= config.batch_max:
        raise TooLarge(f"a row takes 1 to {config.batch_max:,} jobs; got {len(operation.jobs):,}")
    for job in operation.jobs:
        check_job(job, config.record_bytes_max)
    return Line(operation.database, f"{SYSTEM_PREFIX}jobs", "")


def is_duplicate(answer: CommittedResult[object]) -> bool:
    """Whether the log had all of it before. A row that is moved once more gets the answer of the first time."""
    result = answer.result
    if isinstance(result, Pushed):
        return not result.count and bool(result.duplicates)
    return isinstance(result, Enqueued) and all(placed.duplicate for placed in result.jobs)


class Drain:
    """One drain of one table: what it did so far, and which lines it holds back."""

    def __init__(self, committer: Committer, config: Config, table: Table, every_seconds: float | None) -> None:
        self._committer = committer
        self._config = config
        self._table = table
        self._every_seconds = every_seconds
        self._loop = asyncio.get_running_loop()
        self._holds: dict[Line, Hold] = {}
        # How often lines that are tried again in this walk over the table were refused before.
        self._tries: dict[Line, int] = {}
        self._warned: set[tuple[str, str]] = set()
        self._walked = 0
        self._left: dict[tuple[str, str], Left] = {}
        # What the users' database did not take: it is said again before anything more is moved.
        self._owed: list[tuple[Verdicts, frozenset[int]]] = []
        self._moved = self._duplicates = self._set_aside = 0
        self._is_away = False

    async def once(self) -> Drained:
        """Move all there is, once; what its queue refuses is left, and told."""
        while await _finished(self._bite()):
            pass
        return Drained(self._moved, self._duplicates, self._set_aside, tuple(self._left.values()))

    async def for_ever(self, every_seconds: float) -> None:
        """Move what there is, look again, and so on. Trouble that may pass is waited for, longer each time; the table
        was there when this began, so one that is away comes back: it is made anew, say, by a migration."""
        tries = 0
        while True:
            try:
                more = await _finished(self._bite())
                self._found()
            except StoreForeign as error:
                self._miss(error)
                await asyncio.sleep(every_seconds)
            except HeadwaterError as error:
                if not error.retryable:
                    raise
                tries += 1
                log.warning("the outbox cannot be drained now, and is tried again: %s: %s", error.code, error)
                await asyncio.sleep(away_seconds(tries, every_seconds))
            else:
                tries = 0
                if not more:
                    await asyncio.sleep(every_seconds)

    def _miss(self, error: StoreForeign) -> None:
        """The table is away. What was to be dropped from it may be another row by its number when it is back; a row
        that is moved once more is known by its key."""
        self._owed.clear()
        if not self._is_away:
            self._is_away = True
            log.warning("the outbox table is away, and is waited for: %s", error)

    def _found(self) -> None:
        if self._is_away:
            self._is_away = False
            log.warning("the outbox table is back")

    # ── one bite ──

    async def _bite(self) -> bool:
        """Move the next rows; False when nothing waits that may be tried now."""
        try:
            return await self._walk_on()
        except BaseException:
            # What was not taken is behind us in this walk: the next one begins anew.
            self._walked = 0
            self._left.clear()
            raise

    async def _walk_on(self) -> bool:
        await self._settle()
        self._let_go()
        staged = await self._table.after(self._walked if self._holds else 0, BITE)
        if not staged:
            self._end_walk()
            return False
        self._walked = staged[-1].number
        read = [(row.number, read_row(row, self._config)) for row in staged]
        refused = [(number, reason) for number, reason in read if isinstance(reason, str)]
        await self._settle((Verdicts([], refused), frozenset()))
        rows = [row for _, row in read if isinstance(row, Row)]
        while rows:
            wave, rows = first_wave(self._free(rows))
            await self._move(wave)
        return True

    def _free(self, rows: Iterable[Row]) -> list[Row]:
        """Those whose line is not held back; the others are left."""
        free = []
        for row in rows:
            hold = self._holds.get(row.line)
            if hold is None:
                free.append(row)
            else:
                self._leave(row.line, hold.reason)
        return free

    async def _move(self, wave: Sequence[Row]) -> None:
        """Apply rows in one commit, and drop what it took before anything else is done."""
        if not wave:
            return
        answers = self._committer.submit_all([row.operation for row in wave])
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        verdicts = Verdicts([], [])
        duplicates: set[int] = set()
        trouble: BaseException | None = None
        for row, outcome in zip(wave, outcomes, strict=True):
            match judge(outcome):
                case Fate.TAKEN:
                    verdicts.taken.append(row.number)
                    if isinstance(outcome, CommittedResult) and is_duplicate(outcome):
                        duplicates.add(row.number)
                case Fate.REFUSED:
                    verdicts.refused.append((row.number, _reason(outcome)))
                case Fate.HELD:
                    self._hold(row.line, _reason(outcome))
                    self._leave(row.line, _reason(outcome))
                case Fate.TROUBLE:
                    assert isinstance(outcome, BaseException)
                    trouble = trouble or outcome
        await self._settle((verdicts, frozenset(duplicates)))
        if trouble is not None:
            raise trouble

    async def _settle(self, *more: tuple[Verdicts, frozenset[int]]) -> None:
        """Drop and set aside. Only rows that nobody else settled meanwhile are counted: each row counts once."""
        self._owed += [known for known in more if known[0].taken or known[0].refused]
        while self._owed:
            verdicts, duplicates = self._owed[0]
            own = await self._table.settle(verdicts)
            del self._owed[0]
            self._moved += len(own.taken)
            self._duplicates += len(duplicates.intersection(own.taken))
            self._set_aside += len(own.refused)
            for number, reason in own.refused:
                log.error("row %d of headwater_outbox was refused and is set aside: %s", number, reason)

    # ── lines that are held back ──

    def _hold(self, line: Line, reason: str) -> None:
        if line in self._holds:
            return
        tries = self._tries.pop(line, 0) + 1
        # Who drains once does not wait for room.
        pause = float("inf") if self._every_seconds is None else pause_seconds(tries - 1, self._every_seconds)
        self._holds[line] = Hold(tries, self._loop.time() + pause, reason)
        if line[:2] not in self._warned:
            self._warned.add(line[:2])
            log.warning("what waits in the outbox for queue %r is refused for now: %s", line.queue, reason)

    def _leave(self, line: Line, reason: str) -> None:
        count = self._left[line[:2]].count if line[:2] in self._left else 0
        self._left[line[:2]] = Left(line.database, line.queue, count + 1, reason)

    def _let_go(self) -> None:
        """Try those lines again whose time has come: the walk begins anew, because their rows are behind us."""
        now = self._loop.time()
        due = [line for line, hold in self._holds.items() if hold.retry_at <= now]
        for line in due:
            self._tries[line] = self._holds.pop(line).tries
        if due:
            self._walked = 0
            self._left.clear()

    def _end_walk(self) -> None:
        """Everything was looked at: lines that were tried again and not refused are as all others."""
        self._tries.clear()
        for place in self._warned - {line[:2] for line in self._holds}:
            self._warned.discard(place)
            log.info("queue %r takes what waits in the outbox again", place[1])


def _reason(outcome: object) -> str:
    return f"{outcome.code}: {outcome}" if isinstance(outcome, HeadwaterError) else str(outcome)


async def _finished(work: Coroutine[Any, Any, Result]) -> Result:
    """Do it to its end, also when the caller is cancelled meanwhile: what is in the log is dropped from the table.

    Somebody who cancels a second time means it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
    finally:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            task.exception()
