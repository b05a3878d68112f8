"""Retention, expired leases, forgotten keys: each a bounded bite at a time, until nothing is left to do."""

from pathlib import Path

import apsw
import pytest

import headwater
from headwater.config import Config, Durability
from headwater.housekeeping.forgetter import Forgetter
from headwater.housekeeping.index_builder import IndexBuilder
from headwater.housekeeping.job_pruner import JobPruner
from headwater.housekeeping.job_rescuer import JobRescuer
from headwater.housekeeping.lease_reaper import LIMIT as LEASES_LIMIT
from headwater.housekeeping.lease_reaper import LeaseReaper
from headwater.housekeeping.retainer import Retainer
from headwater.log.document_operations import IndexDocuments
from headwater.log.job_operations import Claim
from headwater.model.document import Condition
from headwater.services.messages import Outgoing
from headwater.stores.document_questions import DocumentQuery, ListDocumentIndexes, QueryDocuments
from tests.contracts.clock import FakeClock
from tests.contracts.log import push
from tests.waiting import expect_soon_async

# More than retention looks at in one partition at a time.
MANY_SEGMENTS = 1_150


def make_reaper(hw: headwater.Headwater) -> LeaseReaper:
    return LeaseReaper(hw.store, hw.committer, hw.clock, Config())


