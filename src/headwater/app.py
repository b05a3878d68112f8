"""Joins everything: settings, store, committer, tail, services and chores. The only file that sees them all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from headwater.clock import Clock, SharedClock
from headwater.config import Config, Durability, load_config
from headwater.housekeeping.clock_watch import ClockWatch
from headwater.housekeeping.keeper import Keeper
from headwater.housekeeping.sentinel import Sentinel
from headwater.log.committer import Committer
from headwater.log.operations import Commit
from headwater.log.tail import Tail
from headwater.log.timings import Timings
from headwater.model.names import DATABASE_DEFAULT
from headwater.model.room import is_room, room_of
from headwater.model.room_settings import RoomSettings, load_room_settings
from headwater.services.access_tokens import AccessTokens
from headwater.services.database import Database
from headwater.services.follow import Followers
from headwater.services.jobs import JobService
from headwater.services.log_reading import LogReading
from headwater.services.queues import Queues
from headwater.services.rooms import Rooms
from headwater.services.timings import timed
from headwater.stores.contract import Store
from headwater.stores.open import open_reader, open_store
from headwater.wakeups.contract import Wakeup
from headwater.wakeups.redis import RedisWakeup

if TYPE_CHECKING:
    import ssl

    from headwater.client.client import Client
    from headwater.doors.access.settings import AccessSettings
    from headwater.doors.asgi import AsgiApp
    from headwater.doors.routes import Router
    from headwater.doors.wire import Handler

log = logging.getLogger(__name__)


class Headwater(Database):
    """An open store and everything that drinks from it; itself the default database. Made by `headwater.open`."""

    queues_service: Queues

    def __init__(
        self, store: Store, config: Config, clock: Clock, database: str, rooms: RoomSettings | None = None
    ) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.tail = Tail(
            store, recent_bytes_max=config.recent_bytes_max, recent_segments_max=config.recent_segments_max
        )
        timings = Timings()
        self.committer = Committer(
            store,
            clock,
            pending_max=config.pending_max,
            on_commit=self._committed if config.wakeup_redis else self.tail.committed,
            timings=timings,
        )
        measured = timed(store, timings, self.committer.home)
        self.followers = Followers(measured, self.tail, self.committer.home)
        room_settings = rooms or RoomSettings()
        self.keeper = Keeper(store, self.committer, clock, with_cleanup(config, room_settings.cleanup_interval))
        self._closing = asyncio.Lock()
        self.wakeup: Wakeup | None = None
        self._redis: RedisWakeup | None = None
        self.jobs_service = JobService(measured, self.committer, self.followers, clock, config)
        self.log_reading = LogReading(
            lambda: open_reader(store.traits.location, config),
            readers_max=config.log_readers_max,
            requests_max=config.log_requests_max,
        )
        queues = Queues(measured, self.committer, self.followers, clock, config, timings)
        on_loss = (queues.intentions.fail, self.jobs_service.waits.fail, self.tail.lose)
        self._clock_watch = ClockWatch(clock, self.followers.on_clock_set)
        self.sentinel = Sentinel(store, self.committer, on_loss, self._clock_watch)
        self.rooms_service = Rooms(queues, room_settings)
        super().__init__(queues, database, self.jobs_service, self.rooms_service)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "headwater.open needs `async with headwater.open(...) as hw:`; "
            "for a plain `with`, write `with headwater.sync.open(...) as hw:`"
        )

    def __exit__(self, *_: object) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the store and get ready to follow it. Raises when it is open already, here or elsewhere."""
        with self.queues_service.life.opening(self.committer.home):
            await self._start()
            self.queues_service.holdings.begin()

    async def _start(self) -> None:
        await self.store.open()
        self._clock_watch.begin()
        self.committer.start()
        try:
            self.wakeup = self._waken_by(self.store.wakeup())
            self.tail.start(self.wakeup)
        except BaseException:
            await self.store.close()
            raise
        if self.config.housekeeping:
            self.keeper.start()
        self.sentinel.start()

    def _waken_by(self, wakeup: Wakeup) -> Wakeup:
        """The store's own wake-up, with Redis before it where there is one."""
        if not self.config.wakeup_redis:
            return wakeup
        self._redis = RedisWakeup(wakeup, self.config.wakeup_redis)
        return self._redis

    def _committed(self, commit: Commit) -> None:
        self.tail.committed(commit)
        if self._redis is not None:
            self._redis.tell({room_of(touch.lane.queue) for touch in commit.touched if is_room(touch.lane.queue)})

    async def close(self) -> None:
        """Give back what consumers hold, finish what was taken, then let go of the store. StoreFailed when that is in a
        bucket that is full or silent, and something was given up. Whoever else closes it waits for that."""
        if not self.queues_service.life.is_here:
            return
        if self.queues_service.life.is_open:
            self.committer.home.check()
        async with self._closing:
            if self.queues_service.life.is_open:
                await self._close()

    async def _close(self) -> None:
        life = self.queues_service.life
        self.committer.hurry()
        for finish in self.queues_service.before_close:
            await finish()
        await self.queues_service.holdings.close()
        await self.rooms_service.close()
        life.end()
        await self.keeper.close()
        await self.queues_service.intentions.close()
        await self.jobs_service.waits.close()
        await self.log_reading.close()
        # Until here it tells those who wait for a store that takes nothing.
        await self.sentinel.close()
        try:
            await self.committer.close()
        finally:
            self.followers.close()
            await self.tail.close()
            await self.store.close()

    def database(self, name: str) -> Database:
        """The queues and jobs of another tenant in the same store."""
        return Database(self.queues_service, name, self.jobs_service, self.rooms_service)

    def access_tokens(self, database: str = "") -> AccessTokens:
        """The access tokens of a database, this one's unless another is named."""
        return AccessTokens(self.queues_service.store, self.committer, self.clock, database or self.name)


