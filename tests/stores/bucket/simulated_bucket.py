"""A bucket and its brokers under virtual time, decided by a seed: brokers that sleep, PUTs that land late, answers that
are lost. The keepers are the real ones; the file that they keep is a list of numbers, one a page.

Checked at the end, against what lies in the bucket: every operation that was answered is there once, where it was told;
none is there twice; what was answered before another was handed in lies before it; a read shows all that was answered
before it was asked; each base that was ever there is what the entries up to its position make; and no broker thinks
that something was taken away.
"""

import asyncio
import hashlib
import random
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from unittest.mock import patch

from headwater.stores.bucket.address import BucketSettings
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.entries import counts, decode
from headwater.stores.bucket.image_keeper import ImageKeeper
from headwater.stores.bucket.images import ImageLook
from headwater.stores.bucket.label import read_label, unlabelled
from headwater.stores.bucket.looking import Look, Names, newest_image
from headwater.stores.bucket.objects import Found, Refused, Unsure
from headwater.stores.contract import RaceLost, Traits
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges

KEY = "db.sqlite"
LEASE_SECONDS = 3.0
BASE_ENTRIES = 6
# Chains are as much shorter here.
WINDOW_MAX = 32
SETTLE_SECONDS = 240.0
TRAITS = Traits("simulated", "nowhere", "none", several_machines=True, durable_by="nothing", answers_wait=True)
FIRST_PAGE = b"SQLite format 3\0" + bytes(PAGE_BYTES - 16)


Result = TypeVar("Result")


class VirtualSelector(selectors.BaseSelector):
    """Waits for nothing but time, which passes at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(0, 0, 0, None)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(0, 0, 0, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for ever")
        self.now += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual."""

    def __init__(self) -> None:
        self._virtual = VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def _make_self_pipe(self) -> None:
        """Nobody else wakes it."""

    def _close_self_pipe(self) -> None:
        """There is none."""


def tag_of(data: bytes) -> str:
    """As in S3, a hash of the bytes."""
    return hashlib.md5(data).hexdigest()


class World:
    """The bucket itself, which is sound, and how badly the way to it treats requests."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.objects: dict[str, Found] = {}
        self.entries: dict[str, bytes] = {}
        self.bases: list[bytes] = []
        self.tags: list[str] = []
        self.losses: list[str] = []
        self.lose = dice.choice((0.0, 0.1, 0.25))
        self.late = dice.choice((0.0, 0.1, 0.3))
        self.busy = dice.choice((0.0, 0.1))
        self.late_most = dice.choice((1, 5, 40))

    def be_kind(self) -> None:
        """From now on every request arrives and is answered."""
        self.lose = self.late = self.busy = 0.0

    def write(self, key: str, data: bytes) -> str:
        tag = tag_of(data)
        self.objects[key] = Found(data, tag)
        if key == KEY:
            self.bases.append(data)
            self.tags.append(tag)
        else:
            # A place that was collected may be taken once more, by somebody who slept; that counts for nothing.
            self.entries.setdefault(key, data)
        return tag


class Way:
    """One broker's way to the bucket; nothing passes while the broker sleeps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.awake = asyncio.Event()
        self.awake.set()

    async def get(self, key: str) -> Found | None:
        return await self._call(lambda: self.world.objects.get(key), is_put=False)  # type: ignore[no-any-return]

    async def head(self, key: str, size: int) -> Found | None:
        found = await self.get(key)
        return None if found is None else Found(found.data[:size], found.tag)

    def peek(self, key: str, size: int) -> Found | None:
        return self.world.objects.get(key)

    async def create(self, key: str, data: bytes) -> str:
        def apply() -> str:
            if key in self.world.objects:
                raise Refused(key)
            return self.world.write(key, data)

        return str(await self._call(apply, is_put=True))

    async def replace(self, key: str, data: bytes, tag: str) -> str:
        def apply() -> str:
            found = self.world.objects.get(key)
            if found is None or found.tag != tag:
                raise Refused(key)
            return self.world.write(key, data)

        return str(await self._call(apply, is_put=True))

    async def names(self, prefix: str) -> list[str]:
        keys = await self._call(lambda: sorted(self.world.objects), is_put=False)
        return [key for key in keys if key.startswith(prefix)]

    async def delete(self, keys: Sequence[str]) -> None:
        def apply() -> None:
            for key in keys:
                self.world.objects.pop(key, None)

        await self._call(apply, is_put=False)

    def close(self) -> None:
        """It goes with the world."""

    async def _call(self, apply: Callable[[], Any], *, is_put: bool) -> Any:
        world, dice = self.world, self.world.dice
        await self.awake.wait()
        fate = dice.random()
        if is_put and fate < world.late:
            asyncio.get_running_loop().call_later(dice.uniform(0.1, world.late_most), self._apply, apply)
            await self._pass(dice.uniform(0.05, 1.0))
            raise Unsure("no answer")
        fate -= world.late
        if fate < world.busy:
            await self._pass(0.02)
            raise Refused("409") if is_put and dice.random() < 0.5 else Unsure("503")
        fate -= world.busy
        await asyncio.sleep(dice.uniform(0.01, 0.06))
        result = self._apply(apply)
        await self._pass(dice.uniform(0.0, 0.04))
        if fate < world.lose:
            raise Unsure("the answer was lost")
        if isinstance(result, Refused):
            raise result
        return result

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.awake.wait()

    def _apply(self, apply: Callable[[], Any]) -> Any:
        try:
            return apply()
        except Refused as refused:
            return refused


