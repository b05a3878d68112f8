"""Places of a limit go to workers that can use them: none is held by a job that only waits in a worker."""

import pytest

from headwater.log.job_operations import Capacity, NewJob, SetJobLimit
from headwater.stores.job_questions import FindJobsReady
from tests.contracts.jobs import Board, shell
from tests.contracts.log import Log

WORKERS = ("one", "two", "three", "four")
PLAIN = Capacity(5, frozenset({"tasks:call", "tasks:write"}))


@pytest.fixture
async def board(log: Log) -> Board:
    """A database with four workers that run functions one by one."""
    made = Board(log)
    for worker in WORKERS:
        await made.beat(worker)
    return made


def calls(count: int, kind: str = "tasks:call") -> list[NewJob]:
    return [NewJob(type=kind) for _ in range(count)]


async def taken(board: Board, *workers: str, capacity: Capacity = PLAIN, limit: int = 100) -> list[int]:
    """How many jobs each worker gets when it asks for many."""
    return [len(await board.claim(limit, worker, capacity=capacity)) for worker in workers]


async def ready(board: Board, worker: str, capacity: Capacity = PLAIN) -> bool:
    """Whether a claim would get something."""
    now = board.log.clock.now()
    return await board.log.store.ask(FindJobsReady("main", (), now, None, worker, capacity)) == now


async def test_workers_that_run_one_by_one_share_the_places_of_a_limit(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=3))
    await board.add(*calls(10))
    assert await taken(board, *WORKERS) == [1, 1, 1, 0]


async def test_who_has_its_share_is_not_told_of_more_and_others_are(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=3))
    await board.add(*calls(10))
    found = await board.claimed(5, "one", capacity=PLAIN)
    assert len(found.jobs) == 1
    assert found.ready_at is None or found.ready_at > board.log.clock.now()
    assert (await ready(board, "one"), await ready(board, "two")) == (False, True)
    await board.settle(*found.jobs, worker="one")
    assert await ready(board, "one")
    assert await taken(board, "one") == [1]


async def test_places_for_all_are_given_ahead(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=40))
    await board.add(*calls(100))
    assert await taken(board, *WORKERS) == [10, 10, 10, 10]


async def test_a_worker_gets_as_many_as_it_runs_at_once(board: Board) -> None:
    await board.log.run(SetJobLimit(type="shell", concurrency=8))
    await board.add(*(shell() for _ in range(20)))
    assert await taken(board, *WORKERS) == [5, 3, 0, 0]


async def test_what_has_no_limit_is_given_ahead_as_before(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=2))
    await board.add(*calls(10), *calls(10, "tasks:write"))
    assert await taken(board, "one") == [11]


async def test_the_types_behind_one_key_share_its_places_too(board: Board) -> None:
    for kind in ("tasks:call", "tasks:write"):
        jobs = [NewJob(type=kind, concurrency_key="ada", concurrency_limit=3) for _ in range(4)]
        await board.add(*jobs)
    assert await taken(board, *WORKERS) == [1, 1, 1, 0]


async def test_keys_of_a_limited_type_share_its_places_too(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=3))
    await board.add(*(NewJob(type="tasks:call", limit_key=key) for key in "abcdef"))
    assert await taken(board, *WORKERS) == [1, 1, 1, 0]


async def test_a_worker_alone_has_all_places(log: Log) -> None:
    board = Board(log)
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=3))
    await board.add(*calls(10))
    assert await taken(board, "one") == [3]
