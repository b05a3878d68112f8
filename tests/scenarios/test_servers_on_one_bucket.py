"""Two servers on one store in a bucket: one serves, the other waits, and takes over when the first is gone."""

import threading
from pathlib import Path
from typing import Any

import httpx

from tests.contracts.factories import in_memory
from tests.scenarios.servers import Server

PATIENCE_SECONDS = 60.0


class Standby:
    """A server that is started while another holds the store: it is ready once that one is gone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._starting = threading.Thread(target=server.start)
        self._starting.start()

    @property
    def is_waiting(self) -> bool:
        return self._starting.is_alive()

    def wait(self) -> Server:
        """Until it serves."""
        self._starting.join(PATIENCE_SECONDS)
        assert not self.is_waiting, "it has not taken over"
        return self._server


def push(server: Server, payload: object) -> None:
    item = {"queue": "orders", "payload": payload}
    answer = httpx.post(f"{server.url}/api/v1/push", json={"items": [item]}, timeout=PATIENCE_SECONDS)
    assert answer.status_code in (200, 201), answer.text


def pop(server: Server) -> list[Any]:
    query = {"batch": "100", "autoAck": "true", "wait": "false"}
    answer = httpx.get(f"{server.url}/api/v1/pop/queue/orders", params=query, timeout=PATIENCE_SECONDS)
    return [message["data"] for message in answer.json()["messages"]] if answer.status_code == 200 else []


def test_a_server_takes_over_the_bucket_of_one_that_is_killed_or_leaves(tmp_path: Path) -> None:
    with in_memory() as folder:
        address = f"file://{folder}/log.sqlite?lease_seconds=1&wait_seconds=600"
        one, other = (
            Server(tmp_path / "one", address=address, starts=False),
            Server(tmp_path / "two", address=address, starts=False),
        )
        try:
            one.start()
            push(one, 1)
            standby = Standby(other)
            push(one, 2)
            assert standby.is_waiting
            one.kill()
            standby.wait()
            push(other, 3)
            standby = Standby(one)
            assert pop(other) == [1, 2, 3]
            push(other, 4)
            assert standby.is_waiting
            other.stop()
            standby.wait()
            assert pop(one) == [4]
        finally:
            one.stop()
            other.stop()
