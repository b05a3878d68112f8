"""Collections of somebody's MongoDB database as a source of changes, by a change stream.

    first      open the stream, keep its token ─► every document as `read` ─► what the stream has had since
    later      the stream, resumed after the token in the log

A document that changes while the first copy is made may be in it and come once more as a change: the later one holds. A
server whose log no longer has the token says so (history lost), and that is told, never passed over.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from bson import json_util
from pymongo import AsyncMongoClient
from pymongo.asynchronous.change_stream import AsyncDatabaseChangeStream
from pymongo.errors import ConfigurationError, InvalidURI, OperationFailure, PyMongoError

from headwater.capture.contract import Change, Kind, Lag, Taken
from headwater.clock import SECOND, Timestamp
from headwater.errors import (
    CaptureError,
    HeadwaterError,
    InvalidOption,
    ResyncRequired,
    SourceUnfit,
    SourceUnreachable,
    StoreDamaged,
)

CHANGES_PER_READ = 1_000
AWAIT_MILLISECONDS = 1_000
SELECTION_MILLISECONDS = 10_000

_KINDS: dict[str, Kind] = {
    "insert": "insert",
    "update": "update",
    "replace": "update",
    "delete": "delete",
    # Every document of the collection is gone.
    "drop": "truncate",
}
_ENDINGS = {"rename", "dropDatabase", "invalidate"}
# History lost, a stream that cannot go on, a token that is none of this server's.
_LOST = {286, 280, 260}
# No replica set, or no right to.
_UNFIT = {40573, 13, 18}


class Event(NamedTuple):
    """What the stream said, with the token to resume after it; nothing but the token where it said nothing."""

    change: Change | None
    at: Timestamp | None
    token: str


class MongoCollections:
    """The changes of some collections of one database: `shop.orders`. `address` is the `mongodb://` URL of a replica
    set."""

    def __init__(self, address: str, collections: Sequence[str], *, name: str = "", snapshot: bool = True) -> None:
        if isinstance(collections, str) or not collections:
            raise InvalidOption("collections must be a list of names: ['shop.orders']")
        parts = [each.partition(".") for each in collections]
        databases = {database for database, _, _ in parts}
        if len(databases) != 1 or not all(database and collection for database, _, collection in parts):
            raise InvalidOption(
                f"collections of one database are followed together, as database.collection; got {collections!r:.200}"
            )
        self._address = address
        (self._database,) = databases
        self._collections = [collection for _, _, collection in parts]
        self._snapshot = snapshot
        self.name = name or collections[0].replace(".", "_")
        self.caught_up = False
        self._client: AsyncMongoClient[dict[str, Any]] | None = None
        self._copy: AsyncIterator[Taken] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Event | HeadwaterError] = asyncio.Queue(CHANGES_PER_READ)

    @property
    def tables(self) -> Sequence[str]:
        """As changes name them."""
        return [f"{self._database}.{collection}" for collection in self._collections]

    async def keeps_place(self) -> bool:
        """The server keeps nothing for us."""
        return False

    async def check(self) -> None:
        """A collection need not be there before something is written to it."""

    async def open(self, position: str) -> str:
        """Begin with a first copy, or go on where the log is."""
        await self.close()
        self.caught_up = False
        self._events = asyncio.Queue(CHANGES_PER_READ)
        with _translated():
            self._client = AsyncMongoClient(
                self._address, serverSelectionTimeoutMS=SELECTION_MILLISECONDS, appname="headwater capture"
            )
            stream = await self._watch(_decode(position) if position else None)
            token = _encode(stream.resume_token)
            if not position and self._snapshot:
                self._copy = self._copies(token)
        self._pump = asyncio.create_task(self._follow(stream), name="headwater-change-stream")
        return "" if self._copy is not None else position or token

    async def read(self, seconds: float) -> Taken | None:
        """The next documents of the first copy, or the next changes."""
        if self._copy is not None:
            with _translated():
                copied = await anext(self._copy, None)
            if copied is not None:
                return copied
            self._copy = None
        try:
            async with asyncio.timeout(seconds):
                events = [await self._events.get()]
        except TimeoutError:
            return None
        while len(events) < CHANGES_PER_READ and not self._events.empty():
            events.append(self._events.get_nowait())
        return self._taken(events)

    def _taken(self, events: Sequence[Event | HeadwaterError]) -> Taken:
        found: list[Event] = []
        for event in events:
            if isinstance(event, HeadwaterError):
                if not found:
                    raise event
                # What came before it is kept first; the error is met again.
                self._events.put_nowait(event)
                break
            found.append(event)
            self.caught_up = self.caught_up or event.change is None
        told = [event for event in found if event.change is not None]
        return Taken([event.change for event in told if event.change], [event.at for event in told], found[-1].token)

    async def confirm(self, position: str) -> None:
        """The server keeps its log by its own rules."""

    async def lag(self) -> Lag:
        """The server keeps nothing for us."""
        return Lag()

    async def forget(self) -> None:
        """The server keeps nothing for us."""
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        self._copy = None
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # ── the stream ──

    async def _watch(self, token: dict[str, Any] | None) -> AsyncDatabaseChangeStream[dict[str, Any]]:
        assert self._client is not None
        return await self._client[self._database].watch(
            [{"$match": {"ns.coll": {"$in": self._collections}}}],
            full_document="updateLookup",
            full_document_before_change="whenAvailable",
            resume_after=token,
            max_await_time_ms=AWAIT_MILLISECONDS,
        )

    async def _follow(self, stream: AsyncDatabaseChangeStream[dict[str, Any]]) -> None:
        """Hand on what the stream says as it comes; who reads gets as much as there is at once."""
        try:
            with _translated():
                async with stream:
                    while True:
                        said = await stream.try_next()
                        await self._events.put(_event(said, stream.resume_token))
        except HeadwaterError as error:
            await self._events.put(error)

    async def _copies(self, token: str) -> AsyncIterator[Taken]:
        """Every document, some at a time; then the token from which changes follow."""
        assert self._client is not None
        for collection in self._collections:
            table = f"{self._database}.{collection}"
            cursor = self._client[self._database][collection].find({}, sort=[("_id", 1)], batch_size=CHANGES_PER_READ)
            while documents := await cursor.to_list(CHANGES_PER_READ):
                changes = [Change("read", table, _plain({"_id": row["_id"]}), after=_plain(row)) for row in documents]
                yield Taken(changes, [None] * len(changes), "", copying=True)
        yield Taken([], [], token)


def _event(said: dict[str, Any] | None, token: Any) -> Event:
    if said is None:
        return Event(None, None, _encode(token))
    kind = said["operationType"]
    if kind in _ENDINGS:
        raise ResyncRequired(f"the stream ends here: {kind} of {said.get('ns')}")
    place = said["ns"]
    before, after = said.get("fullDocumentBeforeChange"), said.get("fullDocument")
    change = Change(
        _KINDS.get(kind, "update"),
        f"{place['db']}.{place['coll']}",
        _plain(said["documentKey"]) if "documentKey" in said else None,
        None if before is None else _plain(before),
        None if after is None else _plain(after),
        position=_encode(said["_id"]),
    )
    return Event(change, Timestamp(said["clusterTime"].time * SECOND), change.position)


@contextmanager
def _translated() -> Iterator[None]:
    """Turns the driver's errors into ours."""
    try:
        yield
    except (InvalidURI, ConfigurationError) as error:
        raise InvalidOption(f"the address of the source cannot be used: {error}") from error
    except OperationFailure as error:
        raise _refused(error) from error
    except PyMongoError as error:
        raise SourceUnreachable(f"the server of the source cannot be reached: {error}") from error


def _refused(error: OperationFailure) -> HeadwaterError:
    if error.code in _LOST:
        return ResyncRequired(f"the server does not have what came after the position any more: {error}")
    if error.code in _UNFIT:
        return SourceUnfit(f"the collections cannot be followed: {error}")
    return (
        SourceUnreachable(f"the server of the source refused: {error}") if error.timeout else CaptureError(str(error))
    )


def _plain(document: Any) -> dict[str, Any]:
    """A document as JSON has it; what JSON has no type for is written as MongoDB's relaxed extended JSON."""
    plain: dict[str, Any] = json.loads(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    return plain


def _encode(token: Any) -> str:
    return json_util.dumps(token, json_options=json_util.CANONICAL_JSON_OPTIONS)


def _decode(position: str) -> dict[str, Any]:
    try:
        token: dict[str, Any] = json_util.loads(position)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(f"the position of a capture cannot be read: {error}") from error
    return token
