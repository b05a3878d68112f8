"""Several makings durable under way, answers in order, and races that are lost: stores that others may take over."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

from headwater.config import Durability
from headwater.errors import StoreFailed, StoreReplaced
from headwater.log.committer import CommittedResult, Committer
from headwater.log.operations import Commit
from headwater.stores.contract import RaceLost
from tests.contracts.clock import FakeClock
from tests.log.fake_store import FakeStore, operation
from tests.log.test_committer import MEMORY, SYNCED, WRITTEN, names, turn

FLIGHTS = 3


class Scene:
    """A committer over a store that somebody else may take over, and what the tail hears."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.store.traits = structs.replace(self.store.traits, answers_wait=True, flights_max=FLIGHTS)
        self.told: list[Commit] = []
        self.committer = Committer(self.store.as_store(), FakeClock(), pending_max=1_000, on_commit=self.told.append)
        self.committer.start()

    async def send(self, *queues: str) -> list[asyncio.Future[CommittedResult]]:
        """One operation for each, in a commit and a flight of its own."""
        answers = []
        for queue in queues:
            answers.append(self.committer.submit(operation(queue)))
            await turn()
        return answers

    async def land(self, *flights: int) -> None:
        for flight in flights:
            self.store.barriers[flight].set_result(None)
        await turn()

    async def lose(self, *flights: int) -> None:
        """Somebody else took over: these fail, each with all behind it."""
        for flight in flights:
            self.store.barriers[flight].set_exception(RaceLost())
        await turn()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.store.quick_disk = True
    made.store.free.set()
    for landing in [*made.store.barriers, *(made.store.landings or ())]:
        if not landing.done():
            landing.set_result(None)
    await made.committer.close()


def done(answers: list[asyncio.Future[CommittedResult]]) -> list[bool]:
    return [answer.done() for answer in answers]


async def test_as_many_flights_are_under_way_as_the_store_allows(scene: Scene) -> None:
    await scene.send("a", "b", "c", "d", "e")
    assert names(scene.store) == [["a"], ["b"], ["c"]]
    await scene.land(0)
    assert names(scene.store) == [["a"], ["b"], ["c"], ["d", "e"]]
    assert len(scene.store.barriers) == FLIGHTS + 1


async def test_flights_that_come_home_early_are_answered_in_their_order(scene: Scene) -> None:
    answers = await scene.send("a", "b", "c")
    await scene.land(2, 1)
    assert done(answers) == [False, False, False]
    assert scene.told == []
    await scene.land(0)
    assert [answer.result() for answer in answers] == [CommittedResult(f"done: {name}", SYNCED) for name in "abc"]
    assert len(scene.told) == 3


async def test_a_lost_race_is_repeated_in_order_before_what_came_later(scene: Scene) -> None:
    first, *answers = await scene.send("a", "b", "c", "d")
    await scene.land(0)
    assert names(scene.store) == [["a"], ["b"], ["c"], ["d"]]
    answers += await scene.send("e")
    await scene.lose(1, 2, 3)
    assert scene.store.history[-3:] == ["recover", "apply", "make_durable"]
    assert names(scene.store)[4:] == [["b", "c", "d", "e"]]
    assert first.done()
    assert not any(done(answers))
    await scene.land(4)
    assert [(await answer).result for answer in answers] == ["done: b", "done: c", "done: d", "done: e"]


async def test_the_tail_hears_nothing_of_what_a_lost_race_took_back(scene: Scene) -> None:
    await scene.send("a", "b")
    await scene.land(0)
    assert len(scene.told) == 1
    await scene.lose(1)
    assert len(scene.told) == 1
    await scene.land(2)
    assert len(scene.told) == 2


async def test_a_race_that_is_lost_again_and_again_is_answered_once_it_is_won(scene: Scene) -> None:
    (answer,) = await scene.send("a")
    for attempt in range(5):
        await scene.lose(attempt)
        assert not answer.done()
    await scene.land(5)
    assert (await answer).durability is SYNCED
    assert scene.store.history.count("recover") == 5


async def test_a_commit_that_finds_the_race_lost_goes_behind_those_before_it(scene: Scene) -> None:
    answers = await scene.send("a")
    scene.store.free.clear()
    answers += await scene.send("b")
    scene.store.error = RaceLost()
    scene.store.free.set()
    await turn()
    answers.append(scene.committer.submit(operation("c")))
    await turn()
    assert names(scene.store) == [["a"]], "nothing is applied before those on their way have come back"
    scene.store.error = None
    await scene.lose(0)
    assert names(scene.store)[1:] == [["a", "b", "c"]]
    await scene.land(1)
    assert all(done(answers))


