"""Jobs that depend on others, that must be alone, that are limited, and that come by a schedule."""

from typing import Any

import msgspec
import pytest

from headwater.clock import SECOND
from headwater.errors import InvalidOption, JobMissing, JobUnfit
from headwater.log.job_operations import (
    CancelJobs,
    ChangeSchedule,
    DropJobs,
    Enqueue,
    FireSchedules,
    NewJob,
    Placed,
    Prune,
    PutSchedule,
    RetryJobs,
    SetJobConfig,
    SetJobLimit,
)
from headwater.model.job import JobOutcome, JobState
from headwater.stores.job_questions import FindJobsReady, ListJobLimits, ListSchedules
from tests.contracts.jobs import Board, shell
from tests.contracts.log import Log


@pytest.fixture
def board(log: Log) -> Board:
    return Board(log)


# ── dependencies ──


async def test_a_job_waits_until_all_that_it_depends_on_have_completed(board: Board) -> None:
    await board.add("a", "b", shell("c", depends_on=("a", "b")))
    a, b = await board.claim(10)
    await board.settle(a, result="1")
    assert await board.state("c") is JobState.WAITING
    await board.settle(b, result='"two"')
    c = await board.take()
    assert c.results is not None
    assert {name: msgspec.json.decode(result) for name, result in c.results.items()} == {"a": 1, "b": "two"}


async def test_jobs_that_are_added_together_may_depend_on_each_other_in_any_order(board: Board) -> None:
    await board.add(shell("c", depends_on=("b",)), shell("b", depends_on=("a",)), "a")
    for name in "abc":
        job = await board.take()
        assert job.id == name
        await board.settle(job)


@pytest.mark.parametrize("end", ["cancel", "report", "drop"])
async def test_a_chain_longer_than_a_call_stack_is_cancelled_with_its_head(board: Board, end: str) -> None:
    last = 1_200
    links = [shell(f"link-{place}", depends_on=(f"link-{place - 1}",)) for place in range(1, last + 1)]
    await board.add(shell("link-0", retries=0), *links)
    if end == "cancel":
        await board.change(CancelJobs(database="main", ids=("link-0",)))
    elif end == "report":
        await board.settle(await board.take(), outcome=JobOutcome.CANCELLED, error="not needed any more")
    else:
        await board.fail(await board.take())
        await board.change(DropJobs(database="main", ids=("link-0",)))
    assert await board.counts() == {"cancelled": last + (end != "drop")}
    assert await board.state(f"link-{last}") is JobState.CANCELLED


async def test_a_job_is_not_retried_to_wait_for_one_that_stays_cancelled(board: Board) -> None:
    await board.add("p", shell("c", depends_on=("p",)), shell("cc", depends_on=("c",)))
    await board.change(CancelJobs(database="main", ids=("p",)))
    with pytest.raises(JobUnfit, match="is cancelled"):
        await board.change(RetryJobs(database="main", ids=("cc",)))
    assert await board.state("cc") is JobState.CANCELLED
    assert sorted(await board.change(RetryJobs(database="main", ids=("cc", "p", "c")))) == ["c", "cc", "p"]
    assert not (await board.job("cc")).error
    for name in ("p", "c", "cc"):
        job = await board.take()
        assert job.id == name
        await board.settle(job)


async def test_those_below_a_job_whose_need_was_dropped_are_passed_over_with_it(board: Board) -> None:
    await board.add("p", shell("c", depends_on=("p",)), shell("cc", depends_on=("c",)))
    await board.change(CancelJobs(database="main", ids=("p",)))
    await board.change(DropJobs(database="main", ids=("p",)))
    assert await board.change(RetryJobs(database="main", state=JobState.CANCELLED)) == []
    assert await board.counts() == {"cancelled": 2}


async def test_a_circle_or_an_unknown_job_is_refused_and_nothing_is_added(board: Board) -> None:
    with pytest.raises(InvalidOption):
        await board.add(shell("a", depends_on=("b",)), shell("b", depends_on=("a",)))
    with pytest.raises(JobMissing):
        await board.add("c", shell("d", depends_on=("unknown",)))
    assert await board.counts() == {}