class Request:
    """Something that a client asked for: an operation with a number, or a read."""

    def __init__(self, number: int, at: float) -> None:
        self.number = number
        self.submitted = at
        self.answered: float | None = None
        self.index = -1
        self.seen: set[int] = set()


def state_of(image: bytes | bytearray) -> list[int]:
    """The operations that a file has, in order."""
    pages = range(PAGE_BYTES, len(image), PAGE_BYTES)
    return [int.from_bytes(image[begin : begin + 8], "big") for begin in pages]


class Broker:
    """A real keeper, and what a committer does with one: applies, sends, answers in order, begins again."""

    def __init__(self, world: World, dice: random.Random, ship: str, *, insists: bool = False) -> None:
        self._dice = dice
        self._rate = dice.uniform(0.98, 1.02)
        self._depth = dice.choice((1, 2, 4))
        self.way = Way(world)
        lease = LEASE_SECONDS if dice.random() < 0.6 else 0.0
        # Who takes a store from its holder has a lease itself, or others would follow before the holder's is over.
        self._may_insist = insists and lease > 0
        settings = BucketSettings(lease_seconds=lease, wait_seconds=1e9)
        names = Names(KEY)
        self.keeper: ChainKeeper | ImageKeeper = (
            ChainKeeper(Look(self.way, names), TRAITS, settings, self._now)
            if ship == "chain"
            else ImageKeeper(ImageLook(self.way, names), TRAITS, settings, self._now)
        )
        self.keeper.on_loss = world.losses.append
        self._state: list[int] = []
        self._flights: list[tuple[asyncio.Future[None], list[Request], int]] = []
        self.pending: list[Request] = []
        self.reads: list[Request] = []
        self.work = asyncio.Event()
        self.takeovers = 0

    def _now(self) -> float:
        return asyncio.get_running_loop().time() * self._rate

    async def run(self) -> None:
        while True:
            await self._until_work()
            try:
                insists = self._may_insist and self._dice.random() < 0.3
                self._state = state_of(await self.keeper.take_over(insists=insists))
                self.takeovers += 1
                await self._hold()
            except RaceLost:
                await self._give_up()
                await asyncio.sleep(self._dice.uniform(0, 0.3))

    async def _give_up(self) -> None:
        """What landed is answered; what did not is to be applied again, before anything else."""
        if self._flights:
            await asyncio.wait([landed for landed, _, _ in self._flights])
        try:
            self._answer()
        except RaceLost:
            self.pending = [one for _, requests, _ in self._flights for one in requests] + self.pending
            self._flights = []

    async def _until_work(self) -> None:
        while not self.pending and not self.reads:
            self.work.clear()
            await self.work.wait()

    async def _hold(self) -> None:
        idle = 0
        while idle < 40:
            await self.way.awake.wait()
            self._answer()
            if len(self._flights) < self._depth and self.pending:
                self._send()
            await self._read()
            idle = 0 if self._flights or self.pending or self.reads else idle + 1
            waiting: list[asyncio.Future[Any]] = [landed for landed, _, _ in self._flights[:1]]
            waiting.append(asyncio.ensure_future(asyncio.sleep(0.05)))
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        # Nothing to do: leave, so that others need not wait.
        await self.keeper.close()

    def _send(self) -> None:
        some, self.pending = self.pending[:5], self.pending[5:]
        begin = len(self._state)
        pages = {1: FIRST_PAGE}
        for place, request in enumerate(some):
            pages[begin + place + 2] = request.number.to_bytes(8, "big") + bytes(PAGE_BYTES - 8)
            self._state.append(request.number)
        landed = self.keeper.send(PageChanges(pages, len(self._state) + 1))
        self._flights.append((landed, some, begin))

    def _answer(self) -> None:
        while self._flights and self._flights[0][0].done():
            landed, some, begin = self._flights[0]
            landed.result()
            self._flights.pop(0)
            for place, request in enumerate(some):
                request.answered = asyncio.get_running_loop().time()
                request.index = begin + place

    async def _read(self) -> None:
        """As the store does: what is seen is told when all of it has landed, and the store is still ours."""
        reads, self.reads = self.reads, []
        seen = set(self._state)
        for read in reads:
            try:
                waits = [landed for landed, _, _ in self._flights]
                confirmed = self.keeper.confirm()
                for one in [*waits, *([] if confirmed is None else [confirmed])]:
                    await asyncio.shield(one)
            except RaceLost:
                self.reads += [one for one in reads if one.answered is None]
                raise
            await self.way.awake.wait()
            read.answered, read.seen = asyncio.get_running_loop().time(), seen


