"""Following the log: the same stream from memory and from the store, told when something is missing, and no dearer for
those who follow something else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.errors import Closed, StoreDamaged, StoreReplaced
from headwater.log.operations import DeleteQueue, Push, Retain, Touch, Transaction
from headwater.model.names import Lsn
from headwater.model.selection import Selection
from headwater.services.follow import Followers, Following, Limits, Step
from headwater.stores.questions import FindLastLsn, Segment
from headwater.wakeups.contract import Found
from tests.contracts.clock import FakeClock

KEY = "ab" * 32
WINDOWS = pytest.mark.parametrize("window", [0, 8 * 1_048_576], ids=["from the store", "from memory"])
ORDERS = Selection("main", ("orders",))


class Still:
    """A wake-up that wakes when the test says so: until then nothing is known of what others commit."""

    name = "still"

    def start(self, wake: Callable[[], Found]) -> None:
        self.wake = wake

    def changed(self) -> bool:
        return True

    def defer(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


class Scene:
    """An open store whose reads are counted, and another process's on the same file."""

    def __init__(self, hw: headwater.Headwater, other: headwater.Headwater, wakeup: Still, clock: FakeClock) -> None:
        self.hw = hw
        self.other = other
        self.clock = clock
        self._wakeup = wakeup
        self.reads: list[tuple[Lsn, Lsn]] = []
        read = hw.store.read

        async def counted(after: Lsn, through: Lsn, limit: int, queue: Any = None) -> list[Segment]:
            self.reads.append((after, through))
            return await read(after, through, limit, queue)

        hw.store.read = counted  # type: ignore[method-assign]

    @property
    def followers(self) -> Followers:
        return self.hw.followers

    def wake(self) -> None:
        """Notice what others have committed."""
        self._wakeup.wake()

    async def whole(self, selection: Selection = ORDERS) -> list[Segment]:
        """What a read of the whole log gives of a selection, from the other side."""
        last = await self.other.store.ask(FindLastLsn())
        return [one for one in await self.other.store.read(Lsn(0), last, 100_000) if selection.holds(one.lane)]

    def damage(self, lsn: int) -> None:
        """What is kept of a segment is not what was written."""
        store: Any = self.other.store
        store._connection.execute("UPDATE hw_segments SET checksum = checksum + 1 WHERE lsn = ?", (lsn,))

    async def drop_old(self) -> None:
        """Let retention take what is older than a minute."""
        await self.hw.committer.submit(Retain())


@asynccontextmanager
async def opened(path: Path, window: int = 8 * 1_048_576, **settings: Any) -> AsyncIterator[Scene]:
    clock, wakeup = FakeClock(), Still()
    common: dict[str, Any] = {"clock": clock, "housekeeping": False, "encryption_key": KEY}
    hw = headwater.open(str(path), recent_bytes_max=window, **common, **settings)
    hw.store.wakeup = lambda: wakeup  # type: ignore[method-assign]
    async with hw, headwater.open(str(path), **common) as other:
        yield Scene(hw, other, wakeup, clock)


async def everything(following: Following) -> list[Segment]:
    """What there is until it would wait."""
    found: list[Segment] = []
    while step := await following.step(0):
        found += step.segments
    return found


def payloads(segments: Sequence[Segment]) -> list[bytes]:
    return [bytes(record.data) for segment in segments for record in segment.records]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# ── the same from memory and from the store ──


@WINDOWS
@pytest.mark.parametrize("limits", [Limits(), Limits(segments=1), Limits(bytes=10)], ids=["all", "one", "few bytes"])
async def test_the_stream_is_what_a_read_of_the_log_gives(tmp_path: Path, window: int, limits: Limits) -> None:
    async with opened(tmp_path / "log.db", window) as scene:
        hw, other = scene.hw, scene.other
        await hw.queue("orders").configure(encrypted=True, compress_bytes_min=50)
        selections = [ORDERS, Selection("main", ("orders", "m*")), Selection("main", ("*",), ("p1",))]
        followings = [await scene.followers.follow(one, Lsn(0), limits) for one in selections]
        got: list[list[Segment]] = [[] for _ in selections]

        async def go_on() -> None:
            for following, found in zip(followings, got, strict=True):
                found += await everything(following)

        for number in range(6):
            await hw.queue("orders").push({"number": number, "text": "x" * 100}, partition=f"p{number % 2}")
            await go_on()
            await other.queue("orders").push([number], partition="p1")
            scene.wake()
            await hw.queue("mails").push(
                headwater.Outgoing(payload=number, type="t", headers={"a": "b"}), partition="p1"
            )
            await hw.push_all([headwater.Outgoing(payload=one, queue=f"q{one}", partition="p1") for one in range(3)])
            await other.queue("mails").push(number)
            await hw.queue("orders").push("behind another's, of which we have not heard yet")
            if number % 2:
                await go_on()
        scene.wake()
        await go_on()
        for selection, found in zip(selections, got, strict=True):
            assert found == await scene.whole(selection)
            assert found
        for following in followings:
            following.close()