async def test_what_completed_before_is_not_waited_for(board: Board) -> None:
    await board.add("a")
    await board.settle(await board.take(), result="1")
    await board.add(shell("b", depends_on=("a",)))
    job = await board.take()
    assert job.results == {"a": msgspec.Raw(b"1")}


async def test_a_dead_job_holds_its_dependents_until_it_is_armed_again(board: Board) -> None:
    await board.add(shell("a", retries=0), shell("b", depends_on=("a",)))
    await board.fail(await board.take())
    assert await board.state("b") is JobState.WAITING
    await board.change(RetryJobs(ids=("a",)))
    await board.settle(await board.take())
    assert await board.names() == ["b"]


async def test_a_cancelled_or_dropped_job_takes_its_dependents_with_it(board: Board) -> None:
    await board.add("a", shell("b", depends_on=("a",)), shell("c", depends_on=("b",)))
    await board.change(CancelJobs(ids=("a",)))
    assert [await board.state(name) for name in "abc"] == [JobState.CANCELLED] * 3
    await board.add(shell("x", retries=0), shell("y", depends_on=("x",)))
    await board.fail(await board.take())
    await board.change(DropJobs(ids=("x",)))
    assert await board.state("y") is JobState.CANCELLED
    with pytest.raises(JobUnfit):
        await board.add(shell("z", depends_on=("a",)))


async def test_a_callback_runs_when_all_have_ended_whatever_they_came_to(board: Board) -> None:
    await board.add(
        "good",
        shell("bad", retries=0),
        shell("gone"),
        shell("all", depends_on=("good", "bad", "gone"), depends_when="finished"),
    )
    good, bad, gone = await board.claim(10)
    await board.settle(good)
    await board.fail(bad)
    assert await board.state("all") is JobState.WAITING
    await board.change(CancelJobs(ids=("gone",)))
    await board.settle(gone, outcome=JobOutcome.CANCELLED)
    assert await board.names() == ["all"]


async def test_jobs_that_differ_only_in_what_they_wait_for_begin_each_in_their_own_way(board: Board) -> None:
    await board.add(shell("a", retries=0))
    await board.fail(await board.take())
    well = shell("well", depends_on=("a",))
    anyhow = shell("anyhow", depends_on=("a",), depends_when="finished")
    await board.add(well, anyhow, shell("well-too", depends_on=("a",)))
    assert [await board.state(name) for name in ("well", "anyhow", "well-too")] == [
        JobState.WAITING,
        JobState.PENDING,
        JobState.WAITING,
    ]
    assert await board.names() == ["anyhow"]


# ── what others go by is kept for them ──


async def parent_and_child(board: Board, **about: Any) -> None:
    """A parent that has completed with a result, and a child of it that is for later."""
    await board.add(shell("parent", **about), shell("plain"))
    parent, plain = await board.claim(2)
    await board.settle(parent, result="7")
    await board.settle(plain)
    await board.add(shell("child", depends_on=("parent",), delay=100, retries=0))


async def dropped_in_every_way(board: Board) -> None:
    """Whatever drops jobs that have ended leaves the parent, and says so."""
    await board.log.run(SetJobConfig(name="retention", value=1))
    board.log.clock.advance(2)
    cleanup = DropJobs(state=JobState.COMPLETED, before=board.log.clock.now())
    changed = await board.log.run(cleanup)
    assert (changed.ids, changed.kept) == (["plain"], ["parent"])
    assert await board.change(Prune()) == []
    with pytest.raises(JobUnfit, match="job parent cannot be dropped: job child depends on it and may still run"):
        await board.log.run(DropJobs(ids=["parent"]))
    for chosen in (DropJobs(ids=["parent"], skip_unfit=True), DropJobs(state=JobState.COMPLETED)):
        changed = await board.log.run(chosen)
        assert (changed.ids, changed.kept) == ([], ["parent"])


