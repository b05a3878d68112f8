"""A group's position in one partition, and the rules of its lease. Every store keeps cursors; none has its own rules.

    idle ──push──► ready ──pop──► leased ──all settled──► idle or ready
                     ▲              │ some failed, released, or the lease ran out
                     └──────────────┘

One lease covers the records from `position` to `leased_to`. Records may be settled in any order: `settled` holds those
beyond the position, `failed` those that come back. An attempt is counted when records are leased, so that a record
that kills its consumer is counted too. When a lease on several records runs out nobody knows which one was to blame:
the cursor turns `cautious` and delivers them one at a time, so that only the guilty one ends in the dead letters.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from zlib import crc32

import msgspec

from headwater.clock import SECOND, Timestamp
from headwater.errors import InvalidOption, LeaseLost, UnknownRecord
from headwater.model.queue import QueueOptions, retry_delay

# Writers on one store see the time some seconds apart; a minute is no jump.
CLOCK_TOLERANCE = 60 * SECOND


def check_not_ahead(name: str, moment: Timestamp | None, now: Timestamp) -> Timestamp | None:
    """A time at which a group is to begin. One that has not come would mean now, and nobody would be told."""
    if moment is not None and moment > now + CLOCK_TOLERANCE:
        shown = datetime.fromtimestamp(moment // SECOND, UTC).isoformat()
        raise InvalidOption(
            f"{name} must not lie in the future: {shown} has not come; 'new' or the end mean from now on"
        )
    return moment


class Outcome(StrEnum):
    """What a consumer says of one record."""

    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    RELEASED = "released"


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """Where a group stands in a partition. `ready_at` is when a pop may look here: None means caught up."""

    position: int = 0
    settled: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    token: int = 0
    lease_until: int | None = None
    leased_to: int = 0
    attempts: int = 0
    retry_to: int = 0
    cautious: bool = False
    ready_at: int | None = None
    holder: str = ""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What became of a cursor: its new state, the records that failed for good, and whether the lease has ended."""

    cursor: Cursor
    buried: tuple[int, ...] = ()
    released: bool = True


def is_due_later(due_at: int, delay: int, now: int) -> bool:
    """Whether a record has to wait that was written `delay` before it is due.

    One that would have to wait for longer than that was written while the clock was ahead: it has waited enough.
    """
    return now < due_at <= now + delay + CLOCK_TOLERANCE


def deliverable(cursor: Cursor, batch: int) -> tuple[int, int | None]:
    """How many records the next lease may cover, and the offset it must stop before (None: no bound).

    Records that were delivered before are not mixed with new ones, so that one count of attempts holds for all.
    """
    if cursor.position >= cursor.retry_to:
        return batch, None
    return (1 if cursor.cautious else batch), cursor.retry_to


def lease(cursor: Cursor, leased_to: int, lease_seconds: float, now: int, holder: str = "") -> Cursor:
    """The cursor with a fresh lease up to `leased_to`; who holds it is kept for whoever looks.

    The token is taken from the clock when that is ahead: it rises even if a lost disk cache took the counter back.
    When only a part of what was delivered before is leased, one count no longer holds for all: from here on one by one.
    """
    until = now + int(lease_seconds * SECOND)
    return msgspec.structs.replace(
        cursor,
        token=max(cursor.token + 1, now),
        lease_until=until,
        leased_to=leased_to,
        attempts=cursor.attempts + 1,
        cautious=cursor.cautious or leased_to < cursor.retry_to,
        ready_at=until,
        holder=holder,
    )


def check_lease(cursor: Cursor, token: int | None, now: int) -> None:
    """Raises unless `token` holds the live lease; None stands for whoever does."""
    if token not in (cursor.token, None) or cursor.lease_until is None:
        raise LeaseLost("another consumer holds these records now, or they were settled; drop the batch and pop again")
    if cursor.lease_until <= now:
        raise LeaseLost("the lease ran out; drop the batch and pop again")


def expire(cursor: Cursor, options: QueueOptions, now: int) -> Settled:
    """What becomes of a cursor whose lease ran out. Nobody's late word counts after that."""
    left = outstanding(cursor)
    if len(left) == 1 and cursor.attempts > options.retry_limit:
        passed = msgspec.structs.replace(cursor, settled=(*cursor.settled, left[0]))
        return Settled(_forget_lease(_end_lease(passed, now)), buried=tuple(left))
    suspect = msgspec.structs.replace(
        cursor,
        failed=(*cursor.failed, *left),
        retry_to=max(cursor.retry_to, cursor.leased_to),
        cautious=cursor.cautious or len(left) > 1,
    )
    return Settled(_forget_lease(_end_lease(suspect, now)))


def take_away(cursor: Cursor, now: int, options: QueueOptions | None = None) -> Cursor:
    """The cursor whose lease is over without a word of its holder, and without an attempt; no late word counts."""
    return _forget_lease(let_go(cursor, now, options).cursor)


