"""The keeper of a store whose way of being kept is found in the bucket, and the objects of an address."""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from headwater.errors import (
    Closed,
    ConfigError,
    InvalidOption,
    StoreBusy,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreMissing,
    StoreSilent,
)
from headwater.stores.bucket.address import S3, BucketSettings, Place, Ship, kept_otherwise
from headwater.stores.bucket.chain_keeper import ChainKeeper
from headwater.stores.bucket.entries import IMAGES
from headwater.stores.bucket.folder import PART, FolderObjects
from headwater.stores.bucket.image_keeper import ImageKeeper
from headwater.stores.bucket.images import ImageLook
from headwater.stores.bucket.label import HEADER_BYTES, Kind, read_label
from headwater.stores.bucket.looking import Look, Names
from headwater.stores.bucket.objects import CountedObjects, Objects, Refused, Unsure
from headwater.stores.bucket_traces import LOG, SECRET, is_entry, is_note
from headwater.stores.contract import Fact, Holder, Traits
from headwater.stores.sqlite.frames import PAGE_BYTES, PageChanges
from headwater.wakeups.contract import Wakeup

CALLS_PER_PRICE = 1_000_000
SECRET_BYTES = 32
# How objects beside a store are called, and what a folder has while one is written.
OWN_ENDINGS = (LOG, SECRET, PART)
# A bucket that has not answered for so long is not waited for by those who ask.
SILENT_SECONDS = 10.0


def open_objects(place: Place) -> Objects:
    """The bucket that an address means."""
    if place.scheme != S3:
        return FolderObjects(place.bucket)
    try:
        from headwater.stores.bucket.s3 import S3Objects
    except ImportError as error:
        raise ConfigError(f"a store at s3:// needs obstore: pip install 'headwater[bucket]' ({error})") from error
    return S3Objects(place.bucket)


async def find_ship(look: Look) -> Ship | None:
    """How a store is kept; None where nothing of one lies. A new one has no base: then its log tells."""
    while True:
        found = await look.ask(lambda: look.objects.head(look.names.base, HEADER_BYTES))
        if found is not None:
            label = read_label(found.data, look.names.base)
            return Ship.CHAIN if label.kind is Kind.CHAIN else Ship.IMAGE
        first = await look.ask(lambda: look.objects.get(look.names.entry(1)))
        if first is not None:
            return Ship.IMAGE if first.data == IMAGES else Ship.CHAIN
        keys = await look.ask(lambda: look.objects.names(look.names.log))
        # Else somebody makes the store at this moment, and what it begins with tells of which kind it is.
        if look.names.entry(1) not in keys:
            return _find_left(keys, look.names.log)


def _find_left(keys: Sequence[str], log: str) -> Ship | None:
    """What a log without its beginning is of. Nobody makes a store in the place of one that lacks something."""
    names = [key.removeprefix(log) for key in keys]
    if any(map(is_entry, names)):
        return Ship.CHAIN
    if any(map(is_note, names)):
        return Ship.IMAGE
    if names:
        raise StoreForeign(f"{log}{names[0]} was not put there by Headwater: choose another name for the store")
    return None