async def test_a_job_that_an_unfinished_one_depends_on_is_not_dropped(board: Board) -> None:
    await parent_and_child(board)
    await dropped_in_every_way(board)
    board.log.clock.advance(100)
    child = await board.take()
    assert child.results == {"parent": msgspec.Raw(b"7")}
    await board.settle(child)
    assert await board.change(DropJobs(ids=["parent"])) == ["parent"]


async def test_a_job_that_a_dead_one_depends_on_is_there_when_that_is_retried(board: Board) -> None:
    await parent_and_child(board)
    board.log.clock.advance(100)
    await board.fail(await board.take())
    await dropped_in_every_way(board)
    await board.change(RetryJobs(ids=["child"]))
    assert (await board.take()).results == {"parent": msgspec.Raw(b"7")}


async def test_a_result_outlives_its_time_while_a_job_that_may_still_run_is_to_get_it(board: Board) -> None:
    await parent_and_child(board, result_ttl=1)
    board.log.clock.advance(100)
    assert await board.change(Prune()) == []
    child = await board.take()
    assert child.results == {"parent": msgspec.Raw(b"7")}
    await board.settle(child)
    assert await board.change(Prune()) == ["parent"]
    assert (await board.job("parent")).result is None


async def test_jobs_that_go_by_each_other_are_dropped_together_unless_another_goes_by_the_last(board: Board) -> None:
    after = {"depends_when": "finished", "retries": 0}
    await board.add(shell("a", retries=0), shell("b", depends_on=("a",), **after))
    await board.fail(await board.take())
    await board.fail(await board.take())
    await board.add(shell("c", depends_on=("b",), **after))
    changed = await board.log.run(DropJobs(ids=["a", "b"], skip_unfit=True))
    assert (changed.ids, sorted(changed.kept)) == ([], ["a", "b"])
    await board.change(CancelJobs(ids=["c"]))
    assert sorted(await board.change(DropJobs(ids=["a", "b"]))) == ["a", "b"]


async def test_a_job_cannot_be_retried_once_one_that_it_depends_on_is_gone(board: Board) -> None:
    await board.add(shell("dead", retries=0), shell("waited", depends_on=("dead",)))
    await board.fail(await board.take())
    assert await board.change(DropJobs(ids=["dead"])) == ["dead"]
    await board.add("done", shell("met", depends_on=("done",)))
    await board.change(CancelJobs(ids=["met"]))
    await board.settle(await board.take())
    assert await board.change(DropJobs(ids=["done"])) == ["done"]
    await board.add(shell("fine", retries=0))
    await board.fail(await board.take())
    for name in ("waited", "met"):
        with pytest.raises(JobUnfit, match=f"job {name} cannot be retried: a job that it depends on was dropped"):
            await board.log.run(RetryJobs(ids=["fine", name]))
    for chosen in (RetryJobs(ids=["fine", "met", "waited"], skip_unfit=True), RetryJobs(state=JobState.CANCELLED)):
        changed = await board.log.run(chosen)
        assert (changed.ids, sorted(changed.orphaned)) == (["fine"] if chosen.ids else [], ["met", "waited"])
    assert await board.counts() == {"cancelled": 2, "pending": 1}
    # Another job of that id is not the one that it depends on.
    await board.add("dead")
    with pytest.raises(JobUnfit):
        await board.log.run(RetryJobs(ids=["waited"]))


# ── unique ──


async def test_a_unique_job_keeps_a_second_one_out_while_it_is_unfinished(board: Board) -> None:
    first = shell("a", unique_key="import")
    assert await board.add(first) == ["a"]
    assert await board.add(shell("b", unique_key="import"), shell("c", unique_key="other")) == ["a", "c"]
    await board.settle(*await board.claim(10))
    assert await board.add(shell("d", unique_key="import")) == ["d"]


async def test_a_unique_job_with_a_window_keeps_others_out_even_after_its_end(board: Board) -> None:
    await board.add(shell("a", unique_key="import", unique_seconds=60))
    await board.settle(await board.take())
    assert await board.add(shell("b", unique_key="import")) == ["a"]
    board.log.clock.advance(60)
    assert await board.add(shell("c", unique_key="import")) == ["c"]