class Run:
    """One world, its brokers and clients."""

    def __init__(self, seed: int, ship: str, *, insists: bool = False) -> None:
        self._dice = random.Random(seed)
        self._ship = ship
        self.world = World(self._dice)
        self.brokers = [Broker(self.world, self._dice, ship, insists=insists) for _ in range(self._dice.choice((2, 3)))]
        self.operations: list[Request] = []
        self.reads: list[Request] = []

    async def go(self) -> None:
        """Let it run, then check it."""
        running = [asyncio.ensure_future(broker.run()) for broker in self.brokers]
        sleeping = asyncio.ensure_future(self._disturb())
        await asyncio.gather(self._ask(), self._ask())
        for _ in range(int(SETTLE_SECONDS)):
            if all(one.answered is not None for one in self.operations):
                break
            await asyncio.sleep(1.0)
        sleeping.cancel()
        for task in running:
            if task.done():
                task.result()
            task.cancel()
        for broker in self.brokers:
            broker.way.awake.set()
        self.world.be_kind()
        self.check(await self._final())

    async def _ask(self) -> None:
        """A client: hands something in at one of the brokers, now and then."""
        loop, dice = asyncio.get_running_loop(), self._dice
        for _ in range(dice.randrange(10, 40)):
            await asyncio.sleep(dice.expovariate(2.0))
            broker = dice.choice(self.brokers)
            if dice.random() < 0.25:
                self.reads.append(Request(-1, loop.time()))
                broker.reads.append(self.reads[-1])
            else:
                self.operations.append(Request(len(self.operations), loop.time()))
                broker.pending.append(self.operations[-1])
            broker.work.set()

    async def _disturb(self) -> None:
        """Brokers sleep, for shorter or longer than a lease."""
        while True:
            await asyncio.sleep(self._dice.expovariate(0.3))
            broker = self._dice.choice(self.brokers)
            broker.way.awake.clear()
            await asyncio.sleep(self._dice.choice((0.2, 2.0, 8.0, 25.0)) * self._dice.random())
            broker.way.awake.set()

    async def _final(self) -> list[int]:
        way, names = Way(self.world), Names(KEY)
        if self._ship == "image":
            return state_of((await ImageLook(way, names).whole())[2])
        base, walk = await Look(way, names).everything()
        return state_of(newest_image(base, walk.entries))

    def check(self, state: list[int]) -> None:
        """Whether all that was told is so."""
        assert self.world.losses == [], "a base or an entry was taken for lost that nobody took away"
        assert len(state) == len(set(state)), "an operation was applied twice"
        places = {number: index for index, number in enumerate(state)}
        for one in self.operations:
            if one.answered is not None:
                assert one.number in places, "an operation was answered and is lost"
                assert places[one.number] == one.index, "an operation lies elsewhere than was told"
        self._check_order(state)
        self._check_reads()
        if self._ship == "chain":
            self._check_bases()

    def _check_order(self, state: list[int]) -> None:
        newest = -1.0
        for number in state:
            one = self.operations[number]
            assert one.answered is None or one.answered >= newest, "an operation lies before one that it came after"
            newest = max(newest, one.submitted)

    def _check_reads(self) -> None:
        for read in self.reads:
            if read.answered is not None:
                known = [one.number for one in self.operations if one.answered and one.answered < read.submitted]
                assert read.seen.issuperset(known), "a read missed what was answered before it was asked"

    def _check_bases(self) -> None:
        """Each is what the entries make that its label tells of, and no two that differ share their bytes."""
        rebuilt = self._rebuild()
        for data in self.world.bases:
            position = read_label(data, KEY).position
            assert bytes(unlabelled(data)) == rebuilt.get(position), "a base is not what its label says"
        assert len(set(self.world.tags)) == len(self.world.tags), "two bases have one tag"

    def _rebuild(self) -> dict[int, bytes]:
        names, image, tip, epoch, position = Names(KEY), bytearray(), 0, 0, 0
        rebuilt: dict[int, bytes] = {}
        while (data := self.world.entries.get(names.entry(position + 1))) is not None:
            position += 1
            entry = decode(data, "an entry")
            if counts(entry.header, tip, epoch):
                tip, epoch = entry.header.put_id, entry.header.epoch
                changes = entry.changes()
                if changes is not None:
                    changes.apply(image)
                if image:
                    rebuilt[position] = bytes(unlabelled(bytes(image)))
        return rebuilt


def simulate(seed: int, ship: str, *, insists: bool = False) -> Run:
    """Run a world of this seed to its end; raises when something in it went wrong. Some take what others hold."""
    random.seed(seed)

    async def go() -> Run:
        run = Run(seed, ship, insists=insists)
        await run.go()
        return run

    return run_virtually(go)


def run_virtually(go: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run something under virtual time."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda loop, context: None)
    try:
        with (
            patch("headwater.stores.bucket.chain_keeper.BASE_ENTRIES_MAX", BASE_ENTRIES),
            patch("headwater.stores.bucket.looking.WINDOW_MAX", WINDOW_MAX),
        ):
            return loop.run_until_complete(go())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()