def is_reported(cursor: Cursor, token: int) -> bool:
    """Whether the lease of this token is over because its holder said so."""
    return token == cursor.token and cursor.lease_until is None and cursor.leased_to > 0


def let_go(cursor: Cursor, now: int, options: QueueOptions | None = None) -> Settled:
    """What becomes of a cursor whose records are given back without a report on them: nobody is to blame."""
    return settle(cursor, dict.fromkeys(outstanding(cursor), Outcome.RELEASED), options or QueueOptions(), now)


def advance(cursor: Cursor, through: int, *, release: bool, now: int) -> Settled:
    """What becomes of a leased cursor when everything up to `through` is done.

    The rest is given back: at once with `release`, otherwise at the moment at which the lease would have run out.
    """
    left = outstanding(cursor)
    if not any(offset <= through for offset in left):
        raise UnknownRecord(f"record {through} is not in this lease or was settled before")
    outcomes = {offset: Outcome.COMPLETED if offset <= through else Outcome.RELEASED for offset in left}
    settled = settle(cursor, outcomes, QueueOptions(), now)
    if release or left[-1] <= through:
        return settled
    later = msgspec.structs.replace(settled.cursor, ready_at=cursor.lease_until)
    return msgspec.structs.replace(settled, cursor=later)


def settle(cursor: Cursor, outcomes: Mapping[int, Outcome], options: QueueOptions, now: int) -> Settled:
    """What becomes of a leased cursor when its holder reports on some or all of its records."""
    left = outstanding(cursor)
    _check_outstanding(left, outcomes)
    exhausted = cursor.attempts > options.retry_limit
    buried = tuple(
        offset
        for offset, outcome in outcomes.items()
        if outcome is Outcome.DEAD or (exhausted and outcome is Outcome.FAILED)
    )
    done = {offset for offset, outcome in outcomes.items() if outcome is Outcome.COMPLETED} | {*buried}
    back = [offset for offset in outcomes if offset not in done]
    failed = [offset for offset in back if outcomes[offset] is Outcome.FAILED]
    # Whether an earlier report on this lease said failed or released is known only where nothing had failed before it.
    any_failed = bool(failed) or any(offset < cursor.retry_to for offset in cursor.failed)
    cursor = msgspec.structs.replace(
        cursor,
        settled=(*cursor.settled, *done),
        failed=(*cursor.failed, *back),
        retry_to=max(cursor.retry_to, *(offset + 1 for offset in failed)) if failed else cursor.retry_to,
    )
    if len(outcomes) < len(left):
        return Settled(_advance(cursor), buried, released=False)
    if any_failed:
        delay = retry_delay(options, cursor.attempts, chance_of(cursor.token))
        return Settled(_end_lease(cursor, now, int(delay * SECOND)), buried)
    unseen = msgspec.structs.replace(cursor, attempts=cursor.attempts - 1) if cursor.failed else cursor
    return Settled(_end_lease(unseen, now), buried)


def with_rest_released(cursor: Cursor, outcomes: Mapping[int, Outcome]) -> Mapping[int, Outcome]:
    """A report that ends the lease when it says that a record failed or is given back: all that is left of it comes
    back with that record, since order holds."""
    if not any(outcome in (Outcome.FAILED, Outcome.RELEASED) for outcome in outcomes.values()):
        return outcomes
    return {**dict.fromkeys(outstanding(cursor), Outcome.RELEASED), **outcomes}


def came_back(cursor: Cursor, token: int | None) -> list[int]:
    """The records that came back by a report on the lease of this token, as long as nobody has leased any since."""
    if token != cursor.token or cursor.lease_until is not None:
        return []
    settled = set(cursor.settled)
    return [offset for offset in range(cursor.position, cursor.leased_to) if offset not in settled]


def settle_late(cursor: Cursor, outcomes: Mapping[int, Outcome]) -> Cursor:
    """The cursor without a lease when who held the last one says that some of what came back is completed after all.

    Nobody holds these records, and the token of the next lease shuts this one out.
    """
    _check_outstanding(came_back(cursor, cursor.token), outcomes)
    for offset, outcome in outcomes.items():
        if outcome is not Outcome.COMPLETED:
            raise UnknownRecord(f"record {offset} comes again already: all that counts now is that it is completed")
    return _pass(cursor, outcomes)


def count_settled(outcomes: Mapping[int, Outcome]) -> int:
    """How many records a report is the last word on for this delivery: those that are given back were not worked on."""
    return sum(outcome is not Outcome.RELEASED for outcome in outcomes.values())


def chance_of(token: int) -> float:
    """A number from 0 to below 1 that is another for every lease, and the same however often it is asked for."""
    return crc32(b"%d" % token) / 2**32


