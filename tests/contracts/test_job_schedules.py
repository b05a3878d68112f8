"""A schedule that is declared again, as a program does whenever it starts, goes on as it was."""

import pytest

from headwater.clock import SECOND
from headwater.log.job_operations import ChangeSchedule, PutSchedule
from headwater.stores.job_questions import ListSchedules, ScheduleStatus
from tests.contracts.jobs import Board, shell
from tests.contracts.log import Log

HOURLY = PutSchedule(name="often", every_seconds=3_600, job=shell())
NIGHTLY = PutSchedule(name="often", cron="0 3 * * *", timezone="Europe/Berlin", job=shell())
RULES = pytest.mark.parametrize("rule", [HOURLY, NIGHTLY], ids=["every", "cron"])


@pytest.fixture
def board(log: Log) -> Board:
    return Board(log)


async def known(board: Board) -> ScheduleStatus:
    (schedule,) = await board.log.store.ask(ListSchedules("main"))
    return schedule


@RULES
async def test_a_schedule_that_is_declared_again_keeps_its_next_time(board: Board, rule: PutSchedule) -> None:
    first = await board.log.run(rule)
    for _ in range(3):
        board.log.clock.advance(600)
        assert await board.log.run(rule) == first
    board.log.clock.advance((first.next_at - board.log.clock.now()) / SECOND)
    assert len(await board.claim()) == 1


@RULES
async def test_a_schedule_that_is_declared_again_stays_paused(board: Board, rule: PutSchedule) -> None:
    await board.log.run(rule)
    await board.log.run(ChangeSchedule(name="often", paused=True))
    other = PutSchedule(name="often", every_seconds=7, job=shell(priority=3))
    for declared in (rule, other, rule):
        assert (await board.log.run(declared)).next_at is None
        board.log.clock.advance(2 * 86_400)
        assert await board.claim() == []
        assert (await known(board)).paused
    resumed = await board.log.run(ChangeSchedule(name="often", paused=False))
    assert resumed.next_at > board.log.clock.now()


async def test_another_job_in_a_schedule_leaves_its_times_alone(board: Board) -> None:
    first = await board.log.run(HOURLY)
    board.log.clock.advance(600)
    changed = PutSchedule(name="often", every_seconds=3_600, job=shell(priority=7))
    assert await board.log.run(changed) == first
    assert (await known(board)).job.priority == 7


async def test_other_times_count_from_now_on_and_go_on_evenly(board: Board) -> None:
    await board.log.run(HOURLY)
    board.log.clock.advance(90)
    scheduled = await board.log.run(PutSchedule(name="often", every_seconds=60, job=shell()))
    assert scheduled.next_at == board.log.clock.now() + 30 * SECOND
    board.log.clock.advance(30)
    assert len(await board.claim()) == 1
    assert (await known(board)).next_at == board.log.clock.now() + 60 * SECOND