async def test_own_commits_are_not_read_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        await scene.hw.queue("orders").configure(encrypted=True)
        async with await scene.followers.follow(ORDERS, Lsn(0)) as following:
            assert await everything(following) == []
            scene.reads.clear()
            found = []
            for number in range(20):
                await scene.hw.queue("orders").push(number)
                await scene.hw.queue("mails").push(number)
                found += (await following.step()).segments
            assert scene.reads == []
        assert found == await scene.whole()
        # Whoever comes later, within what is kept, is served from it as well.
        async with await scene.followers.follow(ORDERS, found[4].lsn) as late:
            assert (await late.step(0)).segments == found[5:]
        assert scene.reads == []


async def test_whoever_falls_behind_what_is_kept_in_memory_misses_nothing(tmp_path: Path) -> None:
    async with (
        opened(tmp_path / "log.db", recent_segments_max=2) as scene,
        await scene.followers.follow(ORDERS, Lsn(0)) as following,
    ):
        for number in range(50):
            await scene.hw.queue("orders").push(number)
        assert len(scene.hw.tail.recent) == 2
        assert payloads(await everything(following)) == [b"%d" % number for number in range(50)]


@WINDOWS
async def test_what_was_rolled_back_or_deleted_is_not_handed_out(tmp_path: Path, window: int) -> None:
    async with opened(tmp_path / "log.db", window) as scene:
        hw = scene.hw
        orders, gone, mails = hw.queue("orders"), hw.queue("gone"), hw.queue("mails")
        async with await scene.followers.follow(Selection("main"), Lsn(0)) as following:
            await gone.push(1)
            await orders.push(2)
            await hw.committer.submit(DeleteQueue(queue="gone"))
            record = hw.queues_service.record(3)
            half = Transaction(operations=[Push(queue="orders", records=[record]), Transaction(operations=[])])
            with pytest.raises(headwater.HeadwaterError):
                await hw.committer.submit(half)
            await orders.push(4)
            await mails.push(5)
            await scene.other.committer.submit(DeleteQueue(queue="mails"))
            scene.wake()
            assert payloads(await everything(following)) == [b"2", b"4"]


@WINDOWS
async def test_a_queue_that_is_described_anew_is_told_as_it_is_now(tmp_path: Path, window: int) -> None:
    async with (
        opened(tmp_path / "log.db", window) as scene,
        await scene.followers.follow(ORDERS, Lsn(0)) as following,
    ):
        await scene.hw.queue("orders").push(1)
        await scene.hw.queue("orders").configure(namespace="shop")
        (segment,) = await everything(following)
        assert [segment] == await scene.whole()
        assert segment.lane.namespace == "shop"


@WINDOWS
async def test_a_damaged_segment_is_told_and_never_passed_over(tmp_path: Path, window: int) -> None:
    async with opened(tmp_path / "log.db", window) as scene:
        async with await scene.followers.follow(ORDERS, Lsn(0)) as following:
            for number in range(5):
                await scene.hw.queue("orders").push(number)
            scene.damage(3)
            scene.wake()
            assert payloads((await following.step(0)).segments) == [b"0", b"1"]
            for _ in range(2):
                with pytest.raises(StoreDamaged):
                    await following.step(0)
            assert following.position == 2
        step = await scene.followers.read(ORDERS, Lsn(0))
        assert (payloads(step.segments), step.through) == ([b"0", b"1"], 2)
        with pytest.raises(StoreDamaged):
            await scene.followers.read(ORDERS, step.through)


