"""Noted events in the life of a record."""

import msgspec
import pytest

from headwater.errors import QueueMissing
from headwater.log.operations import Trace
from headwater.model.names import PartitionId
from headwater.stores.questions import ListTraces
from tests.contracts.clock import FakeClock
from tests.contracts.log import Log


async def test_events_are_listed_oldest_first(log: Log, clock: FakeClock) -> None:
    number = (await log.push("a", ids=["tx-1"])).partition_id
    await log.run(Trace(partition_id=number, transaction_id="tx-1", event="begun", data=msgspec.Raw(b'{"step":1}')))
    later = clock.advance(1)
    await log.run(Trace(partition_id=number, transaction_id="tx-1", group="billing", event="done", names=["n"]))
    first, second = await log.store.ask(ListTraces("main", number, "tx-1"))
    assert (first.event, first.name, bytes(first.data)) == ("begun", "", b'{"step":1}')
    assert (second.event, second.name, second.group, bytes(second.data)) == ("done", "n", "billing", b"null")
    assert (second.partition_id, second.transaction_id, second.noted_at) == (number, "tx-1", later)


async def test_an_event_is_noted_under_each_of_its_names(log: Log) -> None:
    number = (await log.push("a")).partition_id
    traced = await log.run(Trace(partition_id=number, transaction_id="t", names=["one", "two"]))
    assert traced.count == 2
    assert [event.name for event in await log.store.ask(ListTraces("main", number, "t"))] == ["one", "two"]


async def test_events_of_other_records_are_not_shown(log: Log) -> None:
    number = (await log.push("a")).partition_id
    elsewhere = (await log.push("a", partition="b")).partition_id
    await log.run(Trace(partition_id=number, transaction_id="t"))
    assert await log.store.ask(ListTraces("main", number, "other")) == []
    assert await log.store.ask(ListTraces("main", elsewhere, "t")) == []


async def test_an_event_needs_a_partition_that_is_there(log: Log) -> None:
    with pytest.raises(QueueMissing):
        await log.run(Trace(partition_id=PartitionId(999), transaction_id="t"))