async def unique_and_completed(board: Board) -> None:
    """A job whose key is kept for ten minutes, though jobs that have ended are kept for a second, and one without."""
    await board.log.run(SetJobConfig(name="retention", value="1"))
    await board.add(shell("a", unique_key="import", unique_seconds=600), "plain")
    await board.settle(*await board.claim(10))


async def test_a_job_is_not_pruned_while_its_unique_key_is_kept(board: Board) -> None:
    await unique_and_completed(board)
    board.log.clock.advance(599.999)
    assert await board.change(Prune()) == ["plain"]
    enqueued = await board.log.run(Enqueue(jobs=[shell("b", unique_key="import")]))
    assert enqueued.jobs == [Placed("a", JobState.COMPLETED, duplicate=True)]
    board.log.clock.advance(0.001)
    assert await board.change(Prune()) == ["a"]
    assert await board.add(shell("c", unique_key="import")) == ["c"]


async def test_a_job_is_not_cleaned_up_by_age_while_its_unique_key_is_kept(board: Board) -> None:
    await unique_and_completed(board)
    cleanup = DropJobs(state=JobState.COMPLETED, before=board.log.clock.advance(10))
    assert await board.change(cleanup) == ["plain"]
    assert await board.add(shell("b", unique_key="import")) == ["a"]


async def test_a_job_that_lost_its_unique_key_to_a_newer_one_is_pruned_in_its_own_time(board: Board) -> None:
    await unique_and_completed(board)
    newer = shell("b", unique_key="import", unique_mode="replace", unique_seconds=600)
    assert await board.add(newer) == ["b"]
    board.log.clock.advance(10)
    assert sorted(await board.change(Prune())) == ["a", "plain"]
    assert await board.add(shell("c", unique_key="import")) == ["b"]


async def test_a_job_that_is_dropped_by_its_id_gives_its_unique_key_and_its_id_back(board: Board) -> None:
    await unique_and_completed(board)
    assert await board.change(DropJobs(ids=["a"])) == ["a"]
    assert await board.add(shell("a", unique_key="import")) == ["a"]
    assert await board.state("a") is JobState.PENDING


async def die(board: Board, *names: str) -> None:
    """Jobs of one key, each of which dies before the next is added."""
    for name in names:
        await board.add(shell(name, unique_key="import", retries=0))
        await board.settle(await board.take(), outcome=JobOutcome.FAILED)
        assert await board.state(name) is JobState.DEAD


async def test_a_job_whose_unique_key_another_has_cannot_be_retried_by_its_id(board: Board) -> None:
    await die(board, "a", "b")
    await board.add(shell("c", unique_key="import"))
    with pytest.raises(JobUnfit, match="job a cannot be retried: job c has its unique key"):
        await board.log.run(RetryJobs(ids=["a"]))
    assert await board.state("a") is JobState.DEAD
    await board.settle(await board.take())
    await board.log.run(RetryJobs(ids=["a"]))
    with pytest.raises(JobUnfit, match="job b cannot be retried: job a has its unique key"):
        await board.log.run(RetryJobs(ids=["b"]))


async def test_of_several_jobs_with_one_unique_key_one_comes_back(board: Board) -> None:
    await die(board, "a", "b", "c")
    with pytest.raises(JobUnfit):
        await board.log.run(RetryJobs(ids=["a", "c"]))
    changed = await board.log.run(RetryJobs())
    assert (changed.ids, sorted(changed.passed_over)) == (["c"], ["a", "b"])
    changed = await board.log.run(RetryJobs(ids=["a", "b"], skip_unfit=True))
    assert (changed.ids, sorted(changed.passed_over)) == ([], ["a", "b"])
    assert [job.id for job in await board.claim(10)] == ["c"]


async def test_a_job_that_came_back_has_its_unique_key_again(board: Board) -> None:
    await die(board, "a", "b")
    await board.log.run(RetryJobs(ids=["a"]))
    assert await board.add(shell("d", unique_key="import")) == ["a"]