async def test_commits_of_others_are_followed_when_they_are_heard_of(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene, await scene.followers.follow(ORDERS, Lsn(0)) as following:
        waiting = asyncio.ensure_future(following.step())
        await settle()
        await scene.other.queue("orders").push(1)
        assert not waiting.done()
        scene.wake()
        assert payloads((await waiting).segments) == [b"1"]


async def test_a_read_does_not_wait_to_hear_of_what_others_committed(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        await scene.followers.ready()
        await scene.other.queue("orders").push(1)
        assert payloads((await scene.followers.read(ORDERS, Lsn(0))).segments) == [b"1"]
        async with await scene.followers.follow(ORDERS, Lsn(0)) as following:
            assert payloads((await following.step(0)).segments) == [b"1"]


async def test_a_step_is_bounded_by_segments_and_bytes(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db", 0) as scene:
        for number in range(40):
            await scene.hw.queue("orders").push(f"{number:0100}")
        for limits, count in ((Limits(segments=7), 7), (Limits(bytes=1), 16), (Limits(), 40)):
            step = await scene.followers.read(ORDERS, Lsn(0), limits)
            assert (len(step.segments), step.through) == (count, step.segments[-1].lsn)


# ── what is missing is told ──


@WINDOWS
async def test_whoever_lost_records_to_retention_is_told_once_and_goes_on(tmp_path: Path, window: int) -> None:
    async with opened(tmp_path / "log.db", window) as scene:
        orders = scene.hw.queue("orders")
        await orders.configure(retention_seconds=60)
        async with await scene.followers.follow(ORDERS, Lsn(0)) as following:
            for number in range(3):
                await orders.push(number)
            assert payloads((await following.step(0)).segments) == [b"0", b"1", b"2"]
            for number in range(3, 6):
                await orders.push(number)
            scene.clock.advance(61)
            await orders.push(6)
            await scene.drop_old()
            step = await following.step(0)
            assert (payloads(step.segments), step.resync) == ([b"6"], step.segments[0].lsn - 1)
            await orders.push(7)
            assert await following.step(0) == Step((await scene.whole())[-1:], Lsn(8))


async def test_what_was_dropped_before_one_began_or_after_it_was_read_is_no_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        orders = scene.hw.queue("orders")
        await orders.configure(retention_seconds=60)
        async with await scene.followers.follow(ORDERS, Lsn(0)) as reader:
            await orders.push(1)
            assert len(await everything(reader)) == 1
            scene.clock.advance(61)
            await orders.push(2)
            await scene.drop_old()
            assert (await reader.step(0)).resync is None
        async with await scene.followers.follow(ORDERS, Lsn(0)) as beginner:
            step = await beginner.step(0)
            assert (payloads(step.segments), step.resync) == ([b"2"], None)
        assert (await scene.followers.read(ORDERS, Lsn(0))).resync is None
        async with await scene.followers.follow(Selection("main", ("mails",)), Lsn(0)) as elsewhere:
            assert not await elsewhere.step(0)


async def test_a_loss_of_everything_is_told_too(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        await scene.hw.queue("orders").configure(retention_seconds=60)
        async with await scene.followers.follow(ORDERS) as following:
            await scene.hw.queue("orders").push(1)
            scene.clock.advance(61)
            await scene.drop_old()
            step = await following.step(60)
            assert (step.segments, step.resync, following.position) == ([], 1, 1)
        assert (await scene.followers.read(ORDERS, Lsn(1))).resync is None


async def test_what_others_added_and_dropped_before_we_heard_of_it_is_a_loss(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        await scene.hw.queue("orders").configure(retention_seconds=60)
        async with await scene.followers.follow(ORDERS) as following:
            assert not await following.step(0)
            await scene.other.queue("orders").push("unseen")
            scene.clock.advance(61)
            await scene.other.committer.submit(Retain())
            await scene.other.queue("orders").push("seen")
            scene.wake()
            step = await following.step(60)
            assert (payloads(step.segments), step.resync) == ([b'"seen"'], 1)


async def test_a_position_that_is_not_kept_any_more_is_told_to_whoever_has_seen_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        await scene.hw.queue("orders").configure(retention_seconds=60)
        await scene.hw.queue("orders").push(1)
        async with await scene.followers.follow(ORDERS, Lsn(1), seen=True) as following:
            assert not await following.step(0)
        scene.clock.advance(61)
        await scene.drop_old()
        await scene.hw.queue("orders").push(2)
        async with await scene.followers.follow(ORDERS, Lsn(1), seen=True) as following:
            step = await following.step(0)
            assert (payloads(step.segments), step.resync) == ([b"2"], 1)
        # A position of another log, which was further on.
        async with await scene.followers.follow(ORDERS, Lsn(1_000), seen=True) as following:
            assert await following.step(0) == Step([], Lsn(2), Lsn(2))
            await scene.hw.queue("orders").push(3)
            assert payloads((await following.step(60)).segments) == [b"3"]


# ── who is woken, and what that costs ──


async def test_a_commit_calls_only_those_whose_selection_holds_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        called: list[str] = []

        def listener(name: str) -> Callable[[Sequence[Touch]], None]:
            return lambda touches: called.append(name)

        for number in range(10_000):
            scene.followers.watch(Selection("main", (f"room-{number}",)), listener("a queue"))
            scene.followers.watch(Selection("main", (f"room-{number}-*",)), listener("a pattern"))
            scene.followers.watch(Selection("main", ("orders",), (f"p{number}",)), listener("a partition"))
            scene.followers.watch(Selection("other", ("orders",)), listener("a database"))
        scene.followers.watch(ORDERS, listener("mine"))
        scene.followers.watch(Selection("main", ("or*", "orders")), listener("mine twice"))
        await scene.followers.ready()
        await scene.hw.queue("orders").push(1, partition="p17")
        assert called == ["mine", "mine twice", "a partition"]
        called.clear()
        await scene.hw.queue("orders").push(2)
        await scene.hw.queue("room-5-x").push(2)
        assert called == ["mine", "mine twice", "a pattern"]


async def test_a_process_follows_the_tail_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        handed: list[int] = []
        touched = scene.followers.touched

        def count(touches: Sequence[Touch]) -> None:
            handed.append(len(touches))
            touched(touches)

        scene.followers.touched = count  # type: ignore[method-assign]
        followings = [await scene.followers.follow(ORDERS) for _ in range(50)]
        waiting = [asyncio.ensure_future(one.step()) for one in followings]
        popping = asyncio.ensure_future(scene.hw.queue("orders").pop(wait=60))
        job = await scene.hw.jobs.add(command="true")
        ending = asyncio.ensure_future(scene.hw.jobs.wait(job.id, 60))
        await settle()
        handed.clear()
        await scene.hw.queue("orders").push(1)
        assert handed == [1]
        assert [payloads(step.segments) for step in await asyncio.gather(*waiting)] == [[b"1"]] * 50
        assert (await popping)[0].payload == 1
        ending.cancel()


async def test_whoever_follows_a_quiet_queue_goes_on_with_the_log_without_reading_it(tmp_path: Path) -> None:
    async with (
        opened(tmp_path / "log.db", recent_segments_max=4) as scene,
        await scene.followers.follow(ORDERS) as following,
    ):
        assert not await following.step(0)
        scene.reads.clear()
        for number in range(100):
            await scene.hw.queue("mails").push(number)
        assert await following.step(0) == Step([], Lsn(100))
        for number in range(100):
            await scene.hw.queue("mails").push(number)
        await scene.hw.queue("orders").push("at last")
        assert payloads((await following.step()).segments) == [b'"at last"']
        assert scene.reads == []


async def test_whoever_leaves_is_called_no_more(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        called: list[str] = []
        for selection in (ORDERS, Selection("main", ("o*",)), Selection("main", ("orders",), ("p",))):
            unwatch = scene.followers.watch(selection, lambda touches: called.append("called"))
            unwatch()
            unwatch()
        async with await scene.followers.follow(ORDERS) as following:
            assert scene.followers.under_way == {following}
        assert not scene.followers.under_way
        await scene.hw.queue("orders").push(1, partition="p")
        assert called == []


async def test_one_who_fails_does_not_keep_it_from_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path / "log.db") as scene:
        heard: list[int] = []

        def broken(touches: Sequence[Touch]) -> None:
            raise RuntimeError("a bug")

        scene.followers.watch(ORDERS, broken)
        scene.followers.watch(ORDERS, lambda touches: heard.extend(touch.lsn for touch in touches))
        await scene.followers.ready()
        await scene.hw.queue("orders").push(1)
        assert heard == [1]
        assert "somebody who follows the log failed" in caplog.text


# ── how it ends ──


async def test_a_wait_ends_with_its_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        parked: list[str] = []
        async with await scene.followers.follow(ORDERS) as following:
            step = await following.step(0.001, lambda: parked.append("parked"))
        assert (step, parked) == (Step([], Lsn(0)), ["parked"])


async def test_when_nobody_may_wait_any_more_steps_come_back_with_what_there_is(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene, await scene.followers.follow(ORDERS) as following:
        waiting = asyncio.ensure_future(following.step())
        await settle()
        scene.hw.queues_service.intentions.drain()
        assert not await waiting
        assert following.is_over
        assert [step async for step in following] == []
        await scene.hw.queue("orders").push(1)
        assert payloads((await following.step()).segments) == [b"1"]


async def test_a_log_that_is_closed_is_told_to_whoever_waits_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "log.db") as scene:
        async with await scene.followers.follow(ORDERS) as following:
            waiting = asyncio.ensure_future(following.step())
            await settle()
            await scene.hw.close()
            assert not await waiting
            with pytest.raises(Closed):
                await following.step()
        with pytest.raises(Closed):
            await scene.followers.follow(ORDERS)


async def test_a_store_that_is_lost_is_told_to_whoever_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as scene:
        async with await scene.followers.follow(ORDERS) as following:
            waiting = asyncio.ensure_future(following.step())
            await settle()
            path.rename(tmp_path / "elsewhere.db")
            scene.hw.sentinel.look()
            with pytest.raises(StoreReplaced):
                await waiting
        (tmp_path / "elsewhere.db").rename(path)


async def test_what_is_in_memory_of_a_lost_store_is_not_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with opened(path) as scene:
        async with await scene.followers.follow(ORDERS) as following:
            await scene.hw.queue("orders").push(1)
            path.rename(tmp_path / "elsewhere.db")
            with pytest.raises(StoreReplaced):
                await following.step()
        (tmp_path / "elsewhere.db").rename(path)