def with_cleanup(config: Config, cleanup_interval: float) -> Config:
    """Chores as often as rooms want them, if that is more often."""
    return msgspec.structs.replace(config, housekeeping_seconds=min(config.housekeeping_seconds, cleanup_interval))


def open_headwater(
    store: str = "headwater.db",
    *,
    database: str = DATABASE_DEFAULT,
    adopt: bool = False,
    create: bool = True,
    clock: Clock | None = None,
    durability: Durability | str | None = None,
    record_bytes_max: int | None = None,
    batch_max: int | None = None,
    batch_bytes_max: int | None = None,
    wait_seconds_max: float | None = None,
    pop_batch: int | None = None,
    pop_wait_seconds: float | None = None,
    waiters_max: int | None = None,
    pending_max: int | None = None,
    lock_wait_seconds: float | None = None,
    cache_bytes: int | None = None,
    wal_bytes_max: int | None = None,
    reserve_bytes: int | None = None,
    deduplication_ids_max: int | None = None,
    wakeup: str | None = None,
    wakeup_redis: str | None = None,
    housekeeping: bool | None = None,
    housekeeping_seconds: float | None = None,
    idempotency_seconds: float | None = None,
    log_readers_max: int | None = None,
    log_requests_max: int | None = None,
    log_answer_bytes_max: int | None = None,
    staged_bytes_max: int | None = None,
    recent_bytes_max: int | None = None,
    recent_segments_max: int | None = None,
    encryption_key: str | None = None,
    rooms: Mapping[str, Any] | None = None,
) -> Headwater:
    """A Headwater over the store at `store`: a path, or a URL. Use it with `async with`.

    `adopt` adds Headwater's tables to a file that has tables of your own application; without `create` a missing file
    is an error. `rooms` are settings of rooms (docs/rooms.md). The others are the settings of `headwater.Config`; one
    that is not given comes from its `HEADWATER_*` variable, or is the default.

    >>> async with headwater.open("headwater.db") as hw:
    ...     await hw.queue("orders").push({"id": 7})
    """
    config = load_config(**_settings_among(locals()))
    clock = clock or SharedClock()
    opened = open_store(store, config, clock, adopt=adopt, create=create)
    return Headwater(opened, config, clock, database, load_room_settings(rooms))


def connect(
    url: str,
    *,
    token: str = "",
    tls: "ssl.SSLContext | str | None" = None,
    connections_max: int = 32,
    connect_seconds: float = 5.0,
    answer_seconds: float = 30.0,
    retry_seconds: float = 30.0,
) -> "Client":
    """The queues of the server at `url`, with the verbs that an open store has. Use it with `async with`.

    `tls` is whom to trust with addresses that begin with https://: a file of certificates (PEM), or an
    `ssl.SSLContext`; None is whom the system trusts. The seconds say for how long to wait for a connection, for an
    answer, and for how long to repeat a request that failed.

    >>> async with headwater.connect("http://127.0.0.1:6632") as hw:
    ...     await hw.queue("orders").push({"id": 7})
    """
    from headwater.client.client import make_client

    return make_client(
        url,
        token=token,
        tls=tls,
        connections_max=connections_max,
        connect_seconds=connect_seconds,
        answer_seconds=answer_seconds,
        retry_seconds=retry_seconds,
    )