async def test_a_newer_unique_job_may_replace_one_that_has_not_begun(board: Board) -> None:
    await board.add(shell("a", unique_key="report"))
    assert await board.add(shell("b", unique_key="report", unique_mode="replace")) == ["b"]
    assert await board.state("a") is JobState.CANCELLED
    await board.take()
    assert await board.add(shell("c", unique_key="report", unique_mode="replace")) == ["b"]


async def test_the_newest_of_several_unique_jobs_of_one_call_takes_the_place_of_the_others(board: Board) -> None:
    await board.add(shell("old", unique_key="report"))
    names = ["a", "b", "c"]
    jobs = [shell(name, unique_key="report", unique_mode="replace") for name in names]
    after = shell("after", depends_on=("a",))
    assert await board.add(*jobs, after) == [*names, "after"]
    states = [await board.state(name) for name in ("old", *names, "after")]
    cancelled = JobState.CANCELLED
    assert states == [cancelled, cancelled, cancelled, JobState.PENDING, JobState.WAITING]
    (newest,) = await board.claim(10)
    assert newest.id == "c"
    assert await board.add(shell("d", unique_key="report")) == ["c"]
    assert await board.add(shell("e", unique_key="new"), shell("f", unique_key="new")) == ["e", "e"]


def newer(name: str, **options: Any) -> NewJob:
    return shell(name, unique_key="report", unique_mode="replace", **options)


@pytest.mark.parametrize("when", ["completed", "finished"])
async def test_what_depends_on_a_job_that_is_replaced_waits_for_the_newer_one(board: Board, when: str) -> None:
    """Neither is it cancelled with the one that never ran, nor does it run before the newer one has ended."""
    await board.add(shell("a", unique_key="report"), shell("b", depends_on=("a",), depends_when=when))
    await board.add(newer("a2"))
    await board.add(newer("a3"), shell("c", depends_on=("a2",), depends_when=when))
    assert [await board.state(name) for name in ("a", "a2", "b", "c")] == [JobState.CANCELLED] * 2 + [
        JobState.WAITING
    ] * 2
    (newest,) = await board.claim(10)
    assert newest.id == "a3"
    await board.settle(newest, result="7")
    found = await board.claim(10)
    assert {job.id: job.results for job in found} == {name: {"a3": msgspec.Raw(b"7")} for name in ("b", "c")}


async def test_a_replaced_job_that_waits_hands_on_who_waits_for_it_and_waits_for_nothing_more(board: Board) -> None:
    await board.add("first", shell("a", unique_key="report", depends_on=("first",)), shell("b", depends_on=("a",)))
    await board.add(newer("a2"))
    first, newest = await board.claim(10)
    assert (first.id, newest.id) == ("first", "a2")
    await board.settle(first)
    assert await board.state("a") is JobState.CANCELLED
    await board.settle(newest)
    assert await board.names() == ["b"]


async def test_a_cancelled_newer_job_takes_those_with_it_that_waited_for_the_replaced_one(board: Board) -> None:
    await board.add(shell("a", unique_key="report"), shell("b", depends_on=("a",)))
    await board.add(newer("a2"))
    await board.change(CancelJobs(ids=("a2",)))
    assert await board.state("b") is JobState.CANCELLED


@pytest.mark.parametrize("needed", ["a", "b", "c"])
async def test_a_newer_job_that_would_wait_for_itself_is_refused_and_replaces_nothing(
    board: Board, needed: str
) -> None:
    """For the job that it replaces, or for one that waits for it, however long the way."""
    await board.add(shell("a", unique_key="report"), shell("b", depends_on=("a",)), shell("c", depends_on=("b",)))
    with pytest.raises(InvalidOption, match="wait for each other"):
        await board.add(newer("a2", depends_on=("between",)), shell("between", depends_on=(needed,)))
    with pytest.raises(InvalidOption, match="wait for each other"):
        await board.add(newer("a2", depends_on=(needed,)))
    assert await board.names() == ["a"]


