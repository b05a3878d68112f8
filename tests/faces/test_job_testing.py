"""`headwater.jobs.testing`: what a program enqueues is written down or run on the spot, without a store."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.errors import Closed, HeadwaterError
from headwater.jobs import JobApp, current_job, testing

app = JobApp("nowhere/at/all.db")
sent: list[object] = []


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
