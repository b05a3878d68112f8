"""Jobs through a store: added, claimed, settled, tried again, taken back, and told to the log."""

import asyncio

import msgspec
import pytest

from headwater.clock import SECOND, Timestamp
from headwater.errors import JobExists, JobMissing, JobUnfit
from headwater.log.job_operations import (
    CancelJobs,
    Depart,
    DropJobs,
    Enqueue,
    Heartbeat,
    JobReport,
    Note,
    PauseJobs,
    Prune,
    Rescue,
    RetryJobs,
    SetJobConfig,
    Settle,
    StopWorkers,
)
from headwater.log.operations import Transaction
from headwater.model.job import JOBS_QUEUE, JobOutcome, JobState
from headwater.stores.job_questions import (
    FindJob,
    FindJobsReady,
    JobFilter,
    ListJobAttempts,
    ListJobMinutes,
    ListJobs,
    ListWorkers,
)
from tests.contracts.conftest import OpenLog
from tests.contracts.jobs import Board, shell
from tests.contracts.log import LSN_MAX, Log, payloads, push


@pytest.fixture
def board(log: Log) -> Board:
    return Board(log)


# ── order ──


async def test_jobs_come_in_the_order_in_which_they_were_added(board: Board) -> None:
    await board.add("a", "b")
    await board.add("c")
    assert await board.names() == ["a", "b", "c"]


async def test_a_higher_priority_comes_first_in_every_queue(board: Board) -> None:
    await board.add("a", shell("b", priority=5), shell("c", queue="mail", priority=9), shell("d", priority=-1))
    assert await board.names() == ["c", "b", "a", "d"]


async def test_a_claim_takes_only_jobs_of_the_queues_that_it_names(board: Board) -> None:
    await board.add("a", shell("b", queue="mail"), shell("c", queue="print"))
    assert await board.names(queues=("mail", "print", "unknown")) == ["b", "c"]


async def test_a_claim_takes_no_more_than_it_asked_for(board: Board) -> None:
    await board.add(*(f"job{number}" for number in range(5)))
    assert len(await board.claim(2)) == 2
    assert len(await board.claim(10)) == 3
    assert await board.claim(10) == []


async def test_jobs_without_an_id_get_ids_that_differ(board: Board) -> None:
    ids = await board.add(*(shell() for _ in range(1_000)))
    assert len(set(ids)) == 1_000
    assert sorted(ids) == ids


# ── adding ──


async def test_an_id_is_given_once_and_nothing_of_a_refused_operation_stays(board: Board) -> None:
    await board.add("a")
    with pytest.raises(JobExists):
        await board.add("b", "a")
    with pytest.raises(JobExists):
        await board.add("c", "c")
    assert await board.names() == ["a"]


async def test_a_job_with_a_later_time_waits_for_it(board: Board) -> None:
    await board.add(shell("later", delay=10), shell("at", run_at=board.log.clock.now() + 5 * SECOND))
    assert await board.state("later") is JobState.SCHEDULED
    claimed = await board.claimed(10)
    assert claimed.jobs == []
    assert claimed.ready_at == board.log.clock.now() + 5 * SECOND
    board.log.clock.advance(5)
    assert await board.names() == ["at"]
    board.log.clock.advance(5)
    assert await board.names() == ["later"]


async def test_jobs_and_pushes_of_one_transaction_happen_together_or_not_at_all(board: Board) -> None:
    log = board.log
    await board.add("taken")
    both = Transaction(operations=(Enqueue(jobs=[shell("a")]), push("message")))
    await log.run(both)
    with pytest.raises(JobExists):
        await log.run(
            Transaction(operations=(push("lost"), Enqueue(jobs=[shell("b")]), Enqueue(jobs=[shell("taken")])))
        )
    assert await board.names() == ["taken", "a"]
    assert await log.drain() == ["message"]
    assert await board.counts() == {"processing": 2}
    news = await changes(log)
    assert "b" not in {change["id"] for change in news}


async def test_the_same_idempotency_key_adds_jobs_once(board: Board) -> None:
    operation = Enqueue(key="k1", jobs=[shell(), shell()])
    first = await board.log.run(operation)
    assert await board.log.run(operation) == first
    assert len(await board.claim(10)) == 2


# ── settling ──


