"""A client: what people hold instead of an open store when there is a server. The verbs are the same."""

import ssl
from types import TracebackType
from typing import NoReturn, Self

from headwater.client.address import check_token, parse_address, trust
from headwater.client.exchange import Exchange, Timing
from headwater.client.pool import Pool
from headwater.client.remote import RemoteQueues
from headwater.clock import Clock
from headwater.config import Config
from headwater.errors import ConfigError
from headwater.model.names import DATABASE_DEFAULT, Lsn
from headwater.services.database import Database
from headwater.services.requests import Bounds, SegmentsResponse

SECONDS_MAX = 86_400


class Client(Database):
    """The queues of a server. Made by `headwater.connect`."""

    queues_service: RemoteQueues

    def __init__(
        self, url: str, *, token: str, tls: ssl.SSLContext | None, timing: Timing, connections_max: int
    ) -> None:
        address = parse_address(url, tls)
        pool = Pool(address, connections_max=connections_max, connect_seconds=timing.connect_seconds)
        self.server: Bounds | None = None
        # The server knows the database by the token; here it has no other name.
        queues = RemoteQueues(Exchange(address, check_token(token), pool, timing))
        super().__init__(queues, DATABASE_DEFAULT, queues.jobs)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError(
            "headwater.connect needs `async with headwater.connect(...) as hw:`; "
            "for a plain `with`, write `with headwater.sync.connect(...) as hw:`"
        )

    def __exit__(self, *_: object) -> None: ...

    async def start(self) -> None:
        """Greet the server: an address where there is none, or a token that is not good, is told here.

        Raises when it is open already, here or in another event loop.
        """
        with self.queues_service.opening():
            try:
                await self.greet()
            except BaseException:
                await self.queues_service.close()
                raise
            self.queues_service.holdings.begin()

    async def greet(self) -> Bounds:
        """What the server says of itself now: its version, its bounds, and where its log ends."""
        self.server = await self.queues_service.greet()
        return self.server

    async def close(self) -> None:
        """Send what is on its way, then hang up."""
        await self.queues_service.close()

    @property
    def config(self) -> Config:
        """The server's bounds."""
        return self.queues_service.config

    @property
    def clock(self) -> Clock:
        """The server's time."""
        return self.queues_service.clock

    async def read(self, queue: str, after: Lsn, *, limit: int = 16, wait: float = 0) -> SegmentsResponse:
        """The log of a queue after an LSN, without a group; waits for more when there is none."""
        return await self.queues_service.store.segments(queue, after, limit, wait)


def make_client(
    url: str,
    *,
    token: str,
    tls: ssl.SSLContext | str | None,
    connections_max: int,
    connect_seconds: float,
    answer_seconds: float,
    retry_seconds: float,
) -> Client:
    """A client with options that were checked."""
    timing = Timing(connect_seconds=connect_seconds, answer_seconds=answer_seconds, retry_seconds=retry_seconds)
    for name in Timing.__struct_fields__:
        seconds = getattr(timing, name)
        if type(seconds) not in (int, float) or not 0 <= seconds <= SECONDS_MAX:
            raise ConfigError(f"{name} must be 0 to {SECONDS_MAX:,} seconds; got {seconds!r:.80}")
    if type(connections_max) is not int or connections_max < 1:
        raise ConfigError(f"connections_max must be 1 or more; got {connections_max!r:.80}")
    return Client(url, token=token, tls=trust(tls), timing=timing, connections_max=connections_max)
