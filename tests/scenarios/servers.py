"""Servers as processes, and clients that push and consume through whichever of them answers, noting all they see."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.ports import free_port

PATIENCE_SECONDS = 30.0
QUEUE = "orders"
PARTITIONS = 4


class Server:
    """A `headwater serve` that can be killed and started again at the same address."""

    def __init__(self, store: Path | str, *options: str, starts: bool = True) -> None:
        self._store = store
        self._options = options
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        if starts:
            self.start()

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        self.begin()
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline())["event"] == "ready"

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        command = (sys.executable, "-m", "headwater.cli", "--store", self._store, "serve")
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port), "--json", *self._options],
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Whether there is a process that may have to be ended."""
        return hasattr(self, "_process") and self._process.poll() is None

    def sleep(self) -> None:
        """As a machine that is suspended."""
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """It goes on as if nothing had been."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power switch would end the process."""
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        """End it in good order."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._reap()

    def tell(self, number: signal.Signals) -> None:
        """Give it a signal."""
        self._process.send_signal(number)

    def end(self, number: signal.Signals) -> int:
        """End it by a signal: the exit code."""
        self.tell(number)
        self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        self._process.wait(PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Delivery(NamedTuple):
    """One message as a consumer got it: when, and until when it may work on it."""

    payload: int
    partition: str
    offset: int
    token: int
    at: float
    until: float


class Load:
    """Producers and consumers in threads, each with its own connection, on any of the servers."""

    def __init__(self, urls: list[str], seed: int) -> None:
        self._urls = urls
        self._random = random.Random(seed)
        self._threads: list[threading.Thread] = []
        self._numbers = iter(range(10**9))
        self._lock = threading.Lock()
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._failures: list[BaseException] = []
        self.answered: dict[int, tuple[str, int]] = {}
        self.deliveries: list[Delivery] = []
        self.acked: set[int] = set()
        # When each request that was answered well had begun, and when its answer came.
        self._answers: list[tuple[float, float]] = []

    def start(self, producers: int = 3, consumers: int = 3) -> None:
        self._producing.set()
        self._consuming.set()
        for index in range(producers):
            self._run(self._produce, index)
        for index in range(consumers):
            self._run(self._consume, index)

    def _run(self, work: Any, index: int) -> None:
        thread = threading.Thread(target=self._guarded, args=(work, index), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, work: Any, index: int) -> None:
        try:
            with httpx.Client(timeout=5.0) as client:
                work(client, random.Random(index))
        except BaseException as error:
            self._failures.append(error)

    def finish(self) -> None:
        """No more pushes; consume what is there, then end."""
        self._producing.clear()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not set(self.answered) <= self.acked and time.monotonic() < deadline and not self._failures:
            time.sleep(0.02)
        self._consuming.clear()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        if self._failures:
            raise self._failures[0]

    def wait_for_answer(self, since: float) -> float:
        """Until a push that began after that moment is answered: how long after it that was."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._lock:
                late = [came for began, came in self._answers if began >= since]
                self._answers = []
            if late:
                return min(late) - since
            assert time.monotonic() < deadline, "nothing is answered any more"
            assert not self._failures, self._failures
            time.sleep(0.002)

    def wait_for(self, count: int) -> None:
        """Until so many more pushes were answered."""
        target = len(self.answered) + count
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.answered) < target:
            assert time.monotonic() < deadline, "nothing is answered any more"
            assert not self._failures, self._failures
            time.sleep(0.002)

    # ── what they do ──

    def _ask(
        self, client: httpx.Client, choose: random.Random, method: str, path: str, body: Any
    ) -> httpx.Response | None:
        try:
            answer = client.request(method, choose.choice(self._urls) + path, json=body)
        except httpx.TransportError:
            time.sleep(0.01)
            return None
        return None if answer.status_code >= 500 else answer

    def _produce(self, client: httpx.Client, choose: random.Random) -> None:
        while self._producing.is_set():
            with self._lock:
                number = next(self._numbers)
            partition = f"p{number % PARTITIONS}"
            item = {"queue": QUEUE, "partition": partition, "payload": number, "transactionId": f"tx-{number}"}
            answer = None
            while answer is None:
                began = time.monotonic()
                answer = self._ask(client, choose, "POST", "/api/v1/push", {"items": [item]})
                if answer is None and not self._producing.is_set():
                    return
            (result,) = answer.json()
            assert result["status"] in ("queued", "duplicate"), result
            with self._lock:
                self.answered[number] = (partition, result["offset"])
                self._answers.append((began, time.monotonic()))

    def _consume(self, client: httpx.Client, choose: random.Random) -> None:
        path = f"/api/v1/pop/queue/{QUEUE}?batch=5&wait=true&timeout=200&leaseSeconds=1.5"
        while self._consuming.is_set():
            answer = self._ask(client, choose, "GET", path, None)
            if answer is None or answer.status_code != 200:
                continue
            messages = answer.json()["messages"]
            self._note(messages, time.time())
            reports = [
                {"transactionId": m["transactionId"], "partitionId": m["partitionId"], "leaseId": m["leaseId"]}
                for m in messages
            ]
            acked = self._ask(client, choose, "POST", "/api/v1/ack/batch", {"acknowledgments": reports})
            if acked is not None:
                with self._lock:
                    for message, result in zip(messages, acked.json(), strict=True):
                        if result["success"]:
                            self.acked.add(message["data"])

    def _note(self, messages: list[dict[str, Any]], at: float) -> None:
        with self._lock:
            for message in messages:
                token = int(message["leaseId"].split(".")[1])
                until = (token + 1_500_000) / 1_000_000
                place = (message["data"], message["partition"], message["offset"])
                self.deliveries.append(Delivery(*place, token, at, until))

    # ── what must hold ──

    def verify(self) -> None:
        """Nothing answered is lost, nothing has two places, nobody works on what another holds, order is kept."""
        missing = set(self.answered) - {delivery.payload for delivery in self.deliveries}
        assert not missing, f"{len(missing)} answered messages never came, {sorted(missing)[:5]} among them"
        self._verify_places()
        self._verify_leases()
        self._verify_order()

    def _verify_places(self) -> None:
        places: dict[int, tuple[str, int]] = dict(self.answered)
        for delivery in self.deliveries:
            place = places.setdefault(delivery.payload, (delivery.partition, delivery.offset))
            assert place == (delivery.partition, delivery.offset), f"message {delivery.payload} has two places"

    def _verify_leases(self) -> None:
        """A token is the time at which its lease began: a later one for a message begins after the first ended."""
        by_message: dict[int, list[Delivery]] = {}
        for delivery in self.deliveries:
            by_message.setdefault(delivery.payload, []).append(delivery)
        for deliveries in by_message.values():
            ordered = sorted({delivery.token: delivery for delivery in deliveries}.values(), key=lambda one: one.token)
            for first, second in pairwise(ordered):
                began = second.token / 1_000_000
                assert began >= first.until - 0.001, f"message {first.payload} had two holders at once"

    def _verify_order(self) -> None:
        """The first lease on each message of a partition comes in the order of their offsets."""
        first: dict[tuple[str, int], int] = {}
        for delivery in self.deliveries:
            place = (delivery.partition, delivery.offset)
            first[place] = min(first.get(place, delivery.token), delivery.token)
        for partition in {delivery.partition for delivery in self.deliveries}:
            tokens = [first[place] for place in sorted(first) if place[0] == partition]
            assert tokens == sorted(tokens), f"partition {partition} was delivered out of order"
