"""Whose a folder is: an archive or an export belongs to one store and one database, from its first run on.

    the store has another identity, or the database another name                  source_unfit
    the log went back behind what is in the folder                                store_replaced
    the queue of an export was deleted and made again                             data_lost

LSNs and numbers of partitions are those of one store. Read in another one they mean other records: those would be
taken for written, and the store be told that it may forget them. So it is judged before anything is read or written.

Folders of older versions do not say whose they are. They get an owner when all that they say is found in this log.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from headwater.errors import SourceUnfit
from headwater.model.names import DATABASE_DEFAULT, Lsn, PartitionId
from headwater.pipeline.ends import partitions_of
from headwater.pipeline.manifest import Manifest
from headwater.pipeline.planning import StreamOffset
from headwater.pipeline.served import Log
from headwater.pipeline.standing import Here, find_change
from headwater.stores.open import is_server
from headwater.stores.questions import PartitionStatus

REMEDY = "nothing was read or written; choose another folder"


def find_owner(log: Log, database: str) -> Here:
    """Which store this is, with the numbers of the queues that a database has."""
    reader = log.reader()
    _, last = log.ask(reader.span())
    return Here(log.location, log.ask(reader.identity()), log.ask(reader.queue_numbers(database)), last)


def check_owner(folder: Path, manifest: Manifest, log: Log, database: str, queues: Sequence[str]) -> Manifest:
    """The manifest of a folder that belongs to this database of this store; raises when it does not.

    `queues` are those whose names must stand for the same queues as before.
    """
    tenant = log.tenant(database)
    here = find_owner(log, tenant)
    if not manifest.identity:
        manifest = _adopt(folder, manifest, log, tenant, here)
    if manifest.identity != here.store:
        raise SourceUnfit(
            f"{folder} belongs to another store ({manifest.store}, identity {manifest.identity}; this one is "
            f"{here.address}, identity {here.store}): {REMEDY}"
        )
    if manifest.database != tenant:
        raise SourceUnfit(f"{folder} belongs to the database {manifest.database!r}, not to {tenant!r}: {REMEDY}")
    numbers = {queue: manifest.numbers[queue] for queue in queues if queue in manifest.numbers}
    through = Lsn(max(manifest.queues.values(), default=0))
    remembered = None if manifest.seen is None else log.ask(log.reader().remembers(manifest.seen))
    change = find_change(StreamOffset(through, queues=numbers, seen=manifest.seen), here, remembered)
    if change is not None:
        raise type(change)(f"{folder}: {change}; {REMEDY}")
    return manifest


def with_numbers(manifest: Manifest, log: Log, queues: Sequence[str]) -> Manifest:
    """The manifest with the numbers that these queues have now."""
    there = log.ask(log.reader().queue_numbers(manifest.database))
    numbers = {queue: there[queue] for queue in queues if queue in there}
    return msgspec.structs.replace(manifest, numbers={**manifest.numbers, **numbers})


def with_end(manifest: Manifest, log: Log, through: int) -> Manifest:
    """The manifest with the segment by which the log is known again up to here."""
    return msgspec.structs.replace(manifest, seen=log.ask(log.reader().fingerprint(Lsn(through))))


def made_again(before: Manifest, after: Manifest) -> list[str]:
    """The queues that were deleted and made again between two manifests of a folder."""
    return sorted(queue for queue, number in before.numbers.items() if after.numbers.get(queue, number) != number)


# ── folders that do not say whose they are ──


def _adopt(folder: Path, manifest: Manifest, log: Log, tenant: str, here: Here) -> Manifest:
    """A manifest of an older version as one of this log, when what it says is found there."""
    # What a flow through a server was told was the default one, whatever the token's was.
    known = (tenant, DATABASE_DEFAULT) if is_server(log.location) else (tenant,)
    if manifest.database not in known:
        raise SourceUnfit(f"{folder} belongs to the database {manifest.database!r}, not to {tenant!r}: {REMEDY}")
    owned = msgspec.structs.replace(manifest, store=here.address, identity=here.store, database=tenant)
    if not manifest.entries:
        # How far it is in a log that nobody knows says nothing, and there is nothing that could be there twice.
        return msgspec.structs.replace(owned, queues={}, ends={}, partitions={}, lost={})
    there = {
        status.partition_id: status
        for queue in manifest.queues
        if queue in here.queues
        for status in partitions_of(log, tenant, queue)
    }
    why = find_stranger(manifest, there, here.last) or _find_left_out(manifest, log, tenant)
    if why:
        raise SourceUnfit(f"{folder} does not say whose it is, and what it holds is not from here: {why}; {REMEDY}")
    return owned


def find_stranger(manifest: Manifest, there: Mapping[PartitionId, PartitionStatus], last: int) -> str:
    """What a manifest knows that a log with these partitions and this end does not have; '' when it has all of it.

    A partition that the manifest knows by the time it was made may be gone, with its queue.
    """
    through = max(manifest.queues.values(), default=0)
    if through > last:
        return f"it goes to LSN {through}, and the log of this store ends at {last}"
    for number, end in manifest.ends.items():
        status, made_at = there.get(PartitionId(number)), manifest.partitions.get(number)
        if status is None and made_at is None:
            return f"it has records of a partition {number}, which is not in these queues"
        if status is not None and made_at not in (None, status.created_at):
            return f"partition {number} was made at another time: it is the archive of another store ({manifest.store})"
        if status is not None and status.end < end:
            return f"partition {number} ends at offset {status.end} here, and at {end} there"
    return "" if there.keys() & manifest.ends.keys() else "none of its partitions are here"


def _find_left_out(manifest: Manifest, log: Log, tenant: str) -> str:
    """What the log has before the place that the folder is at, and the folder does not.

    A run for another store could move that place on and write nothing.
    """
    through = max(manifest.queues.values(), default=0)
    for touch in log.touches(tenant, sorted(manifest.queues), 0, through):
        lane = touch.lane
        is_before = lane.database == tenant and touch.lsn <= manifest.queues.get(lane.queue, 0)
        if is_before and touch.first_offset + touch.count > manifest.ends.get(touch.partition_id, 0):
            return f"{lane.queue}/{lane.partition} has records at LSN {touch.lsn} that were left out of it"
    return ""
