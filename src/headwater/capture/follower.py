"""Following a source into a queue, each change once.

    source.read ─► Reach(capture/NAME, n, position) + pushes, in one commit ─► source.confirm(position)

The position is in the log with the changes that lead up to it, so whoever dies anywhere goes on without a hole and
without doubling. Nothing is confirmed to the source that the log does not have. A look at the lag is noted now and then
as a step of its own, where `headwater capture list`, the metrics and the doctor find it.
"""

import asyncio
import logging
import re
import time
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from headwater.capture.contract import Change, Lag, Source, Taken
from headwater.capture.held import held
from headwater.clock import Timestamp
from headwater.errors import (
    AlreadyReached,
    HeadwaterError,
    InvalidOption,
    InvalidPayload,
    ResyncRequired,
    SourceBusy,
    SourceUnfit,
    TooLarge,
)
from headwater.log.operations import Operation, Push, Reach, Transaction
from headwater.model.capture import STEPS, CaptureState, decode_state, encode_state
from headwater.model.names import check_name
from headwater.model.record import Record, encode_payload
from headwater.services.database import Database
from headwater.services.outgoing import Target
from headwater.services.verbs import Verbs
from headwater.stores.questions import ListMilestones, ListQueues

log = logging.getLogger(__name__)

READ_SECONDS = 1.0
STATUS_SECONDS = 10.0
PAUSE_SECONDS = 0.2
PAUSE_SECONDS_MAX = 30.0
ALARM_BYTES = 1_073_741_824
LANES_MAX = 1_024
_not_in_names = re.compile(r"[^A-Za-z0-9._:/-]")


class Captured(msgspec.Struct, frozen=True):
    """What one run did."""

    name: str
    changes: int
    position: str


