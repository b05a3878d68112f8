"""The queue's semantics once more, in plain Python and as slowly as you like: what every store must agree with.

Written from the rules, not from the stores: a partition is a list of segments, a group's place in it a set of offsets
that are done. Nothing here is shared with `headwater.model`.
"""

from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000


class Refused(Exception):
    """The operation changes nothing; the argument is the code of the error that a store gives."""


@dataclass
class Options:
    retry_limit: int = 3
    retry_delay: int = 1 * SECOND
    lease: int = 300 * SECOND
    window: int = 300 * SECOND
    retention: int = 0
    completed_retention: int = 0
    size_max: int = 0


@dataclass
class Segment:
    first: int
    written_at: int
    entries: list[tuple[Any, str]]

    @property
    def end(self) -> int:
        return self.first + len(self.entries)


@dataclass
class PartitionModel:
    """A partition."""

    segments: list[Segment] = field(default_factory=list)
    start: int = 0
    only_for: str = ""
    priority: int = 0

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else self.start

    def payload(self, offset: int) -> Any:
        (segment,) = [segment for segment in self.segments if segment.first <= offset < segment.end]
        return segment.entries[offset - segment.first][0]

    def identity(self, offset: int) -> str:
        (segment,) = [segment for segment in self.segments if segment.first <= offset < segment.end]
        return segment.entries[offset - segment.first][1]

    def find(self, identity: str, since: int) -> int | None:
        for segment in reversed(self.segments):
            places = [offset for offset, (_, name) in enumerate(segment.entries, segment.first) if name == identity]
            if places and segment.written_at >= since:
                return places[0]
        return None


@dataclass(frozen=True, order=True)
class Letter:
    """A dead letter."""

    group: str
    partition: str
    offset: int
    payload: Any
    identity: str
    priority: int


@dataclass
class Lease:
    token: int
    offsets: list[int]
    until: int
    left: set[int]
    came_back: dict[int, str] = field(default_factory=dict)


@dataclass
class Reader:
    """A group in a partition. Records before `again_to` were delivered before, `count` times; `single`: one by one."""

    floor: int
    done: set[int] = field(default_factory=set)
    lease: Lease | None = None
    token: int = 0
    count: int = 0
    again_to: int = 0
    single: bool = False
    free_at: int = 0
    # What a report on the last lease brought back: whoever held it may say late that it is done.
    returned: set[int] = field(default_factory=set)

    @property
    def position(self) -> int:
        position = self.floor
        while position in self.done:
            position += 1
        return position

    def end_lease(self, now: int, delay: int, given_back: bool) -> None:
        assert self.lease is not None
        came_back = bool(self.lease.came_back)
        self.returned = set(self.lease.came_back)
        self.lease = None
        if not came_back:
            self.count = 1
        elif given_back:
            self.count -= 1
        self.free_at = now + (delay if came_back else 0)
        self.forget_count()

    def forget_count(self) -> None:
        if self.position >= self.again_to:
            self.count, self.single = 0, False


