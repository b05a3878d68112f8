"""Live queries while clients are cut off and servers are killed, under load.

A checker replays the log: each client was told exactly what concerned it behind its snapshot, in order and without a
hole, or was told to begin anew; what it has in the end is what the store has; and no write that was answered is
missing (S3-8, S3-10, S3-19, S3-29, S3-34, T3-d).
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

import headwater
from benchmarks.room_clients import connect
from headwater.model.document import changes_queue
from headwater.model.names import Lsn
from headwater.services.feed import changes_of
from tests.faults.conftest import Rounds
from tests.faults.test_rooms import CAMPAIGN_SECONDS_MAX, CLIENTS, LAST, RETRY_SECONDS, Stream, Town

NOTES = "notes"
NAMES = 30
QUERY = {"collection": NOTES, "filters": [{"field": "loud", "op": "==", "value": True}]}


class Told(NamedTuple):
    """One event, as a client got it."""

    seq: int
    id: str
    version: int
    op: str


class Episode:
    """What a client saw from one snapshot on, over all connections that it resumed on."""

    def __init__(self) -> None:
        self.snapshot: dict[str, int] = {}
        self.seq: int | None = None
        self.events: list[Told] = []

    @property
    def reached(self) -> int:
        """Behind which change it goes on."""
        assert self.seq is not None
        return self.events[-1].seq if self.events else self.seq

    def documents(self) -> dict[str, int]:
        """What the client has, by id and version."""
        found = dict(self.snapshot)
        for event in self.events:
            if event.op == "delete":
                found.pop(event.id, None)
            else:
                found[event.id] = event.version
        return found


class Watcher(Stream):
    """A client with a live query, over all its connections."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[Episode] = []
        self.token = ""
        self._current = Episode()
        # It follows nothing any more, and has to come anew.
        self.is_lost = asyncio.Event()

    def beginning(self) -> tuple[str, dict[str, object]]:
        """What to say on a new connection."""
        if self.token and self._current.seq is not None:
            return "resume", {"token": self.token, "lastSeq": self._current.reached}
        self._current, self.token = Episode(), ""
        return "subscribe", {"query": QUERY, "sendSnapshot": True}

    def told(self, text: bytes) -> None:
        """One message of the server."""
        message = json.loads(text)
        payload = message.get("payload") or {}
        if message["type"] == "subscribe_ack":
            self.token = payload["token"]
        elif message["type"] == "snapshot":
            self._begin(payload)
        elif message["type"] == "event":
            self._take(payload)
        elif message["type"] in ("resync-required", "error"):
            self.resyncs += 1
            self.token = ""
            self.is_lost.set()

    def _begin(self, payload: dict[str, Any]) -> None:
        self._current.snapshot |= {one["id"]: one["version"] for one in payload["documents"]}
        if not payload["more"]:
            self._current.seq = payload["seq"]
            self.episodes.append(self._current)
            if LAST in self._current.snapshot:
                self.is_over.set()

    def _take(self, payload: Any, data: object = None) -> None:
        doc, op = payload["delta"]["doc"], payload["delta"]["op"]
        event = Told(payload["seq"], doc["path"].rpartition("/")[2], doc["version"], op)
        if self._current.seq is None or event.seq <= self._current.reached:
            self.wrong.append(f"{event} behind {self._current.seq}, {self._current.events[-3:]}")
        self._current.events.append(event)
        if event.id == LAST:
            self.is_over.set()


