"""Idempotency keys, under the write lock: what was done under each, and the answer that it got."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError, KeyReused, StoreDamaged
from headwater.log.group_operations import GiveBack
from headwater.log.job_operations import CancelJobs, RetryJobs
from headwater.log.operations import Ack, Operation, Pop, Popped, Push, Transacted, Transaction, result_type
from headwater.model.idempotency import fingerprint, given_key, plain_key, whole_key
from headwater.stores.tables.connection import Connection
from headwater.stores.tables.repeated_pops import KeptPop, kept_of
from headwater.stores.tables.subject import Read

KIND_LENGTH_MAX = 200
# The answer of another operation of the same commit, which is not known yet.
SAME_KEY = object()
# Keys are kept by the name that an operation had first: a key of before it was renamed still stands for it.
_first_names: dict[type[Operation], str] = {CancelJobs: "Cancel", RetryJobs: "Rearm"}


# The operation, its answer and its fingerprint.
AppliedRow = tuple[str, str, str | None]


class Applied:
    """The operations that came with a key."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.sql

    def foresee(self, operations: Sequence[Operation]) -> list[Read]:
        """What is looked up for operations with a key."""
        places = [(one.database, key) for one in operations if one.key for key in (one.key, plain_key(one.key))]
        places += [(one.database, one.pop_key) for one in operations if isinstance(one, GiveBack)]
        return [Read("find_applied", place) for place in places]

    def answered_before(self, operation: Operation, first: Operation | None) -> object:
        """The answer that stands: one in the log, or that of the `first` operation of this commit with the same key."""
        applied = self._find(operation)
        if applied is not None:
            kind, answer, print_before = applied
        elif first is not None:
            kind, answer, print_before = _kind(first), None, _fingerprint(first)
        else:
            return None
        if kind != _kind(operation) or print_before not in (None, _fingerprint(operation)):
            # The key of a report that goes with a pop is nothing that anybody gave.
            named = (
                "the idempotency key of this pop"
                if isinstance(operation, Ack)
                else f"idempotency key {given_key(operation.key)!r}"
            )
            return KeyReused(f"{named} was used for another request; take a new one")
        return SAME_KEY if answer is None else _recall(operation, answer)

    def _find(self, operation: Operation) -> AppliedRow | None:
        """What was done under a key: operation, answer and fingerprint.

        Before keys had a scope they were kept without one, and without a fingerprint; those still count for everybody.
        """
        row = self._connection.row(self._sql.find_applied, (operation.database, operation.key), AppliedRow)
        plain = plain_key(operation.key)
        if row is not None or plain == operation.key:
            return row
        old = self._connection.row(self._sql.find_applied, (operation.database, plain), AppliedRow)
        return old if old is not None and old[2] is None else None

    def refuse_wholly(self, operations: Sequence[Operation], results: list[object], pushes: list[int]) -> None:
        """A push to several partitions whose key stands for another request in one of them is refused in all."""
        refused = {
            (operation.database, whole_key(operation.key), operation.part_of): result
            for operation, result in zip(operations, results, strict=True)
            if isinstance(result, KeyReused) and isinstance(operation, Push) and operation.part_of
        }
        for index in list(pushes) if refused else ():
            push = operations[index]
            assert isinstance(push, Push)
            results[index] = refused.get((push.database, whole_key(push.key), push.part_of))
            if results[index] is not None:
                pushes.remove(index)

    def remember(self, operations: Sequence[Operation], results: list[object], now: Timestamp) -> None:
        """Keep the answers that keys got now, and give those that were kept."""
        same = Counter(
            (one.database, one.key) for one, result in zip(operations, results, strict=True) if result is SAME_KEY
        )
        for index, operation in enumerate(operations):
            result = results[index]
            if not operation.key or result is SAME_KEY or isinstance(result, HeadwaterError):
                continue
            if isinstance(result, Remembered):
                results[index] = result.answer
                continue
            if isinstance(operation, Pop) and isinstance(result, Popped):
                if not result.batches:
                    continue  # Nothing is no answer yet: whoever waits goes on asking, with the same key.
                result = kept_of(result, 1 + same[operation.database, operation.key])
            answer = msgspec.json.encode(result).decode()
            row = (operation.database, operation.key, _kind(operation), answer, _fingerprint(operation), now)
            self._connection.run(self._sql.add_applied, row)

    def kept_pop(self, database: str, key: str) -> KeptPop | None:
        """What is kept of a pop with this key; None when that is another operation's, or cannot be read."""
        row = self._connection.row(self._sql.find_applied, (database, key), AppliedRow)
        if row is None or not row[0].startswith(f"{Pop.__name__}("):
            return None
        try:
            return msgspec.json.decode(row[1], type=KeptPop)
        except msgspec.MsgspecError:
            return None

    def keep_pop(self, database: str, key: str, kept: KeptPop) -> None:
        """Keep something else of a pop."""
        self._connection.run(self._sql.change_applied, (msgspec.json.encode(kept).decode(), database, key))


class Remembered(msgspec.Struct, frozen=True):
    """An answer that was given in an earlier commit; of a pop what is kept of it."""

    answer: object


class _Steps(msgspec.Struct, frozen=True):
    """The answers of a transaction, each to be read as its step says."""

    results: list[msgspec.Raw]


def _kind(operation: Operation) -> str:
    """What an idempotency key stands for: the operation and what it acts on. A transaction is known by its steps.

    Without the queue, a key that somebody else used would bring the records of a queue that the caller may not read.
    """
    if isinstance(operation, Transaction):
        return _short(f"Transaction({', '.join(map(_kind, operation.operations))})")
    acts_on = getattr(operation, "queue", "") or getattr(operation, "partition_id", "")
    kind = type(operation)
    return f"{_first_names.get(kind, kind.__name__)}({acts_on})"


def _fingerprint(operation: Operation) -> str:
    """What tells an operation from all others that could have its key; the parts of one push have one together."""
    whole = operation.part_of if isinstance(operation, Push) else ""
    if isinstance(operation, Pop):
        # Who asks, for how long and who else waits is another matter each time.
        return fingerprint(msgspec.structs.asdict(msgspec.structs.replace(operation, key="", sharers=0, holder="")))
    return whole or fingerprint(msgspec.structs.replace(operation, key=""))


def _short(kind: str) -> str:
    """The same for the same, in few letters."""
    return kind if len(kind) <= KIND_LENGTH_MAX else f"Transaction sha256 {sha256(kind.encode()).hexdigest()}"


def _recall(operation: Operation, kept: str) -> "Remembered | StoreDamaged":
    """The answer that was kept for a key; it fails alone when it cannot be read."""
    try:
        return Remembered(_answer_of(operation, kept))
    except (msgspec.MsgspecError, ValueError) as error:
        return StoreDamaged(f"the answer kept for idempotency key {given_key(operation.key)!r} cannot be read: {error}")


def _answer_of(operation: Operation, kept: str | bytes) -> object:
    """The answer that was kept for an operation of this kind."""
    if not isinstance(operation, Transaction):
        # The records of a pop are in the log; within a transaction its answer is kept whole, like that of other steps.
        kind = KeptPop if isinstance(operation, Pop) else result_type(type(operation))
        return msgspec.json.decode(kept, type=kind)
    steps = zip(operation.operations, msgspec.json.decode(kept, type=_Steps).results, strict=True)
    return Transacted([msgspec.json.decode(answer, type=result_type(type(step))) for step, answer in steps])