async def test_a_completed_job_keeps_its_result_until_its_time_is_over(board: Board) -> None:
    await board.add(shell("a", result_ttl=60))
    job = await board.take()
    assert await board.settle(job, result='{"n":1}') == [JobState.COMPLETED]
    kept = await board.job("a")
    assert kept.result is not None
    assert msgspec.json.decode(kept.result) == {"n": 1}
    board.log.clock.advance(60)
    await board.log.run(Prune())
    assert (await board.job("a")).result is None


async def test_a_result_without_a_time_is_kept_with_its_job(board: Board) -> None:
    await board.add(shell("a", result_ttl=0))
    await board.settle(await board.take(), result='"kept"')
    board.log.clock.advance(3_600)
    await board.log.run(Prune())
    assert (await board.job("a")).result is not None


async def test_a_failed_job_comes_again_after_its_back_off_and_dies_after_its_last_attempt(board: Board) -> None:
    await board.add(shell("a", retries=2, backoff_base=3, backoff_jitter=0))
    for wait, expected in ((3, JobState.FAILED), (9, JobState.FAILED), (0, JobState.DEAD)):
        job = await board.take()
        assert await board.fail(job, "broken") is expected
        assert await board.claim() == []
        board.log.clock.advance(wait)
    dead = await board.job("a")
    assert (dead.attempts, dead.error) == (3, "broken")
    attempts = await board.log.store.ask(ListJobAttempts("main", "a"))
    assert [(attempt.attempt, attempt.outcome) for attempt in attempts] == [(1, "failed"), (2, "failed"), (3, "failed")]


async def test_a_report_with_an_old_token_or_from_another_worker_changes_nothing(board: Board) -> None:
    await board.add("a")
    job = await board.take()
    assert await board.settle(job, worker="somebody-else") == [None]
    await board.settle(job, outcome=JobOutcome.RELEASED)
    again = await board.take()
    assert again.token > job.token
    assert await board.settle(job) == [None]
    assert await board.state("a") is JobState.PROCESSING
    assert await board.settle(again, again) == [JobState.COMPLETED, None]


async def test_a_released_job_has_lost_no_attempt(board: Board) -> None:
    await board.add(shell("a", retries=0))
    for _ in range(3):
        job = await board.take()
        assert job.attempt == 1
        assert await board.settle(job, outcome=JobOutcome.RELEASED) == [JobState.PENDING]


async def test_many_jobs_are_settled_with_one_operation_each_in_its_own_way(board: Board) -> None:
    await board.add(*(f"job{number}" for number in range(4)))
    jobs = await board.claim(4)
    outcomes = [JobOutcome.COMPLETED, JobOutcome.FAILED, JobOutcome.BURIED, JobOutcome.CANCELLED]
    reports = [
        JobReport(number=job.number, token=job.token, outcome=outcome)
        for job, outcome in zip(jobs, outcomes, strict=True)
    ]
    settled = await board.log.run(Settle(worker="worker-1", reports=reports))
    assert settled.states == ["completed", "failed", "dead", "cancelled"]
    assert await board.counts() == {"completed": 1, "failed": 1, "dead": 1, "cancelled": 1}


# ── workers and leases ──


async def test_a_silent_workers_jobs_come_back_and_count_as_an_attempt(board: Board) -> None:
    await board.add(shell("a", retries=1, backoff_base=1, backoff_jitter=0))
    lost = await board.take("lost", lease_seconds=30)
    board.log.clock.advance(30)
    assert await board.claim(worker="next") == []
    assert await board.state("a") is JobState.FAILED
    assert await board.settle(lost, worker="lost") == [None]
    board.log.clock.advance(1)
    again = await board.take("next")
    assert again.attempt == 2
    assert "lease" in again.previous_error


async def test_a_heartbeat_keeps_everything_that_a_worker_holds(board: Board) -> None:
    await board.add("a", "b")
    jobs = await board.claim(2, lease_seconds=30)
    for _ in range(5):
        board.log.clock.advance(20)
        assert (await board.beat(lease_seconds=30)).alive
    assert await board.claim(worker="other") == []
    assert await board.settle(*jobs) == [JobState.COMPLETED] * 2