async def test_who_only_looked_is_answered_when_what_was_seen_has_landed(scene: Scene) -> None:
    (writing,) = await scene.send("a")
    scene.store.wrote = False
    scene.store.landings = []
    (looking,) = await scene.send("b")
    scene.store.landings[0].set_result(None)
    await turn()
    assert len(scene.store.barriers) == 1
    assert done([writing, looking]) == [False, False]
    await scene.land(0)
    assert done([writing, looking]) == [True, True]


async def test_who_only_looked_holds_up_nobody_who_writes(scene: Scene) -> None:
    scene.store.wrote = False
    scene.store.landings = []
    await scene.send(*"abcd")
    scene.store.wrote = True
    await scene.send("e", "f")
    assert len(scene.store.barriers) == 2
    assert len(scene.store.landings) == 4


async def test_who_only_looked_looks_again_after_a_lost_race(scene: Scene) -> None:
    await scene.send("a")
    scene.store.wrote = False
    scene.store.landings = []
    (looking,) = await scene.send("b")
    scene.store.wrote = True
    await scene.lose(0)
    assert names(scene.store) == [["a"], ["b"], ["a", "b"]]
    await scene.land(1)
    assert (await looking).result == "done: b"


async def test_who_only_looked_while_nothing_is_on_its_way_waits_until_the_store_is_known_to_be_ours(
    scene: Scene,
) -> None:
    scene.store.wrote = False
    scene.store.landings = []
    (looking,) = await scene.send("a")
    assert scene.store.history == ["apply", "landed"]
    assert not looking.done()
    scene.store.landings[0].set_result(None)
    assert (await looking).result == "done: a"


async def test_written_waits_where_it_could_be_taken_back(scene: Scene) -> None:
    answer = scene.committer.submit(operation("a"), WRITTEN)
    await turn()
    assert not answer.done()
    await scene.land(0)
    assert await answer == CommittedResult("done: a", SYNCED)


async def test_what_was_answered_from_memory_is_repeated_after_a_lost_race(scene: Scene) -> None:
    answer = scene.committer.submit(operation("cursor"), MEMORY)
    assert (await answer).durability is MEMORY
    await turn()
    await scene.lose(0)
    assert names(scene.store) == [["cursor"], ["cursor"]]


async def test_operations_that_go_together_do_so_again(scene: Scene) -> None:
    scene.committer.submit_all([operation("a"), operation("b")])
    await turn()
    await scene.lose(0)
    assert names(scene.store) == [["a", "b"], ["a", "b"]]


async def test_a_caller_that_left_is_told_of_only_once(scene: Scene) -> None:
    orphans: list[Any] = []
    scene.committer.on_orphan = lambda asked, result: orphans.append(result)
    (left,) = await scene.send("a")
    left.cancel()
    await scene.lose(0)
    assert orphans == []
    await scene.land(1)
    assert orphans == ["done: a"]


async def test_another_error_than_a_lost_race_fails_everybody_behind_it(scene: Scene) -> None:
    first, *behind = await scene.send("a", "b", "c")
    await scene.land(0)
    scene.store.barriers[1].set_exception(OSError(5, "input/output error"))
    for answer in behind:
        with pytest.raises(StoreFailed, match="not known"):
            await answer
    assert (await first).durability is SYNCED
    scene.store.quick_disk = True
    (later,) = await scene.send("later")
    assert (await later).result == "done: later"
    assert scene.store.history.count("recover") == 1


async def test_a_store_that_cannot_recover_from_a_lost_race_says_so(scene: Scene) -> None:
    (answer,) = await scene.send("a")
    scene.store.recover_error = StoreReplaced("it was restored")
    await scene.lose(0)
    with pytest.raises(StoreReplaced):
        await answer


async def test_closing_waits_for_a_race_that_has_to_be_run_again(scene: Scene) -> None:
    answers = await scene.send("a", "b")
    closing = asyncio.ensure_future(scene.committer.close())
    await turn()
    await scene.lose(0, 1)
    assert not closing.done()
    assert scene.committer.pending == 0
    await scene.land(2)
    await closing
    assert [(await answer).durability for answer in answers] == [Durability.SYNCED] * 2