async def test_what_depends_on_a_job_that_is_there_under_another_id_waits_for_that_one(board: Board) -> None:
    await board.add(shell("there", unique_key="report"))
    added = await board.add(shell("mine", unique_key="report"), shell("after", depends_on=("mine",)))
    assert added == ["there", "after"]
    assert await board.state("after") is JobState.WAITING
    taken = await board.take()
    assert taken.id == "there"
    await board.settle(taken)
    assert await board.state("after") is JobState.PENDING


# ── limits ──


def mail(id: str, **about: object) -> NewJob:
    return NewJob(id=id, type="mail", **about)  # type: ignore[arg-type]


async def test_a_rate_holds_one_type_back_and_no_other(board: Board) -> None:
    await board.log.run(SetJobLimit(type="mail", rate=2, seconds=1))
    await board.add(*(mail(f"m{number}") for number in range(4)), "a", "b")
    assert await board.names() == ["m0", "a", "b"]
    claimed = await board.claimed(10)
    assert claimed.jobs == []
    assert claimed.ready_at == board.log.clock.now() + SECOND // 2
    started = 1
    for _ in range(20):
        board.log.clock.advance(0.1)
        started += len(await board.claim(10))
    assert started == 4


async def test_what_a_rate_holds_back_costs_a_claim_nothing(board: Board) -> None:
    await board.log.run(SetJobLimit(type="mail", rate=1, seconds=3_600))
    await board.add(*(mail(f"m{number}") for number in range(500)))
    assert await board.names(lease_seconds=7_200) == ["m0"]
    await board.add("a")
    assert await board.names(1, lease_seconds=7_200) == ["a"]
    now = board.log.clock.now()
    assert await board.log.store.ask(FindJobsReady("main", (), now)) == now + 3_600 * SECOND


async def test_no_more_of_a_type_run_at_once_than_its_limit(board: Board) -> None:
    await board.add(*(mail(f"m{number}") for number in range(5)))
    assert (await board.log.run(SetJobLimit(type="mail", concurrency=2))).jobs == 5
    first = await board.claim(10)
    assert [job.id for job in first] == ["m0", "m1"]
    assert await board.claim(10) == []
    await board.settle(first[0])
    assert await board.names() == ["m2"]
    await board.log.run(SetJobLimit(type="mail", concurrency=0))
    assert await board.names() == ["m3", "m4"]


async def test_jobs_of_one_key_run_one_at_a_time_and_those_of_others_beside_them(board: Board) -> None:
    keyed = [shell(f"{key}{number}", concurrency_key=key) for number in range(3) for key in ("x", "y")]
    await board.add(*keyed, "free")
    found = await board.claim(10)
    assert sorted(job.id for job in found) == ["free", "x0", "y0"]
    await board.settle(*[job for job in found if job.id == "x0"])
    assert await board.names() == ["x1"]


async def test_a_key_under_a_limited_type_obeys_both_limits(board: Board) -> None:
    await board.log.run(SetJobLimit(type="mail", concurrency=2))
    await board.add(*(mail(f"{key}{number}", concurrency_key=key) for key in "xyz" for number in range(2)))
    running = await board.claim(10)
    assert len(running) == 2
    order = [job.id for job in running]
    while running:
        keys = [job.id[0] for job in running]
        assert len(keys) == len(set(keys)) <= 2
        await board.settle(running.pop(0))
        fresh = await board.claim(10)
        order += [job.id for job in fresh]
        running += fresh
    assert sorted(order) == ["x0", "x1", "y0", "y1", "z0", "z1"]


async def test_a_lost_worker_frees_the_limits_that_it_used(board: Board) -> None:
    await board.log.run(SetJobLimit(type="mail", concurrency=1))
    await board.add(mail("m0", retries=0), mail("m1"))
    await board.claim(worker="lost", lease_seconds=5)
    board.log.clock.advance(6)
    assert await board.names() == ["m1"]


# ── schedules ──


