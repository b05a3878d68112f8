"""The registry of waiting pops: who is served, in which order, and what becomes of those who leave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import uvloop

from headwater.clock import MILLISECOND, Timestamp
from headwater.config import Durability
from headwater.errors import Closed, Overloaded, StoreDamaged
from headwater.log.committer import CommittedResult
from headwater.log.operations import Ack, Pop, Popped
from headwater.model.cursor import Outcome
from headwater.services.intentions import ELSEWHERE_SECONDS, POPS_AT_ONCE, POPS_FIRST
from tests.loop_clock import standing_still
from tests.services.desk import Desk, found


async def finish(desk: Desk) -> None:
    """Nothing may be left behind."""
    closing = asyncio.ensure_future(desk.intentions.close())
    await desk.answer_with_nothing()
    await closing


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    await finish(made)


@pytest.fixture
async def desk_of_three() -> AsyncIterator[Desk]:
    made = Desk(waiters_max=3)
    yield made
    await finish(made)


async def test_a_waiting_pop_asks_once_and_then_waits(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.answer_with_nothing()
    assert len(desk.calls) == 1
    assert not waiter.done()


async def test_a_waiting_pop_is_served_when_something_comes(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.answer_with_nothing()
    desk.touch()
    await desk.answer(found(0))
    assert (await waiter).batches[0].offsets == [0]
    assert desk.intentions.count == 0


async def test_only_those_who_were_served_leave(desk: Desk) -> None:
    waiters = [desk.wait() for _ in range(3)]
    await desk.answer_with_nothing()
    desk.touch()
    await desk.answer(found(0))
    assert [waiter.done() for waiter in waiters] == [True, False, False]
    assert desk.intentions.count == 2
    desk.touch()
    await desk.answer(found(1), found(2))
    assert all(waiter.done() for waiter in waiters)


async def test_the_oldest_is_served_first(desk: Desk) -> None:
    first, second, third = desk.wait(30), desk.wait(10), desk.wait(20)
    await desk.answer_with_nothing()
    for waiter, offset in ((first, 0), (second, 1), (third, 2)):
        desk.touch()
        await desk.answer(found(offset))
        assert waiter.done()


async def test_one_pop_is_under_way_for_a_key_at_a_time(desk: Desk) -> None:
    desk.wait()
    await desk.turn()
    for _ in range(5):
        desk.touch()
        desk.intentions.released("main", "orders")
        await desk.turn()
    assert len(desk.calls) == 1
    await desk.answer()
    assert len(desk.calls) == 2, "what came meanwhile is asked for once more"
    await desk.answer()
    assert len(desk.calls) == 2


async def test_a_wake_asks_for_a_few_of_many_waiters_in_one_commit(desk: Desk) -> None:
    for _ in range(100):
        desk.wait()
    await desk.answer_with_nothing()
    calls = len(desk.calls)
    desk.touch()
    await desk.turn()
    assert len(desk.calls) == calls + 1
    assert len(desk.calls[-1]) == POPS_FIRST
    await desk.answer()
    assert len(desk.calls) == calls + 1


async def test_waiters_are_asked_for_in_growing_numbers_while_all_are_served(desk: Desk) -> None:
    for _ in range(100):
        desk.wait()
    await desk.answer_with_nothing()
    desk.calls.clear()
    desk.touch()
    for _ in range(3):
        await desk.turn()
        await desk.answer(*[found(place) for place in range(len(desk.calls[-1]))])
    assert [len(call) for call in desk.calls[:3]] == [4, 16, 64]


async def test_a_thousand_waiters_on_one_queue_are_all_served(desk: Desk) -> None:
    waiters = [desk.wait() for _ in range(1_000)]
    await desk.answer_with_nothing()
    assert desk.intentions.count == 1_000
    desk.touch()
    served = 0
    while served < 1_000:
        await desk.turn()
        size = len(desk.calls[-1])
        assert size <= POPS_AT_ONCE
        await desk.answer(*[found(served + place) for place in range(size)])
        served += size
    offsets = [(await waiter).batches[0].offsets[0] for waiter in waiters]
    assert offsets == list(range(1_000))
    assert desk.intentions.count == 0


# ── deadlines ──


async def test_a_deadline_that_passes_answers_with_nothing(desk: Desk) -> None:
    waiter = desk.wait(0.01)
    await desk.answer_with_nothing()
    assert await waiter == Popped()
    assert desk.intentions.count == 0


async def test_each_waiter_has_its_own_deadline(desk: Desk) -> None:
    long, short = desk.wait(), desk.wait(0.01)
    await desk.answer_with_nothing()
    assert await short == Popped()
    assert not long.done()


async def test_what_comes_after_the_deadline_is_given_back(desk: Desk) -> None:
    waiter = desk.wait(0.01)
    await desk.turn()
    assert await waiter == Popped()
    await desk.answer(found(0, 1))
    (report,) = desk.returned
    assert report.outcomes == {0: Outcome.RELEASED, 1: Outcome.RELEASED}
    assert (report.group, report.token) == ("g", 7)


async def test_a_waiter_that_was_served_is_not_answered_again_by_its_deadline(desk: Desk) -> None:
    with standing_still() as time:
        waiter = desk.wait(0.02)
        await desk.answer(found(0))
        assert (await waiter).batches
        other = desk.wait(0.04)
        await desk.answer_with_nothing()
        await time.advance(0.05)
        assert await other == Popped()
    assert desk.returned == []


async def test_a_thousand_waiters_share_a_timer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers = 0
    original = loop.call_at

    def counted(when: float, callback: Any, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += 1
        return original(when, callback, *arguments, **more)

    monkeypatch.setattr(loop, "call_at", counted)
    waiters = [desk.wait() for _ in range(1_000)]
    await desk.answer_with_nothing()
    assert timers <= 3
    monkeypatch.undo()
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)


async def test_deadlines_of_the_past_are_not_kept_for_ever(desk: Desk) -> None:
    for _ in range(60):
        waiters = [desk.wait() for _ in range(100)]
        await desk.turn()
        while not all(waiter.done() for waiter in waiters):
            await desk.answer(*[found(0)] * 100)
    assert len(desk.intentions._deadlines) <= 2_000


# ── leaving early ──


async def test_whoever_leaves_before_anything_came_leaves_nothing_behind(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.answer_with_nothing()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert desk.intentions.count == 0
    calls = len(desk.calls)
    desk.touch()
    await desk.turn()
    assert len(desk.calls) == calls
    assert desk.returned == []


async def test_what_was_on_its_way_to_somebody_who_left_is_given_back(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.turn()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    await desk.answer(found(3))
    assert [report.outcomes for report in desk.returned] == [{3: Outcome.RELEASED}]


async def test_a_line_is_served_on_when_records_could_not_be_given_back(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Ack) -> None:
        raise Overloaded("too many wait")

    monkeypatch.setattr(desk.intentions, "_give_back", refuse)
    leaving, staying = desk.wait(), desk.wait()
    await desk.answer_with_nothing()
    desk.touch()
    await desk.turn()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await desk.answer(found(3), found(4))
    assert "their lease runs out" in caplog.text
    assert (await staying).batches[0].offsets == [4]


async def test_pops_that_are_answered_one_after_the_other_are_waited_for(desk: Desk) -> None:
    waiters = [desk.wait(), desk.wait()]
    await desk.answer_with_nothing()
    desk.touch()
    await desk.turn()
    first, last = desk._open.pop()
    last.set_result(CommittedResult(found(4), Durability.SYNCED))
    await desk.turn()
    assert not any(waiter.done() for waiter in waiters)
    first.set_result(CommittedResult(found(3), Durability.SYNCED))
    assert [(await waiter).batches[0].offsets for waiter in waiters] == [[3], [4]]


async def test_what_was_handed_over_in_the_moment_of_leaving_is_given_back(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.turn()
    (answers,) = desk._open
    answers[0].set_result(CommittedResult(found(3), Durability.SYNCED))
    for _ in range(10):
        await asyncio.sleep(0)
        if desk.intentions.count == 0:
            break
    waiter.cancel()
    (outcome,) = await asyncio.gather(waiter, return_exceptions=True)
    desk._open.clear()
    assert isinstance(outcome, asyncio.CancelledError)
    assert [report.outcomes for report in desk.returned] == [{3: Outcome.RELEASED}]


async def test_an_error_in_the_moment_of_leaving_does_not_hide_the_leaving(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.turn()
    (answers,) = desk._open
    answers[0].set_exception(StoreDamaged("broken"))
    for _ in range(10):
        await asyncio.sleep(0)
        if desk.intentions.count == 0:
            break
    waiter.cancel()
    (outcome,) = await asyncio.gather(waiter, return_exceptions=True)
    desk._open.clear()
    assert isinstance(outcome, asyncio.CancelledError)


async def test_records_without_a_lease_are_not_given_back(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.turn()
    waiter.cancel()
    await desk.answer(found(3, token=0))
    assert desk.returned == []


# ── who is woken ──


async def test_a_touch_wakes_only_those_who_could_want_it(desk: Desk) -> None:
    desk.wait(queue="orders")
    desk.wait(queue="orders", partition="a")
    desk.wait(queue="orders", partition="b")
    desk.wait(queue="bills")
    await desk.answer_with_nothing()
    calls = len(desk.calls)
    desk.touch("orders", "a")
    await desk.turn()
    woken = [(pops[0].queue, pops[0].partition) for pops in desk.calls[calls:]]
    assert sorted(woken) == [("orders", ""), ("orders", "a")]


async def test_waits_by_namespace_and_task_are_woken_by_their_queues(desk: Desk) -> None:
    desk.wait(queue="", namespace="shop")
    desk.wait(queue="", namespace="shop", task="bill")
    desk.wait(queue="", task="mail")
    desk.wait(queue="")
    await desk.answer_with_nothing()
    calls = len(desk.calls)
    desk.touch("orders", namespace="shop", task="bill")
    await desk.turn()
    woken = [(pops[0].namespace, pops[0].task) for pops in desk.calls[calls:]]
    assert sorted(woken) == [("", ""), ("shop", ""), ("shop", "bill")]


async def test_selections_that_look_alike_when_joined_are_apart(desk: Desk) -> None:
    """A key is a tuple: `a:b` with `c` is not `a` with `b:c`, and a namespace is not a queue."""
    selections: list[dict[str, Any]] = [
        {"queue": "a", "partition": "b:c", "group": "g"},
        {"queue": "a:b", "partition": "c", "group": "g"},
        {"queue": "a", "partition": "b", "group": "c:g"},
        {"queue": "", "namespace": "a", "task": "b:c", "group": "g"},
        {"queue": "", "namespace": "a:b", "task": "c", "group": "g"},
    ]
    for selection in selections:
        desk.wait(**selection)
    await desk.turn()
    assert len(desk.calls) == len(selections)
    await desk.answer_with_nothing()


async def test_groups_are_served_apart(desk: Desk) -> None:
    desk.wait(group="one")
    desk.wait(group="two")
    await desk.answer_with_nothing()
    calls = len(desk.calls)
    desk.touch()
    await desk.turn()
    assert sorted(pops[0].group for pops in desk.calls[calls:]) == ["one", "two"]


async def test_what_becomes_free_later_is_asked_for_then(desk: Desk) -> None:
    waiter = desk.wait()
    with standing_still() as clock:
        await desk.answer(Popped(ready_at=Timestamp(desk.clock.now() + 5 * MILLISECOND)))
        await clock.advance(0.004)
        assert len(desk.calls) == 1
        await clock.advance(0.002)
        assert len(desk.calls) == 2
    await desk.answer(found(0))
    assert waiter.done()


async def test_commits_elsewhere_are_looked_at_together(desk: Desk) -> None:
    desk.wait(group="ready")
    desk.wait(group="not ready")
    await desk.answer_with_nothing()
    calls = len(desk.calls)
    desk.ready_groups = [("main", "orders", "ready")]
    with standing_still() as clock:
        for _ in range(20):
            desk.intentions.committed_elsewhere()
        await clock.advance(ELSEWHERE_SECONDS)
    assert desk.questions == 1
    assert [pops[0].group for pops in desk.calls[calls:]] == ["ready"]


async def test_nobody_asks_while_nobody_waits(desk: Desk) -> None:
    with standing_still() as clock:
        desk.touch()
        desk.intentions.committed_elsewhere()
        desk.intentions.released("main", "orders")
        await clock.advance(2 * ELSEWHERE_SECONDS)
    assert (desk.calls, desk.questions) == ([], 0)


# ── errors and bounds ──


async def test_an_error_is_told_to_the_waiter_it_belongs_to(desk: Desk) -> None:
    first, second = desk.wait(), desk.wait()
    await desk.answer_with_nothing()
    desk.touch()
    await desk.answer(StoreDamaged("broken"), found(0))
    with pytest.raises(StoreDamaged):
        await first
    assert (await second).batches


@pytest.mark.parametrize("refusal", [Overloaded("too much"), Closed("closed")])
async def test_pops_that_are_not_taken_are_told_at_once(desk: Desk, refusal: Overloaded | Closed) -> None:
    desk.refusal = refusal
    waiters = [desk.wait() for _ in range(2)]
    for waiter in waiters:
        with pytest.raises(type(refusal)):
            await asyncio.wait_for(waiter, 5)
    assert desk.intentions.count == 0


async def test_too_many_waiters_are_refused(desk_of_three: Desk) -> None:
    desk = desk_of_three
    waiters = [desk.wait() for _ in range(3)]
    await desk.answer_with_nothing()
    with pytest.raises(Overloaded):
        await desk.wait()
    waiters[0].cancel()
    await asyncio.gather(waiters[0], return_exceptions=True)
    again = desk.wait()
    await desk.answer_with_nothing()
    assert not again.done()


async def test_closing_ends_all_waits_with_nothing(desk: Desk) -> None:
    waiters = [desk.wait(queue=f"q{number}") for number in range(5)]
    await desk.answer_with_nothing()
    await desk.intentions.close()
    assert [await waiter for waiter in waiters] == [Popped()] * 5


async def test_what_comes_while_closing_is_given_back(desk: Desk) -> None:
    waiter = desk.wait()
    await desk.turn()
    closing = asyncio.ensure_future(desk.intentions.close())
    await desk.answer(found(0))
    await closing
    assert await waiter == Popped()
    assert len(desk.returned) == 1


@pytest.mark.parametrize("ends", ["drain", "close"])
async def test_what_was_acked_on_its_way_while_all_waits_end_is_handed_over(desk: Desk, ends: str) -> None:
    """Nobody could give it back: who is answered that there is nothing would have lost it. The others need not wait."""
    first, second = desk.wait(auto_ack=True), desk.wait(auto_ack=True)
    others = [desk.wait(queue=f"q{number}", auto_ack=True) for number in range(3)]
    await desk.turn()
    for _ in range(2 + len(others)):
        desk.touch()
    ending = asyncio.ensure_future(desk.intentions.close()) if ends == "close" else None
    if ending is None:
        desk.intentions.drain()
    await desk.turn()
    assert not first.done()
    await desk.answer(found(0, token=0))
    await desk.answer_with_nothing()
    assert (await first).batches[0].offsets == [0]
    assert [await waiter for waiter in (second, *others)] == [Popped()] * 4
    assert desk.intentions.count == 0
    if ending is not None:
        await ending


async def test_whoever_is_not_known_any_more_is_sent_home_and_the_next_one_is_served(desk: Desk) -> None:
    """Before anything is popped for them; however many there are."""
    known = [True] * 1_500
    waiters = [
        asyncio.ensure_future(desk.intentions.wait(Pop(queue="orders"), 60, is_known=partial(known.__getitem__, place)))
        for place in range(len(known))
    ]
    await desk.answer_with_nothing()
    known[:-1] = [False] * (len(known) - 1)
    desk.touch()
    await desk.answer(found(0))
    assert [len(call) for call in desk.calls][-1] == 1
    assert (await waiters[-1]).batches[0].offsets == [0]
    assert [await waiter for waiter in waiters[:-1]] == [Popped()] * 1_499
    assert desk.returned == []


async def test_a_pop_that_found_nothing_need_not_ask_again(desk: Desk) -> None:
    mark = desk.intentions.mark()
    waiting = asyncio.ensure_future(desk.intentions.wait(Pop(queue="orders"), 60.0, (mark, Popped())))
    await desk.turn()
    assert desk.calls == []
    desk.touch()
    await desk.answer(found(0))
    assert (await waiting).batches


async def test_a_pop_that_found_nothing_asks_again_if_something_happened_since(desk: Desk) -> None:
    mark = desk.intentions.mark()
    desk.touch()
    waiting = asyncio.ensure_future(desk.intentions.wait(Pop(queue="orders"), 60.0, (mark, Popped())))
    await desk.answer(found(0))
    assert (await waiting).batches


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_waits_that_are_over_at_once_are_over_on_every_event_loop(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def wait_for_nothing() -> list[Popped]:
        desk = Desk()
        waiters = [desk.wait(seconds) for seconds in (0.0001, 0.0, 0.0002, 0.0)]
        await desk.answer_with_nothing()
        return list(await asyncio.gather(*waiters))

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(wait_for_nothing()) == [Popped()] * 4
