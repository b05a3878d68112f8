"""What the pushes of a commit become: a stack of records for each partition, which is one segment, and what each push
is told of its own records in it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError
from headwater.log.operations import Pushed
from headwater.model.names import Lsn, Offset
from headwater.model.record import Record
from headwater.stores.tables.catalog import Partition


class Share(msgspec.Struct, frozen=True, gc=False):
    """Records of one push that go to one partition: the `members` by index, or all of them."""

    push: int
    records: Sequence[Record]
    members: list[int] = []


class Found(msgspec.Struct, frozen=True, gc=False):
    """Duplicates among some records, by index: their offsets, and when those are due that are still to come."""

    offsets: dict[int, Offset]
    due: dict[int, Timestamp]

    def between(self, begin: int, end: int) -> "Found":
        """Those of the records from `begin` to before `end`, counted from there."""
        return Found(
            {place - begin: offset for place, offset in self.offsets.items() if begin <= place < end},
            {place - begin: due for place, due in self.due.items() if begin <= place < end},
        )


NOTHING_FOUND = Found({}, {})


class Stack(msgspec.Struct, frozen=True):
    """What becomes one segment."""

    partition: Partition
    ttl_seconds: float | None
    shares: list[Share]

    @property
    def records(self) -> Sequence[Record]:
        """All of them, in their order."""
        shares = self.shares
        return shares[0].records if len(shares) == 1 else [record for share in shares for record in share.records]


# By partition, time to live, and whether the partition was chosen here: a push by name fails without those.
Stacks = dict[tuple[int, float | None, bool], Stack]
# What became of each push so far: of one that was spread over lanes, what became of its records on each of them.
Results = list["Pushed | list[Pushed] | HeadwaterError | None"]


def cut(
    pushes: Iterable[tuple[int, Sequence[Record]]], chunks: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[int, Share]]:
    """The records of all pushes in a row, cut into chunks: which lane gets which of which push."""
    dealt = iter(chunks)
    lane, _, end = next(dealt)
    first = 0
    for index, records in pushes:
        size = len(records)
        begin = 0
        while begin < size:
            if first + begin >= end:
                lane, _, end = next(dealt)
            stop = end - first
            if begin == 0 and stop >= size:
                yield lane, Share(index, records)
                break
            stop = min(stop, size)
            yield lane, Share(index, records[begin:stop], list(range(begin, stop)))
            begin = stop
        first += size


def put_on(
    stacks: Stacks, partition: Partition, ttl_seconds: float | None, share: Share, *, chosen: bool = True
) -> None:
    key = (partition.id, ttl_seconds, chosen)
    stack = stacks.get(key)
    if stack is None:
        stack = stacks[key] = Stack(partition, ttl_seconds, [])
    stack.shares.append(share)


def tell(stack: Stack, results: Results, offset: Offset, found: Found, lsn: Lsn, written_at: Timestamp) -> None:
    """Tell each push of a stack where its records are."""
    begin = 0
    number, name = stack.partition.id, stack.partition.name
    for share in stack.shares:
        size = len(share.records)
        own = found.between(begin, begin + size) if found.offsets else NOTHING_FOUND
        count = size - len(own.offsets)
        place = (number, offset, count, lsn, written_at, own.offsets, name, None, share.members)
        answer(results, share.push, Pushed(*place, due=own.due))
        offset = Offset(offset + count)
        begin += size


def answers_of(results: Results) -> list[Pushed | HeadwaterError]:
    answers = [_joined(result) if type(result) is list else result for result in results]
    return cast("list[Pushed | HeadwaterError]", answers)


def answer(results: Results, index: int, pushed: Pushed) -> None:
    """Note what became of a push, or of those of its records that went to one lane; an error holds for all."""
    before = results[index]
    if before is None:
        results[index] = [pushed] if pushed.members else pushed
    elif type(before) is list:
        before.append(pushed)


def _joined(parts: list[Pushed]) -> Pushed:
    """The answer to a push whose records went to several lanes."""
    first = parts[0]
    return Pushed(
        partition_id=first.partition_id,
        first_offset=first.first_offset,
        count=sum([part.count for part in parts]),
        lsn=max([part.lsn for part in parts]),
        written_at=first.written_at,
        duplicates={part.members[place]: offset for part in parts for place, offset in part.duplicates.items()},
        partition=first.partition,
        due_at=first.due_at,
        parts=parts,
        due={part.members[place]: due for part in parts for place, due in part.due.items()},
    )
