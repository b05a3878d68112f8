"""A server that is broken again and again while several processes write and one follows.

Nothing that was answered is lost or there twice, what a follower was given is never taken back, and each writer's
messages are in its order.
"""

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from headwater.config import load_config
from headwater.model.names import Lsn
from headwater.stores.open import open_store
from tests.contracts.clock import FakeClock
from tests.contracts.log import payloads
from tests.faults.conftest import Rounds
from tests.faults.test_postgres import cut_all
from tests.postgres_server import Server
from tests.waiting import expect_soon

WRITERS = 3
ANSWERS_BETWEEN_FAULTS = 30
END_SECONDS = 60.0


class Told:
    """A process, and what it has told."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.faults.postgres_process", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        expect_soon(lambda: bool(self.lines))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(msgspec.json.decode(line))

    def of(self, name: str) -> list[dict[str, Any]]:
        """What was told of one thing."""
        return [line for line in list(self.lines) if name in line]

    def end(self) -> None:
        """Let it end by itself, and well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(END_SECONDS)
        self._thread.join(END_SECONDS)
        assert code == 0

    def kill(self) -> None:
        """Whatever happened, it does not outlive the test."""
        self._process.kill()
        self._process.wait()
        self._thread.join(END_SECONDS)
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()


@pytest.fixture
def broken() -> Iterator[Server]:
    """A server that hands nothing to its disk unless a commit asks for it."""
    made = Server(wal_writer_delay="10s", checkpoint_timeout="1h")
    yield made
    made.stop()


class Crew:
    """Writers and a follower on one store."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.writers = [Told("write", address, f"w{index}", str(index)) for index in range(WRITERS)]
        self.follower = Told("follow", address)
        for process in (*self.writers, self.follower):
            stack.callback(process.kill)

    def answers(self) -> int:
        return sum(len(writer.of("answered")) for writer in self.writers)

    def wait_for_answers(self, count: int) -> None:
        """Until each writer was answered so many times more."""
        wanted = [len(writer.of("answered")) + count for writer in self.writers]
        expect_soon(
            lambda: all(len(one.of("answered")) >= many for one, many in zip(self.writers, wanted, strict=True))
        )

    def end(self) -> None:
        for writer in self.writers:
            writer.end()
        self.follower.end()

    def verify(self, log: list[tuple[int, list[Any]]]) -> None:
        """Compare what was told with what the log has."""
        places = self._places(log)
        for index, writer in enumerate(self.writers):
            answered = {line["answered"]: line["offset"] for line in writer.of("answered")}
            kept = places[f"w{index}"]
            # The last one may have been committed without an answer.
            assert kept[: len(answered)] == list(range(len(answered)))
            assert len(kept) <= len(answered) + 1
            assert all(offset == number for number, offset in answered.items())
        by_lsn = dict(log)
        for line in self.follower.of("lsn"):
            assert by_lsn.get(line["lsn"]) == line["seen"], "a follower was given what was taken back"

    def _places(self, log: list[tuple[int, list[Any]]]) -> dict[str, list[int]]:
        """The numbers of each writer as the log has them, each once."""
        every = [tuple(payload) for _, found in log for payload in found]
        twice = [what for what, count in Counter(every).items() if count > 1]
        assert not twice, f"there twice: {twice[:5]}"
        return {f"w{index}": [number for name, number in every if name == f"w{index}"] for index in range(WRITERS)}


async def read_all(address: str) -> list[tuple[int, list[Any]]]:
    """The log, segment by segment, as somebody finds it who comes anew."""
    store = open_store(address, load_config({}), FakeClock())
    await store.open()
    found, after = [], Lsn(0)
    while segments := await store.read(after, Lsn(2**62), 500):
        found += [(int(segment.lsn), payloads(segment)) for segment in segments]
        after = segments[-1].lsn
    await store.close()
    return found


def crash(server: Server) -> None:
    """End the server in the middle of everything, and start it on what is left."""
    server.crash()
    server.start()


def terminate(server: Server) -> None:
    """End all its connections."""
    cut_all(server)


@pytest.mark.timeout(3_600)
def test_a_server_that_is_broken_under_load_loses_nothing_it_answered_and_shows_nothing_it_takes_back(
    broken: Server, rounds: Rounds, record_property: Callable[[str, object], None]
) -> None:
    address = broken.address(broken.new_schema())
    asyncio.run(read_all(address))
    chance = random.Random(18)
    done: Counter[str] = Counter()
    recoveries: list[float] = []
    with ExitStack() as stack:
        crew = Crew(address, stack)
        for number in range(rounds(4, 200)):
            crew.wait_for_answers(ANSWERS_BETWEEN_FAULTS)
            # Every other time the server, so that either comes in the shortest run, too.
            fault = crash if number % 2 == 0 else chance.choice((crash, terminate))
            began = time.monotonic()
            fault(broken)
            crew.wait_for_answers(1)
            recoveries.append(time.monotonic() - began)
            done[fault.__name__] += 1
        crew.wait_for_answers(ANSWERS_BETWEEN_FAULTS)
        crew.end()
        log = asyncio.run(read_all(address))
        crew.verify(log)
        cuts = sum(len(writer.of("cut")) for writer in crew.writers)
        unsure = sum(len(writer.of("failed")) for writer in crew.writers)
        seen = len(crew.follower.of("lsn"))
    assert done["crash"]
    recoveries.sort()
    record_property("immediate stops", done["crash"])
    record_property("times all backends were terminated", done["terminate"])
    record_property("connections cut right after COMMIT", cuts)
    record_property("errors that were repeated by key", unsure)
    record_property("answered, all there once and in order", f"{crew.answers():,}")
    record_property("segments a follower was given, none taken back", f"{seen:,}")
    record_property("seconds until all writers were answered again, median", f"{recoveries[len(recoveries) // 2]:.2f}")
    record_property("longest", f"{recoveries[-1]:.2f}")
