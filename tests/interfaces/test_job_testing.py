"""`headwater.jobs.testing`: what a program enqueues is written down or run on the spot, without a store."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.errors import Closed, HeadwaterError, InvalidOption, JobExists, JobMissing, JobUnsuccessful
from headwater.jobs import Cancel, JobApp, Jobs, Retry, Snooze, current_job, testing
from headwater.model.job import JobState
from headwater.services.job_functions import JobFunction

app = JobApp("nowhere/at/all.db")
sent: list[object] = []
Block = Callable[[JobApp], AbstractContextManager[testing.Enqueued]]


@dataclass
class Person:
    name: str


@app.job(queue="mail")
async def greet(person: Person, times: int = 1) -> str:
    current_job().progress({"times": times})
    sent.append((person, times))
    return f"hello {person.name}"


@app.job
def count(number: int) -> int:
    if number:
        count.enqueue_sync(number - 1)
    return number


@app.job
async def ask_wrongly() -> None:
    """What a worker refuses: it would stop the loop that others share."""
    count.enqueue_sync(0)


@app.job
async def spread(number: int) -> None:
    await app.jobs.add_many([count.job(0) for _ in range(number)])


@pytest.fixture(autouse=True)
def fresh() -> None:
    sent.clear()


async def test_what_is_enqueued_is_written_down_and_not_run() -> None:
    with testing.capture(app) as enqueued:
        handle = await greet.using(id="first", delay=60).enqueue(Person("ada"), times=2)
        await greet.enqueue(Person("bob"))
    assert (sent, handle.id) == ([], "first")
    call = enqueued.assert_enqueued(greet, person=Person("ada"), times=2)
    assert (call.job.delay, call.job.queue, call.kwargs) == (60, "mail", {"times": 2})
    enqueued.assert_enqueued(greet, Person("bob"), 1)
    assert len(enqueued.of(greet)) == 2
    assert enqueued.of(count) == []
    with pytest.raises(AssertionError, match="was not enqueued with"):
        enqueued.assert_enqueued(greet, Person("eve"))
    with pytest.raises(AssertionError, match="something was enqueued"):
        enqueued.assert_nothing_enqueued()
    with pytest.raises(HeadwaterError, match="run_inline"):
        await handle.result()


async def test_a_call_runs_where_it_is_enqueued_with_arguments_as_a_worker_gives_them() -> None:
    with testing.run_inline(app) as enqueued:
        handle = await greet.enqueue(Person("ada"), times=3)
        assert await handle.result() == "hello ada"
    assert sent == [(Person("ada"), 3)]
    assert enqueued[0].progress == [{"times": 3}]


def test_calls_without_async_run_on_the_spot_and_so_do_those_that_they_enqueue() -> None:
    with testing.run_inline(app) as enqueued:
        assert count.enqueue_sync(2).result() == 2
        assert greet.enqueue_sync(Person("eve")).result() == "hello eve"
    assert [call.type.rpartition(":")[2] for call in enqueued] == ["count", "count", "count", "greet"]


def test_what_a_call_raises_reaches_whoever_enqueued_it_and_the_app_is_as_before() -> None:
    @app.job(name="broken")
    def broken() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError), testing.run_inline(app):
        broken.enqueue_sync()
    assert app.stand_in is None
    del app.functions["broken"]


async def test_outside_of_the_block_calls_go_to_the_store_again(tmp_path: Path) -> None:
    with testing.capture(app) as enqueued:
        pass
    enqueued.assert_nothing_enqueued()
    with pytest.raises(Closed):
        await greet.enqueue(Person("ada"))


# Everything on the public surface that enqueues.
WAYS: dict[str, Callable[[], Awaitable[object]]] = {
    "enqueue": lambda: count.enqueue(1),
    "using": lambda: count.using(priority=3).enqueue(1),
    "app.add": lambda: app.add(count.job(1)),
    "jobs.add": lambda: app.jobs.add(count.job(1)),
    "jobs.add by type": lambda: app.jobs.add(type=count.name, args=[1]),
    "jobs.add_many": lambda: app.jobs.add_many([count.job(1)]),
    "jobs.add_batch": lambda: app.jobs.add_batch([count.job(1)], batch="night"),
    "enqueue_sync": lambda: asyncio.to_thread(count.enqueue_sync, 1),
    "app.add_sync": lambda: asyncio.to_thread(app.add_sync, count.job(1)),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_whichever_way_a_call_is_enqueued_it_is_taken_and_no_store_is_touched(
    way: Callable[[], Awaitable[object]], is_open: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with testing.capture(app) as enqueued:
        if is_open:
            async with app:
                await way()
        else:
            await way()
    enqueued.assert_enqueued(count, 1)
    assert len(enqueued) == 1
    with testing.run_inline(app) as run:
        await way()
    assert [call.returned for call in run.of(count)][:1] == [1]
    assert list(tmp_path.iterdir()) == []


async def test_a_store_that_is_open_gets_nothing_of_what_is_captured(tmp_path: Path) -> None:
    own = JobApp(str(tmp_path / "log.db"))
    job = own.job(name="work")(len)
    async with own:
        with testing.capture(own) as enqueued:
            await own.jobs.add_many([job.job("x")])
            await job.enqueue("y")
        assert len(enqueued) == 2
        assert await own.jobs.list() == []
        await job.enqueue("z")
        assert len(await own.jobs.list()) == 1


def test_the_public_ways_of_enqueueing_are_all_in_the_table() -> None:
    """A new verb that takes jobs must be looked at here."""
    takes_jobs = {
        name
        for name, verb in inspect.getmembers(Jobs, inspect.iscoroutinefunction)
        if not name.startswith("_") and {"job", "jobs"} & set(inspect.signature(verb).parameters)
    }
    assert takes_jobs == {"add", "add_many", "add_batch", "schedule"}


async def test_what_needs_a_store_says_so_and_does_nothing() -> None:
    with testing.capture(app):
        for verb in (app.jobs.pause(), app.jobs.schedule("n", count.job(1), cron="@daily"), app.jobs.queues()):
            with pytest.raises(InvalidOption, match="needs a store"):
                await verb


async def test_what_a_worker_refuses_is_refused_inline_and_while_capturing() -> None:
    with testing.run_inline(app), pytest.raises(InvalidOption, match="an event loop runs here"):
        await ask_wrongly.enqueue()
    with testing.capture(app), pytest.raises(InvalidOption, match="an event loop runs here"):
        count.enqueue_sync(1)
    with testing.capture(app) as enqueued, pytest.raises(HeadwaterError):
        await app.jobs.add(type=count.name, args=[1], depends_on="abc")
    enqueued.assert_nothing_enqueued()


@pytest.mark.parametrize("block", [testing.capture, testing.run_inline])
async def test_an_id_that_was_given_before_is_refused_as_a_store_refuses_it(block: Block) -> None:
    with block(app) as enqueued:
        await greet.using(id="once").enqueue(Person("ada"))
        with pytest.raises(JobExists, match="there is a job once already"):
            await greet.using(id="once").enqueue(Person("bob"))
        with pytest.raises(JobExists):
            await app.jobs.add_many([greet.using(id=name).job(Person("bob")) for name in ("new", "new")])
        await asyncio.to_thread(count.using(id="twice").enqueue_sync, 0)
        with pytest.raises(JobExists):
            await asyncio.to_thread(count.using(id="twice").enqueue_sync, 0)
    assert [call.id for call in enqueued] == ["once", "twice"]
    assert sent == ([(Person("ada"), 1)] if block is testing.run_inline else [])


async def test_what_a_worker_allows_is_allowed_inline() -> None:
    """A plain function runs where there is no loop, so it may enqueue without one; an async one awaits."""
    with testing.run_inline(app) as run:
        await count.enqueue(2)
        await spread.enqueue(2)
    assert len(run.of(count)) == 5


inline = JobApp("nowhere/at/all.db")
tried: list[tuple[int, str]] = []


@inline.job(retries=3, give_up_for=(KeyError,))
def try_again(what: str, times: int = 99) -> str:
    """Raises what it is told to, so many times."""
    job = current_job()
    tried.append((job.attempt, job.previous_error.partition("\n")[0]))
    if len(tried) > times:
        return "done"
    raise {
        "fails": ValueError("no"),
        "retries": Retry(after=3_600, reason="later"),
        "gives up": KeyError("no"),
        "snoozes": Snooze(60),
        "cancels": Cancel("nobody needs it"),
    }[what]


@inline.job(retries=3, give_up_for=(KeyError,))
async def try_again_later(what: str, times: int = 99) -> str:
    return try_again(what, times)


@inline.job
def add_up() -> int:
    return int(sum(current_job().results.values()))


@inline.job
def give(number: float) -> float:
    return number


# What it does, how often it fails so: how often it runs, the state it ends in, and what comes out.
TRIALS: dict[str, tuple[str, int, int, JobState, type[Exception] | None]] = {
    "fails once": ("fails", 1, 2, JobState.COMPLETED, None),
    "fails always": ("fails", 99, 4, JobState.DEAD, ValueError),
    "asks for another attempt": ("retries", 3, 4, JobState.COMPLETED, None),
    "asks for too many": ("retries", 99, 4, JobState.DEAD, Retry),
    "gives up": ("gives up", 99, 1, JobState.DEAD, KeyError),
    "snoozes": ("snoozes", 99, 1, JobState.SCHEDULED, None),
    "cancels itself": ("cancels", 99, 1, JobState.CANCELLED, None),
}


@pytest.mark.parametrize("function", [try_again, try_again_later], ids=["plain", "async"])
@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("trial", TRIALS)
def test_a_call_is_tried_inline_as_often_as_a_worker_would(
    trial: str, is_sync: bool, function: JobFunction[..., str]
) -> None:
    what, times, count, state, error = TRIALS[trial]
    tried.clear()
    with testing.run_inline(inline) as enqueued, contextlib.suppress(error or ()):  # type: ignore[arg-type]
        if is_sync:
            function.enqueue_sync(what, times)
        else:
            asyncio.run(_enqueue(function, what, times))
        assert error is None, "it came out"
    (call,) = enqueued
    assert (len(tried), call.state) == (count, state)
    assert [attempt for attempt, _ in tried] == list(range(1, count + 1))
    assert tried[0][1] == ""
    assert all(previous for _, previous in tried[1:])
    if state is JobState.COMPLETED:
        assert call.result() == "done"
    else:
        with pytest.raises(JobUnsuccessful):
            call.result()
    assert call.snoozed_seconds == (60 if what == "snoozes" else None)
    assert call.attempts == (0 if what == "snoozes" else count)


async def _enqueue(function: JobFunction[..., str], what: str, times: int) -> None:
    await function.enqueue(what, times)


async def test_a_call_has_the_results_of_those_it_depends_on_and_waits_for_what_did_not_end_well() -> None:
    with testing.run_inline(inline) as enqueued:
        both = add_up.using(id="sum", depends_on=("one", "two")).job()
        await inline.jobs.add_many([both, give.using(id="one").job(1), give.using(id="two").job(2)])
        await add_up.using(id="again", depends_on=("sum", "two")).enqueue()
        await try_again.using(id="late").enqueue("snoozes")
        late = await add_up.using(id="waits", depends_on=("late",)).enqueue()
        with pytest.raises(JobMissing, match="nobody"):
            await add_up.using(depends_on=("nobody",)).enqueue()
        with pytest.raises(JobUnsuccessful, match="waits for others"):
            await late.result()
    states = {call.id: (call.state, call.returned) for call in enqueued}
    assert states["sum"] == (JobState.COMPLETED, 3)
    assert states["again"] == (JobState.COMPLETED, 5)
    assert states["waits"] == (JobState.WAITING, None)


async def test_a_result_that_is_no_json_is_refused_inline_as_a_worker_refuses_it() -> None:
    with testing.run_inline(inline) as enqueued, pytest.raises(InvalidOption, match="nothing: what it returned"):
        await return_an_object.enqueue()
    assert enqueued[0].state is JobState.DEAD


@inline.job(name="nothing")
def return_an_object() -> object:
    return object()