class PureLog:
    """One queue: its partitions, its groups, its dead letters."""

    def __init__(self) -> None:
        self.options = Options()
        self.lanes: dict[str, PartitionModel] = {}
        self.readers: dict[str, dict[str, Reader]] = {}
        self.lost: dict[str, int] = {}
        self.buried: list[Letter] = []

    # ── pushing and dropping ──

    def push(self, pushes: list[tuple[str, list[tuple[Any, str]]]], now: int) -> list[list[int] | str]:
        """The offsets that each push of one commit gets, or the code of the error that refuses it."""
        fresh: dict[str, list[tuple[Any, str]]] = {}
        answers: list[list[int] | str] = []
        taken = self.waiting()
        for name, entries in pushes:
            count = len(entries)
            if self.options.size_max and taken + count > self.options.size_max:
                # What is there already needs no more room.
                count -= self._count_known(name, entries, now)
                if count == len(entries) or (count and taken + count > self.options.size_max):
                    answers.append("queue_full")
                    continue
            taken += count
            lane, added = self.lane(name), fresh.setdefault(name, [])
            offsets = []
            for payload, identity in entries:
                offset = self._known(lane, added, identity, now)
                if offset is None:
                    offset = lane.end + len(added)
                    added.append((payload, identity))
                offsets.append(offset)
            answers.append(offsets)
        for name, added in fresh.items():
            if added:
                self.lanes[name].segments.append(Segment(self.lanes[name].end, now, added))
        return answers

    def _count_known(self, name: str, entries: list[tuple[Any, str]], now: int) -> int:
        if name not in self.lanes:
            return 0
        lane = self.lanes[name]
        return sum(
            self._known(lane, entries[:place], identity, now) is not None for place, (_, identity) in enumerate(entries)
        )

    def lane(self, name: str) -> PartitionModel:
        """The partition of this name, which says whose it is and how urgent."""
        if name in self.lanes:
            return self.lanes[name]
        only_for, priority = "", 0
        if name.startswith("Default/priority-"):
            priority = int(name.removeprefix("Default/priority-"))
        elif name.startswith("headwater/requeued/"):
            place, only_for = name.removeprefix("headwater/requeued/").split("/")
            priority = int(place.partition("-")[2] or 0)
        lane = self.lanes[name] = PartitionModel(only_for=only_for, priority=priority)
        return lane

    def requeue(self, letter: Letter, all_groups: bool, now: int) -> None:
        """Deliver a dead letter once more: to its group, or to all in the partition that it came from."""
        if all_groups:
            nowhere = f"Default/priority-{letter.priority}" if letter.priority else "Default"
            name = nowhere if letter.partition.startswith("headwater/") else letter.partition
        elif letter.group not in self.readers:
            raise Refused("not_found")
        else:
            place = f"0-{letter.priority}" if letter.priority else "0"
            name = f"headwater/requeued/{place}/{letter.group}"
        lane = self.lane(name)
        lane.segments.append(Segment(lane.end, now, [(letter.payload, letter.identity)]))
        self.buried.remove(letter)

    def delete_group(self, group: str) -> bool:
        """Whether there was one. What is for it alone goes with it."""
        for lane in self.lanes.values():
            if lane.only_for == group:
                lane.start, lane.segments = lane.end, []
        self.lost.pop(group, None)
        return self.readers.pop(group, None) is not None

    def _known(self, lane: PartitionModel, added: list[tuple[Any, str]], identity: str, now: int) -> int | None:
        if not identity or not self.options.window:
            return None
        names = [name for _, name in added]
        kept = lane.find(identity, self._recognised_from(now))
        return kept if kept is not None or identity not in names else lane.end + names.index(identity)

    def _recognised_from(self, now: int) -> int:
        """What was written before is not looked at for transaction ids."""
        window, retention = self.options.window, self.options.retention
        return now - (min(window, retention) if retention else window)

    def retain(self, now: int) -> int:
        """How many records are dropped."""
        dropped = 0
        for name, lane in self.lanes.items():
            while lane.segments and self._is_over(name, lane.segments[0], now):
                segment = lane.segments.pop(0)
                lane.start = segment.end
                dropped += len(segment.entries)
        return dropped

    def _is_over(self, name: str, segment: Segment, now: int) -> bool:
        if self.options.retention and segment.written_at <= now - self.options.retention:
            return True
        readers = [readers.get(name) for _, readers in self.reading(name)]
        passed = bool(readers) and all(reader and reader.position >= segment.end for reader in readers)
        completed = self.options.completed_retention
        if not completed or not passed or segment.written_at > now - completed:
            return False
        has_ids = any(identity for _, identity in segment.entries)
        return not has_ids or not self.options.window or segment.written_at < self._recognised_from(now)

    # ── popping ──

    def reading(self, name: str) -> list[tuple[str, dict[str, Reader]]]:
        """The groups that read a partition."""
        lane = self.lanes[name]
        return [(group, readers) for group, readers in self.readers.items() if lane.only_for in ("", group)]

    def meet(self, group: str) -> dict[str, Reader]:
        """The group's places, also in partitions that are new to it."""
        self.lost.setdefault(group, 0)
        readers = self.readers.setdefault(group, {})
        for name, lane in self.lanes.items():
            if lane.only_for in ("", group):
                readers.setdefault(name, Reader(floor=lane.start))
        return readers

    def deliverable(self, group: str, name: str, batch: int, now: int) -> list[int]:
        """The offsets that a pop of this partition must get now; a lease that ran out ends by this question."""
        if name not in self.readers[group]:
            return []
        reader, lane = self.readers[group][name], self.lanes[name]
        if reader.lease is not None and reader.lease.until <= now:
            self.expire(group, name, now)
        if reader.lease is not None or reader.free_at > now:
            return []
        position, again_to, single = reader.position, reader.again_to, reader.single
        if lane.start > position:
            position = next(o for o in range(lane.start, lane.end + 1) if o not in reader.done)
            single = single and position < again_to
        found = [offset for offset in range(position, lane.end) if offset not in reader.done]
        if position < again_to:
            found = [offset for offset in found if offset < again_to][: 1 if single else batch]
        return self._told_apart(lane, found[:batch])

    @staticmethod
    def _told_apart(lane: PartitionModel, offsets: list[int]) -> list[int]:
        """Those before the first whose transaction id the batch has already."""
        seen: set[str] = set()
        for count, identity in enumerate(map(lane.identity, offsets)):
            if identity in seen:
                return offsets[:count]
            seen |= {identity} - {""}
        return offsets

    def lease(self, group: str, name: str, offsets: list[int], token: int, until: int) -> tuple[int, int]:
        """The store has leased these; how many attempts and how many lost records it must have told."""
        reader, lane = self.readers[group][name], self.lanes[name]
        lost = max(lane.start - reader.position, 0)
        if lost:
            self.lost[group] += lost
            reader.floor = lane.start
            reader.count = min(reader.count, 1)
            reader.forget_count()
        reader.count += 1
        reader.token = token
        reader.returned = set()
        reader.single = reader.single or offsets[-1] + 1 < reader.again_to
        reader.lease = Lease(token, offsets, until, set(offsets))
        return reader.count, lost

    # ── reports ──

    def held(self, group: str, name: str, token: int, now: int) -> Reader:
        reader = self.readers[group].get(name)
        if reader is None or reader.lease is None or reader.lease.token != token or reader.lease.until <= now:
            raise Refused("lease_lost")
        return reader

    def late(self, group: str, name: str, token: int) -> set[int]:
        """What the last lease of this token brought back, as far as nobody has leased it or done it since."""
        reader = self.readers[group].get(name)
        if reader is None or reader.lease is not None or reader.token != token:
            return set()
        return {offset for offset in reader.returned - reader.done if offset >= reader.floor}

    def settle_late(self, group: str, name: str, outcomes: dict[int, str]) -> tuple[bool, list[int]]:
        """Done after all, by whoever held the last lease."""
        reader = self.readers[group][name]
        if not set(outcomes) <= self.late(group, name, reader.token) or {*outcomes.values()} != {"completed"}:
            raise Refused("unknown_record")
        before = reader.position
        reader.done.update(outcomes)
        if reader.position > before:
            reader.count = min(reader.count, 1)
            reader.forget_count()
        if reader.position >= self.lanes[name].end:
            # Nothing is left that the delay before a retry would hold back.
            reader.free_at = 0
        return True, []

    def settle(
        self, group: str, name: str, token: int, outcomes: dict[int, str], now: int, releases_rest: bool = False
    ) -> tuple[bool, list[int]]:
        """Whether the lease ended, and what was buried."""
        reader = self.held(group, name, token, now)
        lease = reader.lease
        assert lease is not None
        if not set(outcomes) <= lease.left:
            raise Refused("unknown_record")
        if releases_rest and not {"failed", "released"}.isdisjoint(outcomes.values()):
            outcomes = {**dict.fromkeys(lease.left, "released"), **outcomes}
        unsure = any(offset < reader.again_to for offset in lease.came_back)
        hopeless = {"dead", "failed"} if self._over(reader) else {"dead"}
        buried = [offset for offset, outcome in outcomes.items() if outcome in hopeless]
        for offset, outcome in outcomes.items():
            lease.left.remove(offset)
            if outcome == "completed" or offset in buried:
                reader.done.add(offset)
            else:
                lease.came_back[offset] = outcome
        failed = [offset for offset in outcomes if lease.came_back.get(offset) == "failed"]
        reader.again_to = max([reader.again_to, *(offset + 1 for offset in failed)])
        self._bury(group, name, buried)
        if not lease.left:
            any_failed = bool(failed) or unsure
            reader.end_lease(now, self._back_off(reader) if any_failed else 0, given_back=not any_failed)
        return not lease.left, buried

    def _bury(self, group: str, name: str, offsets: list[int]) -> None:
        """Of a record that retention dropped meanwhile, nothing is left to be kept."""
        lane = self.lanes[name]
        self.buried += [
            Letter(group, name, offset, lane.payload(offset), lane.identity(offset), lane.priority)
            for offset in offsets
            if offset >= lane.start
        ]

    def _back_off(self, reader: Reader) -> int:
        """Twice as long each time, at most five minutes."""
        return min(self.options.retry_delay << (reader.count - 1), 300 * SECOND)

    def _over(self, reader: Reader) -> bool:
        return reader.count > self.options.retry_limit

    def expire(self, group: str, name: str, now: int) -> int:
        """A lease ran out; how many records that buries."""
        reader = self.readers[group][name]
        lease = reader.lease
        assert lease is not None
        left = sorted(lease.left)
        guilty = left if len(left) == 1 and self._over(reader) else []
        if guilty:
            reader.done.update(guilty)
            self._bury(group, name, guilty)
        else:
            lease.came_back.update(dict.fromkeys(left, "unknown"))
            reader.again_to = max(reader.again_to, lease.offsets[-1] + 1)
            reader.single = reader.single or len(left) > 1
        reader.end_lease(now, 0, given_back=False)
        reader.returned = set()
        return len(guilty)

    def extend(self, group: str, name: str, token: int, until: int, now: int) -> None:
        lease = self.held(group, name, token, now).lease
        assert lease is not None
        lease.until = until

    def seek(self, group: str, name: str, position: int, now: int) -> None:
        token = self.readers[group][name].token
        self.readers[group][name] = Reader(floor=position, token=token, free_at=now)

    # ── what is asked ──

    def lost_so_far(self, group: str, now: int) -> int:
        """What was told as lost, and what the next pops will tell: it is shown at once."""
        told = self.lost[group]
        for name, reader in self.readers[group].items():
            lease = reader.lease
            reached = lease.offsets[-1] + 1 if lease is not None and lease.until > now else reader.position
            told += max(self.lanes[name].start - reached, 0)
        return told

    def lag(self, group: str) -> int:
        """What waits for a group."""
        return sum(self.lag_in(group, name) for name, lane in self.lanes.items() if lane.only_for in ("", group))

    def lag_in(self, group: str, name: str) -> int:
        """What waits for a group in a partition: not what it has acked in another order. All, where it has not been."""
        lane, reader = self.lanes[name], self.readers[group].get(name)
        if reader is None:
            return lane.end - lane.start
        return len(set(range(max(reader.position, lane.start), lane.end)) - reader.done)

    def waiting(self) -> int:
        """What waits in each partition for the group that is slowest there; all of it, where no group reads."""
        total = 0
        for name, lane in self.lanes.items():
            total += max((self.lag_in(group, name) for group, _ in self.reading(name)), default=lane.end - lane.start)
        return total


class PureReceipts:
    """Messages that name no partition. Which lane each gets is the store's choice; what each is told of it is not."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], Any] = {}
        self._places: dict[str, tuple[str, int]] = {}

    def check(self, entries: list[tuple[Any, str]], places: list[tuple[str, int]], duplicates: set[int]) -> None:
        """One push of payloads with their ids: the place that each was told, and which of them were there before."""
        assert len(places) == len(entries)
        for index, ((payload, identity), place) in enumerate(zip(entries, places, strict=True)):
            before = self._places.get(identity)
            assert (index in duplicates) == (before is not None), (index, entries)
            if before is not None:
                assert place == before
                continue
            assert place not in self.kept
            self.kept[place] = payload
            if identity:
                self._places[identity] = place
