"""Two servers on one file share a room; one is killed while its members listen, and they go on at the other."""

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
from websockets.exceptions import ConnectionClosed, InvalidMessage

from tests.doors.realtime.guests import joined
from tests.scenarios.servers import Server

MESSAGES = 300
KILL_AFTER = 100


def follow(servers: list[Server], seen: list[tuple[int, int]], has_seen: threading.Event) -> None:
    """Be in the room at whichever server is there, from the last offset on, until everything has come."""
    for server in itertools.cycle(servers):
        try:
            with joined(server.url) as guest:
                guest.say("join", room="a", since=seen[-1][0] if seen else "beginning")
                while len(seen) < MESSAGES:
                    message = guest.until("room-message")
                    seen.append((message["offset"], message["data"]))
                    if len(seen) >= KILL_AFTER:
                        has_seen.set()
                return
        except (OSError, ConnectionClosed, InvalidMessage):
            continue


def send(server: Server) -> Iterator[int]:
    """Say numbers in the room; each once it is answered."""
    with httpx.Client(base_url=server.url, timeout=30.0) as client:
        for number in range(MESSAGES):
            sent = client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": number})
            yield sent.raise_for_status().json()["offset"]


def test_members_of_a_server_that_is_killed_go_on_at_the_other_without_a_hole_or_a_double(tmp_path: Path) -> None:
    """S0-24, S0-70."""
    store = tmp_path / "headwater.db"
    servers = [Server(store), Server(store)]
    seen: list[list[tuple[int, int]]] = [[], [], []]
    has_seen = threading.Event()
    members = [threading.Thread(target=follow, args=(servers, one, has_seen)) for one in seen]
    try:
        for member in members:
            member.start()
        offsets = send(servers[1])
        assert [next(offsets) for _ in range(KILL_AFTER)] == list(range(KILL_AFTER))
        assert has_seen.wait(60.0)
        servers[0].kill()
        assert list(offsets) == list(range(KILL_AFTER, MESSAGES))
        servers[0].start()
        for member in members:
            member.join(60.0)
    finally:
        for server in servers:
            server.stop()
    assert seen == [[(number, number) for number in range(MESSAGES)]] * 3
