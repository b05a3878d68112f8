"""Servers on a bucket that has no room, or does not answer: they say so, end when they are told to, and go on by
themselves."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.stores.bucket.address import Ship
from tests.faults.small_disk import fill, mounted
from tests.scenarios.servers import Server
from tests.seaweed_server import BUCKET, SeaweedServer
from tests.waiting import expect_soon

PATIENCE_SECONDS = 60.0
# Longer than an answer may take, shorter than a client waits.
ANSWER_SECONDS = 20.0
LEASE_SECONDS = 2
DISK_MIB = 6
BOTH = [Ship.CHAIN, Ship.IMAGE]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, DISK_MIB) as disk:
        if disk is None:
            pytest.skip("no file system can be mounted here")
        yield disk


@pytest.fixture(scope="module")
def started_seaweed() -> Iterator[SeaweedServer]:
    """One of its own: it is put to sleep."""
    made = SeaweedServer()
    yield made
    made.stop()


@pytest.fixture
def seaweed(started_seaweed: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SeaweedServer]:
    for name, value in started_seaweed.environment.items():
        monkeypatch.setenv(name, value)
    yield started_seaweed
    started_seaweed.wake()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    started: list[Server] = []
    yield started
    for server in started:
        if server.is_started:
            server.kill()


def in_folder(disk: Path, ship: Ship) -> str:
    return f"file://{disk}/log.sqlite?ship={ship}&lease_seconds={LEASE_SECONDS}"


def at_s3(seaweed: SeaweedServer) -> str:
    return f"s3://{BUCKET}/{seaweed.new_key()}?lease_seconds={LEASE_SECONDS}"


def ask(server: Server, method: str, path: str, body: object = None) -> tuple[int, Any]:
    answer = httpx.request(method, server.url + path, json=body, timeout=ANSWER_SECONDS)
    is_json = "json" in answer.headers["content-type"]
    return answer.status_code, answer.json() if is_json else answer.text


def push(server: Server, payload: object, queue: str = "orders") -> tuple[int, Any]:
    return ask(server, "POST", "/api/v1/push", {"items": [{"queue": queue, "payload": payload}]})


def popped(server: Server) -> list[object]:
    status, answer = ask(server, "GET", "/api/v1/pop/queue/orders?batch=100")
    return [message["data"] for message in answer["messages"]] if status == 200 else []


class Held:
    """A push that waits."""

    def __init__(self, server: Server, payload: object) -> None:
        self.answer: tuple[int, Any] = (0, None)
        self._server, self._payload = server, payload
        self._thread = threading.Thread(target=self._push, daemon=True)
        self._thread.start()

    def _push(self) -> None:
        body = {"items": [{"queue": "orders", "payload": self._payload}]}
        # Whose server is ended at once is cut off.
        with suppress(httpx.TransportError):
            answer = httpx.post(f"{self._server.url}/api/v1/push", json=body, timeout=PATIENCE_SECONDS)
            self.answer = (answer.status_code, answer.json())

    def wait(self) -> tuple[int, Any]:
        self._thread.join(PATIENCE_SECONDS)
        return self.answer


def noise() -> str:
    """What no codec makes smaller."""
    return os.urandom(100_000).hex()


def filled(server: Server, disk: Path) -> tuple[Path, Held]:
    """A bucket without room, and a push that is on its way to it."""
    assert push(server, "first")[0] == 201
    filler = fill(disk)
    held = Held(server, noise())
    expect_soon(lambda: ask(server, "GET", "/ready")[0] == 503, PATIENCE_SECONDS)
    return filler, held


def litter(folder: Path, ship: Ship) -> Callable[[], object]:
    """Something that is of no store lies where the holder writes next; what takes it away again."""
    base = folder / "log.sqlite"
    if ship is Ship.IMAGE:
        before = base.read_bytes()
        base.write_bytes(b"garbage")
        return partial(base.write_bytes, before)
    positions = (folder / "log.sqlite-log" / f"{position:012d}" for position in count(1))
    free = next(path for path in positions if not path.exists())
    free.write_bytes(b"garbage")
    return free.unlink


def asleep(server: Server, seaweed: SeaweedServer) -> Held:
    """A bucket that does not answer any more, and a push that is on its way to it."""
    assert push(server, "first")[0] == 201
    seaweed.sleep()
    return Held(server, "second")


@pytest.mark.parametrize("ship", BOTH)
def test_a_full_bucket_is_told_over_http_and_everything_goes_on_when_there_is_room(
    disk: Path, servers: list[Server], ship: Ship
) -> None:
    servers.append(server := Server(in_folder(disk, ship)))
    filler, held = filled(server, disk)
    answers = [
        push(server, "refused"),
        push(server, "refused", "new"),
        ask(server, "GET", "/api/v1/pop/queue/orders"),
        ask(server, "GET", "/api/v1/resources/queues"),
    ]
    assert {(status, answer["code"]) for status, answer in answers} == {(507, "store_full")}
    assert ask(server, "GET", "/health")[0] == 200
    status, metrics = ask(server, "GET", "/metrics")
    assert status == 200
    assert "headwater_bucket_puts_total" in metrics
    filler.unlink()
    assert held.wait()[0] == 201
    expect_soon(lambda: push(server, "third")[0] == 201, PATIENCE_SECONDS)
    assert popped(server) == ["first", held._payload, "third"]


@pytest.mark.parametrize("ship", BOTH)
def test_a_signal_ends_a_server_on_a_full_bucket(disk: Path, servers: list[Server], ship: Ship) -> None:
    servers.append(server := Server(in_folder(disk, ship)))
    filler, held = filled(server, disk)
    assert server.end(signal.SIGTERM) == 1
    status, answer = held.wait()
    assert (status, answer["code"]) == (503, "store_failed")
    filler.unlink()
    server.start()
    # Whether the one that was given up holds, nobody knows.
    assert popped(server)[:1] == ["first"]


@pytest.mark.parametrize("ship", BOTH)
def test_a_signal_ends_a_server_whose_next_object_is_not_of_its_store(
    tmp_path: Path, servers: list[Server], ship: Ship, capfd: pytest.CaptureFixture[str]
) -> None:
    # Without a lease, so that the next server need not wait for this one's.
    address = f"file://{tmp_path}/log.sqlite?ship={ship}&lease_seconds=0"
    servers.append(server := Server(address))
    assert push(server, "first")[0] == 201
    clean_up = litter(tmp_path, ship)
    code = {Ship.CHAIN: "store_damaged", Ship.IMAGE: "store_foreign"}[ship]
    answers = [push(server, "refused") for _ in range(3)]
    # Of what was on its way to an image nobody knows whether it came first.
    assert {(status, answer["code"]) for status, answer in answers} <= {(503, "store_failed"), (503, code)}
    assert answers[-1][1]["code"] == code
    assert server.end(signal.SIGTERM) in (0, 1)
    told = capfd.readouterr().err
    assert told.count("nothing more can be written to this store") == 1
    assert "does not answer" not in told
    clean_up()
    server.start()
    assert popped(server) == ["first"]


def test_a_second_signal_ends_a_server_on_a_full_bucket_at_once(
    disk: Path, servers: list[Server], capfd: pytest.CaptureFixture[str]
) -> None:
    servers.append(server := Server(in_folder(disk, Ship.CHAIN)))
    filled(server, disk)
    server.tell(signal.SIGTERM)
    expect_soon(lambda: not is_listening(server), PATIENCE_SECONDS)
    assert server.end(signal.SIGTERM) == 1
    assert "ended at once by a second signal" in capfd.readouterr().err


def is_listening(server: Server) -> bool:
    try:
        httpx.get(f"{server.url}/version", timeout=ANSWER_SECONDS)
    except httpx.TransportError:
        return False
    return True


def test_a_silent_bucket_is_told_over_http_and_everything_goes_on_when_it_answers(
    seaweed: SeaweedServer, servers: list[Server], capfd: pytest.CaptureFixture[str]
) -> None:
    servers.append(server := Server(at_s3(seaweed)))
    held = asleep(server, seaweed)
    assert ask(server, "GET", "/health")[0] == 200
    answers = [
        ask(server, "GET", "/api/v1/resources/queues"),
        push(server, "refused"),
        ask(server, "GET", "/api/v1/pop/queue/orders"),
    ]
    assert {(status, answer["code"]) for status, answer in answers} == {(503, "store_silent")}
    assert ask(server, "GET", "/metrics")[0] == 200
    status, answer = held.wait()
    assert (status, answer["code"]) == (503, "store_failed")
    assert "the bucket has not answered" in capfd.readouterr().err
    seaweed.wake()
    expect_soon(lambda: push(server, "third")[0] == 201, PATIENCE_SECONDS)
    # The second one was on its way: it landed after all.
    assert popped(server) == ["first", "second", "third"]


def test_a_signal_ends_a_server_on_a_silent_bucket(seaweed: SeaweedServer, servers: list[Server]) -> None:
    servers.append(server := Server(at_s3(seaweed)))
    held = asleep(server, seaweed)
    expect_soon(lambda: ask(server, "GET", "/api/v1/resources/queues")[0] == 503, PATIENCE_SECONDS)
    assert server.end(signal.SIGTERM) == 1
    status, answer = held.wait()
    assert (status, answer["code"]) == (503, "store_failed")


def test_a_signal_ends_an_idle_server_on_a_silent_bucket(seaweed: SeaweedServer, servers: list[Server]) -> None:
    servers.append(server := Server(at_s3(seaweed)))
    seaweed.sleep()
    # Nobody was answered for anything that is given up.
    assert server.end(signal.SIGTERM) == 0


def test_a_signal_ends_a_server_that_waits_for_a_silent_bucket(seaweed: SeaweedServer, servers: list[Server]) -> None:
    seaweed.sleep()
    servers.append(server := Server(at_s3(seaweed), starts=False))
    server.begin()
    expect_soon(lambda: is_listening(server), PATIENCE_SECONDS)
    assert ask(server, "GET", "/ready")[0] == 503
    assert server.end(signal.SIGTERM) == 0
