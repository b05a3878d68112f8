"""Keeps the commits of a scratch file as whole images, each put in place of the one before: `ship=image`.

    write      replace the image whose tag we know. Anything but success: look. Ours: landed. The old tag: the same
               bytes again. Another's: deposed; whether our last one was there before is found in its lineage
    take over  note in an object of its own what we go on from, then replace the image by the same with a new epoch
    lineage    those notes, from the newest image back to our own epoch: each says which PUT its holder found, so what
               landed before it is told from what never did, and nothing is applied twice

There is one PUT at a time; whatever is sent meanwhile goes with the next one. Reads always look: a lease is only for
politeness here, because renewing it (the note is written again) and taking over are not one and the same PUT. So every
answer has seen the image that is there: one that is older than ours says that somebody else's hands were in the bucket.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from headwater.errors import StoreDamaged, StoreError, StoreForeign, StoreFull, StoreReplaced
from headwater.stores.bucket.address import BucketSettings
from headwater.stores.bucket.chain import new_put_id
from headwater.stores.bucket.images import NOTHING, ImageLook, Note
from headwater.stores.bucket.label import HEADER_BYTES, Kind, Label, labelled, read_label
from headwater.stores.bucket.lease import Challenge, End, SharedLook, end_all, impatient, steady_seconds
from headwater.stores.bucket.looking import gone
from headwater.stores.bucket.objects import Refused, Unsure
from headwater.stores.bucket.wakeup import BucketWakeup
from headwater.stores.contract import Holder, RaceLost, Traits
from headwater.stores.sqlite.frames import PageChanges
from headwater.wakeups.contract import Wakeup

log = logging.getLogger(__name__)

BEATS = 3


class Mark(NamedTuple):
    """An image, and what its holder says of itself."""

    tag: str
    note_tag: str = ""
    holder: Holder = Holder("")
    lease_seconds: float = 0.0


class ImageKeeper:
    """The commits of one handle, for as long as it holds the store."""

    def __init__(
        self,
        look: ImageLook,
        traits: Traits,
        settings: BucketSettings,
        now: Callable[[], float] = steady_seconds,
        guard: str = "",
    ) -> None:
        self.traits = traits
        self._look = look
        self._settings = settings
        self._guard = guard
        self.challenge = Challenge(settings.wait_seconds, now)
        self._confirming = SharedLook(self._confirm)
        self._wakeup = BucketWakeup(self._find_foreign, self._peek_foreign)
        self._image = bytearray()
        self._label, self._tag = NOTHING, ""
        # Of the newest image that was seen here.
        self._seen = NOTHING
        self._waiting: list[tuple[PageChanges, asyncio.Future[None]]] = []
        self._shipping: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._deposed = True
        # Told what is gone from the bucket: from then on nothing of this store is safe.
        self.on_loss: Callable[[str], None] = log.error
        # Whether the bucket has no room for what was sent.
        self.full = False
        self.takeovers = 0
        self.bases = 0

    @property
    def live_bytes(self) -> int:
        """How large the file is."""
        return len(self._image)

    @property
    def is_sending(self) -> bool:
        """Whether something is on its way that others wait for."""
        return self._shipping is not None and not self._shipping.done()

    # ── holding ──

    def held_by(self) -> Holder | None:
        """Another broker that holds the store, as far as was seen."""
        return self.challenge.met if self._deposed else None

    async def take_over(self, *, insists: bool = False) -> bytearray:
        """Become the holder, as soon as that is polite, or at once: reads look, so nobody answers from before."""
        await self._let_go()
        await self.challenge.make_way()
        before = self._label
        if insists:
            async with impatient(self.challenge.wait_seconds):
                label, image = await self._win(self._see_mark)
        else:
            label, image = await self._win(lambda: self.challenge.until_quiet(self._find_end))
        self._image = image
        self.takeovers += 1
        if label.position > before.position:
            self._wakeup.caught_up(label.position)
        if self._settings.lease_seconds:
            self._beating = asyncio.get_running_loop().create_task(self._beat(), name="headwater-bucket-lease")
        # Written down before the first commit of ours changes it.
        return image

    async def _see_mark(self) -> object:
        return (await self._find_end()).mark

    async def _win(self, find_mark: Callable[[], Awaitable[object]]) -> tuple[Label, bytearray]:
        """Begin an epoch behind an image whose mark may be followed."""
        while True:
            mark = await find_mark()
            label, tag, image = await self._look.whole()
            self._see(label)
            if mark != await self._mark(label, tag):
                continue
            if not label.position:
                await self._look.refuse_lost()
            try:
                self._deposed = False
                if await self._begin_epoch(label, tag, image):
                    return label, image
            except BaseException:
                self._deposed = True
                raise

    async def _begin_epoch(self, label: Label, tag: str, image: bytearray) -> bool:
        """Whether the next epoch is ours. The note comes first: whoever meets the image must find it."""
        if not label.position:
            await self._look.claim()
        epoch, put_id = label.position + 1, new_put_id()
        key = self._look.note_key(epoch, put_id)
        note = Note(epoch, put_id, label.put_id, label.epoch, label.other, *self._terms(), guard=self._guard)
        self._note_tag = await self._create_note(key, msgspec.json.encode(note))
        self._note, self._note_key = note, key
        mine = Label(Kind.IMAGE, epoch, epoch, put_id, put_id)
        # A new store has no bytes yet: its first image is that of its first commit, which begins the epoch, too.
        if not image:
            self._label, self._tag = msgspec.structs.replace(mine, position=epoch - 1), tag
            return True
        if await self._put(labelled(image, mine), mine, tag, is_patient=False):
            # It may have landed and be somebody else's by now: then the note stays, for those who look back.
            return not self._deposed
        await self._look.ask(lambda: self._look.objects.delete([key]))
        return False

    async def _create_note(self, key: str, data: bytes) -> str:
        """Nobody else has this name: if it is there, it is ours."""
        pauses = self._look.pauses()
        while True:
            try:
                return await self._look.objects.create(key, data)
            except (Refused, Unsure) as error:
                found = await self._look.ask(lambda: self._look.objects.get(key))
                if found is not None:
                    return found.tag
                await pauses.rest(error)

    async def _find_end(self) -> End:
        label, tag = await self._look.found()
        self._see(label)
        mark = await self._mark(label, tag)
        is_free = label.kind is Kind.IMAGE_LEFT or _epoch(label) == _epoch(self._label)
        return End(mark, mark.holder, 0.0 if is_free else mark.lease_seconds)

    def _see(self, label: Label) -> None:
        """Positions only rise. StoreReplaced when this image is older than one that was seen."""
        if _is_older(label, self._seen):
            raise StoreReplaced(gone(self._look.names.base))
        self._seen = label

    async def _mark(self, label: Label, tag: str) -> Mark:
        """What is unmoved while its holder is not heard of: the image and its note."""
        if not label.position:
            return Mark(tag)
        found = await self._look.find_note(self._look.note_key(label.epoch, label.other))
        if found is None:
            # It was replaced between two looks.
            return Mark(tag)
        note, note_tag = found
        return Mark(tag, note_tag, Holder(note.holder, note.guard), note.lease_seconds)

    def _terms(self) -> tuple[str, float]:
        return self._settings.advertise, self._settings.lease_seconds

    async def _beat(self) -> None:
        """Be heard of."""
        while not self._deposed:
            await asyncio.sleep(self._settings.lease_seconds / BEATS)
            self._note = msgspec.structs.replace(self._note, beats=self._note.beats + 1)
            try:
                data = msgspec.json.encode(self._note)
                self._note_tag = await self._look.objects.replace(self._note_key, data, self._note_tag)
            except (Refused, Unsure, StoreError):
                found = await self._look.ask(lambda: self._look.objects.get(self._note_key))
                self._note_tag = self._note_tag if found is None else found.tag

    async def _let_go(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._beating = None
        if self._shipping is not None:
            await asyncio.wait([self._shipping])
            self._shipping = None
        await self._confirming.settle()

    async def close(self) -> None:
        """Say that we leave."""
        await self._let_go()
        if not self._deposed and self._image:
            await self._ship_as(Kind.IMAGE_LEFT)
        self._deposed = True
        self._look.objects.close()

    async def abandon(self) -> None:
        """Leave without a word, and wait for nothing: the lease runs out."""
        self._deposed = True
        await end_all([task for task in (self._beating, self._shipping) if task is not None])
        self._lose(self._take())
        await self._confirming.abandon()
        self._look.objects.close()

    # ── commits ──

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        """Part of the next image."""
        loop = asyncio.get_running_loop()
        landed: asyncio.Future[None] = loop.create_future()
        self._waiting.append((changes, landed))
        if self._deposed:
            self._lose(self._take())
        elif self._shipping is None or self._shipping.done():
            self._shipping = loop.create_task(self._ship(), name="headwater-bucket-put")
        return landed

    def _take(self) -> list[asyncio.Future[None]]:
        """Those who wait, with what they changed brought into the image."""
        waiting, self._waiting = self._waiting, []
        for changes, _ in waiting:
            changes.apply(self._image)
        return [landed for _, landed in waiting]

    async def _ship(self) -> None:
        while self._waiting:
            if self._settings.gap_ms:
                await asyncio.sleep(self._settings.gap_ms / 1_000)
            flights = self._take()
            try:
                is_landed = await self._ship_as(Kind.IMAGE)
            except (StoreDamaged, StoreForeign) as error:
                # What lies there now goes back to nothing of ours: whoever waits cannot be told that it did not land.
                log.error("nothing more can be written to this store: %s", error)
                self._deposed = True
                self._lose([*flights, *self._take()], error)
                return
            if is_landed:
                self.challenge.won()
                for landed in flights:
                    _settle(landed)
                await self._say_landed()
            else:
                self._lose(flights)
            if self._deposed:
                self._lose(self._take())

    async def _say_landed(self) -> None:
        """Of the first image of a store, once: whoever misses it later knows that it was there. What does not come
        through is said with the next sign of life."""
        if self._note.follows_image:
            return
        self._note = msgspec.structs.replace(self._note, landed=True)
        try:
            data = msgspec.json.encode(self._note)
            self._note_tag = await self._look.objects.replace(self._note_key, data, self._note_tag)
        except (Refused, Unsure, StoreError) as error:
            log.debug("that an image has landed is said later: %s", error)

    async def _ship_as(self, kind: Kind) -> bool:
        """Whether the image as it is now has landed."""
        label = self._label
        mine = Label(kind, label.position + 1, label.epoch, new_put_id(), label.other)
        if label.position < label.epoch:
            # The first image of a new store begins its epoch: its note says with which PUT.
            mine = msgspec.structs.replace(mine, put_id=label.other)
        return await self._put(labelled(self._image, mine), mine, self._tag)

    async def _put(self, data: bytes, mine: Label, tag: str, *, is_patient: bool = True) -> bool:
        """Whether this image landed. When another has replaced it since, we hold the store no more."""
        pauses = self._look.pauses()
        name, objects = self._look.names.base, self._look.objects
        while True:
            try:
                self._tag = await (objects.replace(name, data, tag) if tag else objects.create(name, data))
                self._label = self._seen = mine
                self.full = False
                return True
            except (Refused, Unsure, StoreError) as error:
                why: Exception = error
            found, found_tag = await self._look_until_told()
            self.full = isinstance(why, StoreFull) and found_tag == tag
            if found.put_id == mine.put_id:
                self._label, self._tag = mine, found_tag
                self._seen = mine
                return True
            if found_tag != tag:
                self._deposed = True
                return await self._look.last_of(mine, found) == mine.put_id
            if isinstance(why, StoreError) and not is_patient:
                raise why
            await pauses.rest(why)

    async def _look_until_told(self) -> tuple[Label, str]:
        """Label and tag, also of a bucket that refuses us now: this must be known. What is no image of a store is
        told at once: it stays."""
        pauses = self._look.pauses()
        while True:
            try:
                return await self._look.found()
            except (StoreDamaged, StoreForeign):
                raise
            except (Unsure, StoreError) as error:
                await pauses.rest(error)

    def _lose(self, flights: list[asyncio.Future[None]], error: Exception | None = None) -> None:
        for landed in flights:
            if not landed.done():
                landed.set_exception(error or RaceLost())
                landed.exception()

    def confirm(self) -> asyncio.Future[None] | None:
        """A look tells whether somebody else has written."""
        return self._confirming.ask()

    async def _confirm(self) -> None:
        if not await self._is_ours():
            raise RaceLost
        self.challenge.won()

    async def _is_ours(self) -> bool:
        if not self._deposed:
            mine, seen = self._label, self._seen
            found, _ = await self._look.found()
            is_new = mine.position < mine.epoch and not found.position
            if _is_older(found, seen) and not self._deposed:
                self._deposed = True
                self.on_loss(gone(self._look.names.base))
            if _epoch(self._label) == _epoch(mine) != _epoch(found) and not is_new:
                self._deposed = True
        return not self._deposed

    # ── others ──

    def wakeup(self) -> Wakeup:
        """Looks whether somebody else has taken over."""
        return self._wakeup

    async def _find_foreign(self) -> int:
        """The position up to which somebody else has gone on, 0 while nobody has."""
        return 0 if await self._is_ours() else (await self._look.found())[0].position

    def _peek_foreign(self) -> int:
        found = self._look.objects.peek(self._look.names.base, HEADER_BYTES)
        label = NOTHING if found is None else read_label(found.data, self._look.names.base)
        return 0 if _epoch(label) == _epoch(self._label) else label.position


def _epoch(label: Label) -> tuple[int, int]:
    """Which epoch it is: two may want the same number, as two who meet an empty bucket do."""
    return label.epoch, label.other


def _is_older(label: Label, seen: Label) -> bool:
    """Whether an image cannot be there when that one was."""
    if label.position == seen.position:
        return label.put_id != seen.put_id
    return label.position < seen.position


def _settle(landed: "asyncio.Future[None]") -> None:
    if not landed.done():
        landed.set_result(None)
