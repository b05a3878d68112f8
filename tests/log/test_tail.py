"""The tail: every new segment is told once, in LSN order, whoever added it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from headwater.clock import Timestamp
from headwater.errors import HeadwaterError, StoreBusy, StoreSilent, StoreUnreachable
from headwater.log.operations import Touch
from headwater.log.tail import LOOK_LIMIT, Tail
from headwater.model.added import Added
from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.wakeups.contract import Found
from tests.log.fake_store import FakeStore, commit_of, touch
from tests.waiting import expect_soon_async


class FakeWakeup:
    """Wakes when the test says so."""

    name = "fake"

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.closed = False
        self.wakes_at_start = False
        self.deferred_seconds = 0.0

    def start(self, wake: Callable[[], Found]) -> None:
        self.wake = wake
        if self.wakes_at_start:
            wake()

    def changed(self) -> bool:
        changed, self._store.changed = self._store.changed, False
        return changed

    def defer(self, seconds: float) -> None:
        self.deferred_seconds = seconds

    def close(self) -> None:
        self.closed = True


class Following:
    """A tail that has begun, and what it told."""

    def __init__(self, store: FakeStore, tail: Tail, wakeup: FakeWakeup) -> None:
        self.store = store
        self.tail = tail
        self.wakeup = wakeup
        self.told: list[int] = []
        self.elsewhere = 0

    async def begin(self) -> None:
        """Follow, and so begin to listen."""
        self.tail.start(self.wakeup)
        await self.tail.follow(self.note, self.note_elsewhere)

    def note(self, touches: Sequence[Touch]) -> None:
        self.told += [one.lsn for one in touches]

    async def has_told(self) -> bool:
        return bool(self.told)

    def note_elsewhere(self) -> None:
        self.elsewhere += 1

    def commit_elsewhere(self, *lsns: int) -> None:
        """Another process adds segments; nobody is woken yet."""
        self.store.segments += [touch(lsn) for lsn in lsns]
        self.store.changed = True

    def commit_here(self, *lsns: int, rewrote: bool = False) -> None:
        """This process adds segments and hands them over."""
        self.store.segments += [touch(lsn) for lsn in lsns]
        added = Added([b'[{"data":1}]'] * len(lsns), 0, Timestamp(0), rewrote)
        self.tail.committed(msgspec.structs.replace(commit_of(*lsns), added=added))

    @property
    def kept(self) -> list[int]:
        """Which segments are in memory."""
        return [kept.touch.lsn for kept in self.tail.recent.after(Selection("main"), Lsn(0))]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def store() -> FakeStore:
    return FakeStore()


@pytest.fixture(params=[True, False], ids=["at once", "in a task"])
async def following(request: pytest.FixtureRequest, store: FakeStore) -> AsyncIterator[Following]:
    """Over a store that can tell what is new at once, and over one that must be waited for."""
    store.answers_at_once = request.param
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    await made.begin()
    yield made
    store.may_answer.set()
    await made.tail.close()
    assert made.wakeup.closed


async def test_the_tail_begins_at_the_end_of_the_log(store: FakeStore) -> None:
    store.segments = [touch(1), touch(2), touch(3)]
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    await made.begin()
    assert (made.tail.position, made.told) == (3, [])
    await made.tail.close()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_wake_during_the_start_tells_nothing_old_and_misses_nothing_new(
    store: FakeStore, at_once: bool
) -> None:
    store.segments = [touch(1), touch(2)]
    store.changed = True
    store.answers_at_once = at_once
    store.may_answer.clear()
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    made.wakeup.wakes_at_start = True
    starting = asyncio.ensure_future(made.begin())
    await settle()
    made.commit_elsewhere(3)
    made.wakeup.wake()
    store.may_answer.set()
    await starting
    await settle()
    assert made.told == [3]
    await made.tail.close()


async def test_commits_of_this_process_are_handed_over_without_asking(following: Following) -> None:
    asked = len(following.store.looks)
    following.commit_here(1, 2)
    following.commit_here(3)
    assert following.told == [1, 2, 3]
    assert len(following.store.looks) == asked


async def test_commits_of_others_are_found_when_woken(following: Following) -> None:
    following.commit_elsewhere(1, 2)
    assert following.wakeup.wake() is Found.NEWS
    await settle()
    assert following.told == [1, 2]
    assert following.elsewhere == 1


async def test_a_wake_without_news_asks_nothing(following: Following) -> None:
    asked = len(following.store.looks)
    assert following.wakeup.wake() is Found.NOTHING
    await settle()
    assert len(following.store.looks) == asked
    assert following.elsewhere == 0


async def test_a_wake_by_our_own_commit_is_known_as_such(following: Following) -> None:
    following.commit_here(1)
    assert following.wakeup.wake() is Found.OWN
    assert following.wakeup.wake() is Found.NOTHING
    assert following.told == [1]


async def test_a_gap_before_our_own_commit_is_read_first(following: Following) -> None:
    following.commit_elsewhere(1, 2)
    following.commit_here(3)
    await settle()
    assert following.told == [1, 2, 3]
    following.wakeup.wake()
    await settle()
    assert following.told == [1, 2, 3]


async def test_a_commit_told_before_its_wake_is_not_told_again(following: Following) -> None:
    following.commit_here(1)
    following.store.changed = True
    following.wakeup.wake()
    await settle()
    assert following.told == [1]


async def test_dropped_segments_leave_a_gap_that_nobody_waits_for(following: Following) -> None:
    following.commit_here(1)
    following.commit_elsewhere(7)
    following.wakeup.wake()
    await settle()
    following.commit_here(8)
    assert following.told == [1, 7, 8]


async def test_a_commit_without_segments_tells_nothing(following: Following) -> None:
    following.tail.committed(commit_of())
    assert following.told == []


async def test_more_segments_than_one_answer_holds_are_all_told(following: Following) -> None:
    following.commit_elsewhere(*range(1, 2 * LOOK_LIMIT + 6))
    following.wakeup.wake()
    await settle()
    assert following.told == list(range(1, 2 * LOOK_LIMIT + 6))


async def test_a_commit_during_a_look_is_told_after_it(store: FakeStore) -> None:
    store.answers_at_once = False
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    await made.begin()
    store.may_answer.clear()
    made.commit_elsewhere(1)
    made.wakeup.wake()
    await settle()
    made.commit_here(2)
    made.commit_elsewhere(3)
    made.wakeup.wake()
    assert made.told == []
    store.may_answer.set()
    await settle()
    assert made.told == [1, 2, 3]
    await made.tail.close()


async def test_a_follower_that_fails_does_not_stop_the_others(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Sequence[Touch]) -> None:
        raise RuntimeError("a bug")

    late: list[int] = []
    await following.tail.follow(broken)
    await following.tail.follow(lambda touches: late.extend(one.lsn for one in touches))
    following.commit_here(1)
    following.commit_here(2)
    assert following.told == late == [1, 2]
    assert "a follower of the tail failed" in caplog.text


async def test_whoever_follows_no_more_is_told_no_more(following: Following) -> None:
    heard: list[int] = []
    stop = await following.tail.follow(lambda touches: heard.extend(one.lsn for one in touches))
    following.commit_here(1)
    stop()
    following.commit_here(2)
    assert heard == [1]
    assert following.told == [1, 2]


@pytest.mark.parametrize(
    ("error", "level"), [(OSError("unreadable"), "ERROR"), (StoreBusy("another broker holds this store"), "WARNING")]
)
async def test_a_look_that_fails_is_made_again_at_the_next_wake(
    following: Following, caplog: pytest.LogCaptureFixture, error: Exception, level: str
) -> None:
    following.store.error = error
    following.commit_elsewhere(1)
    following.wakeup.wake()
    await settle()
    assert following.told == []
    assert "could not read the log" in caplog.text
    (told,) = caplog.records
    # Where it came from is told only of what nobody has foreseen.
    assert (told.levelname, told.exc_info is not None) == (level, level == "ERROR")
    following.store.error = None
    following.commit_elsewhere(2)
    following.wakeup.wake()
    await settle()
    assert following.told == [1, 2]


@pytest.mark.parametrize("outage", [StoreUnreachable("it restarts"), StoreSilent("it is slow")])
async def test_after_an_outage_the_tail_goes_on_without_another_wake_up_and_says_nothing_of_its_own(
    following: Following, caplog: pytest.LogCaptureFixture, outage: HeadwaterError
) -> None:
    following.store.answers_at_once = False
    following.store.error = outage
    following.commit_elsewhere(1)
    following.wakeup.wake()
    await settle()
    assert following.told == []
    following.store.error = None
    await expect_soon_async(following.has_told)
    assert following.told == [1]
    assert caplog.records == []


async def test_a_tail_that_was_closed_asks_no_more(store: FakeStore) -> None:
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    await made.begin()
    await made.tail.close()
    made.commit_elsewhere(1)
    assert made.wakeup.wake() is Found.NOTHING
    assert made.told == []


async def test_nothing_is_listened_to_until_somebody_follows(store: FakeStore) -> None:
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    made.tail.start(made.wakeup)
    made.commit_here(1)
    assert not hasattr(made.wakeup, "wake")
    await made.begin()
    made.commit_here(2)
    assert made.told == [2]
    await made.tail.close()


async def test_a_commit_of_this_process_while_the_tail_begins_is_not_missed(store: FakeStore) -> None:
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    store.may_answer.clear()
    beginning = asyncio.ensure_future(made.begin())
    await settle()
    made.commit_here(1)
    store.may_answer.set()
    await beginning
    await settle()
    assert made.tail.position == 1
    await made.tail.close()


async def test_who_follows_with_less_haste_says_so_to_the_wakeup(store: FakeStore) -> None:
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    made.tail.defer(0.1)
    await made.begin()
    made.tail.defer(0.2)
    assert made.wakeup.deferred_seconds == 0.2
    await made.tail.close()


async def test_what_this_process_commits_is_kept_until_another_commit_is_heard_of(following: Following) -> None:
    following.commit_here(1, 2)
    following.commit_here(3)
    assert following.kept == [1, 2, 3]
    following.store.changed = True
    following.wakeup.wake()
    await settle()
    assert following.kept == []
    following.commit_here(4)
    assert (following.kept, following.tail.recent.floor) == ([4], 3)
    following.commit_elsewhere(5)
    following.commit_here(6)
    await settle()
    assert (following.told, following.kept, following.tail.recent.floor) == ([1, 2, 3, 4, 5, 6], [], 6)


async def test_what_is_kept_is_forgotten_when_this_process_drops_something(following: Following) -> None:
    following.commit_here(1)
    following.commit_here(rewrote=True)
    assert following.kept == []
    following.commit_here(2, rewrote=True)
    following.commit_here(3)
    assert (following.told, following.kept) == ([1, 2, 3], [3])


async def test_segments_that_were_dropped_before_they_were_told_leave_a_mark(following: Following) -> None:
    following.commit_here(1, 2)
    assert following.tail.hole_through == 0
    following.commit_elsewhere(5, 6)
    following.wakeup.wake()
    await settle()
    assert following.tail.hole_through == 6
    following.commit_here(7)
    assert following.tail.hole_through == 6


async def test_one_may_listen_without_following(store: FakeStore) -> None:
    made = Following(store, Tail(store.as_store()), FakeWakeup(store))
    made.tail.start(made.wakeup)
    await made.tail.listen()
    made.commit_elsewhere(1)
    assert made.wakeup.wake() is Found.NEWS
    await settle()
    assert made.tail.position == 1
    await made.tail.close()
