"""Whoever sleeps until a time of day, when somebody sets the clock: none oversleeps, none is taken for gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.clock import Timestamp
from headwater.model.job import JobState
from headwater.model.record import Record
from headwater.model.room import CONNECTED, Came, Member
from headwater.stores.questions import FindLastLsn
from tests.contracts.clock import RunningClock
from tests.loop_clock import LoopJumps, let_time_jump
from tests.waiting import expect_soon_async
from tests.worker.bench import Bench

HOUR = 3_600
YEARS_10 = 3_650 * 86_400
JUMPS = (HOUR, -HOUR, YEARS_10, -YEARS_10)
SOON = 3_000


class Time:
    """Both clocks of a process: the one that is set, and the one that only goes on."""

    def __init__(self, clock: RunningClock, loop: LoopJumps) -> None:
        self.clock = clock
        self._loop = loop

    def passes(self, seconds: float) -> None:
        """As it does."""
        self.clock.advance(seconds)
        self._loop.jump(seconds)

    async def comes(self, jump: float, what: Callable[[], Awaitable[bool]]) -> None:
        """What is due in `SOON` seconds comes when somebody sets the clock: at once when it is set behind that time,
        otherwise when so much time has passed, not when the clock shows the old time again."""
        self.clock.set_by(jump)
        if jump < 0:
            # Whoever looks at the clock gets the time to do so.
            self.passes(1)
            await asyncio.sleep(0.05)
            assert not await what()
            self.passes(SOON)
        else:
            self.passes(1)
        await expect_soon_async(what)


@pytest.fixture
async def time() -> Time:
    return Time(RunningClock(), let_time_jump())


@pytest.fixture
async def hw(folder: Path, time: Time) -> AsyncIterator[headwater.Headwater]:
    path = str(folder / "log.db")
    async with headwater.open(path, clock=time.clock, housekeeping=False, wait_seconds_max=2 * HOUR) as opened:
        yield opened


async def asleep(hw: headwater.Headwater, turns: int = 20) -> None:
    """Let those who have just begun find that there is nothing to do yet."""
    for _ in range(turns):
        await hw.store.ask(FindLastLsn())
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_worker_runs_a_job_that_waits_when_it_is_due(
    hw: headwater.Headwater, folder: Path, time: Time, jump: float
) -> None:
    await hw.jobs.add(id="later", command="true", delay=SOON)

    async def ran() -> bool:
        return (await hw.jobs.show("later")).state is JobState.COMPLETED

    async with Bench(hw, folder).running(app=""):
        await asleep(hw)
        await time.comes(jump, ran)
        assert await ran()


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_worker_tries_again_when_a_retry_is_due(
    hw: headwater.Headwater, folder: Path, time: Time, jump: float
) -> None:
    command = f"test -e {folder}/once || {{ touch {folder}/once; exit 1; }}"
    await hw.jobs.add(id="again", command=command, retries=3, backoff_base=SOON / 3)

    async def ran() -> bool:
        return (await hw.jobs.show("again")).state is JobState.COMPLETED

    async def failed() -> bool:
        return (await hw.jobs.show("again")).state is JobState.FAILED

    async with Bench(hw, folder).running(app=""):
        await expect_soon_async(failed)
        await asleep(hw)
        await time.comes(jump, ran)
        assert await ran()


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_worker_runs_what_a_schedule_is_due_for(
    hw: headwater.Headwater, folder: Path, time: Time, jump: float
) -> None:
    await hw.jobs.schedule("often", every=SOON, command="true")

    async def ran() -> bool:
        return any(job.state is JobState.COMPLETED for job in await hw.jobs.list())

    async with Bench(hw, folder).running(app=""):
        await asleep(hw)
        await time.comes(jump, ran)
        assert await ran()


async def wait_on(hw: headwater.Headwater, time: Time, jump: float) -> list[Any]:
    """A pop that waits gets what is due."""
    waiting = asyncio.ensure_future(hw.queue("orders").pop(wait=2 * HOUR))

    async def came() -> bool:
        return waiting.done()

    await asleep(hw)
    await time.comes(jump, came)
    return [message.payload for message in await waiting]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_pop_that_waits_gets_a_message_for_later_when_it_is_due(
    hw: headwater.Headwater, time: Time, jump: float
) -> None:
    await hw.queue("orders").push("here", delay=SOON)
    assert await wait_on(hw, time, jump) == ["here"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_pop_that_waits_gets_a_failed_message_when_it_comes_again(
    hw: headwater.Headwater, time: Time, jump: float
) -> None:
    queue = hw.queue("orders")
    await queue.configure(retry_delay_seconds=SOON)
    await queue.push("here")
    await queue.fail(await queue.pop(), error="once")
    assert await wait_on(hw, time, jump) == ["here"]


@pytest.mark.parametrize("jump", [-HOUR, -YEARS_10])
async def test_a_pop_that_waits_gets_what_a_lost_consumer_held_when_its_lease_ends(
    hw: headwater.Headwater, time: Time, jump: float
) -> None:
    await hw.queue("orders").push("here")
    assert await hw.queue("orders").pop(lease_seconds=SOON)
    assert await wait_on(hw, time, jump) == ["here"]


@pytest.mark.parametrize("jump", JUMPS)
async def test_who_is_in_a_room_stays_there_when_the_clock_is_set_and_leaves_in_time(
    hw: headwater.Headwater, time: Time, jump: float
) -> None:
    """Another server told of a member, and falls silent: half a minute later that member has left, and not sooner."""
    rooms = hw.rooms_service
    live = await rooms.enter("main", "a")
    told: list[Any] = []
    live.listeners.append(told.extend)
    came = Record(msgspec.Raw(msgspec.json.encode(Came("elsewhere", "ann"))), type=CONNECTED)
    live.tell_presence(live.attendance.take(came, hw.clock.now()))
    told.clear()
    time.clock.set_by(jump)
    hw.sentinel.look()
    rooms.say_who_is_here()
    assert told == []
    assert live.attendance.members() == [Member("ann")]
    time.passes(31)
    rooms.say_who_is_here()
    assert [event.state for event in told] == ["left"]
    rooms.leave(live)


@pytest.mark.parametrize("ahead", [HOUR, YEARS_10])
async def test_a_member_that_came_while_the_clock_was_ahead_is_no_ghost(ahead: float) -> None:
    from headwater.model.room import Attendance

    attendance = Attendance()
    came = Record(msgspec.Raw(msgspec.json.encode(Came("elsewhere", "ann"))), type=CONNECTED)
    attendance.take(came, Timestamp(int(ahead * 1_000_000)))
    attendance.expire(Timestamp(0))
    assert attendance.members() == []
