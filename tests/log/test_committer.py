"""Group commit: who shares a transaction and a disk wait, who is answered when, and what a failure does to whom."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.config import Durability
from headwater.errors import (
    Closed,
    Overloaded,
    QueueFull,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReplaced,
)
from headwater.log.backlog import COMMIT_OPERATIONS_MAX
from headwater.log.committer import GATHER_SECONDS, CommittedResult, Committer
from headwater.log.operations import Commit
from tests.contracts.clock import FakeClock
from tests.log.fake_store import FakeStore, operation

SYNCED, WRITTEN, MEMORY = Durability.SYNCED, Durability.WRITTEN, Durability.MEMORY


async def turn(times: int = 5) -> None:
    """Let everything happen that needs no disk: some turns of the event loop."""
    for _ in range(times):
        await asyncio.sleep(0)


@pytest.fixture
async def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def committer(store: FakeStore) -> AsyncIterator[Committer]:
    made = Committer(store.as_store(), FakeClock(), pending_max=10_000)
    made.start()
    yield made
    store.free.set()
    store.quick_disk = True
    for barrier in store.barriers:
        if not barrier.done():
            barrier.set_result(None)
    await made.close()


def names(store: FakeStore) -> list[list[str]]:
    return [[getattr(asked, "queue", "") for asked in commit] for commit in store.commits]


# ── sharing ──


async def test_callers_of_one_turn_share_a_commit_and_a_disk_wait(store: FakeStore, committer: Committer) -> None:
    answers = [committer.submit(operation(f"q{number}")) for number in range(100)]
    await turn()
    assert [len(commit) for commit in store.commits] == [100]
    assert store.callers == [100]
    store.barriers[0].set_result(None)
    found = await asyncio.gather(*answers)
    assert [answer.result for answer in found] == [f"done: q{number}" for number in range(100)]
    assert {answer.durability for answer in found} == {SYNCED}
    assert (committer.commits, committer.syncs) == (1, 1)


async def test_operations_gather_while_the_disk_is_busy(store: FakeStore, committer: Committer) -> None:
    first = committer.submit(operation("first"))
    await turn()
    later = [committer.submit(operation(f"q{number}")) for number in range(10)]
    await turn()
    assert names(store) == [["first"]]
    store.barriers[0].set_result(None)
    await turn()
    assert first.done()
    assert [len(commit) for commit in store.commits] == [1, 10]
    store.barriers[1].set_result(None)
    await asyncio.gather(*later)
    assert len(store.barriers) == 2


async def test_a_commit_waits_while_every_turn_brings_more_callers(store: FakeStore, committer: Committer) -> None:
    for number in range(4):
        committer.submit(operation(f"a{number}"))
        committer.submit(operation(f"b{number}"))
        await asyncio.sleep(0)
    assert names(store) == []
    await turn(2)
    assert [len(commit) for commit in store.commits] == [8]


async def test_a_caller_who_is_alone_waits_for_nobody(store: FakeStore, committer: Committer) -> None:
    committer.submit_all([operation("ack"), operation("pop")])
    await asyncio.sleep(0)
    assert names(store) == [["ack", "pop"]]


async def test_callers_who_never_end_do_not_put_a_commit_off_for_long(
    store: FakeStore, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now = asyncio.get_running_loop(), [0.0]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    for _ in range(10):
        committer.submit(operation())
        committer.submit(operation())
        now[0] += GATHER_SECONDS / 4
        await asyncio.sleep(0)
    assert len(store.commits) == 1
    assert 10 <= len(store.commits[0]) <= 14


async def test_the_order_of_submission_is_the_order_of_the_commit(store: FakeStore, committer: Committer) -> None:
    for name in "abc":
        committer.submit(operation(name))
    committer.submit_all([operation("d"), operation("e")])
    await turn()
    assert names(store) == [["a", "b", "c", "d", "e"]]


async def test_a_commit_takes_no_more_than_its_bound(store: FakeStore, committer: Committer) -> None:
    store.quick_disk = True
    await asyncio.gather(*[committer.submit(operation()) for _ in range(COMMIT_OPERATIONS_MAX + 5)])
    assert [len(commit) for commit in store.commits] == [COMMIT_OPERATIONS_MAX, 5]


async def test_a_store_that_must_be_waited_for_holds_nobody_up(store: FakeStore, committer: Committer) -> None:
    store.free.clear()
    store.quick_disk = True
    first = committer.submit(operation("first"))
    await turn()
    later = committer.submit(operation("later"))
    await turn()
    assert names(store) == []
    store.free.set()
    await asyncio.gather(first, later)
    assert names(store) == [["first"], ["later"]]


# ── durability ──


async def test_nothing_is_called_synced_before_the_disk_is_done(store: FakeStore, committer: Committer) -> None:
    answer = committer.submit(operation())
    await turn(50)
    assert store.history == ["apply", "make_durable"]
    assert not answer.done()
    store.barriers[0].set_result(None)
    assert await answer == CommittedResult("done: orders", SYNCED)


async def test_written_is_answered_before_the_disk_is_done(store: FakeStore, committer: Committer) -> None:
    synced = committer.submit(operation("synced"))
    written = committer.submit(operation("written"), WRITTEN)
    assert await written == CommittedResult("done: written", WRITTEN)
    assert not synced.done()


async def test_written_alone_needs_no_disk_wait(store: FakeStore, committer: Committer) -> None:
    await committer.submit(operation(), WRITTEN)
    await turn()
    assert store.history == ["apply"]


@pytest.mark.parametrize(("durability", "wrote"), [(WRITTEN, True), (WRITTEN, False), (SYNCED, False)])
async def test_an_answer_that_does_not_wait_for_the_disk_is_not_given_for_a_store_that_is_no_more(
    store: FakeStore, committer: Committer, durability: Durability, wrote: bool
) -> None:
    store.wrote = wrote
    store.lost = StoreReplaced("the file was deleted")
    with pytest.raises(StoreReplaced):
        await committer.submit(operation(), durability)


async def test_written_does_not_wait_for_a_busy_disk(store: FakeStore, committer: Committer) -> None:
    synced = committer.submit(operation("a"))
    await turn()
    along = committer.submit(operation("b"))
    written = committer.submit(operation("c"), WRITTEN)
    assert (await written).durability is WRITTEN
    assert names(store) == [["a"], ["b", "c"]]
    assert not synced.done()
    store.barriers[0].set_result(None)
    await turn()
    assert synced.done()
    assert not along.done(), "its commit came after the disk wait had begun"
    store.barriers[1].set_result(None)
    assert (await along).durability is SYNCED


async def test_memory_is_answered_at_once_and_part_of_the_next_commit(store: FakeStore, committer: Committer) -> None:
    answer = committer.submit(operation("cursor"), MEMORY)
    assert answer.done()
    assert answer.result() == CommittedResult(None, MEMORY)
    assert names(store) == []
    await turn()
    assert names(store) == [["cursor"]]
    assert store.barriers == []


async def test_a_commit_that_wrote_nothing_needs_no_disk_wait(store: FakeStore, committer: Committer) -> None:
    store.wrote = False
    assert (await committer.submit(operation())).durability is SYNCED
    assert store.history == ["apply"]


async def test_an_error_is_told_only_when_what_it_speaks_of_is_safe(store: FakeStore, committer: Committer) -> None:
    refused = committer.submit(operation("full"))
    committer.submit(operation("fine"))
    await turn()
    assert not refused.done()
    store.barriers[0].set_result(None)
    with pytest.raises(QueueFull):
        await refused


# ── failures ──


async def test_an_operation_that_fails_fails_alone(store: FakeStore, committer: Committer) -> None:
    store.quick_disk = True
    before, refused, after = committer.submit_all([operation("a"), operation("full"), operation("b")])
    with pytest.raises(QueueFull):
        await refused
    assert (await before).result == "done: a"
    assert (await after).result == "done: b"


async def test_a_commit_that_fails_fails_its_callers_and_not_the_next(store: FakeStore, committer: Committer) -> None:
    store.quick_disk = True
    store.error = StoreFull("no space")
    answers = [committer.submit(operation()) for _ in range(3)]
    for answer in answers:
        with pytest.raises(StoreFull):
            await answer
    store.error = None
    assert (await committer.submit(operation())).durability is SYNCED
    assert "recover" not in store.history


async def test_an_error_nobody_foresaw_fails_its_callers_and_is_logged(
    store: FakeStore, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    store.quick_disk = True
    store.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        await committer.submit(operation())
    assert "a commit failed" in caplog.text
    store.error = None
    await committer.submit(operation())


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), StoreError("refused"), StoreDamaged("a page")])
@pytest.mark.parametrize("free", [True, False])
async def test_an_operation_that_breaks_its_commit_is_told_alone(
    store: FakeStore, committer: Committer, error: Exception, free: bool
) -> None:
    store.quick_disk = True
    store.broken = {"bad": error, "worse": error}
    if not free:
        store.free.clear()
    asked = [f"q{number}" for number in range(100)]
    asked[17], asked[18], asked[90] = "bad", "worse", "bad"
    answers = committer.submit_all([operation(name) for name in asked])
    await turn()
    store.free.set()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [result for result in results if isinstance(result, Exception)] == [error] * 3
    good = [name for name in asked if name not in store.broken]
    assert [result.result for result in results if isinstance(result, CommittedResult)] == [f"done: {n}" for n in good]
    assert [name for commit in names(store) for name in commit] == good
    # Halving finds them: trying each alone would take a hundred.
    assert store.history.count("apply") < 60
    assert (await committer.submit(operation())).durability is SYNCED


async def test_what_came_after_a_commit_that_broke_goes_behind_it(store: FakeStore, committer: Committer) -> None:
    store.quick_disk = True
    store.broken = {"bad": ZeroDivisionError("a bug")}
    store.free.clear()
    first = committer.submit_all([operation(name) for name in ("a", "b", "bad", "c")])
    await turn()
    second = committer.submit_all([operation(name) for name in ("d", "e")])
    store.free.set()
    await asyncio.gather(*first, *second, return_exceptions=True)
    assert [name for commit in names(store) for name in commit] == ["a", "b", "c", "d", "e"]


async def test_a_store_that_takes_nothing_is_not_asked_again_for_each(store: FakeStore, committer: Committer) -> None:
    for error in (StoreFull("no space"), StoreFailed("the disk"), OSError(5, "input/output error")):
        store.error = error
        store.history.clear()
        answers = committer.submit_all([operation() for _ in range(8)])
        assert await asyncio.gather(*answers, return_exceptions=True) == [error] * 8
        assert store.history == ["apply"]
    store.error = None


async def test_a_disk_that_refuses_fails_everybody_who_trusted_it(store: FakeStore, committer: Committer) -> None:
    waiting = [committer.submit(operation()) for _ in range(3)]
    await turn()
    along = committer.submit(operation("along"))
    committer.submit(operation(), WRITTEN)
    await turn()
    store.barriers[0].set_exception(OSError(5, "input/output error"))
    for answer in [*waiting, along]:
        with pytest.raises(StoreFailed, match="not known"):
            await answer


async def test_the_store_recovers_before_the_next_commit(store: FakeStore, committer: Committer) -> None:
    lost = committer.submit(operation("lost"))
    await turn()
    gathered = committer.submit(operation("gathered"))
    store.barriers[0].set_exception(OSError(5, "input/output error"))
    with pytest.raises(StoreFailed):
        await lost
    await turn()
    assert store.history == ["apply", "make_durable", "recover", "apply", "make_durable"]
    store.barriers[1].set_result(None)
    assert (await gathered).durability is SYNCED


async def test_nothing_is_taken_while_the_store_cannot_recover(store: FakeStore, committer: Committer) -> None:
    lost = committer.submit(operation())
    await turn()
    store.barriers[0].set_exception(OSError(5, "input/output error"))
    with pytest.raises(StoreFailed):
        await lost
    store.recover_error = StoreFailed("still broken")
    for durability in (SYNCED, WRITTEN):
        with pytest.raises(StoreFailed, match="still broken"):
            await committer.submit(operation(), durability)
    store.recover_error = None
    store.quick_disk = True
    assert (await committer.submit(operation())).durability is SYNCED
    assert store.history.count("recover") == 3
    assert len(store.commits) == 2


# ── bounds ──


async def test_too_many_pending_operations_are_refused(store: FakeStore) -> None:
    committer = Committer(store.as_store(), FakeClock(), pending_max=3)
    committer.start()
    store.free.clear()
    committer.submit(operation())
    await turn()
    taken = [committer.submit(operation()) for _ in range(3)]
    with pytest.raises(Overloaded):
        committer.submit(operation())
    store.quick_disk = True
    store.free.set()
    await asyncio.gather(*taken)
    await committer.submit(operation())
    await committer.close()


async def test_operations_handed_in_together_are_taken_or_refused_together(store: FakeStore) -> None:
    committer = Committer(store.as_store(), FakeClock(), pending_max=3)
    committer.start()
    store.quick_disk = True
    with pytest.raises(Overloaded):
        committer.submit_all([operation() for _ in range(4)])
    await turn()
    assert store.commits == []
    await committer.close()


async def test_a_caller_that_left_does_not_disturb_the_others(store: FakeStore, committer: Committer) -> None:
    left, stayed = committer.submit(operation("left")), committer.submit(operation("stayed"))
    left.cancel()
    await turn()
    assert names(store) == [["left", "stayed"]]
    store.barriers[0].set_result(None)
    assert (await stayed).durability is SYNCED


@pytest.mark.parametrize("durability", [SYNCED, WRITTEN])
async def test_what_a_caller_that_left_would_have_got_is_told(
    store: FakeStore, committer: Committer, durability: Durability
) -> None:
    orphans: list[Any] = []
    committer.on_orphan = lambda operation, result: orphans.append((getattr(operation, "queue", ""), result))
    store.quick_disk = True
    left, stayed = committer.submit_all([operation("left"), operation("stayed")], durability)
    left.cancel()
    await stayed
    assert orphans == [("left", "done: left")]


# ── beginning and ending ──


async def test_nothing_is_taken_before_the_start_or_after_the_end(store: FakeStore) -> None:
    committer = Committer(store.as_store(), FakeClock(), pending_max=3)
    with pytest.raises(Closed):
        committer.submit(operation())
    committer.start()
    await committer.close()
    with pytest.raises(Closed):
        committer.submit(operation())


async def test_closing_finishes_what_was_taken(store: FakeStore, committer: Committer) -> None:
    first = committer.submit(operation("first"))
    await turn()
    second = committer.submit(operation("second"))
    closing = asyncio.ensure_future(committer.close())
    await turn()
    with pytest.raises(Closed):
        committer.submit(operation())
    assert not closing.done()
    store.barriers[0].set_result(None)
    await turn()
    store.barriers[1].set_result(None)
    await closing
    assert (first.result().durability, second.result().durability) == (SYNCED, SYNCED)


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("wrote", [True, False])
async def test_closing_ends_whatever_was_taken_last(store: FakeStore, durability: Durability, wrote: bool) -> None:
    committer = Committer(store.as_store(), FakeClock(), pending_max=3)
    committer.start()
    store.wrote = wrote
    store.quick_disk = True
    answer = committer.submit(operation(), durability)
    await committer.close()
    assert (await answer).durability is durability
    assert len(store.commits) == 1


async def test_closing_waits_for_a_store_that_must_be_waited_for(store: FakeStore, committer: Committer) -> None:
    store.free.clear()
    store.quick_disk = True
    answer = committer.submit(operation())
    await turn()
    closing = asyncio.ensure_future(committer.close())
    await turn()
    assert not closing.done()
    store.free.set()
    await closing
    assert answer.done()


async def test_closing_does_not_spin_while_the_disk_is_busy(store: FakeStore, committer: Committer) -> None:
    committer.submit(operation())
    await turn()
    closing = asyncio.ensure_future(committer.close())
    await turn()
    loop = asyncio.get_running_loop()
    calls = 0
    original = loop.call_soon

    def counted(*arguments: object, **more: object) -> object:
        nonlocal calls
        calls += 1
        return original(*arguments, **more)  # type: ignore[arg-type]

    loop.call_soon = counted  # type: ignore[assignment, method-assign]
    try:
        await turn(100)
    finally:
        loop.call_soon = original  # type: ignore[method-assign]
    assert calls < 150, "only this test's own turns are scheduled"
    store.barriers[0].set_result(None)
    await closing


async def test_closing_tells_a_disk_that_refuses(store: FakeStore, committer: Committer) -> None:
    answer = committer.submit(operation())
    await turn()
    closing = asyncio.ensure_future(committer.close())
    await turn()
    store.barriers[0].set_exception(OSError(28, "no space left"))
    await closing
    with pytest.raises(StoreFailed):
        await answer


async def test_every_commit_is_told_after_it_was_made(store: FakeStore) -> None:
    told: list[Commit] = []
    committer = Committer(store.as_store(), FakeClock(), pending_max=3, on_commit=told.append)
    committer.start()
    store.quick_disk = True
    await committer.submit(operation())
    await committer.submit(operation(), WRITTEN)
    assert len(told) == 2
    await committer.close()


# ── a full disk ──


async def test_a_full_disk_is_told_once_and_so_is_its_end(
    store: FakeStore, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    store.quick_disk = True
    store.error = StoreFull("full")
    for _ in range(5):
        with pytest.raises(StoreFull):
            await committer.submit(operation("a"))
        assert committer.full
    store.error = None
    await committer.submit(operation("a"))
    is_full = [committer.full]
    for _ in range(2):
        committer.has_room()
        is_full.append(committer.full)
    # A commit that adds nothing to the log needs no room, so it says nothing about it.
    assert is_full == [True, False, False]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the store is full",
        "there is room again",
    ]


async def test_closing_waits_for_what_an_answer_makes_necessary_that_nobody_took(
    store: FakeStore, committer: Committer
) -> None:
    followed: list[asyncio.Future[Any]] = []
    committer.on_orphan = lambda *_: followed.append(committer.submit(operation("given back"), is_late=True))
    committer.submit(operation("left")).cancel()
    await turn()
    closing = asyncio.ensure_future(committer.close())
    await turn()
    store.quick_disk = True
    store.barriers[0].set_result(None)
    await closing
    assert names(store) == [["left"], ["given back"]]
    assert followed[0].result().durability is SYNCED
    with pytest.raises(Closed):
        committer.submit(operation(), is_late=True)
