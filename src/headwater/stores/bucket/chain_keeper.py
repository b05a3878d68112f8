"""Keeps the commits of a scratch file in a chain of entries: `ship=chain`.

image   the file as of the last entry that landed, in memory: what a base is made of, so that its bytes and its
        label cannot come apart
base    due when the entries behind it weigh more than half of it (8 MB at least), when there are many, at the end
lease   any entry renews it; when nothing was sent for a third of it, an empty one is
watch   as often, while anybody is answered, the entry that was the last one a while ago and the base are looked at in
        turns: whether they are there still. A holder answers from memory, and creates its next entry wherever the
        others are: it would not notice by itself that the bucket was emptied, or put back to an older state
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headwater.errors import StoreDamaged, StoreError, StoreForeign, StoreReplaced
from headwater.stores.bucket.address import BucketSettings
from headwater.stores.bucket.bases import Bases
from headwater.stores.bucket.chain import Chain, Flight, Terms
from headwater.stores.bucket.entries import Header
from headwater.stores.bucket.label import Label, copied
from headwater.stores.bucket.lease import DRIFT, Challenge, End, SharedLook, end_all, impatient, steady_seconds
from headwater.stores.bucket.looking import Base, Look, Walk, gone, newest_image
from headwater.stores.bucket.wakeup import BucketWakeup
from headwater.stores.contract import Holder, RaceLost, Traits
from headwater.stores.sqlite.frames import PageChanges
from headwater.wakeups.contract import Wakeup

log = logging.getLogger(__name__)

BASE_BYTES_MIN = 8 * 1_048_576
BASE_ENTRIES_MAX = 256
BEATS = 3
# How long a holder without a lease answers before it looks whether what it wrote is there.
WATCH_SECONDS = 15.0
# An object that was there must be missed so often in a row: a bucket may be wrong for a moment.
MISSES = 3
MISS_SECONDS = 0.5


class ChainKeeper:
    """The commits of one handle, for as long as it holds the store."""

    def __init__(
        self,
        look: Look,
        traits: Traits,
        settings: BucketSettings,
        now: Callable[[], float] = steady_seconds,
        guard: str = "",
    ) -> None:
        self.traits = traits
        self._look = look
        self._now = now
        self._lease_seconds = settings.lease_seconds
        self.challenge = Challenge(settings.wait_seconds, now)
        own = Holder(settings.advertise, guard)
        self._chain = Chain(look, Terms(own, settings.lease_seconds, settings.gap_ms / 1_000), now)
        self._chain.on_landed = self._landed
        self._confirming = SharedLook(self._confirm)
        self._wakeup = BucketWakeup(self._find_foreign, self._peek_foreign)
        self._image = bytearray()
        # What landed while the image is copied, and is not in it yet; None when it is.
        self._later: list[PageChanges] | None = None
        self._at: Header | None = None
        self._bases: Bases | None = None
        self._basing: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        # The entry to look at next, and whether anybody was answered since the last look.
        self._watched: Header | None = None
        self._answers = False
        # The first position at which nobody else was seen to have written.
        self._foreign = 0
        self._sent_at = 0.0
        self._lease_until = 0.0
        self.before_base: Callable[[], Awaitable[None]] = _nothing
        # Told what is gone from the bucket: from then on nothing of this store is safe.
        self.on_loss: Callable[[str], None] = log.error
        self.takeovers = 0
        self.bases = 0

    @property
    def live_bytes(self) -> int:
        """How large the file is."""
        return len(self._image)

    @property
    def is_sending(self) -> bool:
        """Whether something is on its way that others wait for."""
        return self._chain.in_flight > 0

    @property
    def full(self) -> bool:
        """Whether the bucket has no room for what was sent."""
        return self._chain.full

    # ── holding ──

    def held_by(self) -> Holder | None:
        """Another broker that holds the store, as far as was seen."""
        return self.challenge.met if self._chain.deposed else None

    async def take_over(self, *, insists: bool = False) -> bytearray:
        """Become the holder, as soon as that is polite; who insists is not, and waits for the other's lease to end."""
        await self._let_go()
        await self.challenge.make_way()
        expected = self._chain.next
        taken = await self._insist() if insists else await self._chain.take_over(None)
        while taken is None:
            quiet = await self.challenge.until_quiet(self._find_end)
            taken = await self._chain.take_over(quiet if isinstance(quiet, int) else None)
        base, walk, flight = taken
        self._image = newest_image(base, walk.entries)
        self._bases = Bases(self._look, base, walk)
        self._at = self._watched = flight.entry.header
        self._lease_until = flight.sent_at + self._lease_seconds
        self._sent_at = flight.sent_at
        self.takeovers += 1
        if walk.free > expected:
            self._wakeup.caught_up(walk.free - 1)
        if self._lease_seconds:
            self._beating = asyncio.get_running_loop().create_task(self._beat(), name="headwater-bucket-lease")
        self._watching = asyncio.get_running_loop().create_task(self._watch(), name="headwater-bucket-watch")
        before = await self._look.last(base, walk) if insists else None
        if before is not None and not before.left:
            # A holder that does not know yet may tell within its lease what it had read before.
            await asyncio.sleep(before.lease_seconds * DRIFT)
        # Written down before the first commit of ours changes it.
        return self._image

    async def _insist(self) -> tuple[Base, Walk, Flight]:
        """Take it from whoever holds it, which may be there first when it goes on behind its own epoch."""
        async with impatient(self.challenge.wait_seconds):
            while True:
                await self._chain.depose()
                taken = await self._chain.take_over(None, insists=True)
                if taken is not None:
                    return taken

    async def _find_end(self) -> End:
        last, tip = await self._chain.find_last()
        if last is None or self._chain.may_follow(last, None):
            return End(tip, Holder(""), 0.0)
        return End(tip, Holder(last.holder, last.guard), last.lease_seconds)

    async def _beat(self) -> None:
        """Be heard of, while there is nothing else to send."""
        pause = self._lease_seconds / BEATS
        while not self._chain.deposed:
            await asyncio.sleep(pause)
            if self._now() - self._sent_at >= pause and not self._chain.in_flight and not self._chain.deposed:
                self._append(None)

    async def _watch(self) -> None:
        """Look again and again whether what was written is there still, an entry and the base in turns."""
        turn = 0
        while not self._chain.deposed:
            await asyncio.sleep((self._lease_seconds or WATCH_SECONDS) / BEATS)
            if not self._answers:
                continue
            self._answers, turn = False, turn + 1
            try:
                missing = await self._find_missing(is_base=turn % 2 == 0)
            except StoreError as error:
                log.debug("what was written cannot be looked at: %s", error)
                continue
            if missing and not self._chain.deposed:
                self._lose(missing)

    async def _find_missing(self, *, is_base: bool) -> str:
        """What is told of the entry or the base when it is gone; '' while it is there."""
        assert self._watched is not None
        assert self._bases is not None
        at, base = self._watched, self._bases.base
        if not is_base:
            # One that was written after somebody's hands were in the bucket would be there.
            self._watched = self._at
        for _ in range(MISSES):
            missing = gone(self._look.names.base if is_base else self._look.names.entry(at.position))
            try:
                if await (self._look.keeps_base(base) if is_base else self._look.keeps_entry(at)):
                    return ""
            except (StoreForeign, StoreDamaged) as error:
                missing = str(error)
            await asyncio.sleep(MISS_SECONDS)
        return missing

    def _lose(self, missing: str) -> None:
        """What was answered may be gone: nobody is answered any more, and nothing is written."""
        self._chain.lose()
        self.on_loss(missing)

    async def _let_go(self) -> None:
        """Nothing of the holder that this was is under way afterwards."""
        for task in (self._beating, self._watching):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._beating = self._watching = None
        await self._chain.settle()
        await self._confirming.settle()
        if self._basing is not None:
            await asyncio.wait([self._basing])
            self._basing = None

    async def close(self) -> None:
        """Say that we leave, and put everything into the base: it is the file as it is."""
        if not self._chain.deposed and self._bases is not None:
            self._append(None, left=True)
        await self._let_go()
        if not self._chain.deposed and self._bases is not None:
            await self._renew_base()
        self._chain.deposed = True
        self._look.objects.close()

    async def abandon(self) -> None:
        """Leave without a word, and wait for nothing: the lease runs out."""
        tasks = [task for task in (self._beating, self._watching, self._basing) if task is not None]
        await self._chain.abandon()
        await end_all(tasks)
        await self._confirming.abandon()
        self._look.objects.close()

    # ── commits ──

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        """One more entry."""
        return self._append(changes).landed

    def _append(self, changes: PageChanges | None, *, left: bool = False) -> Flight:
        flight = self._chain.append(changes, left=left)
        self._sent_at = flight.sent_at
        return flight

    def _landed(self, flight: Flight) -> None:
        """In order. The file, what it is labelled with and the lease go forward together."""
        assert self._bases is not None
        if flight.changes is not None:
            if self._later is None:
                flight.changes.apply(self._image)
            else:
                self._later.append(flight.changes)
        self._at = flight.entry.header
        self._answers = True
        self._bases.landed(flight.entry.header, len(flight.entry.body))
        self._lease_until = max(self._lease_until, flight.sent_at + self._lease_seconds)
        self.challenge.won()
        if self._is_base_due() and (self._basing is None or self._basing.done()):
            self._basing = asyncio.get_running_loop().create_task(self._refresh_base(), name="headwater-bucket-base")

    def confirm(self) -> asyncio.Future[None] | None:
        """Within the lease nobody else can have written; otherwise a look tells."""
        self._answers = True
        if self._now() < self._lease_until and not self._chain.deposed:
            return None
        return self._confirming.ask()

    async def _confirm(self) -> None:
        if self._chain.deposed or not await self._chain.is_ours():
            raise RaceLost
        self.challenge.won()

    # ── bases ──

    def _is_base_due(self) -> bool:
        assert self._bases is not None
        return (
            self._bases.delta_bytes > max(BASE_BYTES_MIN, len(self._image) // 2)
            or self._bases.entries >= BASE_ENTRIES_MAX
        )

    async def _refresh_base(self) -> None:
        """Let the file be made small, if it is worth it, then put it there."""
        try:
            await self.before_base()
        except RaceLost:
            return
        except Exception:
            log.exception("the file could not be made smaller before it becomes the base")
        await self._renew_base()

    async def _renew_base(self) -> None:
        """Of the file as it is at this moment. What goes wrong is told; the next base is due soon enough."""
        assert self._bases is not None
        assert self._at is not None
        if not self._image or self._at.position <= self._bases.base.label.position:
            return
        try:
            label = self._bases.begin(self._at)
            if await self._bases.replace(await self._copy(label), label):
                self.bases += 1
                await self._bases.collect()
        except (StoreReplaced, StoreForeign, StoreDamaged) as error:
            self._lose(str(error))
        except Exception:
            log.exception("the base of the store in the bucket could not be renewed")

    async def _copy(self, label: Label) -> bytes:
        """The file as it is at this moment. What lands meanwhile comes into it afterwards."""
        self._later = []
        try:
            return await copied(self._image, label)
        finally:
            for changes in self._later:
                changes.apply(self._image)
            self._later = None

    # ── others ──

    def wakeup(self) -> Wakeup:
        """Looks whether somebody else has taken over."""
        return self._wakeup

    async def _find_foreign(self) -> int:
        """The position up to which somebody else has gone on, 0 while nobody has."""
        if not self._chain.deposed and (self._now() < self._lease_until or await self._chain.is_ours()):
            return 0
        # Each of them is asked for once, however often somebody looks.
        position = max(self._chain.next, self._foreign)
        while await self._look.header(position) is not None:
            position += 1
        self._foreign = position
        return position - 1

    def _peek_foreign(self) -> int:
        position = self._chain.next
        while not self._chain.in_flight and self._look.is_taken(position):
            position += 1
        return position - 1 if position > self._chain.next else 0


async def _nothing() -> None:
    """Nobody makes the file smaller."""
