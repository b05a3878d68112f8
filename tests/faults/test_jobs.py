"""Jobs while everything around them dies: workers, supervisors, clocks, and the commands themselves."""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.clock import SECOND, Timestamp
from headwater.log.job_operations import PutSchedule, Rescue
from headwater.model.job import JobOutcome, JobState
from headwater.stores.job_questions import ListSchedules, ScheduleStatus
from tests.cli.program import Program
from tests.cli.queuectl import Queuectl
from tests.contracts.clock import FakeClock
from tests.contracts.jobs import Board, shell
from tests.contracts.log import Log
from tests.faults.conftest import Rounds
from tests.faults.job_fleet import Fleet, job_name
from tests.faults.nasty_commands import MARK, NASTY
from tests.waiting import expect_soon

LONG = 60.0


@pytest.fixture
def queuectl(folder: Path) -> Queuectl:
    return Queuectl(folder)


# ── commands ──


def escaped() -> list[str]:
    """Processes of the nasty commands that are still there."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"sleep\x00") and MARK.encode() in line:
                found.append(process.name)
    return found


def test_thirty_nasty_commands_leave_nothing_behind(queuectl: Queuectl) -> None:
    assert len(NASTY) >= 30
    for name, value in (("grace", "0.2"), ("output-max", "8192")):
        queuectl.expect(0, "config", "set", name, value)
    jobs = [
        {"id": f"nasty{number}", "command": command, "timeout": 1.0, "max_retries": 0}
        for number, command in enumerate(NASTY.values())
    ]
    (queuectl.folder / "jobs.ndjson").write_text("\n".join(map(json.dumps, jobs)))
    queuectl.expect(0, "enqueue", "--file", "jobs.ndjson")
    with queuectl.workers("--count", "2", "--concurrency", "4", "--drain") as process:
        assert process.wait(LONG) == 0
    assert escaped() == []
    counts = queuectl.expect(0, "status", "--json").document()["totals"]
    assert counts["completed"] + counts["dead"] == len(NASTY)
    for job in jobs:
        shown = queuectl.expect(0, "show", str(job["id"]), "--json").document()
        assert len(shown["output"] or "") < 10_000
        assert shown["attempts"] == 1


def test_a_job_that_kills_its_worker_is_dead_after_exactly_its_attempts(queuectl: Queuectl) -> None:
    queuectl.expect(0, "config", "set", "backoff-base", "1")
    command = "echo $HEADWATER_JOB_ATTEMPT >> attempts; kill -KILL $PPID; sleep 1"
    queuectl.expect(0, "enqueue", json.dumps({"id": "poison", "command": command, "max_retries": 2}))
    with queuectl.workers("--count", "1"):
        queuectl.expect(1, "wait", "poison", "--timeout", "60s")
    assert (queuectl.folder / "attempts").read_text().split() == ["1", "2", "3"]
    assert queuectl.expect(0, "dlq", "list", "--json").document()["attempts"] == 3


# ── workers and supervisors ──


@pytest.mark.timeout(0)
def test_killed_workers_supervisors_and_servers_lose_no_job_and_end_none_twice(
    queuectl: Queuectl,
    campaign: bool,
    rounds: Rounds,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> None:
    kills = rounds(8, 2_000)
    dice = random.Random(7)
    for name, value in (("lease", "1"), ("backoff-base", "1"), ("max-retries", "50"), ("backoff-jitter", "0")):
        queuectl.expect(0, "config", "set", name, value)
    count = kills * 10
    fleet = Fleet(queuectl.folder, dice)
    try:
        feeding = fleet.feed(count)
        for number in range(kills):
            time.sleep(dice.uniform(0.05, 0.3))
            fleet.kill_one()
            if campaign and number % 100 == 99:
                with capsys.disabled():
                    print(f"{number + 1:,} kills, {fleet.effects.stat().st_size // 10:,} effects", flush=True)
        feeding.join(LONG + kills)
        expect_soon(lambda: is_settled(queuectl, count), LONG + kills)
    finally:
        fleet.end()
    assert sum(fleet.kills.values()) == kills
    names = [job_name(number) for number in range(count)]
    ended = Counter(
        change["payload"]["id"]
        for change in tail_of_jobs(queuectl)
        if change["payload"].get("state") in ("completed", "dead")
    )
    assert ended == Counter(names)
    effects = Counter(fleet.effects.read_text().split())
    completed = {
        job["id"] for job in queuectl.run("list", "--state", "completed", "--limit", "100000", "--json").documents()
    }
    assert completed <= set(effects)
    for victim, times in sorted(fleet.kills.items()):
        record_property(f"kills of a {victim}:", times)
    record_property("completed once:", f"{len(completed):,} of {count:,}")
    record_property("effects:", f"{effects.total():,}")


def is_settled(queuectl: Queuectl, count: int) -> bool:
    totals = queuectl.expect(0, "status", "--json").document()["totals"]
    return int(totals["completed"] + totals["dead"]) == count


def tail_of_jobs(queuectl: Queuectl) -> list[dict[str, dict[str, str]]]:
    """Every change of jobs that the log has."""
    ended = Program(queuectl.folder).run("tail", "headwater/jobs", "--from", "beginning", "--no-follow", "--json")
    return ended.documents()


@pytest.mark.timeout(0)
def test_a_worker_that_slept_past_its_lease_never_completes_a_job_again(
    queuectl: Queuectl, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    zombies = rounds(2, 200)
    for name, value in (("lease", "1"), ("backoff-base", "1"), ("backoff-jitter", "0"), ("max-retries", "20")):
        queuectl.expect(0, "config", "set", name, value)
    with queuectl.workers("--count", "2"):
        for round in range(zombies):
            gate = queuectl.folder / f"gate{round}"
            command = f"while [ ! -e {gate} ]; do sleep 0.02; done"
            queuectl.expect(0, "enqueue", json.dumps({"id": f"job{round}", "command": command}))
            expect_soon(lambda name=f"job{round}": bool(holder(queuectl, name)), LONG)  # type: ignore[misc]
            asleep = holder(queuectl, f"job{round}")
            os.kill(asleep, signal.SIGSTOP)
            expect_soon(lambda name=f"job{round}", old=asleep: holder(queuectl, name) not in (0, old), LONG)  # type: ignore[misc]
            gate.touch()
            os.kill(asleep, signal.SIGCONT)
            queuectl.expect(0, "wait", f"job{round}", "--timeout", "60s")
            shown = queuectl.expect(0, "show", f"job{round}", "--json").document()
            outcomes = [attempt["outcome"] for attempt in shown["attempt_list"]]
            assert outcomes.count("completed") == 1
            assert outcomes[-1] == "completed"
    record_property("zombies", zombies)


def holder(queuectl: Queuectl, name: str) -> int:
    """The process of the worker that holds a job, 0 for none."""
    worker = queuectl.expect(0, "show", name, "--json").document()["worker"]
    found = [one["pid"] for one in queuectl.run("worker", "list", "--json").documents() if one["id"] == worker]
    return int(found[0]) if found else 0


# ── clocks ──


@pytest.fixture
async def board(folder: Path) -> "Board":
    from headwater.config import load_config
    from headwater.stores.open import open_store

    clock = FakeClock()
    store = open_store(str(folder / "log.db"), load_config({}), clock)
    await store.open()
    return Board(Log(store, clock))


@pytest.mark.parametrize("jump", [3_600, -3_600, 10 * 365 * 86_400, -10 * 365 * 86_400])
async def test_a_clock_that_is_set_takes_no_job_from_a_worker_that_is_well(board: Board, jump: float) -> None:
    """Forward or back: what runs goes on, is completed by the worker that has it, and is not started again."""
    await board.add("held")
    held = await board.take(lease_seconds=30)
    board.log.clock.set_by(jump)
    await board.log.run(Rescue())
    assert await board.claim(10, worker="other") == []
    assert (await board.beat(lease_seconds=30)).alive
    assert await board.settle(held) == [JobState.COMPLETED]
    assert (await board.job("held")).attempts == 1
    await board.log.store.close()


@pytest.mark.parametrize("jump", [3_600, -3_600, 10 * 365 * 86_400, -10 * 365 * 86_400])
async def test_a_lost_worker_is_noticed_by_the_time_that_passed_however_the_clock_is_set(
    board: Board, jump: float
) -> None:
    await board.add("held")
    await board.take(lease_seconds=30)
    board.log.clock.set_by(jump)
    await board.log.run(Rescue())
    board.log.clock.advance(31)
    await board.log.run(Rescue())
    assert await board.state("held") is JobState.FAILED
    await board.log.store.close()


@pytest.mark.parametrize("jump", [3_600, -3_600, 10 * 365 * 86_400, -10 * 365 * 86_400])
async def test_a_clock_that_jumps_loses_no_job_and_completes_none_twice(board: Board, jump: float) -> None:
    await board.add("held", "waits", shell("later", delay=60))
    held = await board.take(lease_seconds=30)
    board.log.clock.advance(jump)
    alive = (await board.beat(lease_seconds=30)).alive
    assert alive == (jump < 0)
    assert await board.settle(held) == [JobState.COMPLETED if alive else None]
    for _ in range(10):
        board.log.clock.advance(3_600)
        await board.log.run(Rescue())
        jobs = await board.claim(10)
        assert await board.settle(*jobs) == [JobState.COMPLETED] * len(jobs)
    names = ("held", "waits", "later")
    assert [await board.state(name) for name in names] == [JobState.COMPLETED] * 3
    await board.log.store.close()


async def test_nothing_waits_for_a_time_that_only_a_wrong_clock_had(board: Board) -> None:
    """A retry, a limit and a schedule that were counted while the clock was ten years ahead come when it is right."""
    years = 10 * 365 * 86_400
    await board.log.run(PutSchedule(name="hourly", every_seconds=3_600, job=shell()))
    board.log.clock.advance(years)
    await board.add(shell("fails", retries=5))
    await board.fail(await board.take())
    board.log.clock.advance(-years)
    (schedule,) = await schedules_after_a_commit(board)
    assert schedule.next_at is not None
    assert schedule.next_at <= board.log.clock.now() + 3_600 * SECOND
    board.log.clock.advance(3_600)
    assert "fails" in await board.names()
    await board.log.store.close()


async def test_a_time_that_was_given_stays_when_the_clock_is_set_and_a_delay_moves_with_it(board: Board) -> None:
    """Enqueued while the clock was an hour ahead: for a time of day, for ten minutes later, and one that snoozes."""
    hour = 3_600
    board.log.clock.advance(hour)
    now = board.log.clock.now()
    await board.add(shell("snoozed", run_at=now))
    await board.settle(await board.take(), outcome=JobOutcome.SNOOZED, after_seconds=600)
    await board.add(shell("given", run_at=Timestamp(now + 600 * SECOND)), shell("delayed", delay=600))
    board.log.clock.advance(-hour)
    await board.beat()
    left = {name: (await board.job(name)).run_at - board.log.clock.now() for name in ("given", "delayed", "snoozed")}
    ten_minutes = 600 * SECOND
    assert left == {"given": ten_minutes + hour * SECOND, "delayed": ten_minutes, "snoozed": ten_minutes}
    await board.log.store.close()


async def schedules_after_a_commit(board: Board) -> list[ScheduleStatus]:
    await board.beat()
    return await board.log.store.ask(ListSchedules("main"))
