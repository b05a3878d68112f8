"""Many clients of which some cut their connection anywhere, and some that are slow: the others notice nothing."""

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.doors.live_door import LiveDoor, on_the_edge
from tests.doors.live_edge import request
from tests.doors.test_queues import pop, push
from tests.waiting import expect_soon

CLIENTS = 150
CLIENTS_OF_A_CAMPAIGN = 1_000
THREADS = 8


@pytest.fixture
def door(tmp_path: Path) -> Iterator[LiveDoor]:
    running = LiveDoor(tmp_path / "headwater.db", on_the_edge)
    running.start()
    yield running
    running.stop()


def connect(door: LiveDoor) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(door.url.rpartition(":")[2])), 10)


def body_of(number: int) -> bytes:
    return b'{"items":[{"queue":"orders","payload":%d,"transactionId":"tx-%d"}]}' % (number, number)


class Crowd:
    """Clients that push one message each. Some of them cut the connection after a random byte of their request."""

    def __init__(self, door: LiveDoor, count: int) -> None:
        self._door = door
        self._numbers = iter(range(count))
        self._lock = threading.Lock()
        self._random = random.Random(7)
        self.answered: set[int] = set()
        self.statuses: list[bytes] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
                cuts = self._random.random() < 0.3
                at = self._random.random()
            if number is None:
                return
            data = request("/api/v1/push", "POST", body_of(number), content_type="application/json")
            with connect(self._door) as client:
                client.sendall(data[: int(len(data) * at)] if cuts else data)
                if not cuts:
                    self._note(number, client.recv(65_536))

    def _note(self, number: int, answer: bytes) -> None:
        with self._lock:
            self.statuses.append(answer[:12])
            self.answered.add(number)


def test_clients_that_cut_their_connection_anywhere_harm_nobody(door: LiveDoor, pytestconfig: pytest.Config) -> None:
    crowd = Crowd(door, CLIENTS_OF_A_CAMPAIGN if pytestconfig.getoption("campaign") else CLIENTS)
    crowd.run()
    assert set(crowd.statuses) == {b"HTTP/1.1 201"}
    with door.client() as client:
        found = {message["data"] for message in pop(client, batch=1_000, autoAck="true")}
        assert crowd.answered <= found
        assert client.get("/health").status_code == 200


def test_polls_that_are_cut_off_leave_no_lease_behind(door: LiveDoor) -> None:
    waiting = [connect(door) for _ in range(50)]
    for poll in waiting:
        poll.sendall(request("/api/v1/pop/queue/orders?wait=true&timeout=60000"))
    expect_soon(lambda: door.waiting() == 50)
    for poll in waiting[:49]:
        poll.close()
    expect_soon(lambda: door.waiting() == 1)
    with door.client() as client:
        push(client, 7)
    with waiting[49] as last:
        assert b'"data":7' in last.recv(65_536)


def test_a_client_that_does_not_read_slows_nobody(door: LiveDoor) -> None:
    with door.client() as client:
        push(client, *["x" * 100_000] * 9)
        with connect(door) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(request("/api/v1/pop/queue/orders?batch=9&autoAck=true&consumerGroup=deaf") * 3)
            for number in range(20):
                assert push(client, number, queue="others")[0]["status"] == "queued"
            assert len(pop(client, "others", batch=20)) == 20


def test_a_client_that_sends_slowly_slows_nobody(door: LiveDoor) -> None:
    data = request("/api/v1/push", "POST", body_of(1), content_type="application/json")
    with connect(door) as slow, door.client() as client:
        for place in range(len(data) - 1):
            slow.sendall(data[place : place + 1])
            if place % 20 == 0:
                assert client.get("/health").status_code == 200
        slow.sendall(data[-1:])
        assert slow.recv(12) == b"HTTP/1.1 201"


def test_a_server_tells_the_waiting_that_it_goes_and_ends_soon(door: LiveDoor) -> None:
    answers: list[int] = []

    def wait() -> None:
        answer = httpx.get(f"{door.url}/api/v1/pop/queue/orders?wait=true&timeout=60000", timeout=30)
        answers.append(answer.status_code)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    expect_soon(lambda: door.waiting() == 5)
    door.stop()
    for thread in threads:
        thread.join()
    assert answers == [204] * 5