async def test_a_worker_that_was_away_too_long_is_told_so(board: Board) -> None:
    await board.add("a")
    await board.take(lease_seconds=30)
    board.log.clock.advance(31)
    assert not (await board.beat(lease_seconds=30)).alive


async def test_a_claim_tells_a_worker_that_what_it_held_is_gone(board: Board) -> None:
    await board.beat(lease_seconds=5)
    await board.add("a")
    assert (await board.claimed(lease_seconds=5)).alive
    board.log.clock.advance(6)
    assert not (await board.claimed(lease_seconds=5)).alive
    assert (await board.claimed(lease_seconds=5)).alive


async def test_a_job_that_takes_its_worker_down_ends_in_the_dead_letters_after_exactly_its_attempts(
    board: Board,
) -> None:
    await board.add(shell("poison", retries=2, backoff_base=1, backoff_jitter=0))
    runs = 0
    for number in range(10):
        runs += len(await board.claim(worker=f"worker-{number}", lease_seconds=5))
        board.log.clock.advance(6)
        await board.log.run(Rescue())
        board.log.clock.advance(1)
    assert runs == 3
    assert await board.state("poison") is JobState.DEAD


async def test_a_worker_that_departs_gives_back_what_it_held_at_once(board: Board) -> None:
    await board.add("a")
    await board.take()
    assert await board.change(Depart(worker="worker-1", reason="killed")) == ["a"]
    assert (await board.job("a")).error == "killed"
    assert await board.log.store.ask(ListWorkers("main")) == []


async def test_workers_are_asked_to_stop_and_get_no_more_jobs(board: Board) -> None:
    await board.claim()
    assert await board.change(StopWorkers()) == ["worker-1"]
    await board.add("a")
    assert (await board.claimed()).stopping
    assert (await board.beat()).stopping
    assert await board.names(worker="other") == ["a"]
    with pytest.raises(JobMissing):
        await board.log.run(StopWorkers(workers=("nobody",)))


async def test_progress_and_output_are_kept_only_from_whoever_holds_the_job(board: Board) -> None:
    await board.add("a")
    job = await board.take()
    note = Note(number=job.number, token=job.token, progress='{"done":1}', output="half")
    await board.log.run(Heartbeat(worker="thief", notes=[note]))
    assert (await board.job("a")).progress is None
    await board.log.run(Heartbeat(worker="worker-1", notes=[note]))
    assert (await board.job("a")).progress == msgspec.Raw(b'{"done":1}')
    (attempt,) = await board.log.store.ask(ListJobAttempts("main", "a"))
    assert (attempt.output, attempt.outcome, attempt.finished_at) == ("half", "running", None)
    await board.settle(job, output="whole", exit_code=0)
    (attempt,) = await board.log.store.ask(ListJobAttempts("main", "a"))
    assert (attempt.output, attempt.outcome, attempt.exit_code) == ("whole", "completed", 0)


# ── people ──


async def test_cancelling_ends_what_has_not_begun_and_asks_the_worker_of_what_runs(board: Board) -> None:
    await board.add("runs", "waits", shell("later", delay=60))
    job = await board.take()
    changed = await board.log.run(CancelJobs(ids=("runs", "waits", "later")))
    assert (sorted(changed.ids), changed.asked_to_stop) == (["later", "runs", "waits"], ["runs"])
    assert [await board.state(name) for name in ("runs", "waits", "later")] == ["processing", "cancelled", "cancelled"]
    assert (await board.beat()).cancelled == [job.number]
    await board.settle(job, outcome=JobOutcome.CANCELLED)
    with pytest.raises(JobUnfit):
        await board.log.run(CancelJobs(ids=("runs",)))
    with pytest.raises(JobMissing):
        await board.log.run(CancelJobs(ids=("runs", "unknown")))


async def test_a_dead_job_that_is_armed_again_has_all_its_attempts(board: Board) -> None:
    await board.add(shell("a", retries=0), "done")
    for job in await board.claim(2):
        await (board.fail(job) if job.id == "a" else board.settle(job))
    assert await board.change(RetryJobs(ids=("a",))) == ["a"]
    assert (await board.take()).attempt == 1
    with pytest.raises(JobUnfit):
        await board.log.run(RetryJobs(ids=("done",)))