async def test_retention_drops_what_is_old_in_every_partition(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.configure(retention_seconds=60)
    await orders.push_many([Outgoing(payload=number, partition=f"p{number}") for number in range(700)])
    await hw.queue("kept").push(1)
    clock.advance(60)
    assert await Retainer(hw.committer, Config()).run() == 700
    assert [status.records for status in await hw.queues()] == [1, 0]
    assert await Retainer(hw.committer, Config()).run() == 0


async def test_retention_drops_all_of_a_partition_that_was_written_to_often(
    hw: headwater.Headwater, clock: FakeClock
) -> None:
    """Otherwise a busy partition would grow faster than it is dropped."""
    await hw.queue("orders").configure(retention_seconds=60)
    for number in range(MANY_SEGMENTS):
        await hw.store.apply([push(number)], clock.now())
    clock.advance(60)
    assert await Retainer(hw.committer, Config()).run() == MANY_SEGMENTS


async def test_retention_drops_records_by_their_own_time_to_live(hw: headwater.Headwater, clock: FakeClock) -> None:
    await hw.queue("orders").push("short", ttl_seconds=10)
    clock.advance(10)
    assert await Retainer(hw.committer, Config()).run() == 1


async def test_the_reaper_ends_leases_that_ran_out(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.configure(retry_limit=0)
    await orders.push_many([1, 2])
    await orders.pop(lease_seconds=10)
    assert await make_reaper(hw).run() == 0
    clock.advance(10)
    assert await make_reaper(hw).run() == 1
    assert [letter.error for letter in await orders.dead_letters()] == ["the lease ran out"]
    assert (await orders.groups())[0].lag == 1


async def test_the_reaper_ends_more_leases_than_one_bite_holds(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    count = LEASES_LIMIT + 20
    await orders.push_many([Outgoing(payload=number, partition=f"p{number}") for number in range(count)])
    await orders.pop(batch=1_000, partitions=1_000, lease_seconds=10)
    clock.advance(10)
    assert await make_reaper(hw).run() == count
    assert await make_reaper(hw).run() == 0


async def test_the_reaper_leaves_alone_what_was_settled_meanwhile(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.push_many([1, 2], partition="p")
    await orders.pop(lease_seconds=10)
    clock.advance(10)
    taken_over = await orders.pop(lease_seconds=10)
    assert await make_reaper(hw).run() == 0
    await orders.ack(taken_over)


async def test_old_keys_and_traces_are_forgotten(hw: headwater.Headwater, clock: FakeClock) -> None:
    orders = hw.queue("orders")
    await orders.push(1, partition="p", idempotency_key="old")
    (message,) = await orders.pop()
    await orders.trace(message, "begun")
    clock.advance(3_600)
    await orders.push(2, partition="p", idempotency_key="new")
    config = Config(idempotency_seconds=3_599)
    assert await Forgetter(hw.committer, clock, config).run() == 2
    assert await orders.traces(message) == []
    assert (await orders.push(2, partition="p", idempotency_key="new")).offset == 1
    assert (await orders.push(1, partition="p", idempotency_key="old")).offset == 2


async def test_chores_do_their_work_by_themselves(path: Path) -> None:
    async with headwater.open(str(path), housekeeping_seconds=0.02) as hw:
        orders = hw.queue("orders")
        await orders.configure(retention_seconds=0.05, retry_limit=0)
        await orders.push("old")

        async def is_empty() -> bool:
            status = await orders.status()
            return status is not None and status.records == 0

        await expect_soon_async(is_empty)
        await orders.configure(retention_seconds=0)
        await orders.push("poison")
        await orders.pop(lease_seconds=0.01)

        async def is_buried() -> bool:
            return bool(await orders.dead_letters())

        await expect_soon_async(is_buried)
        assert set(hw.keeper.errors.values()) == {0}


async def test_the_rescuer_takes_jobs_back_that_nobody_claims(hw: headwater.Headwater, clock: FakeClock) -> None:
    job = await hw.jobs.add(command="true")
    await hw.jobs_service.run(Claim(worker="lost", limit=1, lease_seconds=10))
    assert await JobRescuer(hw.committer, Config()).run() == 0
    clock.advance(10)
    assert await JobRescuer(hw.committer, Config()).run() == 1
    assert (await job.show()).state == "failed"


async def test_the_pruner_forgets_old_jobs_bite_by_bite(hw: headwater.Headwater, clock: FakeClock) -> None:
    jobs = await hw.jobs.add_many([headwater.NewJob(command="true") for _ in range(1_200)])
    await hw.jobs.cancel(*(job.id for job in jobs))
    await hw.jobs.add(command="true", id="waits")
    clock.advance(8 * 86_400)
    assert await JobPruner(hw.committer, Config()).run() == 1_200
    assert [job.id for job in await hw.jobs.list()] == ["waits"]


async def scanned(hw: headwater.Headwater, below: int) -> tuple[list[str], int]:
    query = DocumentQuery(collection="notes", filters=[Condition("n", "<", below)])
    page = await hw.store.ask(QueryDocuments("main", query))
    return [document.id for document in page.documents], page.scanned


async def test_an_index_that_its_maker_left_unfinished_is_finished(hw: headwater.Headwater) -> None:
    notes = hw.collection("notes")
    for number in range(5):
        await notes.create({"n": number}, id=f"n{number}")
    declared = IndexDocuments(database="main", pattern="notes", field="n", limit=2)
    assert not (await hw.committer.submit(declared, Durability.WRITTEN)).result.ready
    assert await scanned(hw, 2) == (["n0", "n1"], 5)
    assert await IndexBuilder(hw.store, hw.committer, Config()).run() == 1
    assert await scanned(hw, 2) == (["n0", "n1"], 2)
    assert await IndexBuilder(hw.store, hw.committer, Config()).run() == 0


async def test_an_index_that_cannot_be_finished_is_taken_back_and_others_are_finished(
    hw: headwater.Headwater, caplog: pytest.LogCaptureFixture
) -> None:
    for tenant, value in (("acme", "x" * 1_024), ("main", 1)):
        notes = hw.database(tenant).collection("notes")
        for number in range(3):
            await notes.create({"n": number if number < 2 else value}, id=f"n{number}")
        declared = IndexDocuments(database=tenant, pattern="notes", field="n", limit=1)
        await hw.committer.submit(declared, Durability.WRITTEN)
    builder = IndexBuilder(hw.store, hw.committer, Config())
    assert await builder.run() == 1
    assert [record.getMessage() for record in caplog.records if "notes/n2 takes 1,025" in record.getMessage()]
    caplog.clear()
    assert await builder.run() == 0
    assert not caplog.records
    assert await hw.store.ask(ListDocumentIndexes("acme")) == []
    assert await scanned(hw, 1) == (["n0"], 1)
    await hw.database("acme").collection("notes").update("n2", {"read": True})


async def test_an_index_of_an_older_file_is_built_anew(path: Path, hw: headwater.Headwater) -> None:
    """Keys of numbers below zero did not compare as the numbers do."""
    notes = hw.collection("notes")
    await notes.index("n")
    for number in (-65_537, -65_536, 7):
        await notes.create({"n": number}, id=str(number))
    connection = apsw.Connection(str(path))
    older = b"\x04\x01" + (2**31 + 17).to_bytes(4, "big").translate(bytes(range(255, -1, -1)))
    for name, fraction in (("-65537", b"\x7f\xff\x7f\xff"), ("-65536", b"\x7f\xff")):
        connection.execute("UPDATE hw_document_keys SET key = ? WHERE id = ?", (older + fraction, name))
    connection.execute("UPDATE hw_meta SET value = 26 WHERE key = 'schema_version'")
    connection.close()
    async with headwater.open(str(path), housekeeping=False) as again:
        assert await scanned(again, -65_536) == (["-65537"], 3), "it is not used meanwhile"
        assert await IndexBuilder(again.store, again.committer, Config()).run() == 1
        assert await scanned(again, -65_536) == (["-65537"], 1)
        assert await scanned(again, 8) == (["-65536", "-65537", "7"], 3)
