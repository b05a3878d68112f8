"""Jobs as programs ask for them: checked, answered, waited for."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater import NewJob, outbox
from headwater.errors import Closed, HeadwaterError, InvalidInput, InvalidOption, JobMissing, TooLarge
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.job import JobOutcome, JobState
from headwater.sync import open as open_sync
from tests.contracts.clock import FakeClock
from tests.waiting import expect_soon_async


async def complete_next(hw: headwater.Headwater, result: str | None = None) -> str:
    """Complete the next job, as a worker would."""
    (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    report = JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED, result=result)
    await hw.jobs_service.run(Settle(worker="w", reports=[report]))
    return str(job.id)


async def test_a_job_is_waited_for_and_gives_its_result(hw: headwater.Headwater) -> None:
    job = await hw.jobs.add(command="true")
    waiting = asyncio.gather(*(job.result(10) for _ in range(50)))
    await asyncio.sleep(0)
    await complete_next(hw, "[1,2]")
    assert await waiting == [[1, 2]] * 50
    assert await job.wait(0.01) is JobState.COMPLETED


async def test_waiting_ends_with_its_time_or_with_the_job(hw: headwater.Headwater) -> None:
    job = await hw.jobs.add(command="true")
    with pytest.raises(TimeoutError):
        await job.wait(0.01)
    with pytest.raises(JobMissing):
        await hw.jobs.wait("nobody", 1)
    assert hw.jobs_service.waits._waiting == {}


async def test_a_job_that_another_process_completes_is_noticed(
    hw: headwater.Headwater, path: Path, clock: FakeClock
) -> None:
    job = await hw.jobs.add(command="true")
    async with headwater.open(str(path), clock=clock, housekeeping=False) as other:
        waiting = asyncio.get_running_loop().create_task(job.wait(10))
        await asyncio.sleep(0)
        await complete_next(other)
        assert await waiting is JobState.COMPLETED


async def test_who_waits_when_the_store_is_closed_is_told(path: Path) -> None:
    async with headwater.open(str(path), housekeeping=False) as hw:
        job = await hw.jobs.add(command="true")
        waiting = asyncio.get_running_loop().create_task(job.wait())

        async def is_known() -> bool:
            return bool(hw.jobs_service.waits._waiting)

        await expect_soon_async(is_known)
        await job.show()  # Questions are answered one after the other: its first look is over, too.
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(Closed):
        await hw.jobs.add(command="true")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"command": "a", "argv": ("b",)},
        {"command": "a\x00b"},
        {"command": "a", "id": "no spaces"},
        {"command": "a", "queue": "no spaces"},
        {"command": "a", "priority": 1.5},
        {"command": "a", "priority": 2**40},
        {"command": "a", "retries": -1},
        {"command": "a", "timeout": float("nan")},
        {"command": "a", "delay": -1},
        {"command": "a", "run_at": -1},
        {"command": "a", "backoff_base": 0.5},
        {"command": "a", "backoff_jitter": 11},
        {"command": "a", "depends_when": "perhaps"},
        {"command": "a", "unique_mode": "fight"},
        {"command": "a", "env": {"A=B": "c"}},
        {"command": "a", "env": {"A": 1}},
        {"command": "a", "cwd": "\x00"},
        {"command": "a", "concurrency_limit": 0},
        {"command": "a", "unknown": 1},
        {"command": "a", "depends_on": ("a b",)},
        {"argv": ("a", 1)},
    ],
)
async def test_a_job_that_may_not_be_is_refused_and_nothing_is_added(
    hw: headwater.Headwater, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await hw.jobs.add(**fields)
    assert await hw.jobs.list() == []


async def test_a_job_that_is_too_large_is_refused(hw: headwater.Headwater) -> None:
    with pytest.raises(TooLarge):
        await hw.jobs.add(command="x" * 200_000)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("cancel", ()),
        ("cancel", ("a b",)),
        ("list", {"state": "lost"}),
        ("list", {"limit": 0}),
        ("cleanup", {"older_than": -1}),
        ("cleanup", {"state": "pending"}),
        ("limit", {"type": "shell", "rate": -1}),
        ("limit", {"type": "shell", "burst": 0}),
        ("schedule", {"name": "a", "every": 0.001, "command": "true"}),
        ("configure", {"name": "max-retries", "value": "x"}),
        ("configure", {"name": "nothing", "value": None}),
        ("minutes", {"hours": -1}),
        ("pause", ("a b",)),
    ],
)
async def test_a_call_out_of_bounds_is_refused(hw: headwater.Headwater, call: str, arguments: Any) -> None:
    positional, named = (arguments, {}) if isinstance(arguments, tuple) else ((), dict(arguments))
    if call == "schedule":
        positional = (named.pop("name"),)
    with pytest.raises(HeadwaterError):
        await getattr(hw.jobs, call)(*positional, **named)


async def test_a_transaction_holds_jobs_and_messages(hw: headwater.Headwater) -> None:
    async with hw.transaction() as together:
        together.push("orders", {"id": 7})
        together.enqueue(NewJob(id="a", command="true"), NewJob(id="b", command="true"))
    assert {job.id for job in await hw.jobs.list()} == {"a", "b"}
    refused = hw.transaction()
    refused.push("orders", {"id": 8})
    with pytest.raises(InvalidOption):
        refused.enqueue(NewJob())
    assert len(await hw.queue("orders").pop(batch=10)) == 1


async def test_a_job_commits_with_the_users_own_rows_or_not_at_all(hw: headwater.Headwater, path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE mine (id INTEGER)")
    with connection:
        connection.execute("INSERT INTO mine VALUES (1)")
        (name,) = outbox.enqueue(connection, NewJob(command="true"))
    assert (await hw.jobs.show(name)).state is JobState.PENDING
    connection.execute("BEGIN")
    outbox.enqueue(connection, NewJob(id="never", command="true"))
    connection.execute("ROLLBACK")
    with pytest.raises(InvalidInput, match="begin your transaction"):
        outbox.enqueue(connection, NewJob(command="true"))
    connection.close()
    assert await complete_next(hw) == name
    with pytest.raises(JobMissing):
        await hw.jobs.show("never")
    (queue,) = await hw.jobs.queues()
    assert queue.counts == {JobState.COMPLETED: 1}


def test_the_same_verbs_without_async(tmp_path: Path) -> None:
    with open_sync(str(tmp_path / "log.db"), housekeeping=False) as hw:
        job = hw.jobs.add(command="true", id="a")
        assert (job.id, job.duplicate) == ("a", False)
        assert [made.id for made in hw.jobs.add_many([NewJob(id="b", command="true")])] == ["b"]
        assert hw.jobs.cancel("a") == ["a"]
        assert job.wait(1) is JobState.CANCELLED
        assert [found.id for found in hw.jobs.list(state="pending")] == ["b"]
        hw.jobs.configure("max-retries", 9)
        assert hw.jobs.config()["max-retries"] == 9