class Office(Town):
    """The same town, where notes are written in place of talk."""

    def __init__(self, store: Path, seed: int) -> None:
        super().__init__(store, seed)
        self.watchers = [Watcher() for _ in range(CLIENTS)]
        self.streams = list(self.watchers)
        # By id, the versions that somebody was told of as written.
        self.kept: set[tuple[str, int]] = set()

    async def listen(self, stream: Stream) -> None:
        """Follow at whichever server answers, until the last note has come."""
        assert isinstance(stream, Watcher)
        while not stream.is_over.is_set():
            place = urlsplit(self.chance.choice(self.servers).url)
            try:
                client = await connect(place.hostname or "", place.port or 0, stream.told)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._clients[stream] = client
            stream.is_lost.clear()
            client.say(*stream.beginning())
            waits = [asyncio.ensure_future(one.wait()) for one in (stream.is_over, stream.is_lost)]
            ends: list[asyncio.Future[Any]] = [*waits, client.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            self._clients.pop(stream, None)
            client.cut()

    async def _say(self, http: httpx.AsyncClient, data: object) -> bool:
        name = LAST if data == LAST else f"n{self.chance.randrange(NAMES)}"
        url = f"{self.chance.choice(self.servers).url}/api/v1/databases/main/documents/{NOTES}/{name}"
        try:
            if data != LAST and self.chance.random() < 0.15:
                return (await http.delete(url)).is_success
            note = {"doc": {"loud": data == LAST or self.chance.random() < 0.6, "n": data}}
            sent = await http.put(url, json=note)
        except httpx.HTTPError:
            return False
        if sent.is_success:
            self.kept.add((name, sent.json()["version"]))
        return sent.is_success


class Replay:
    """What the log says, read by itself once all is over."""

    def __init__(self) -> None:
        self.events: list[Told] = []
        self.written: set[tuple[str, int]] = set()
        self.loud: dict[str, int] = {}

    async def read(self, store: Path) -> None:
        """All of it."""
        async with headwater.open(str(store), housekeeping=False) as hw:
            segments = await hw.store.read(Lsn(0), Lsn(2**62), 10**6, ("main", changes_queue(NOTES)))
            for segment in segments:
                for change, _, place in changes_of(segment):
                    self._take(place[0], change.id, change.version, change.op, bytes(change.after))
            kept = {one.id: one.version for one in await hw.collection(NOTES).query("loud", limit=1_000)}
        assert kept == self.loud, "the log and the documents are one"

    def _take(self, seq: int, name: str, version: int, op: str, after: bytes) -> None:
        self.written.add((name, version))
        was, now = name in self.loud, op != "delete" and msgspec.json.decode(after)["loud"]
        if now:
            self.loud[name] = version
        else:
            self.loud.pop(name, None)
        if was or now:
            self.events.append(Told(seq, name, version, ("update" if was else "insert") if now else "delete"))

    def check(self, episode: Episode) -> None:
        """Raises unless a client was told what the log says."""
        assert episode.seq is not None
        concerning = [one for one in self.events if episode.seq < one.seq <= episode.reached]
        told = set(episode.events)
        assert told <= set(concerning), "told what was not"
        # What the snapshot had already need not be told; it may, after a resume.
        missing = [one for one in concerning if one not in told and one.version > episode.snapshot.get(one.id, 0)]
        assert not missing, f"behind {episode.seq} not told: {missing[:5]}"


@pytest.mark.timeout(CAMPAIGN_SECONDS_MAX)
async def test_cut_clients_and_killed_servers_leave_live_queries_as_the_log_says(
    tmp_path: Path, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    store = tmp_path / "headwater.db"
    office = Office(store, seed=15)
    try:
        await office.live(cuts=rounds(40, 1_000), kills=rounds(2, 40))
    finally:
        office.stop()
    replay = Replay()
    await replay.read(store)
    assert [watcher.wrong for watcher in office.watchers] == [[]] * CLIENTS
    for watcher in office.watchers:
        for episode in watcher.episodes:
            replay.check(episode)
        assert watcher.episodes[-1].documents() == replay.loud
    assert office.kept, "nothing was written: that says nothing"
    assert office.kept <= replay.written
    told = sum(len(episode.events) for watcher in office.watchers for episode in watcher.episodes)
    figures = {"written": len(replay.written), "told": told, "cuts": office.cuts, "kills": office.kills}
    figures["told to resync"] = sum(watcher.resyncs for watcher in office.watchers)
    for name, figure in figures.items():
        record_property(name, figure)