class Follower:
    """Follows one source into one queue of a database. `resync` lets it begin anew where the source has lost our
    place; consumers are told by a change of kind `resync-required`, and get every row once more."""

    def __init__(
        self,
        hw: Database,
        source: Source,
        queue: str,
        *,
        lanes: int = 1,
        resync: bool = False,
        alarm_bytes: int | None = None,
        status_seconds: float = STATUS_SECONDS,
    ) -> None:
        if type(lanes) is not int or not 1 <= lanes <= LANES_MAX:
            raise InvalidOption(f"lanes must be 1 to {LANES_MAX:,}; got {lanes!r:.80}")
        self._queues = hw.queues_service
        self._database = hw.name
        self._source = source
        self._queue = check_name("queue", queue)
        self._lanes = lanes
        self._resync = resync
        self._alarm_bytes = alarm_bytes
        self._status_seconds = status_seconds
        self._step = STEPS + check_name("capture", source.name)
        self._number = 0
        self._state = CaptureState()
        self._noted_at = 0.0
        self._taken = 0
        # Tables with JSON that a record cannot hold.
        self._warned: set[str] = set()

    async def run(self, *, once: bool = False) -> Captured:
        """Follow until cancelled; with `once` until everything is in the log that had been written when it began.

        What may pass is waited for, longer each time, unless it is to end by itself.
        """
        tries = 0
        while True:
            before = self._taken
            try:
                await self._follow(once)
                return Captured(self._source.name, self._taken, self._state.position)
            except HeadwaterError as error:
                if once or not error.retryable:
                    raise
                tries = 1 if self._taken > before else tries + 1
                log.warning("capture %s goes on later: %s: %s", self._source.name, error.code, error)
            finally:
                await self._source.close()
            await asyncio.sleep(min(PAUSE_SECONDS * 2.0 ** min(tries, 30), PAUSE_SECONDS_MAX))

    # ── one connection to the source ──

    async def _follow(self, once: bool) -> None:
        await self._open()
        is_over = False
        while not is_over:
            try:
                is_over = await self._go_on(once)
            except ResyncRequired as error:
                await self._lost(error)

    async def _go_on(self, once: bool) -> bool:
        """Take what comes next. Whether that was all that was asked for."""
        taken = await self._source.read(READ_SECONDS)
        if taken is not None:
            await self._keep(taken)
        is_over = once and self._source.caught_up
        if is_over or time.monotonic() - self._noted_at >= self._status_seconds:
            await self._note_lag()
        return is_over

    async def _open(self) -> None:
        self._number, self._state = await _find_state(self._queues, self._database, self._step)
        self._refuse_another_queue()
        if await self._is_elsewhere():
            self._state = CaptureState()
        if not self._state.is_followed:
            await self._refuse_place()
        try:
            if self._state.copying:
                # Our own place: nobody else has noted that it begins.
                await self._begin_anew("the first copy was interrupted")
            elif self._state != CaptureState():
                await self._resume()
            else:
                await self._source.check()
                await self._begin_first()
        except ResyncRequired as error:
            await self._lost(error)

    async def _refuse_place(self) -> None:
        """A place that this log does not know is another's, which would lose it if this one began anew there."""
        try:
            await _refuse_place(self._source)
        except SourceUnfit as error:
            if (await _find_state(self._queues, self._database, self._step))[0] != self._number:
                busy = f"another process has just followed {self._source.name} into this log"
                raise SourceBusy(busy) from error
            raise

    async def _resume(self) -> None:
        """Go on. What the source has changed for it to go on, tables that joined for one, is noted before it does."""
        position = await self._source.open(self._state.position)
        if position != self._state.position:
            await self._commit(Taken([], [], position))

    def _refuse_another_queue(self) -> None:
        """A capture by default has the name of its first table, and so may another one."""
        queue = self._state.queue
        if queue not in ("", self._queue) and not self._state.dropped:
            raise InvalidOption(
                f"the capture {self._source.name} pushes to the queue {queue}: give this one a name of its own "
                "(--name), or drop that one first (headwater capture drop)"
            )

    async def _is_elsewhere(self) -> bool:
        """Whether what was noted is of a capture that was given up, and this one goes to a queue that nothing was ever
        pushed to: from there nothing can be missing."""
        if not self._state.dropped or self._state.queue == self._queue:
            return False
        queues = await self._queues.store.ask(ListQueues(self._database))
        return not any(found.queue == self._queue and found.partitions for found in queues)

    async def _lost(self, error: ResyncRequired) -> None:
        """The source has lost our place, or what we followed: begin anew, if that may be."""
        if not self._resync:
            raise ResyncRequired(
                f"{error}. Changes may be missing from {self._queue}: to begin anew with a copy of all rows, "
                "follow it with --resync (resync=True); consumers are told"
            ) from error
        await self._begin_anew(str(error))

    async def _begin_anew(self, reason: str) -> None:
        log.warning("capture %s begins anew: %s", self._source.name, reason)
        await self._source.forget()
        await self._begin([Change("resync-required", table, reason=reason) for table in self._source.tables])

    async def _begin_first(self) -> None:
        """Begin where nothing was followed before. What the source refuses for good leaves nothing, here or there."""
        try:
            await self._begin()
        except HeadwaterError as error:
            if not error.retryable:
                await self._take_back()
            raise

    async def _take_back(self) -> None:
        try:
            await self._source.forget()
        except HeadwaterError as error:
            # It may keep something for us: then the note stays, by which it can be dropped.
            log.warning("what %s keeps for this capture could not be given up: %s", self._source.name, error)
        else:
            await self._take_step(CaptureState(), ())

    async def _begin(self, changes: Sequence[Change] = ()) -> None:
        """Note that a copy begins before the source is told: who dies in between begins once more."""
        await self._commit(Taken(changes, [None] * len(changes), "", copying=True))
        position = await self._source.open("")
        if position:
            await self._commit(Taken([], [], position))

    async def _keep(self, taken: Taken) -> None:
        """Changes go to the log at once; a position without any, or the end of a copy, when it is worth a commit."""
        if not taken.changes and not self._state.copying:
            self._state = msgspec.structs.replace(self._state, position=taken.position)
            return
        await self._commit(taken)
        if not taken.copying:
            await self._source.confirm(taken.position)

    async def _commit(self, taken: Taken) -> None:
        state = msgspec.structs.replace(
            self._state,
            position=taken.position,
            copying=taken.copying,
            dropped=False,
            queue=self._queue,
            changes=self._state.changes + len(taken.changes),
        )
        await self._take_step(state, self._pushes(taken))
        self._taken += len(taken.changes)

    async def _note_lag(self) -> None:
        lag = await self._source.lag()
        alarm = self._judge(lag)
        if alarm and not self._state.alarm:
            log.warning("capture %s: %s", self._source.name, alarm)
        noted = msgspec.structs.replace(
            self._state, lag_bytes=lag.bytes, kept_bytes=lag.kept_bytes, kept_bytes_max=lag.kept_bytes_max, alarm=alarm
        )
        await self._take_step(noted, ())
        self._noted_at = time.monotonic()
        if not noted.copying and noted.position:
            await self._source.confirm(noted.position)

    async def _take_step(self, state: CaptureState, pushes: Sequence[Push]) -> None:
        reach = Reach(database=self._database, name=self._step, number=self._number + 1, note=encode_state(state))
        operations: tuple[Operation, ...] = (reach, *pushes)
        try:
            await self._queues.run(Transaction(database=self._database, operations=operations))
        except AlreadyReached as error:
            raise SourceBusy(f"another process follows {self._source.name} into this log: {error}") from error
        self._number += 1
        self._state = state

    def _judge(self, lag: Lag) -> str:
        """Why somebody should look, '' when nobody needs to: long before what is kept for us fills a disk."""
        kept = lag.kept_bytes or 0
        limit = self._alarm_bytes or (lag.kept_bytes_max // 2 if lag.kept_bytes_max else ALARM_BYTES)
        if kept <= limit:
            return ""
        given_up = f", and gives up at {lag.kept_bytes_max:,}" if lag.kept_bytes_max else ""
        return f"the source keeps {kept:,} bytes for this capture (the alarm is at {limit:,}{given_up})"

    # ── changes as pushes ──

    def _pushes(self, taken: Taken) -> list[Push]:
        """One push for each partition, in the order of the changes; several where one would be too large."""
        partitions: dict[str, list[Record]] = {}
        for change, at in zip(taken.changes, taken.times, strict=True):
            for part in _parts(change, self._lanes):
                for partition in partitions_of(part, self._lanes):
                    partitions.setdefault(partition, []).append(self._record(part, at))
        return [push for partition, records in partitions.items() for push in self._cut(partition, records)]

    def _cut(self, partition: str, records: list[Record]) -> Iterator[Push]:
        config, begin, size = self._queues.config, 0, 0
        for end, record in enumerate(records):
            size += len(record.data)
            if end - begin >= config.batch_max or (size > config.batch_bytes_max and end > begin):
                yield self._push(partition, records[begin:end])
                begin, size = end, len(record.data)
        yield self._push(partition, records[begin:])

    def _push(self, partition: str, records: Sequence[Record]) -> Push:
        push = Target(self._queue, partition).push(self._database, records)
        self._queues.check_push(push)
        return push

    def _record(self, change: Change, at: Timestamp | None) -> Record:
        try:
            data = self._payload(change)
        except (InvalidPayload, TooLarge) as error:
            raise type(error)(
                f"a change of {change.table} with the key {change.key} cannot be pushed: {error}. Nothing was skipped; "
                "if it is too large, raise record_bytes_max (HEADWATER_RECORD_BYTES_MAX) and go on"
            ) from error
        return Record(data, type=change.op, timestamp=at or 0)

    def _payload(self, change: Change) -> msgspec.Raw:
        """A change as it is pushed, checked as every payload is: a source may hand on what it has as JSON."""
        bytes_max = self._queues.config.record_bytes_max
        try:
            return encode_payload(msgspec.Raw(msgspec.json.encode(change)), bytes_max)
        except InvalidPayload as error:
            payload = encode_payload(msgspec.Raw(msgspec.json.encode(held(change))), bytes_max)
            self._warn_of_texts(change.table, error)
            return payload

    def _warn_of_texts(self, table: str, error: InvalidPayload) -> None:
        if table not in self._warned:
            self._warned.add(table)
            log.warning(
                "capture %s: JSON of %s that a record cannot hold is told as its text: %s",
                self._source.name,
                table,
                error,
            )


async def drop(hw: Database, source: Source, *, of_another_store: bool = False) -> bool:
    """Give up what a source keeps for us, and note that it is not followed any more. Whether it ever was, here.

    What it keeps under this name for a capture that this store does not know is given up only where that is meant
    (`of_another_store`): that capture loses its place, if there still is one.
    """
    step = STEPS + check_name("capture", source.name)
    number, state = await _find_state(hw.queues_service, hw.name, step)
    await give_up(source, of_another_store=state.is_followed or of_another_store)
    if state == CaptureState():
        return False
    note = CaptureState(state.position, state.copying, dropped=True, queue=state.queue, changes=state.changes)
    await hw.queues_service.run(Reach(database=hw.name, name=step, number=number + 1, note=encode_state(note)))
    return True


async def give_up(source: Source, *, of_another_store: bool) -> None:
    """Where there is no store that could know of it. Raises when the source keeps something under this name, unless
    it is to go whosever it is."""
    if of_another_store:
        await source.forget()
        return
    try:
        await _refuse_place(source)
    finally:
        await source.close()


async def _refuse_place(source: Source) -> None:
    """Raises when a source keeps a place under this name; for those whose log does not know of it."""
    if await source.keeps_place():
        raise SourceUnfit(
            f"the source keeps a place for a capture {source.name} that this log does not know: it is another store's, "
            "or of one that is no more. Take another --name, or give it up (headwater capture drop --of-another-store)"
        )


async def _find_state(queues: Verbs, database: str, step: str) -> tuple[int, CaptureState]:
    for milestone in await queues.store.ask(ListMilestones(database, step)):
        if milestone.name == step:
            return milestone.number, decode_state(milestone.note)
    return 0, CaptureState()


def partitions_of(change: Change, lanes: int) -> list[str]:
    """A table is one partition, in the order of commits; with lanes a row is always in the same one of its table's,
    and what concerns the whole table is told in each."""
    table = _not_in_names.sub("_", change.table)
    if lanes == 1:
        return [table]
    numbers = range(lanes) if change.key is None else [_hash(change.key) % lanes]
    return [f"{table}/{number}" for number in numbers]


def _parts(change: Change, lanes: int) -> tuple[Change, ...]:
    """A row that was given another key may change its lane: there it is new, and in the old one it is gone."""
    before = change.before
    if lanes == 1 or change.op != "update" or before is None or change.key is None:
        return (change,)
    old = {name: before[name] for name in change.key if name in before}
    if len(old) < len(change.key) or _hash(old) == _hash(change.key):
        return (change,)
    gone = msgspec.structs.replace(change, op="delete", key=old, after=None, unchanged=())
    return gone, msgspec.structs.replace(change, op="insert", before=None)


def _hash(key: object) -> int:
    return zlib.crc32(msgspec.json.encode(key, order="deterministic"))
