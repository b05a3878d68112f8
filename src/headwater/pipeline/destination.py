"""Where a stream pushes to, and whether that is still the place it pushed to before.

A query's checkpoint says how far it is, and its sink is one store and mostly one queue. Aimed at another one, or when
that one was deleted, replaced or restored, what was pushed before is not there: that is told, and never passed over.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from headwater.config import load_config
from headwater.errors import DataLost, HeadwaterError, InvalidOption, NotAllowed, StoreReplaced
from headwater.model.names import DATABASE_DEFAULT
from headwater.pipeline.asking import ask
from headwater.pipeline.checkpoint import Destination
from headwater.pipeline.options import WriteOptions
from headwater.pipeline.planning import StreamOffset
from headwater.stores.log_reader import Fingerprint
from headwater.stores.open import open_reader, shown

log = logging.getLogger(__name__)


class Found(msgspec.Struct, frozen=True):
    """What is at an address: which store, the numbers of its queues, the end of its log, and whether that log has the
    segment that was asked for, None when nobody can tell."""

    store: str
    numbers: dict[str, int]
    seen: Fingerprint | None
    remembered: bool | None

    def destination(self, options: WriteOptions, step: str = "", repeated: int | None = None) -> Destination:
        """It as the place that records go to."""
        database, number = options.database or DATABASE_DEFAULT, self.numbers.get(options.queue)
        return Destination(self.store, database, options.queue, number, self.seen, step, repeated)


def look_at(options: WriteOptions, before: Destination | None) -> Found | None:
    """What is at the address of a write now; None where who may push may not look."""
    try:
        return _look_at(options, before)
    except NotAllowed:
        return None


def _look_at(options: WriteOptions, before: Destination | None) -> Found:
    reader = open_reader(options.store, load_config(), options.access)
    with asyncio.Runner() as runner:
        ask(runner, reader.open())
        try:
            _, last = ask(runner, reader.span())
            return Found(
                ask(runner, reader.identity()),
                ask(runner, reader.queue_numbers(options.database)),
                ask(runner, reader.fingerprint(last)),
                ask(runner, reader.remembers(before.seen)) if before and before.seen else None,
            )
        finally:
            ask(runner, reader.close())


def find_move(before: Destination, now: Destination, remembered: bool | None) -> HeadwaterError | None:
    """How the place that is pushed to differs from the one before; None when it is the same."""
    if before.store != now.store:
        return StoreReplaced(
            f"this is not the store that the checkpoint pushed to: that one has the identity {before.store}, this one "
            f"{now.store or 'is a backup that was put back'}"
        )
    if remembered is False:
        return StoreReplaced(
            "the store was put back from an older copy: what this checkpoint pushed last is not in it any more"
        )
    if (before.database, before.queue) != (now.database, now.queue):
        there, here = (f"{each.queue or 'the queues of its rows'} of {each.database}" for each in (before, now))
        return DataLost(f"this checkpoint pushed to {there}, and is aimed at {here} now: what it pushed is not there")
    if before.number not in (None, now.number):
        again = "" if now.number is None else "and made again "
        return DataLost(f"{now.queue} was deleted {again}since this checkpoint pushed to it: what it pushed is gone")
    return None


def has_moved(before: Destination | None, found: Found | None, options: WriteOptions) -> bool:
    """Whether a query pushes to another place than before, as far as is known; raises unless it may."""
    if before is None or found is None:
        return False
    change = find_move(before, found.destination(options), found.remembered)
    if change is None:
        return False
    if options.fail_on_data_loss:
        raise type(change)(
            f"{shown(options.store)}: {change}. Nothing was pushed; begin a new checkpoint, or to go on here with what "
            "comes, set failOnDataLoss of the write to false"
        )
    log.warning("%s: %s; going on there, as failOnDataLoss says", shown(options.store), change)
    return True


def name_step(query: str, batch: int, before: Destination | None, moved: bool, options: WriteOptions) -> str:
    """The name of the work whose steps a query's pushes are: one for each place that it pushes to.

    A query that went elsewhere counts there anew, so that it and the one whose checkpoint it has do not meet.
    """
    if moved:
        return f"spark/{query}/{options.queue}/{batch}"
    return before.step if before is not None and before.step else f"spark/{query}"


def check_no_circle(sources: Iterable[StreamOffset], found: Found, queues: Iterable[str]) -> None:
    """Raises when a query reads a queue that it pushes to."""
    targets = {found.numbers[queue]: queue for queue in queues if queue in found.numbers}
    read = {number for source in sources if source.store == found.store for number in source.queues.values()}
    circle = sorted(targets[number] for number in read & targets.keys())
    if circle:
        raise InvalidOption(
            f"this query reads {', '.join(circle)} and pushes to it: it would read what it pushed, for ever. Nothing "
            "was pushed; if you mean it, set the option allowSameQueue of the write to true"
        )
