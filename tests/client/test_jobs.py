"""Jobs over HTTP with the verbs of an open store: one suite for both interfaces, and what only a server refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.sync
from headwater import NewJob
from headwater.app import make_router
from headwater.client.client import Client
from headwater.doors.access.guard import guarded
from headwater.doors.access.settings import load_access
from headwater.doors.edge.server import Edge
from headwater.errors import (
    HeadwaterError,
    InvalidInput,
    InvalidOption,
    JobExists,
    JobMissing,
    JobUnfit,
    JobUnsuccessful,
    NotAllowed,
)
from headwater.log.job_operations import Claim, Heartbeat, JobReport, Settle, WorkerAbout
from headwater.model.command_template import CommandTemplate, Parameter
from headwater.model.job import JobOutcome, JobState
from tests.client.conftest import INTERFACES, Interface
from tests.client.proxy import CutAnswers, Proxy

RESIZE = CommandTemplate(
    argv=("/usr/bin/resize", "--width={width}"), parameters={"width": Parameter(type="integer")}, env={"MODE": "quick"}
)
CALL = NewJob(type="shop:mail", arguments=headwater.Raw(b'[[1],{"to":"ada"}]'))


@pytest.fixture
async def hw(tmp_path: Path) -> AsyncIterator[headwater.Headwater]:
    async with headwater.open(str(tmp_path / "headwater.db"), housekeeping=False) as opened:
        yield opened


@pytest.fixture
async def url(hw: headwater.Headwater) -> AsyncIterator[str]:
    router = make_router(hw)
    router.site.commands = {"resize": RESIZE}
    edge = Edge(guarded(router, load_access(auth="token"), hw.store, hw.tail, hw.clock))
    await edge.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{edge.port}"
    edge.abort()
    await edge.stop()


async def connected(hw: headwater.Headwater, url: str, *scopes: str, **about: Any) -> Client:
    _, token = await hw.access_tokens().create("ada", scopes, **about)
    return headwater.connect(url, token=token)


@pytest.fixture(params=INTERFACES)
async def interface(request: pytest.FixtureRequest, hw: headwater.Headwater, url: str) -> AsyncIterator[Interface]:
    """The store itself, and a client that may do everything."""
    if request.param == "embedded":
        yield hw
        return
    async with await connected(hw, url, "admin", "jobs:submit") as client:
        yield client


async def finish_next(hw: headwater.Headwater, outcome: JobOutcome = JobOutcome.COMPLETED, **about: Any) -> None:
    """Do with the next job what a worker would."""
    await hw.jobs_service.run(Heartbeat(worker="w", about=WorkerAbout(host="here", pid=1)))
    (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    report = JobReport(number=job.number, token=job.token, outcome=outcome, **about)
    await hw.jobs_service.run(Settle(worker="w", reports=[report]))


# ── the same on both ──


async def test_a_job_is_added_seen_waited_for_and_gives_its_result(
    hw: headwater.Headwater, interface: Interface
) -> None:
    handle = await interface.jobs.add(CALL, id="a", priority=7, timeout=60.0, batch="mails")
    assert (handle.id, handle.duplicate) == ("a", False)
    assert await interface.jobs.show("a") == await hw.jobs.show("a")
    waiting = asyncio.ensure_future(handle.result(10))
    await finish_next(hw, result='{"sent":true}')
    assert await waiting == {"sent": True}
    assert await handle.wait(0.01) is JobState.COMPLETED
    assert (await handle.show()).state is JobState.COMPLETED


async def test_a_wait_ends_with_its_time_or_says_that_there_is_no_such_job(interface: Interface) -> None:
    handle = await interface.jobs.add(CALL)
    with pytest.raises(TimeoutError):
        await handle.wait(0.01)
    for verb in (interface.jobs.wait, interface.jobs.show):
        with pytest.raises(JobMissing):
            await verb("nobody")


async def test_what_is_asked_about_jobs_is_answered_alike(hw: headwater.Headwater, interface: Interface) -> None:
    await interface.jobs.add_batch([NewJob(type="shop:a"), NewJob(type="shop:b")], batch="both", callback=CALL)
    await finish_next(hw, JobOutcome.FAILED, error="broken", output="out", exit_code=3)
    await interface.jobs.limit("shop:a", rate=5.0, per=60.0, burst=2, concurrency=3)
    await interface.jobs.configure("max-retries", 9)
    await interface.jobs.configure("timeout", 60.0, queue="default")
    await interface.jobs.schedule("nightly", CALL, cron="0 3 * * *", timezone="Europe/Berlin")
    for verb, arguments in {
        "list": (),
        "queues": (),
        "minutes": (),
        "limits": (),
        "config": ("default",),
        "schedules": (),
        "workers": (),
        "attempts": ("both.0",),
        "dependencies": ("both.callback",),
    }.items():
        found = await getattr(interface.jobs, verb)(*arguments)
        assert found, verb
        assert found == await getattr(hw.jobs, verb)(*arguments), verb
    assert [job.id for job in await interface.jobs.list(state="waiting")] == ["both.callback"]
    assert await interface.jobs.list(queue="other") == []


async def test_jobs_are_cancelled_armed_again_dropped_and_cleaned_up(
    hw: headwater.Headwater, interface: Interface
) -> None:
    for name in "abc":
        await interface.jobs.add(CALL, id=name, retries=0)
    assert await interface.jobs.cancel("b", "c") == ["b", "c"]
    assert await interface.jobs.retry("b") == ["b"]
    assert await interface.jobs.drop("c") == ["c"]
    for _ in range(2):
        await finish_next(hw, JobOutcome.FAILED, error="broken")
    assert {job.id for job in await interface.jobs.list(state="dead")} == {"a", "b"}
    with pytest.raises(JobUnsuccessful):
        await interface.jobs.result("a", 1)
    assert set(await interface.jobs.retry_dead()) == {"a", "b"}
    for _ in range(2):
        await finish_next(hw)
    assert await interface.jobs.cleanup(queue="default") == 2
    assert await interface.jobs.list() == []


async def test_jobs_that_others_depend_on_are_kept(hw: headwater.Headwater, interface: Interface) -> None:
    await interface.jobs.add(CALL, id="parent")
    await finish_next(hw)
    await interface.jobs.add(CALL, id="child", depends_on=("parent",), delay=60)
    found = await interface.jobs.drop_old()
    assert (found.dropped, found.kept) == (0, 1)
    with pytest.raises(JobUnfit, match="job child depends on it"):
        await interface.jobs.drop("parent")
    assert await interface.jobs.drop("parent", skip_unfit=True) == []
    assert await interface.jobs.cleanup() == 0
    await interface.jobs.cancel("child")
    assert await interface.jobs.cleanup() == 1
    with pytest.raises(JobUnfit, match="a job that it depends on was dropped"):
        await interface.jobs.retry("child")
    assert [job.id for job in await interface.jobs.list()] == ["child"]


async def test_queues_rest_schedules_rest_and_workers_are_asked_to_stop(
    hw: headwater.Headwater, interface: Interface
) -> None:
    await interface.jobs.add(CALL)
    await interface.jobs.pause()
    assert [queue.paused for queue in await hw.jobs.queues()] == [True]
    await interface.jobs.resume()
    assert [queue.paused for queue in await hw.jobs.queues()] == [False]
    assert await interface.jobs.schedule("often", CALL, every=60) == (await hw.jobs.schedules())[0].next_at
    await interface.jobs.pause_schedule("often")
    assert await interface.jobs.schedule("often", CALL, every=60) is None
    assert [schedule.paused for schedule in await hw.jobs.schedules()] == [True]
    await interface.jobs.resume_schedule("often")
    await interface.jobs.unschedule("often")
    assert await hw.jobs.schedules() == []
    await finish_next(hw)
    assert await interface.jobs.stop_workers() == ["w"]


async def test_a_transaction_holds_jobs_and_messages_together(hw: headwater.Headwater, interface: Interface) -> None:
    async with interface.transaction() as together:
        together.push("orders", {"id": 7})
        together.enqueue(NewJob(id="a", type="shop:mail"))
    assert [job.id for job in await hw.jobs.list()] == ["a"]
    refused = interface.transaction()
    refused.push("orders", {"id": 8})
    refused.enqueue(NewJob(id="a", type="shop:mail"))
    with pytest.raises(JobExists):
        await refused.commit()
    assert len(await hw.queue("orders").pop(batch=10)) == 1


@pytest.mark.parametrize(
    ("verb", "arguments", "named", "error"),
    [
        ("add", (), {"type": "no such name!"}, HeadwaterError),
        ("add", (), {"type": "a:b", "priority": 10**9}, InvalidOption),
        ("cancel", ("nobody",), {}, JobMissing),
        ("cancel", (), {}, InvalidOption),
        ("retry", ("running",), {}, JobUnfit),
        ("list", (), {"state": "nonsense"}, InvalidOption),
        ("limit", ("a:b",), {"rate": -1.0}, InvalidOption),
        ("configure", ("nonsense", 1), {}, HeadwaterError),
        ("schedule", ("s", CALL), {"cron": "no cron"}, HeadwaterError),
        ("pause_schedule", ("nobody",), {}, JobMissing),
    ],
)
async def test_the_same_mistakes_get_the_same_errors(
    interface: Interface, verb: str, arguments: tuple[Any, ...], named: dict[str, Any], error: type[HeadwaterError]
) -> None:
    await interface.jobs.add(CALL, id="running")
    with pytest.raises(error):
        await getattr(interface.jobs, verb)(*arguments, **named)
    assert [job.id for job in await interface.jobs.list()] == ["running"]


# ── only on a server ──


async def test_commands_come_over_http_in_no_way(hw: headwater.Headwater, url: str) -> None:
    shell = NewJob(command="touch /tmp/never")
    async with await connected(hw, url, "admin", "jobs:submit") as client:
        for job in (
            shell,
            NewJob(argv=("touch", "x")),
            NewJob(type="a:b", env={"A": "b"}),
            NewJob(type="a:b", cwd="/"),
        ):
            with pytest.raises((NotAllowed, InvalidOption), match="commands"):
                await client.jobs.add(job)
        with pytest.raises(NotAllowed, match="commands"):
            await client.jobs.schedule("often", shell, every=60)
        together = client.transaction()
        together.enqueue(shell)
        with pytest.raises(NotAllowed, match="commands"):
            await together.commit()
    assert await hw.jobs.list() == []
    assert await hw.jobs.schedules() == []


async def test_a_command_that_the_operator_allows_by_name_comes_with_its_values(
    hw: headwater.Headwater, url: str
) -> None:
    async with await connected(hw, url, "jobs:submit") as client:
        await client.jobs.add(id="a", type="command:resize", arguments=headwater.Raw(b'[[],{"width":80}]'))
        for wrong in (b'[[],{"width":"80; reboot"}]', b"[[80],{}]", b'{"width":80}'):
            with pytest.raises(InvalidInput):
                await client.jobs.add(type="command:resize", arguments=headwater.Raw(wrong))
        with pytest.raises(NotAllowed, match="operator"):
            await client.jobs.add(type="command:reboot")
    (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
    assert (job.type, job.work.argv, job.work.env) == (
        "command:resize",
        ("/usr/bin/resize", "--width=80"),
        {"MODE": "quick"},
    )


async def test_who_may_not_submit_adds_nothing_and_who_may_only_submit_changes_nothing(
    hw: headwater.Headwater, url: str
) -> None:
    async with await connected(hw, url, "admin", "publish", "consume") as admin:
        together = admin.transaction()
        together.enqueue(CALL)
        for verb in (lambda: admin.jobs.add(CALL), together.commit):
            with pytest.raises(NotAllowed, match="jobs:submit"):
                await verb()
    async with await connected(hw, url, "jobs:submit") as submitter:
        await submitter.jobs.add(CALL, id="a")
        assert (await submitter.jobs.show("a")).id == "a"
        for change in (lambda: submitter.jobs.cancel("a"), submitter.jobs.list, submitter.jobs.pause):
            with pytest.raises(NotAllowed, match="admin"):
                await change()


async def test_jobs_of_other_queues_and_other_databases_are_not_there(hw: headwater.Headwater, url: str) -> None:
    await hw.jobs.add(CALL, id="secret", queue="payroll")
    await hw.database("other").jobs.add(CALL, id="foreign", queue="mail")
    async with await connected(hw, url, "admin", "jobs:submit", queues=["mail*"]) as client:
        await client.jobs.add(CALL, id="own", queue="mail.eu")
        assert [job.id for job in await client.jobs.list()] == ["own"]
        for name in ("secret", "foreign"):
            for look in (client.jobs.show, client.jobs.cancel, client.jobs.attempts):
                with pytest.raises(JobMissing):
                    await look(name)
        for verb in (client.jobs.retry_dead, client.jobs.workers, client.jobs.cleanup):
            with pytest.raises(NotAllowed):
                await verb()
        with pytest.raises(HeadwaterError):
            await client.jobs.add(CALL, queue="payroll")
    assert (await hw.jobs.show("secret")).state is JobState.PENDING


async def test_the_environment_of_a_job_is_not_shown(hw: headwater.Headwater, url: str) -> None:
    await hw.jobs.add(id="a", command="true", env={"PASSWORD": "canary"})
    await hw.jobs.schedule("s", command="true", env={"PASSWORD": "canary"}, every=60)
    async with await connected(hw, url, "admin") as client:
        shown = [await client.jobs.show("a"), *await client.jobs.list(), *await client.jobs.schedules()]
    assert "canary" not in repr(shown)


async def test_an_answer_that_is_lost_adds_no_job_twice(hw: headwater.Headwater, url: str) -> None:
    _, token = await hw.access_tokens().create("ada", ["jobs:submit"])
    async with Proxy(int(url.rpartition(":")[2])) as proxy, headwater.connect(proxy.url, token=token) as client:
        proxy.fault = CutAnswers(1)
        await client.jobs.add(CALL)
    assert len(await hw.jobs.list()) == 1


async def test_the_same_without_async(hw: headwater.Headwater, url: str) -> None:
    _, token = await hw.access_tokens().create("ada", ["admin", "jobs:submit"])

    def work() -> list[str]:
        with headwater.sync.connect(url, token=token) as client:
            client.jobs.add(CALL, id="a")
            client.jobs.cancel("a")
            assert client.jobs.wait("a", 5) is JobState.CANCELLED
            return [job.id for job in client.jobs.list()]

    assert await asyncio.to_thread(work) == ["a"]