def settle_all(cursor: Cursor, now: int) -> Cursor:
    """The cursor when every record of its lease is completed, none having failed: the common case, without sets."""
    passed = msgspec.structs.replace(cursor, position=cursor.leased_to, lease_until=None, ready_at=now)
    if cursor.settled:
        beyond = tuple(offset for offset in cursor.settled if offset >= cursor.leased_to)
        passed = _advance(msgspec.structs.replace(passed, settled=beyond))
    again = passed.position < passed.retry_to
    return msgspec.structs.replace(passed, attempts=1 if again else 0, cautious=passed.cautious and again)


def is_whole(cursor: Cursor, offsets: Sequence[int]) -> bool:
    """Whether these are exactly the records of the lease, none settled or failed before; no offsets stand for all."""
    if cursor.settled or cursor.failed:
        return False
    return not offsets or list(offsets) == list(range(cursor.position, cursor.leased_to))


def is_all_done(cursor: Cursor, outcomes: Mapping[int, Outcome]) -> bool:
    """Whether a report says of every record of the lease, none settled or failed before, that it is completed."""
    return set(outcomes.values()) == {Outcome.COMPLETED} and is_whole(cursor, sorted(outcomes))


def seek(cursor: Cursor, position: int, now: int) -> Cursor:
    """The cursor moved to `position`. A live lease ends: its token is raised past."""
    return Cursor(position=position, token=max(cursor.token + 1, now), ready_at=now)


def skip(cursor: Cursor, position: int) -> Cursor:
    """The cursor without a lease, moved over records that were dropped; the next ones begin their own count."""
    settled = tuple(offset for offset in cursor.settled if offset >= position)
    passed = _advance(msgspec.structs.replace(cursor, position=position, settled=settled))
    if passed.position < passed.retry_to:
        return msgspec.structs.replace(passed, attempts=min(passed.attempts, 1))
    return msgspec.structs.replace(passed, attempts=0, cautious=False)


def pass_over(cursor: Cursor, offset: int, now: int) -> Cursor:
    """The cursor that will not deliver this record. One that is being worked on cannot be passed."""
    if offset < cursor.position or offset in cursor.settled:
        return cursor
    if cursor.lease_until is not None and cursor.lease_until > now and offset < cursor.leased_to:
        raise UnknownRecord(f"a consumer works on record {offset} now; wait until it has reported")
    return _pass(cursor, (offset,))


def outstanding(cursor: Cursor) -> list[int]:
    """The records of the lease that nobody has reported on yet."""
    reported = {*cursor.settled, *cursor.failed}
    return [offset for offset in range(cursor.position, cursor.leased_to) if offset not in reported]


def still_held(cursor: Cursor, token: int, now: int) -> list[int]:
    """The records that are held under this token: none when its lease is over."""
    if cursor.token != token or cursor.lease_until is None or cursor.lease_until <= now:
        return []
    return outstanding(cursor)


def _check_outstanding(left: Sequence[int], offsets: Iterable[int]) -> None:
    known = set(left)
    for offset in offsets:
        if offset not in known:
            raise UnknownRecord(f"record {offset} is not in this lease or was settled before")


def _advance(cursor: Cursor) -> Cursor:
    """The cursor with its position moved over what is settled."""
    settled = set(cursor.settled)
    position = cursor.position
    while position in settled:
        settled.remove(position)
        position += 1
    return msgspec.structs.replace(cursor, position=position, settled=tuple(sorted(settled)))


def _pass(cursor: Cursor, offsets: Iterable[int]) -> Cursor:
    """The cursor that will not deliver these records, none of them in a lease; the next ones begin their own count."""
    passed = _advance(msgspec.structs.replace(cursor, settled=(*cursor.settled, *offsets)))
    if passed.position == cursor.position:
        return passed
    again = passed.position < passed.retry_to
    return msgspec.structs.replace(
        passed, attempts=min(passed.attempts, 1) if again else 0, cautious=passed.cautious and again
    )


def _forget_lease(cursor: Cursor) -> Cursor:
    """The cursor of which nothing counts as having come back."""
    return msgspec.structs.replace(cursor, leased_to=0)


def _end_lease(cursor: Cursor, now: int, delay: int = 0) -> Cursor:
    """The cursor once every record of its lease is reported: those that come back wait for `delay`."""
    before = cursor.position
    comes_back = bool(cursor.failed)
    cursor = _advance(cursor)
    again = cursor.position < cursor.retry_to
    # Behind the record that was counted, others of the same range were delivered once and not counted one by one.
    attempts = cursor.attempts if comes_back or cursor.position == before else 1
    return msgspec.structs.replace(
        cursor,
        failed=(),
        lease_until=None,
        attempts=attempts if again else 0,
        cautious=cursor.cautious and again,
        ready_at=now + delay if comes_back else now,
    )