class BucketKeeper:
    """Keeps commits as the store in the bucket is kept, or as was asked for when there is none yet."""

    def __init__(self, objects: Objects, place: Place, traits: Traits, *, create: bool = True) -> None:
        self._objects = CountedObjects(objects)
        self._key = place.key
        self._logs_around = place.logs_around
        self._settings = place.settings
        self._create = create
        self._stands_by = False
        self._guard = ""
        self._insists = False
        self._is_stopped = False
        self._taking: asyncio.Task[bytearray] | None = None
        # Told before a file is put there as a whole that need not be.
        self.before_base: Callable[[], Awaitable[None]]
        # Told what is gone of what was written.
        self.on_loss: Callable[[str], None]
        self._keeper: ChainKeeper | ImageKeeper | None = None
        self.traits = traits
        self.sent_pages = 0

    async def take_over(self) -> bytearray:
        """Become the holder."""
        if self._is_stopped:
            raise self.left()
        self._taking = asyncio.get_running_loop().create_task(self._take_over(), name="headwater-bucket-take-over")
        try:
            return await self._taking
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            assert caller is not None
            if caller.cancelling() or not self._is_stopped:
                raise
            raise self.left() from None

    async def _take_over(self) -> bytearray:
        if self._keeper is None:
            self._keeper = await self._choose()
        image = await self._keeper.take_over(insists=self._insists)
        if self._stands_by:
            self._keeper.challenge.wait_seconds = 0.0
        return image

    def stop(self) -> None:
        """Whoever waits for the store waits no more, and nobody takes it over from now on."""
        self._is_stopped = True
        if self._taking is not None:
            self._taking.cancel()

    def left(self) -> StoreError | Closed:
        """What is told to whoever still asks when this broker lets go of the store, or has."""
        if self.held_by() is None:
            return Closed("the store is closed")
        return StoreBusy("another broker holds this store, and this one lets go of it; try again")

    def stand_by(self, own: Holder) -> None:
        """Wait for the store until it is free, and tell others of this broker. Later, not a moment."""
        self._stands_by = True
        self._guard = own.guard
        self._settings = msgspec.structs.replace(self._settings, advertise=own.address, wait_seconds=math.inf)

    def insist(self) -> None:
        """Take the store from whoever holds it, and keep it from others by a lease, also where there is none."""
        self._insists = True
        lease_seconds = self._settings.lease_seconds or BucketSettings().lease_seconds
        self._settings = msgspec.structs.replace(self._settings, lease_seconds=lease_seconds)

    def held_by(self) -> Holder | None:
        """Another broker that holds the store."""
        return None if self._keeper is None else self._keeper.held_by()

    @property
    def full(self) -> bool:
        """Whether the bucket has no room for what was sent, and is asked again."""
        return self._keeper is not None and self._keeper.full

    def trouble(self, silent_seconds: float = SILENT_SECONDS) -> StoreError | None:
        """Why nothing lands now, and nobody can tell when it will; None while all is well."""
        if self.full:
            return StoreFull("there is no room in the bucket: what was sent waits for some, and nothing more is taken")
        is_taking = self._taking is not None and not self._taking.done()
        is_sending = is_taking or (self._keeper is not None and self._keeper.is_sending)
        # A base that is slow to go keeps nobody from writing.
        seconds = max(self._objects.reads.seconds, self._objects.writes.seconds if is_sending else 0.0)
        if seconds < silent_seconds:
            return None
        return StoreSilent(f"the bucket has not answered for {seconds:.0f} seconds, and is asked again until it does")

    def keeps_nothing(self, silent_seconds: float) -> bool:
        """Whether whoever leaves would wait in vain, also for what nobody else waits for."""
        is_silent = self._objects.writes.seconds >= silent_seconds
        return self._objects.full or is_silent or self.trouble(silent_seconds) is not None

    async def secret(self) -> bytes:
        """The secret of the brokers of this store: whoever comes first makes it."""
        look = Look(self._objects, Names(self._key))
        pauses = look.pauses()
        while True:
            found = await look.ask(lambda: self._objects.get(look.names.secret))
            if found is not None:
                return found.data
            try:
                await self._objects.create(look.names.secret, secrets.token_hex(SECRET_BYTES).encode())
            except (Refused, Unsure) as error:
                await pauses.rest(error)

    async def _choose(self) -> ChainKeeper | ImageKeeper:
        names, settings = Names(self._key), self._settings
        found = await find_ship(Look(self._objects, names))
        if found is None and not self._create:
            raise StoreMissing(f"there is no store at {self.traits.location}")
        if found is None:
            await self._check_new_key(Look(self._objects, names))
        if found is not None and settings.ship not in (None, found):
            raise kept_otherwise(self._key, found)
        ship = settings.ship or found or Ship.CHAIN
        if ship is Ship.CHAIN:
            chain = ChainKeeper(Look(self._objects, names), self.traits, settings, guard=self._guard)
            chain.before_base, chain.on_loss = self.before_base, self.on_loss
            return chain
        images = ImageKeeper(ImageLook(self._objects, names), self.traits, settings, guard=self._guard)
        images.on_loss = self.on_loss
        return images

    async def _check_new_key(self, look: Look) -> None:
        """Raises for the key of a new store that is, or could become, that of an object of another one."""
        for ending in OWN_ENDINGS:
            if self._key.endswith(ending):
                raise InvalidOption(
                    f"{self._key} is how an object of the store {self._key.removesuffix(ending)} is called; "
                    "choose a name with another ending"
                )
        for log in self._logs_around:
            found = await look.ask(lambda log=log: look.objects.names(log))  # type: ignore[misc]
            if any(is_entry(name) or is_note(name) for name in (key.removeprefix(log) for key in found)):
                raise InvalidOption(f"{self.traits.location} lies in the log of another store; choose another place")

    def _chosen(self) -> ChainKeeper | ImageKeeper:
        assert self._keeper is not None, "nothing is kept before the store is taken over"
        return self._keeper

    def send(self, changes: PageChanges) -> asyncio.Future[None]:
        """Keep one more commit."""
        self.sent_pages += len(changes.pages)
        return self._chosen().send(changes)

    def confirm(self) -> asyncio.Future[None] | None:
        """Whether the store is still ours."""
        return self._chosen().confirm()

    def wakeup(self) -> Wakeup:
        """How to learn of others."""
        return self._chosen().wakeup()

    async def close(self) -> None:
        """Give the store up."""
        if self._keeper is None:
            self._objects.close()
        else:
            await self._keeper.close()

    async def abandon(self) -> None:
        """Leave it as a broker that is killed does, whose lease others wait for."""
        if self._keeper is None:
            self._objects.close()
        else:
            await self._keeper.abandon()

    def numbers(self) -> dict[str, float]:
        """What was sent and asked so far by this process, and what that costs."""
        traffic, settings, keeper = self._objects.traffic, self._settings, self._keeper
        cost = (traffic.puts + traffic.lists) * settings.put_price + traffic.gets * settings.get_price
        written = self.sent_pages * PAGE_BYTES
        return {
            "bucket_puts_total": traffic.puts,
            "bucket_gets_total": traffic.gets,
            "bucket_lists_total": traffic.lists,
            "bucket_deletes_total": traffic.deletes,
            "bucket_sent_bytes_total": traffic.bytes_sent,
            "bucket_read_bytes_total": traffic.bytes_read,
            "bucket_takeovers_total": 0 if keeper is None else keeper.takeovers,
            "bucket_holds_store": float(keeper is not None and keeper.held_by() is None),
            "bucket_bases_total": 0 if keeper is None else keeper.bases,
            "bucket_cost_total": cost / CALLS_PER_PRICE,
            "bucket_live_bytes": 0 if keeper is None else keeper.live_bytes,
            "bucket_bytes_max": settings.bytes_max,
            # What was sent for each byte of the pages that commits changed; less than 1 where it was compressed.
            "bucket_write_amplification": traffic.bytes_sent / written if written else 0.0,
        }

    def facts(self) -> Sequence[Fact]:
        """The same for the doctor, and how the store is kept."""
        ship = Ship.CHAIN if isinstance(self._chosen(), ChainKeeper) else Ship.IMAGE
        return [Fact("bucket_ship", str(ship)), *(_fact(*counted) for counted in self.numbers().items())]


def _fact(name: str, value: float) -> Fact:
    return Fact(name, int(value) if value == int(value) else f"{value:.6f}")