async def test_a_schedule_enqueues_when_it_is_due_and_once_for_all_that_was_missed(board: Board) -> None:
    await board.log.run(PutSchedule(name="often", every_seconds=60, job=shell()))
    assert await board.claim() == []
    board.log.clock.advance(60)
    first = await board.take()
    await board.settle(first)
    board.log.clock.advance(600)
    assert len(await board.claim(10)) == 1
    (schedule,) = await board.log.store.ask(ListSchedules("main"))
    assert schedule.last_id is not None
    assert schedule.next_at == board.log.clock.now() + 60 * SECOND


async def test_two_looks_at_the_same_time_enqueue_once(log: Log, other: Log) -> None:
    await log.run(PutSchedule(name="often", every_seconds=60, job=shell()))
    log.clock.advance(60)
    assert len((await log.run(FireSchedules())).ids) == 1
    assert (await other.run(FireSchedules())).ids == []


async def test_a_schedule_rests_goes_on_and_ends(board: Board) -> None:
    await board.log.run(PutSchedule(name="often", cron="* * * * *", job=shell()))
    await board.log.run(ChangeSchedule(name="often", paused=True))
    board.log.clock.advance(600)
    assert await board.claim() == []
    scheduled = await board.log.run(ChangeSchedule(name="often", paused=False))
    board.log.clock.advance((scheduled.next_at - board.log.clock.now()) / SECOND)
    assert len(await board.claim()) == 1
    await board.log.run(ChangeSchedule(name="often", remove=True))
    assert await board.log.store.ask(ListSchedules("main")) == []
    with pytest.raises(JobMissing):
        await board.log.run(ChangeSchedule(name="often", remove=True))


async def test_a_schedule_whose_job_is_unique_does_not_join_a_run_that_is_late(board: Board) -> None:
    await board.log.run(PutSchedule(name="often", every_seconds=1, job=shell(unique_key="often")))
    board.log.clock.advance(1)
    slow = await board.take()
    board.log.clock.advance(5)
    assert await board.claim(10) == []
    await board.settle(slow)
    board.log.clock.advance(1)
    assert len(await board.claim(10)) == 1


# ── limit keys ──


def call(id: str, key: str, **about: Any) -> NewJob:
    """A call on behalf of somebody."""
    return NewJob(id=id, type="tasks:call", limit_key=key, **about)


async def test_jobs_of_limit_keys_take_turns_however_many_one_of_them_has(board: Board) -> None:
    await board.add(*(call(f"a{number}", "ada") for number in range(50)))
    await board.add(*(call(f"b{number}", "bob") for number in range(2)))
    await board.add(call("c0", "eve"), "plain0", "plain1")
    assert await board.names(4) == ["a0", "b0", "c0", "plain0"]
    assert await board.names(3) == ["plain1", "a1", "b1"], "what runs counts as turns had"


async def test_a_more_urgent_job_goes_before_any_turn(board: Board) -> None:
    await board.add(call("a0", "ada"), call("a1", "ada", priority=5), call("b0", "bob"))
    assert await board.names(2) == ["a1", "b0"]


async def test_each_limit_key_has_a_rate_of_its_own(board: Board) -> None:
    limit = SetJobLimit(type="tasks:call", rate=2, seconds=1, burst=1, each_key=True)
    await board.add(call("a0", "ada"), call("a1", "ada"))
    assert (await board.log.run(limit)).jobs == 2, "keys that are there come under it"
    await board.add(call("b0", "bob"), call("b1", "bob"))
    assert sorted(await board.names(10)) == ["a0", "b0"]
    assert await board.names(10) == []
    board.log.clock.advance(0.5)
    assert sorted(await board.names(10)) == ["a1", "b1"]


async def test_each_limit_key_has_a_number_of_its_own_that_may_run_at_once(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=1, each_key=True))
    await board.add(call("a0", "ada"), call("a1", "ada"), call("b0", "bob"))
    first, second = await board.claim(10)
    assert {first.id, second.id} == {"a0", "b0"}
    await board.settle(first, second)
    assert await board.names(10) == ["a1"]


