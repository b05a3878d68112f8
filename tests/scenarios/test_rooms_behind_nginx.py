"""Two servers behind a real nginx, set up as docs/http.md says: members meet, and one of the servers dies."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.cli.test_behind_nginx import nginx
from tests.doors.realtime.guests import Guest, joined
from tests.scenarios.servers import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nginx comes in a wheel for Linux only")


def hear(guest: Guest, seen: list[int], count: int) -> None:
    while len(seen) < count:
        seen.append(guest.until("room-message")["offset"])


def come_back(url: str, seen: list[int], count: int) -> None:
    """Through nginx to whichever server is there, from the last offset on."""
    while len(seen) < count:
        try:
            with joined(url) as guest:
                guest.say("join", room="a", since=seen[-1])
                hear(guest, seen, count)
        except (OSError, ConnectionClosed, InvalidHandshake):
            continue


def test_members_of_two_servers_meet_and_those_of_one_that_dies_go_on(tmp_path: Path) -> None:
    """S0-62, S0-64, S0-70: connections are shared out by nginx; who was cut off comes back by the same address."""
    servers = [Server(tmp_path / "headwater.db", "--trusted-proxies", "127.0.0.1") for _ in range(2)]
    behind = ";\n    server ".join(urlsplit(server.url).netloc for server in servers)
    try:
        with nginx(tmp_path, behind) as url, httpx.Client(base_url=servers[1].url, timeout=60.0) as client:

            def say() -> None:
                assert client.post("/api/v1/rooms/a/messages", json={"type": "test", "data": 1}).is_success

            def members(server: Server) -> int:
                found = httpx.get(f"{server.url}/api/v1/rooms", timeout=60.0).json()
                return int(found["members"])

            seen: list[list[int]] = [[], [], [], []]
            with joined(url) as one, joined(url) as two, joined(url) as three, joined(url) as four:
                guests = (one, two, three, four)
                for guest in guests:
                    assert guest.ask("join", room="a", since="beginning")["type"] == "join_ack"
                assert [members(server) for server in servers] == [2, 2]
                for _ in range(3):
                    say()
                for guest, mine in zip(guests, seen, strict=True):
                    hear(guest, mine, 3)
                servers[0].kill()
                for _ in range(3):
                    say()
            for mine in seen:
                come_back(url, mine, 6)
            assert seen == [list(range(6))] * 4
    finally:
        for server in servers:
            server.stop()
