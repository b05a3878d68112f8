"""Python functions as jobs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any, TypedDict, Unpack

import msgspec
import pytest

from headwater import NewJob
from headwater.errors import Closed, InvalidOption, InvalidPayload, JobUnsuccessful
from headwater.jobs import JobApp, current_job, testing
from headwater.log.committer import CommittedResult
from headwater.log.job_operations import Claim, Heartbeat, JobReport, Settle
from headwater.log.operations import Operation
from headwater.model.job import JobState
from headwater.services.job_functions import PROGRESS_BYTES_MAX
from headwater.stores.job_questions import JobStatus
from headwater.stores.job_starts import JobStarts
from headwater.worker.call_reports import FunctionSettings
from headwater.worker.functions import Functions
from headwater.worker.loading import FunctionSources
from headwater.worker.worker_options import UNLOADABLE
from tests.waiting import expect_soon_async
from tests.worker import functions
from tests.worker.bench import FUNCTIONS, Bench


async def result(bench: Bench, job: NewJob) -> object:
    """What a job returns."""
    handle = await bench.hw.jobs.add(job)
    await bench.drain()
    return await handle.result(5)


async def ended(bench: Bench, job: NewJob) -> JobStatus:
    """A job that was run to its end."""
    handle = await bench.hw.jobs.add(job)
    await bench.drain()
    return await handle.show()


async def test_plain_and_async_functions_return_their_results(bench: Bench) -> None:
    assert await result(bench, functions.add.job(1, right=2)) == 3
    assert await result(bench, functions.add_later.job(1)) == 2


async def test_arguments_arrive_as_the_types_that_the_function_asks_for(bench: Bench) -> None:
    assert await result(bench, functions.describe.job(functions.Order(7, ["new", "big"]))) == "7: new, big"


async def test_each_of_many_arguments_arrives_as_its_annotation_says(bench: Bench) -> None:
    orders = [functions.Order(number, ["new"]) for number in range(4)]
    said = [f"{number}: new" for number in range(4)]
    assert await result(bench, functions.describe_all.job(orders[0], *orders[1:3], last=orders[3])) == said
    with testing.run_inline(functions.app) as calls:
        await functions.describe_all.enqueue(orders[0], *orders[1:3], last=orders[3])
    assert calls[0].returned == said


async def test_keys_that_are_no_texts_and_enumerations_of_several_kinds_arrive_as_they_were(bench: Bench) -> None:
    call: Any = functions.describe_keys
    said = ["{1: 'x'}", "[{2: 0.5}]"]
    days = [{date(2026, 1, 2): 0.5}]
    assert await result(bench, call.job({1: "x"}, days)) == [*said, "SMALL"]
    assert await result(bench, call.job({"1": "x"}, days, size=functions.Size.LARGE)) == [*said, "LARGE"]
    assert await result(bench, call.job({1: "x"}, days, "l")) == [*said, "LARGE"]
    for wrong in (({"one": "x"}, days), ({1: "x"}, [{"today": 1}]), ({1: "x"}, days, "m")):
        with pytest.raises(InvalidOption, match="cannot be called like this"):
            call.job(*wrong)


class Limits(TypedDict):
    low: int
    high: int


def test_each_of_many_arguments_is_checked_where_it_is_enqueued() -> None:
    app = JobApp("nowhere.db")

    def each(*numbers: int, **named: int) -> None: ...

    def unpacked(*pair: *tuple[int, str], **limits: Unpack[Limits]) -> None: ...

    def anything(*some, **named) -> None: ...  # type: ignore[no-untyped-def]

    checked: Any = app.job(name="each")(each)
    packed: Any = app.job(name="unpacked")(unpacked)
    free: Any = app.job(name="anything")(anything)
    wrong: list[tuple[Any, Any]] = [((1, "two"), {}), ((), {"one": "two"}), ((None,), {"one": 1})]
    for arguments, named in wrong:
        with pytest.raises(InvalidOption, match="each cannot be called like this"):
            checked.job(*arguments, **named)
        free.job(*arguments, **named)
    assert bytes(checked.job(1, 2, three=3).arguments) == b'[[1,2],{"three":3}]'
    packed.job(1, "two", low=1, high=2)
    wrong = [(("one", "two"), {"low": 1, "high": 2}), ((1, "two"), {"low": "x", "high": 2})]
    for arguments, named in wrong:
        with pytest.raises(InvalidOption, match="unpacked cannot be called like this"):
            packed.job(*arguments, **named)


async def test_a_call_that_does_not_fit_the_function_is_refused_when_it_is_enqueued() -> None:
    with pytest.raises(InvalidOption, match="wrong"):
        functions.add.job(1, wrong=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidPayload):
        functions.add.job(object())  # type: ignore[arg-type]


async def test_a_function_that_raises_fails_with_its_traceback(bench: Bench) -> None:
    job = await ended(bench, functions.fail.using(retries=0).job())
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert job.error.endswith("ValueError: this went wrong")
    assert "functions.py" in job.error


async def test_a_result_that_was_waited_for_says_how_the_job_ended(bench: Bench) -> None:
    handle = await bench.hw.jobs.add(functions.fail.using(retries=0).job())
    await bench.drain()
    with pytest.raises(JobUnsuccessful, match="went wrong") as caught:
        await handle.result(5)
    assert caught.value.state == "dead"


async def test_an_exception_that_no_retry_mends_buries_the_job_at_once(bench: Bench) -> None:
    job = await ended(bench, functions.give_up.job())
    assert (job.state, job.attempts) == (JobState.DEAD, 1)
    job = await ended(bench, functions.return_nonsense.job())
    assert (job.state, job.attempts) == (JobState.DEAD, 1)


async def test_a_function_can_ask_for_another_attempt_a_nap_or_its_end(bench: Bench) -> None:
    marks = str(bench.folder / "marks")
    retried = await bench.hw.jobs.add(functions.retry_at_once.job(marks))
    snoozed = await bench.hw.jobs.add(functions.snooze_twice.job())
    gone = await bench.hw.jobs.add(functions.cancel_itself.job())
    async with bench.running():
        assert await retried.result(20) == 3
        assert await snoozed.result(20) == 1
        assert await gone.wait(20) is JobState.CANCELLED
    assert (await gone.show()).error == "nobody needs it"


@pytest.mark.parametrize("function", [functions.hang, functions.hang_politely, functions.hang_rudely])
async def test_a_function_that_takes_too_long_is_ended_whatever_it_does(bench: Bench, function: object) -> None:
    job = await ended(bench, function.job())  # type: ignore[attr-defined]
    assert (job.state, job.error) == (JobState.DEAD, "timed out after 0.2 s")


async def test_a_function_that_kills_its_process_fails_alone(bench: Bench) -> None:
    good = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(5)]
    bad = await bench.hw.jobs.add(functions.die.using(priority=1).job())
    await bench.drain()
    assert (await bad.show()).error == "the process that ran it was ended by SIGKILL"
    shown = [await job.show() for job in good]
    assert [(job.state, job.attempts) for job in shown] == [(JobState.COMPLETED, 1)] * 5


async def test_async_functions_run_at_the_same_time(bench: Bench) -> None:
    folder = bench.folder / "met"
    folder.mkdir()
    jobs = [await bench.hw.jobs.add(functions.meet.job(str(folder), 5)) for _ in range(5)]
    await bench.drain(concurrency=5)
    assert [await job.result(5) for job in jobs] == [5] * 5


async def test_progress_is_seen_while_the_function_runs(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = await bench.hw.jobs.add(functions.tell_progress.job(str(gate)))
    async with bench.running():

        async def is_shown() -> bool:
            progress = (await job.show()).progress
            return progress is not None and msgspec.json.decode(progress) == {"percent": 50}

        await expect_soon_async(is_shown)
        gate.touch()
        assert await job.wait(20) is JobState.COMPLETED


async def test_a_worker_that_drains_waits_for_what_its_last_reports_set_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = bench.hw.committer.submit

    def submit_late(operation: Operation, *more: Any) -> asyncio.Future[CommittedResult]:
        if not isinstance(operation, Settle):
            return submit(operation, *more)
        late = asyncio.ensure_future(asyncio.sleep(0.2))
        late.add_done_callback(lambda _: submit(operation, *more).add_done_callback(lambda done: copy(done, answer)))
        answer: asyncio.Future[CommittedResult] = asyncio.get_running_loop().create_future()
        return answer

    def copy(done: asyncio.Future[CommittedResult], answer: asyncio.Future[CommittedResult]) -> None:
        answer.set_result(done.result())

    monkeypatch.setattr(bench.hw.committer, "submit", submit_late)
    await bench.hw.jobs.add(functions.add.using(id="part").job(1, right=2))
    await bench.hw.jobs.add(functions.sum_results.using(id="total", depends_on=("part",)).job())
    await bench.drain()
    assert (await bench.hw.jobs.show("total")).state is JobState.COMPLETED


async def test_a_job_gets_the_results_of_those_that_it_depended_on(bench: Bench) -> None:
    parts = [functions.add.using(id=f"part{number}").job(number) for number in range(3)]
    total = functions.sum_results.using(id="total", depends_on=tuple(part.id for part in parts)).job()
    await bench.hw.jobs.add_many([total, *parts])
    async with bench.running():
        assert await bench.hw.jobs.result("total", 20) == 6


async def test_a_command_gets_results_in_its_environment_as_far_as_they_fit(bench: Bench) -> None:
    await bench.hw.jobs.add(functions.add.using(id="part").job(1))
    await bench.hw.jobs.add(id="shown", command="echo $HEADWATER_JOB_RESULTS", depends_on=("part",))
    await bench.hw.jobs.add(functions.return_some.using(id="much").job())
    await bench.hw.jobs.add(id="left-out", command="echo ${HEADWATER_JOB_RESULTS-nothing}", depends_on=("much",))
    async with bench.running():
        assert await bench.ended("shown") is await bench.ended("left-out") is JobState.COMPLETED
    assert (await bench.hw.jobs.attempts("shown"))[0].output == '{"part":2}\n'
    assert (await bench.hw.jobs.attempts("left-out"))[0].output == "nothing\n"


async def test_a_batch_calls_back_when_all_of_it_has_ended(bench: Bench) -> None:
    members = [functions.add.job(1), functions.fail.using(retries=0).job()]
    await bench.hw.jobs.add_batch(members, batch="night", callback=functions.add.job(40, 2))
    async with bench.running():
        assert await bench.hw.jobs.result("night.callback", 20) == 42
    states = {job.id: job.state for job in await bench.hw.jobs.list(batch="night")}
    assert states == {"night.0": JobState.COMPLETED, "night.1": JobState.DEAD}


async def test_an_app_that_cannot_be_loaded_ends_the_worker_and_gives_the_jobs_back(bench: Bench) -> None:
    job = await bench.hw.jobs.add(functions.add.job(1))
    assert await bench.drain(app="tests.worker.missing:app") == UNLOADABLE
    shown = await job.show()
    assert (shown.state, shown.attempts) == (JobState.PENDING, 0)


async def test_an_app_that_kills_its_process_again_and_again_ends_the_worker(bench: Bench) -> None:
    job = await bench.hw.jobs.add(functions.add.job(1))
    assert await bench.drain(app="tests.worker.dying:app") == UNLOADABLE
    shown = await job.show()
    assert (shown.state, shown.attempts) == (JobState.PENDING, 0)


async def test_a_result_that_is_too_large_buries_the_job(bench: Bench) -> None:
    job = await ended(bench, functions.return_much.job())
    assert job.state is JobState.DEAD
    assert job.error is not None
    assert "1,048,576 are kept" in job.error


async def test_stopping_finishes_what_runs_and_gives_back_the_rest_without_an_attempt(bench: Bench) -> None:
    gate = bench.folder / "gate"
    quick = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(60)]
    slow = await bench.hw.jobs.add(functions.wait_for_file.job(str(gate)))
    rest = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(20)]
    worker = bench.worker()
    task = asyncio.get_running_loop().create_task(worker.run())
    for job in quick:
        await job.wait(20)

    async def runs() -> bool:
        return (await slow.show()).state is JobState.PROCESSING

    await expect_soon_async(runs)
    worker.stop()

    async def is_given_back() -> bool:
        return {(await job.show()).state for job in rest} <= {JobState.PENDING}

    await expect_soon_async(is_given_back)
    assert (await slow.show()).state is JobState.PROCESSING
    gate.touch()
    assert await asyncio.wait_for(task, 20) == 0
    assert (await slow.show()).state is JobState.COMPLETED
    assert {(await job.show()).attempts for job in rest} == {0}


async def test_jobs_behind_a_long_one_go_to_a_worker_that_is_free(bench: Bench) -> None:
    gate = bench.folder / "gate"
    quick = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(60)]
    slow = await bench.hw.jobs.add(functions.wait_for_file.job(str(gate)))
    async with bench.running(id="first"):
        for job in quick:
            await job.wait(20)
        behind = [await bench.hw.jobs.add(functions.add.job(number)) for number in range(20)]
        async with bench.running(id="second"):
            assert {await job.wait(20) for job in behind} == {JobState.COMPLETED}
        gate.touch()
        assert await slow.wait(20) is JobState.COMPLETED


async def test_a_job_app_opens_its_own_store(bench: Bench) -> None:
    app = JobApp(str(bench.folder / "log.db"))
    greet = app.job(functions.plain)
    with pytest.raises(Closed):
        await greet.enqueue("a")
    async with app:
        handle = await greet.enqueue("a")
    assert (await bench.hw.jobs.show(handle.id)).type == "tests.worker.functions:plain"
    assert greet("a") == "A"


def test_outside_of_a_job_there_is_no_current_one() -> None:
    with pytest.raises(InvalidOption):
        current_job()


def _plain_generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [_plain_generator, _async_generator])
def test_a_generator_function_is_refused_where_it_is_declared(function: Any) -> None:
    """Calling it would run none of its lines."""
    with pytest.raises(InvalidOption, match="generator function"):
        JobApp().job(function)
    with pytest.raises(InvalidOption, match="generator function"):
        JobApp().job(retries=1)(function)
    with pytest.raises(InvalidOption, match="generator function"):
        JobApp().allow("named", function)


def test_a_function_that_could_not_be_found_again_is_refused() -> None:
    app = JobApp()
    with pytest.raises(InvalidOption):
        app.job(lambda: None)
    app.job(functions.plain)
    with pytest.raises(InvalidOption):
        app.job(functions.plain)


async def test_calls_that_wait_behind_one_that_kills_the_process_are_sent_to_the_next(bench: Bench) -> None:
    starts = JobStarts.make("", 200)
    runner = Functions(FunctionSettings(sources=FunctionSources(app=FUNCTIONS), grace_seconds=0.3), starts)
    reports: dict[int, JobReport] = {}
    all_told = asyncio.Event()

    def take(report: JobReport) -> None:
        reports[report.number] = report
        if len(reports) == 4:
            all_told.set()

    runner.on_report = take
    await bench.hw.jobs.add_many(
        [functions.add.job(1), functions.die.job(), functions.add.job(2), functions.add.job(3)]
    )
    jobs = (await bench.hw.jobs_service.run(Claim(worker="w", limit=4))).jobs
    for job in jobs:
        runner.run(job)
    await asyncio.wait_for(all_told.wait(), 30)
    assert [reports[job.number].outcome for job in jobs] == ["completed", "failed", "completed", "completed"]
    assert [reports[job.number].result for job in jobs] == ["2", None, "3", "4"]
    runner.close()
    await runner.closed()
    starts.close()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("one",), {}),
        ((1,), {"right": "two"}),
        ((1, 2, 3), {}),
        ((), {"left": None}),
        ((), {"lefft": 1}),
        ((1.5,), {}),
    ],
)
async def test_a_call_that_its_function_does_not_take_is_refused_where_it_is_enqueued(
    bench: Bench, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    for function in (functions.add, functions.add_later):
        with pytest.raises(InvalidOption, match=f"{function.name} cannot be called like this"):
            function.job(*arguments, **named)
    assert await bench.hw.jobs.list() == []


def test_a_call_of_a_function_whose_types_are_elsewhere_is_left_to_the_worker() -> None:
    app = JobApp("nowhere.db")

    def work(order: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert bytes(app.job(name="work")(work).job({"id": 1}).arguments) == b'[[{"id":1}],{}]'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_a_result_that_json_has_not_makes_the_job_dead_and_says_so(bench: Bench, number: float) -> None:
    job = await bench.hw.jobs.add(functions.divide_by_nothing.job(str(number)))
    await bench.drain()
    shown = await job.show()
    assert (shown.state, shown.attempts) == (JobState.DEAD, 1)
    assert "NaN and Infinity are no numbers in JSON" in (shown.error or "")


@pytest.mark.parametrize(
    ("told", "returned", "state"),
    [(100, 100, JobState.COMPLETED), (101, 1, JobState.DEAD), (1, 101, JobState.DEAD), (1, 500, JobState.DEAD)],
)
async def test_what_a_function_tells_is_as_deep_as_everybody_can_read(
    bench: Bench, told: int, returned: int, state: JobState
) -> None:
    job = await bench.hw.jobs.add(functions.tell_deep.using(retries=0).job(told, returned))
    await bench.drain()
    shown = await job.show()
    assert shown.state is state
    assert ("100 levels" in (shown.error or "")) is (state is JobState.DEAD)
    assert [one.id for one in await bench.hw.jobs.list()] == [job.id]


@pytest.mark.parametrize("size", [PROGRESS_BYTES_MAX - 2, PROGRESS_BYTES_MAX])
async def test_progress_has_a_bound_and_the_function_is_told(bench: Bench, size: int) -> None:
    job = await bench.hw.jobs.add(functions.tell_long.job(size))
    await bench.drain()
    is_told = size < PROGRESS_BYTES_MAX
    assert (await job.result(5) == "told") is is_told
    assert ((await job.show()).progress is not None) is is_told


async def test_a_worker_that_calls_one_at_a_time_leaves_places_of_a_limit_to_others(bench: Bench) -> None:
    gate = bench.folder / "gate"
    job = functions.wait_for_file.job(str(gate))
    await bench.hw.jobs.limit(job.type, concurrency=2)
    await bench.hw.jobs_service.run(Heartbeat(worker="other"))
    await bench.hw.jobs.add_many([job, job, job])
    async with bench.running(concurrency=5):
        await expect_soon_async(lambda: is_any_processing(bench), 60)
        claimed = await bench.hw.jobs_service.run(Claim(worker="other", limit=5))
        gate.touch()
    assert len(claimed.jobs) == 1


async def is_any_processing(bench: Bench) -> bool:
    return bool(await bench.hw.jobs.list(state=JobState.PROCESSING))