async def test_a_limit_of_the_type_holds_over_all_its_keys_and_both_are_lifted_together(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=2))
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=1, each_key=True))
    await board.add(*(call(key, key) for key in ("ada", "bob", "eve")), call("ada2", "ada"))
    assert await board.names(10) == ["ada", "bob"]
    limits = await board.log.store.ask(ListJobLimits("main"))
    assert [(one.each_key, one.concurrency) for one in limits] == [(False, 2), (True, 1)]
    lifted = await board.log.run(SetJobLimit(type="tasks:call", clear=True))
    assert lifted.was_limited
    assert await board.log.store.ask(ListJobLimits("main")) == []
    assert sorted(await board.names(10)) == ["ada2", "eve"]


async def test_a_limit_that_is_set_leaves_the_others_as_they_are(board: Board) -> None:
    await board.log.run(SetJobLimit(type="shell", rate=5, seconds=60, burst=3))
    await board.log.run(SetJobLimit(type="shell", concurrency=4))
    (limit,) = await board.log.store.ask(ListJobLimits("main"))
    assert (limit.rate, limit.seconds, limit.burst, limit.concurrency) == (5, 60, 3, 4)
    await board.log.run(SetJobLimit(type="shell", rate=0))
    (limit,) = await board.log.store.ask(ListJobLimits("main"))
    assert (limit.rate, limit.concurrency) == (0, 4)


async def test_jobs_of_keys_that_run_already_count_when_their_type_is_limited(board: Board) -> None:
    await board.add(*(call(f"a{number}", "ada") for number in range(3)), call("b0", "bob", concurrency_key="b"))
    running = await board.claim(2)
    assert (await board.log.run(SetJobLimit(type="tasks:call", concurrency=2))).jobs == 4, "it holds for all of them"
    assert await board.names(10) == []
    await board.settle(running[0])
    assert len(await board.claim(10)) == 1


async def test_jobs_without_a_key_that_wait_go_on_when_each_key_is_limited(board: Board) -> None:
    await board.add(mail("m0"), mail("m1"))
    running = await board.take()
    await board.log.run(SetJobLimit(type="mail", concurrency=1, each_key=True))
    assert await board.names(10) == ["m1"]
    await board.log.run(SetJobLimit(type="mail", concurrency=2))
    await board.settle(running)
    await board.add(mail("m2"), mail("m3"))
    assert await board.names(10) == ["m2"], "what ran before there was a limit counts too"


async def test_a_key_whose_jobs_were_cancelled_keeps_no_place_from_others(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=1))
    await board.add(*(call(key, key) for key in ("ada", "bob", "eve")))
    running = await board.take()
    await board.change(CancelJobs(database="main", ids=("bob",)))
    await board.settle(running)
    assert [*await board.names(10), *await board.names(10)] == ["eve"]


async def test_a_key_that_its_rate_holds_back_keeps_no_place_from_others(board: Board) -> None:
    await board.log.run(SetJobLimit(type="tasks:call", concurrency=2))
    await board.log.run(SetJobLimit(type="tasks:call", rate=1, seconds=3_600, each_key=True))
    await board.add(call("a0", "ada"), call("a1", "ada"), call("e0", "eve"), call("b0", "bob"))
    first, second = await board.claim(10)
    assert (first.id, second.id) == ("a0", "e0")
    await board.settle(second)
    assert [*await board.names(10), *await board.names(10)] == ["b0"]


async def test_whoever_drops_a_dead_job_is_told_how_many_waited_for_it(board: Board) -> None:
    """In a chain, and with one that goes on whatever becomes of the others."""
    await board.add(shell("parent", retries=0), shell("child", depends_on=("parent",)))
    await board.add(shell("grandchild", depends_on=("child",)))
    await board.add(shell("anyhow", depends_on=("grandchild",), depends_when="finished"))
    await board.fail(await board.take())
    changed = await board.log.run(DropJobs(state=JobState.DEAD, before=board.log.clock.now()))
    assert (changed.ids, changed.cancelled) == (["parent"], 2)
    assert [await board.state(name) for name in ("child", "grandchild", "anyhow")] == [
        JobState.CANCELLED,
        JobState.CANCELLED,
        JobState.PENDING,
    ]