def _settings_among(given: dict[str, Any]) -> dict[str, Any]:
    """Those of a call's arguments that are settings: its signature names each, and so does `Config`."""
    return {name: given[name] for name in Config.__struct_fields__ if name in given}


def asgi(
    store: "str | Headwater" = "headwater.db",
    *,
    access: Mapping[str, Any] | None = None,
    database: str = DATABASE_DEFAULT,
    adopt: bool = False,
    create: bool = True,
    clock: Clock | None = None,
    durability: Durability | str | None = None,
    record_bytes_max: int | None = None,
    batch_max: int | None = None,
    batch_bytes_max: int | None = None,
    wait_seconds_max: float | None = None,
    pop_batch: int | None = None,
    pop_wait_seconds: float | None = None,
    waiters_max: int | None = None,
    pending_max: int | None = None,
    lock_wait_seconds: float | None = None,
    cache_bytes: int | None = None,
    wal_bytes_max: int | None = None,
    reserve_bytes: int | None = None,
    deduplication_ids_max: int | None = None,
    wakeup: str | None = None,
    wakeup_redis: str | None = None,
    housekeeping: bool | None = None,
    housekeeping_seconds: float | None = None,
    idempotency_seconds: float | None = None,
    log_readers_max: int | None = None,
    log_requests_max: int | None = None,
    log_answer_bytes_max: int | None = None,
    staged_bytes_max: int | None = None,
    recent_bytes_max: int | None = None,
    recent_segments_max: int | None = None,
    encryption_key: str | None = None,
    rooms: Mapping[str, Any] | None = None,
) -> "AsgiApp":
    """A store as an ASGI app: for uvicorn and the like, or mounted in an app of your own.

    `store` is a path or URL, opened with the settings of `headwater.open` when the app starts up; or a
    Headwater that is open already and stays its owner's to close. The guards of `headwater serve` stand in front, set
    by `access` as docs/security.md says. Without it nobody is asked who they are: that is left to the app around it;
    pages of other origins and names of other hosts than this machine's own are kept out, until `allowed_origins` and
    `allowed_hosts` name them.

    >>> app = Starlette(routes=[Mount("/queues", headwater.asgi("headwater.db", access={"auth": "token"}))])
    """
    options = {"database": database, "adopt": adopt, "create": create, "clock": clock, **_settings_among(locals())}
    options["rooms"] = rooms
    from headwater.doors.access.settings import AccessSettings, load_access
    from headwater.doors.asgi import AsgiApp

    guards = AccessSettings() if access is None else load_access(**access)
    return AsgiApp(lambda: open_door(store, guards, **options))


@asynccontextmanager
async def open_door(
    store: "str | Headwater", access: "AccessSettings | None" = None, **options: Any
) -> "AsyncIterator[Handler]":
    """Everything that can be asked of a store over HTTP, for as long as it is open; guarded if `access` says how."""
    if isinstance(store, Headwater):
        yield await open_guarded_door(store, access)
        return
    async with open_headwater(store, **options) as hw:
        await hw.keeper.prepare()
        yield await open_guarded_door(hw, access)


async def open_guarded_door(hw: Headwater, access: "AccessSettings | None") -> "Handler":
    """The same as `make_guarded_door`, with what has to be in the store before anybody asks."""
    door = make_router(hw)
    await door.site.subscriptions.tokens.prepare()
    return guarded_door(hw, door, access)


def make_guarded_door(hw: Headwater, access: "AccessSettings | None") -> "Handler":
    """All routes over an open store, behind their guards if there are to be any."""
    return guarded_door(hw, make_router(hw), access)


def guarded_door(hw: Headwater, door: "Router", access: "AccessSettings | None") -> "Handler":
    """These routes, behind their guards if there are to be any."""
    from headwater.doors.access.guard import guarded
    from headwater.doors.documents.errors import in_their_words

    return in_their_words(door) if access is None else guarded(door, access, hw.store, hw.tail, hw.clock)


def make_router(hw: Headwater) -> "Router":
    """All routes over an open store."""
    from headwater import __version__
    from headwater.doors.all_routes import make_door
    from headwater.doors.realtime.limits import load_limits
    from headwater.doors.site import Site

    services = (hw.queues_service, hw.jobs_service, hw.log_reading, hw.tail, hw.committer)
    return make_door(Site(*services, __version__, hw.rooms_service, load_limits()))
