"""Random operations against every store and against the pure model: they must agree on every answer."""

import asyncio
import copy
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.log.operations import (
    Ack,
    Batch,
    Configure,
    DeleteGroup,
    Extend,
    Operation,
    Pop,
    Popped,
    Requeue,
    Retain,
    Seek,
    Transaction,
)
from headwater.model.names import Offset
from headwater.model.record import decode_payload
from headwater.stores.open import open_store
from headwater.stores.questions import DeadLetter, ListGroups
from tests.contracts.clock import FakeClock
from tests.contracts.factories import FACTORIES, Factory
from tests.contracts.log import Log, payloads, push
from tests.contracts.pure_model import SECOND, Letter, PureLog, Refused
from tests.contracts.random_operations import (
    QUEUE,
    STORES,
    URGENT,
    ack_of,
    groups,
    on_the_queen_wire,
    outcomes,
    popped_partitions,
    pushes,
    queue_options,
    which,
)

Result = TypeVar("Result")


class StoreMachine(RuleBasedStateMachine):
    """Two stores at one place, which take turns, and the model."""

    factory: Factory

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        self.model = PureLog()
        self.batches: list[Batch] = []
        self.pushed = 0
        self.looks = 0
        self.stack = AsyncExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.address = self.wait(self.stack.enter_async_context(self.factory(Path(folder))))
        self.logs = [self.wait(self.open()) for _ in range(STORES)]
        # One lane, so that it is known where messages go that name no partition.
        self.run_one(0, Configure(queue=QUEUE, options={"retry_jitter": 0, "lanes": 1}))
        self.configure(0, {"completed_retention_seconds": 0})

    def wait(self, work: Awaitable[Result]) -> Result:
        async def waited() -> Result:
            return await work

        return self.runner.run(waited())

    async def open(self) -> Log:
        store = open_store(self.address, load_config({}), self.clock)
        await store.open()
        return Log(store, self.clock)

    def teardown(self) -> None:
        for log in self.logs:
            self.wait(log.store.close())
        self.wait(self.stack.aclose())
        self.runner.close()

    @property
    def now(self) -> int:
        return self.clock.now()

    def results(self, store: int, *operations: Operation) -> list[Any]:
        return self.wait(self.logs[store].results(*operations))

    def run_one(self, store: int, operation: Operation) -> Any:
        (result,) = self.results(store, operation)
        assert not isinstance(result, HeadwaterError), result
        return result

    # ── writing ──

    @rule(store=which, chosen=pushes)
    def push(self, store: int, chosen: list[tuple[str, list[str]]]) -> None:
        operations, entries = self.make_pushes(chosen)
        expected = self.model.push(entries, self.now)
        results = self.results(store, *operations)
        assert [offsets_in(result) for result in results] == expected

    def make_pushes(self, chosen: list[tuple[str, list[str]]]) -> tuple[list[Operation], list[Any]]:
        operations: list[Operation] = []
        entries: list[Any] = []
        for partition, ids in chosen:
            numbers = list(range(self.pushed, self.pushed + len(ids)))
            self.pushed += len(ids)
            is_urgent = partition == URGENT
            place = {"partition": "", "priority": 5} if is_urgent else {"partition": partition}
            operations.append(push(*numbers, ids=ids, **place))
            entries.append((partition, list(zip(numbers, ids, strict=True))))
        return operations, entries

    @rule(
        store=which,
        options=queue_options,
    )
    def configure(self, store: int, options: dict[str, int]) -> None:
        self.run_one(store, Configure(queue=QUEUE, options=options))
        names = {
            "retry_limit": "retry_limit",
            "retry_delay_seconds": "retry_delay",
            "lease_seconds": "lease",
            "retention_seconds": "retention",
            "completed_retention_seconds": "completed_retention",
            "deduplication_seconds": "window",
            "size_max": "size_max",
        }
        for name, value in options.items():
            setattr(self.model.options, names[name], value * SECOND if name.endswith("_seconds") else value)

    @rule(store=which)
    def retain(self, store: int) -> None:
        assert self.run_one(store, Retain()).records == self.model.retain(self.now)

    @rule(store=which)
    def reap(self, store: int) -> None:
        reaped = self.wait(self.logs[store].reap())
        assert (reaped.leases, reaped.buried) == self.model_reap()

    def model_reap(self) -> tuple[int, int]:
        ended = buried = 0
        for group, readers in self.model.readers.items():
            for name, reader in readers.items():
                if reader.lease is not None and reader.lease.until <= self.now:
                    ended += 1
                    buried += self.model.expire(group, name, self.now)
        return ended, buried

    # ── popping ──

    @rule(store=which, group=groups, partition=popped_partitions, batch=st.integers(1, 5), auto_ack=st.booleans())
    def pop_partition(self, store: int, group: str, partition: str, batch: int, auto_ack: bool) -> None:
        operation = Pop(queue=QUEUE, group=group, partition=partition, batch=batch, auto_ack=auto_ack)
        popped: Popped = self.run_one(store, operation)
        if partition not in self.model.meet(group):
            assert popped.batches == []
            return
        expected = self.model.deliverable(group, partition, batch, self.now)
        assert [list(found.offsets) for found in popped.batches] == ([expected] if expected else [])
        for found in popped.batches:
            self.check_batch(found, auto_ack)

    @rule(store=which, group=groups, batch=st.integers(1, 5))
    def pop_any_partition(self, store: int, group: str, batch: int) -> None:
        """Which of the most urgent partitions comes is the store's choice; that one comes, and what it has, is not."""
        self.reap(store)
        popped: Popped = self.run_one(store, Pop(queue=QUEUE, group=group, batch=batch))
        self.model.meet(group)
        possible = {name: self.model.deliverable(group, name, batch, self.now) for name in self.model.lanes}
        assert bool(popped.batches) == any(possible.values())
        most_urgent = max((self.model.lanes[name].priority for name in possible if possible[name]), default=0)
        for found in popped.batches:
            assert list(found.offsets) == possible[found.partition]
            assert self.model.lanes[found.partition].priority == most_urgent
            self.check_batch(found, auto_ack=False)

    def check_batch(self, batch: Batch, auto_ack: bool) -> None:
        reader = self.model.readers[batch.group][batch.partition]
        lane = self.model.lanes[batch.partition]
        offsets: list[int] = list(batch.offsets)
        assert payloads(batch) == [lane.payload(offset) for offset in offsets]
        token = reader.token + 1 if auto_ack else batch.token
        assert token > reader.token
        assert batch.lease_until == self.now + self.model.options.lease
        told = self.model.lease(batch.group, batch.partition, offsets, token, batch.lease_until)
        assert (batch.attempts, batch.lost) == told
        if auto_ack:
            done = dict.fromkeys(offsets, "completed")
            self.model.settle(batch.group, batch.partition, token, done, self.now)
        else:
            self.batches = [*self.batches, batch][-6:]

    # ── reports: on any of the last batches, so that late and double ones are tried too ──

    def choose(self, data: st.DataObject) -> Batch:
        return data.draw(st.sampled_from(self.batches), label="batch")

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data())
    def ack_whole(self, store: int, data: st.DataObject) -> None:
        batch = self.choose(data)
        explicit = data.draw(st.booleans(), label="with offsets")
        offsets = list(batch.offsets) if explicit else []
        operation = Ack(partition_id=batch.partition_id, group=batch.group, token=batch.token, offsets=offsets)
        self.check_report(store, operation, batch, dict.fromkeys(offsets, "completed") if explicit else None)

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data())
    def report(self, store: int, data: st.DataObject) -> None:
        batch = self.choose(data)
        said = data.draw(
            st.dictionaries(st.sampled_from([*batch.offsets, batch.offsets[-1] + 1]), outcomes, min_size=1),
            label="outcomes",
        )
        self.check_report(store, ack_of(batch, said), batch, said)

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data(), outcome=outcomes)
    def report_all_the_same(self, store: int, data: st.DataObject, outcome: str) -> None:
        batch = self.choose(data)
        said = dict.fromkeys([int(offset) for offset in batch.offsets], outcome)
        self.check_report(store, ack_of(batch, said), batch, said)

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data(), outcome=outcomes, is_single=st.booleans())
    def report_one_on_the_queen_wire(self, store: int, data: st.DataObject, outcome: str, is_single: bool) -> None:
        """Which ends the lease, and a late word of the same consumer counts as long as nobody has leased since."""
        batch = self.choose(data)
        offset = data.draw(st.sampled_from([*batch.offsets, batch.offsets[-1] + 1]), label="offset")
        said = {int(offset): outcome}
        self.check_report(store, on_the_queen_wire(ack_of(batch, said), is_single), batch, said)

    @rule(store=which, chosen=pushes, group=groups, data=st.data(), is_popped_again=st.booleans())
    def push_and_report_late(
        self, store: int, chosen: list[tuple[str, list[str]]], group: str, data: st.DataObject, is_popped_again: bool
    ) -> None:
        """Who goes on with a batch after a failure does so by several steps in a row; here by one."""
        self.push(store, chosen)
        for partition in sorted({partition for partition, _ in chosen}):
            self.pop_partition(store, group, partition, 5, False)
            if not self.batches or (self.batches[-1].group, self.batches[-1].partition) != (group, partition):
                continue
            batch = self.batches[-1]
            for outcome in data.draw(st.lists(outcomes, min_size=2, max_size=4), label="outcomes"):
                offset = data.draw(st.sampled_from(batch.offsets), label="offset")
                report = on_the_queen_wire(ack_of(batch, {int(offset): outcome}))
                self.check_report(store, report, batch, {int(offset): outcome})
            if is_popped_again:
                self.pop_partition(store, group, partition, 5, False)
            done = {int(batch.offsets[-1]): "completed"}
            self.check_report(store, on_the_queen_wire(ack_of(batch, done)), batch, done)

    def check_report(self, store: int, operation: Ack, batch: Batch, said: dict[int, str] | None) -> None:
        expected = self.expect(lambda: self.model_report(operation, batch, said))
        (result,) = self.results(store, operation)
        assert expected == (result.code if isinstance(result, HeadwaterError) else seen_in(result))

    def model_report(self, operation: Ack, batch: Batch, said: dict[int, str] | None) -> Any:
        if said and operation.counts_late and self.model.late(batch.group, batch.partition, batch.token):
            return self.model.settle_late(batch.group, batch.partition, said)
        return self.model_settle(batch, said, operation.releases_rest)

    def model_settle(self, batch: Batch, said: dict[int, str] | None, releases_rest: bool = False) -> Any:
        if said is None:
            lease = self.model.held(batch.group, batch.partition, batch.token, self.now).lease
            said = dict.fromkeys(sorted(lease.left) if lease else [], "completed")
        place = (batch.group, batch.partition, batch.token)
        ended, buried = self.model.settle(*place, said, self.now, releases_rest)
        return ended, sorted(buried)

    @staticmethod
    def expect(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Refused as refused:
            return refused.args[0]

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data(), seconds=st.sampled_from([1, 60, 1_000]))
    def extend(self, store: int, data: st.DataObject, seconds: int) -> None:
        batch = self.choose(data)
        until = self.now + seconds * SECOND
        expected = self.expect(lambda: self.model.extend(batch.group, batch.partition, batch.token, until, self.now))
        about = Extend(partition_id=batch.partition_id, group=batch.group, token=batch.token, seconds=seconds)
        (result,) = self.results(store, about)
        assert expected == (result.code if isinstance(result, HeadwaterError) else None)

    @precondition(lambda self: self.batches)
    @rule(store=which, data=st.data(), chosen=pushes)
    def ack_and_push_together(self, store: int, data: st.DataObject, chosen: list[tuple[str, list[str]]]) -> None:
        batch = self.choose(data)
        operations, entries = self.make_pushes(chosen)
        before = copy.deepcopy(self.model)
        expected = self.expect(lambda: self.model_settle(batch, None))
        (result,) = self.results(store, Transaction(operations=[ack_of(batch, None), *operations]))
        if isinstance(expected, str):
            assert expected == result.code
            return
        pushed = [offsets for entry in entries for offsets in self.model.push([entry], self.now)]
        if "queue_full" in pushed:
            assert result.code == "queue_full"
            self.model = before
            return
        assert expected == seen_in(result.results[0])
        assert [answer.offsets() for answer in result.results[1:]] == pushed

    # ── moving ──

    @precondition(lambda self: self.model.lanes)
    @rule(store=which, group=groups, data=st.data())
    def seek(self, store: int, group: str, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.model.lanes)), label="partition")
        lane = self.model.lanes[partition]
        if lane.only_for not in ("", group):
            (refused,) = self.results(store, Seek(queue=QUEUE, group=group, partition=partition, create=True))
            assert refused.code == "not_found"
            return
        to = data.draw(st.one_of(st.sampled_from(["beginning", "end"]), st.integers(0, lane.end)), label="to")
        if isinstance(to, int):
            operation = Seek(queue=QUEUE, group=group, partition=partition, offset=Offset(to), create=True)
            position = max(to, lane.start)
        else:
            operation = Seek(queue=QUEUE, group=group, partition=partition, to=to, create=True)
            position = lane.end if to == "end" else lane.start
        self.run_one(store, operation)
        self.model.meet(group)
        self.model.seek(group, partition, position, self.now)

    @rule(store=which, group=groups)
    def delete_group(self, store: int, group: str) -> None:
        deleted = self.run_one(store, DeleteGroup(group=group, queue=QUEUE))
        assert deleted.count == self.model.delete_group(group)
        self.batches = [batch for batch in self.batches if batch.group != group]

    @rule(store=which, chosen=pushes, group=groups, data=st.data())
    def push_and_bury(self, store: int, chosen: list[tuple[str, list[str]]], group: str, data: st.DataObject) -> None:
        """Records die by several steps in a row; here by one, so that there is something to requeue."""
        self.push(store, chosen)
        for partition in sorted({partition for partition, _ in chosen}):
            self.pop_partition(store, group, partition, 5, False)
            if self.batches and (self.batches[-1].group, self.batches[-1].partition) == (group, partition):
                batch = self.batches[-1]
                said = dict.fromkeys([int(offset) for offset in batch.offsets], "dead")
                self.check_report(store, ack_of(batch, said), batch, said)
        if self.model.buried:
            self.requeue(store, data, all_groups=False)

    @precondition(lambda self: self.model.buried)
    @rule(store=which, data=st.data(), all_groups=st.booleans())
    def requeue(self, store: int, data: st.DataObject, all_groups: bool) -> None:
        """One at a time: in which order those of one commit died is the store's choice."""
        chosen = data.draw(st.sampled_from(sorted(self.model.buried)), label="dead letter")
        place = (chosen.group, chosen.partition, chosen.offset)
        found = [letter for letter in self.wait(self.logs[store].dead_letters()) if place_of(letter) == place]
        expected = self.expect(lambda: self.model.requeue(chosen, all_groups, self.now))
        (result,) = self.results(store, Requeue(queue=QUEUE, ids=[found[0].id], all_groups=all_groups))
        assert expected == (result.code if isinstance(result, HeadwaterError) else None)

    @rule(seconds=st.sampled_from([0.5, 1, 5, 20, 60, 301]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(store=which)
    def reopen(self, store: int) -> None:
        self.wait(self.logs[store].store.close())
        self.logs[store] = self.wait(self.open())

    # ── what both must show ──

    @invariant()
    def both_show_the_same(self) -> None:
        """By one of the stores, and by the other after the next step: each look may be the one that takes a bucket
        over, which costs more than everything else here."""
        self.looks += 1
        log = self.logs[self.looks % STORES]
        self.the_log_is_the_same(log)
        self.the_groups_are_the_same(log)
        assert self.wait(log.queue()).waiting == self.model.waiting()
        self.the_dead_letters_are_the_same(log)

    def the_log_is_the_same(self, log: Log) -> None:
        segments = self.wait(log.read())
        lsns = [segment.lsn for segment in segments]
        assert lsns == sorted(set(lsns))
        for name, lane in self.model.lanes.items():
            kept = [(s.first_offset, payloads(s)) for s in segments if s.lane.partition == name]
            assert kept == [(s.first, [payload for payload, _ in s.entries]) for s in lane.segments]

    def the_groups_are_the_same(self, log: Log) -> None:
        found = {status.group: status for status in self.wait(log.store.ask(ListGroups("main", QUEUE)))}
        assert found.keys() == self.model.readers.keys()
        for group, status in found.items():
            assert (status.lag, status.lost) == (self.model.lag(group), self.model.lost_so_far(group, self.clock.now()))

    def the_dead_letters_are_the_same(self, log: Log) -> None:
        letters = self.wait(log.dead_letters())
        assert sorted(map(place_of, letters)) == sorted(map(place_of, self.model.buried))
        assert all(decode_payload(letter.record.data) < self.pushed for letter in letters)


def offsets_in(result: Any) -> list[int] | str:
    return result.code if isinstance(result, HeadwaterError) else result.offsets()


def place_of(letter: DeadLetter | Letter) -> tuple[str, str, int]:
    return letter.group, letter.partition, letter.offset


def seen_in(acked: Any) -> tuple[bool, list[int]]:
    return acked.lease_ended, sorted(acked.buried)


def machine_over(chosen: Factory) -> type[StoreMachine]:
    """The machine over one kind of store."""

    class Machine(StoreMachine):
        factory = staticmethod(chosen)

    return Machine


# A failure is worth the minutes that it takes to shrink it; a campaign has no limit.
@pytest.mark.timeout(600 if settings.get_current_profile_name() == "ci" else 0)
@pytest.mark.parametrize("name", FACTORIES)
def test_a_store_agrees_with_the_model(name: str) -> None:
    current = settings.default
    assert current is not None
    run_state_machine_as_test(
        machine_over(FACTORIES[name]),
        settings=settings(current, max_examples=max(current.max_examples * 2 // 5, 1)),
    )