async def test_all_dead_jobs_of_a_queue_are_armed_together(board: Board) -> None:
    await board.add(*(shell(f"a{number}", retries=0) for number in range(3)), shell("b", queue="mail", retries=0))
    for job in await board.claim(10):
        await board.fail(job)
    assert sorted(await board.change(RetryJobs(state=JobState.DEAD, queue="default"))) == ["a0", "a1", "a2"]
    assert await board.counts() == {"pending": 3, "dead": 1}


async def test_jobs_that_ended_are_dropped_by_age_and_others_are_not(board: Board) -> None:
    await board.add("old", "new", "waits")
    old, new = await board.claim(2)
    await board.settle(old, output="printed", exit_code=0)
    board.log.clock.advance(3_600)
    await board.settle(new)
    before = Timestamp(board.log.clock.now() - 60 * SECOND)
    assert await board.change(DropJobs(state=JobState.COMPLETED, before=before)) == ["old"]
    assert await board.log.store.ask(FindJob("main", "old")) is None
    assert await board.log.store.ask(ListJobAttempts("main", "old")) == []
    assert await board.counts() == {"completed": 1, "pending": 1}
    with pytest.raises(JobUnfit):
        await board.log.run(DropJobs(ids=("waits",)))


async def test_the_number_of_a_dropped_job_never_comes_back(board: Board) -> None:
    await board.add("a")
    job = await board.take()
    await board.settle(job)
    await board.change(DropJobs(ids=("a",)))
    await board.add("b")
    again = await board.take()
    assert again.number > job.number


async def test_old_jobs_are_pruned_but_the_dead_stay(board: Board) -> None:
    await board.add("done", shell("dead", retries=0))
    for job in await board.claim(2):
        await (board.settle(job) if job.id == "done" else board.fail(job))
    await board.log.run(SetJobConfig(name="retention", value=60))
    board.log.clock.advance(61)
    assert await board.change(Prune()) == ["done"]
    assert await board.counts() == {"dead": 1}


async def test_a_paused_queue_hands_out_nothing_until_it_goes_on(board: Board) -> None:
    await board.log.run(PauseJobs(queue="default", paused=True))
    await board.add("a", shell("b", queue="mail"))
    assert await board.names() == ["b"]
    await board.log.run(PauseJobs(queue="default", paused=False))
    assert await board.names() == ["a"]


async def test_settings_of_a_queue_stand_over_those_of_the_database(board: Board) -> None:
    await board.log.run(SetJobConfig(name="max-retries", value=7))
    await board.log.run(SetJobConfig(name="max-retries", value=0, queue="mail"))
    await board.add("a", shell("b", queue="mail"), shell("c", queue="mail", retries=2))
    assert [(await board.job(name)).attempts_max for name in "abc"] == [8, 1, 3]
    await board.log.run(SetJobConfig(name="max-retries", value=None, queue="mail"))
    await board.add(shell("d", queue="mail"))
    assert (await board.job("d")).attempts_max == 8


# ── looking ──


async def test_jobs_are_listed_by_state_queue_and_type(board: Board) -> None:
    await board.add("a", shell("b", priority=1), shell("c", queue="mail"), shell("d", delay=5))
    store = board.log.store
    assert [job.id for job in await store.ask(ListJobs("main", JobFilter(state=JobState.PENDING)))] == ["b", "a", "c"]
    assert [job.id for job in await store.ask(ListJobs("main", JobFilter(queue="mail")))] == ["c"]
    assert [job.id for job in await store.ask(ListJobs("main", JobFilter(limit=2)))] == ["d", "c"]
    for job in await board.claim(1):
        await board.settle(job)
    assert [job.id for job in await store.ask(ListJobs("main", JobFilter(state=JobState.COMPLETED)))] == ["b"]


async def test_what_was_done_is_counted_by_the_minute(board: Board) -> None:
    await board.add("a", "b")
    first, second = await board.claim(2)
    board.log.clock.advance(2)
    await board.settle(first)
    await board.fail(second)
    minutes = await board.log.store.ask(ListJobMinutes("main", board.log.clock.now()))
    total = [
        sum(getattr(minute, name) for minute in minutes) for name in ("enqueued", "completed", "failed", "run_micros")
    ]
    assert total == [2, 1, 1, 4 * SECOND]


