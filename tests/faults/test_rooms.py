"""Rooms while clients are cut off and servers are killed, under load: what each client saw is the stream without a
hole, nothing twice and in order, or it was told to begin anew; and all saw the same."""

import asyncio
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.room_clients import LeanClient, connect
from tests.faults.conftest import Rounds
from tests.scenarios.servers import Server
from tests.waiting import expect_soon_async

CLIENTS = 12
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.05
LAST = "last"
# A storm comes from so many processes: what is looked at is how the server takes it, not how fast one client can be.
CROWDS = 5
STORM_SECONDS_MAX = 900.0
# A hundred servers take their time to start.
CAMPAIGN_SECONDS_MAX = 3_600


class Stream:
    """What one client saw over all its connections, and whether that is a stream."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.seen: dict[int, object] = {}
        self.resyncs = 0
        self.wrong: list[str] = []
        self.is_over = asyncio.Event()

    def told(self, text: bytes) -> None:
        """One message of the server."""
        message = json.loads(text)
        payload = message.get("payload") or {}
        if message["type"] == "resync-required":
            self.resyncs += 1
            self.offset = payload["offset"]
        elif message["type"] == "room-message" and payload["offset"] is not None:
            self._take(payload["offset"], payload["data"])

    def _take(self, offset: int, data: object) -> None:
        if self.offset is not None and offset != self.offset + 1:
            self.wrong.append(f"{offset} after {self.offset}")
        self.offset = offset
        if self.seen.setdefault(offset, data) != data:
            self.wrong.append(f"{offset} was {self.seen[offset]!r} and is {data!r}")
        if data == LAST:
            self.is_over.set()


class Town:
    """Two servers on one store, clients that come back, somebody who talks, and somebody who breaks things."""

    def __init__(self, store: Path, seed: int) -> None:
        self.servers = [Server(store), Server(store)]
        self.streams = [Stream() for _ in range(CLIENTS)]
        self.chance = random.Random(seed)
        self.said = 0
        self.answered: set[int] = set()
        self.cuts = 0
        self.kills = 0
        self._clients: dict[Stream, LeanClient] = {}

    async def listen(self, stream: Stream) -> None:
        """Be in the room at whichever server answers, until the last word was heard."""
        while not stream.is_over.is_set():
            place = urlsplit(self.chance.choice(self.servers).url)
            try:
                client = await connect(place.hostname or "", place.port or 0, stream.told)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._clients[stream] = client
            client.say("join", {"room": "a", "since": "beginning" if stream.offset is None else stream.offset})
            over = asyncio.ensure_future(stream.is_over.wait())
            ends: list[asyncio.Future[Any]] = [over, client.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            self._clients.pop(stream, None)
            client.cut()

    async def talk(self, stop: asyncio.Event) -> None:
        """Say numbers without a pause; one that was not answered may have been heard or not."""
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            while not stop.is_set():
                if await self._say(http, self.said):
                    self.answered.add(self.said)
                self.said += 1
            # The last word is said until it is taken.
            await expect_soon_async(lambda: self._say(http, LAST), PATIENCE_SECONDS)

    async def _say(self, http: httpx.AsyncClient, data: object) -> bool:
        url = self.chance.choice(self.servers).url
        try:
            sent = await http.post(f"{url}/api/v1/rooms/a/messages", json={"type": "test", "data": data})
        except httpx.HTTPError:
            return False
        return sent.is_success

    async def cut(self, count: int) -> None:
        """Cut random clients off."""
        while self.cuts < count:
            await asyncio.sleep(self.chance.uniform(0.0, 0.02))
            if self._clients:
                self._clients[self.chance.choice(list(self._clients))].cut()
                self.cuts += 1

    async def kill(self, count: int) -> None:
        """Kill random servers, one after the other; the other one goes on."""
        while self.kills < count:
            await asyncio.sleep(self.chance.uniform(0.0, 0.3))
            server = self.chance.choice(self.servers)
            server.kill()
            self.kills += 1
            await asyncio.to_thread(server.start)

    async def live(self, cuts: int, kills: int) -> None:
        """All of it, until everybody has heard the last word."""
        stop = asyncio.Event()
        everybody = [asyncio.ensure_future(self.listen(stream)) for stream in self.streams]
        talking = asyncio.ensure_future(self.talk(stop))
        await asyncio.gather(self.cut(cuts), self.kill(kills))
        stop.set()
        await talking
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*everybody)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@pytest.mark.timeout(CAMPAIGN_SECONDS_MAX)
async def test_cut_clients_and_killed_servers_leave_no_hole_nothing_twice_and_no_disorder(
    tmp_path: Path, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    """S0-8, S0-17, S0-24, S0-62, S0-70."""
    town = Town(tmp_path / "headwater.db", seed=1)
    try:
        await town.live(cuts=rounds(40, 1_000), kills=rounds(2, 100))
    finally:
        town.stop()
    record_property("said", town.said)
    record_property("answered", len(town.answered))
    record_property("cuts", town.cuts)
    record_property("kills", town.kills)
    record_property("told to resync", sum(stream.resyncs for stream in town.streams))
    assert [stream.wrong for stream in town.streams] == [[]] * CLIENTS
    together: dict[int, object] = {}
    for stream in town.streams:
        for offset, data in stream.seen.items():
            assert together.setdefault(offset, data) == data, "two clients saw different messages at one offset"
    said = [data for _, data in sorted(together.items()) if isinstance(data, int)]
    assert said == sorted(set(said)), "each number was said once, one after the other"
    # Whoever was told to begin anew may have missed some; else what was answered was heard, all of it.
    assert said
    if not any(stream.resyncs for stream in town.streams):
        assert town.answered <= set(said), "what was answered was heard"


@pytest.mark.timeout(CAMPAIGN_SECONDS_MAX)
async def test_a_storm_of_clients_of_a_killed_server_is_held_by_the_other(
    tmp_path: Path,
    rounds: Rounds,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S0-62, S0-70: all come at once, are let in, and hear what is said next; who was there all the time does not
    notice."""
    count = rounds(300, 10_000)
    # They all come from one address, of which a server takes 10,000 unless it is told otherwise; there is one more.
    monkeypatch.setenv("HEADWATER_REALTIME_CONNECTIONS_PER_ADDRESS_MAX", "12000")
    # Nobody has a token, so how many may come with one is no bound for them.
    monkeypatch.setenv("HEADWATER_REALTIME_CONNECTIONS_PER_TOKEN_MAX", "10")
    servers = [Server(tmp_path / "headwater.db"), Server(tmp_path / "headwater.db")]
    ports = [str(urlsplit(server.url).port) for server in servers]
    command = (sys.executable, "-m", "tests.faults.room_crowd", str(count // CROWDS), *ports)
    crowds: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(CROWDS):
            crowds.append(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))
        stream = Stream()
        here = urlsplit(servers[1].url)
        resident = await connect(here.hostname or "", here.port or 0, stream.told)
        resident.say("join", {"room": "a", "since": "beginning", "quiet": True})
        assert await said_by(crowds) == [["here"]] * CROWDS
        servers[0].kill()
        back = [float(seconds) for _, seconds in await said_by(crowds)]
        record_property("clients", count)
        record_property("all back after s", max(back))
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http:
            body = {"type": "test", "data": LAST}
            sent = await http.post(f"{servers[1].url}/api/v1/rooms/a/messages", json=body)
            assert sent.is_success
        assert await said_by(crowds) == [["heard"]] * CROWDS
        await asyncio.wait_for(stream.is_over.wait(), PATIENCE_SECONDS)
        assert not resident.closed.done()
        assert (list(stream.seen.values()), stream.wrong) == ([LAST], [])
        resident.cut()
        assert [await crowd.wait() for crowd in crowds] == [0] * CROWDS
    finally:
        for crowd in crowds:
            if crowd.returncode is None:
                crowd.kill()
                await crowd.wait()
        for server in servers:
            server.stop()


async def said_by(crowds: list[asyncio.subprocess.Process]) -> list[list[str]]:
    """The next line of each, in words."""
    found = []
    for crowd in crowds:
        assert crowd.stdout is not None
        line = await asyncio.wait_for(crowd.stdout.readline(), STORM_SECONDS_MAX)
        assert line, "a crowd ended before its time, and has said why"
        found.append(line.decode().split())
    return found