async def test_seconds_are_those_that_jobs_ran_and_not_those_that_they_waited_in_a_workers_hands(board: Board) -> None:
    await board.add(*(shell(f"j{number}", retries=1) for number in range(4)))
    plain, printed, failed, unbegun = await board.claim(4)
    board.log.clock.advance(10)
    await board.settle(plain, duration_seconds=0.5)
    await board.settle(printed, duration_seconds=0.25, output="hello")
    await board.fail(failed, duration_seconds=0.125)
    await board.settle(unbegun, outcome=JobOutcome.RELEASED)
    minutes = await board.log.store.ask(ListJobMinutes("main", board.log.clock.now()))
    assert sum(minute.run_micros for minute in minutes) == 0.875 * SECOND


async def test_databases_do_not_see_each_others_jobs(board: Board) -> None:
    other = Board(board.log, "tenant")
    await board.add("a")
    await other.add("a", "b")
    assert await other.names() == ["a", "b"]
    assert await board.names() == ["a"]
    with pytest.raises(JobMissing):
        await board.log.run(CancelJobs(ids=("b",)))
    assert await board.counts() == {"processing": 1}


async def test_a_waiting_claim_is_told_when_there_is_something(board: Board, open_log: OpenLog) -> None:
    store, now = board.log.store, board.log.clock.now()
    assert await store.ask(FindJobsReady("main", (), now)) is None
    other = Board(await open_log())
    await other.add(shell("later", delay=5))
    assert await store.ask(FindJobsReady("main", (), now)) == now + 5 * SECOND
    await other.add("a")
    assert await store.ask(FindJobsReady("main", (), now)) == now
    assert await store.ask(FindJobsReady("main", ("mail",), now)) is None


# ── the log ──


async def changes(log: Log, database: str = "main") -> list[dict[str, object]]:
    """What the log says of jobs."""
    segments = await log.store.read(0, LSN_MAX, 10_000, (database, JOBS_QUEUE))  # type: ignore[arg-type]
    return [change for segment in segments for change in payloads(segment)]


async def test_every_change_of_state_is_on_the_log_in_the_commit_that_made_it(board: Board) -> None:
    await board.add(shell("a", retries=1, backoff_base=1, backoff_jitter=0))
    await board.fail(await board.take())
    board.log.clock.advance(1)
    await board.settle(await board.take())
    found = [(change["state"], change.get("attempt", 0)) for change in await changes(board.log)]
    assert found == [
        ("pending", 0),
        ("processing", 1),
        ("failed", 1),
        ("pending", 1),
        ("processing", 2),
        ("completed", 2),
    ]


async def test_a_thousand_changes_of_one_commit_are_one_segment(board: Board) -> None:
    await board.add(*(shell() for _ in range(1_000)))
    commit = await board.log.commit(Enqueue(jobs=[shell() for _ in range(10)]))
    assert [touch.count for touch in commit.touched] == [10]
    jobs = await board.claim(1_000)
    reports = [JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED) for job in jobs]
    commit = await board.log.commit(Settle(worker="worker-1", reports=reports))
    assert [touch.count for touch in commit.touched] == [1_000]


async def test_which_jobs_are_dropped_does_not_depend_on_the_queues_that_a_store_met_first(
    log: Log, other: Log
) -> None:
    await Board(log).add(shell("a", queue="first"), shell("b", queue="second"))
    await Board(log).change(CancelJobs(ids=("a", "b")))
    # This one meets the second queue before the first.
    await Board(other).add(shell("c", queue="second"))
    assert await Board(other).change(DropJobs(limit=1)) == ["a"]


async def test_two_stores_never_give_one_job_to_two_workers(log: Log, other: Log) -> None:
    boards = [Board(log), Board(other)]
    await boards[0].add(*(f"job{number}" for number in range(200)))

    async def drain(board: Board, worker: str) -> list[str]:
        found: list[str] = []
        while jobs := await board.claim(7, worker):
            found += [job.id for job in jobs]
            assert await board.settle(*jobs, worker=worker) == [JobState.COMPLETED] * len(jobs)
        return found

    drained = await asyncio.gather(drain(boards[0], "one"), drain(boards[1], "two"))
    assert sorted(drained[0] + drained[1]) == sorted(f"job{number}" for number in range(200))
