"""A store is moved while producers, consumers and a worker use it: they miss a moment, and nothing else."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.app import Headwater
from headwater.config import load_config
from headwater.errors import Closed, StoreBusy, StoreReplaced
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.job import JobOutcome
from headwater.services.messages import Message, Receipt
from headwater.stores.open import open_transfer
from headwater.stores.transfer import Copied, move
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_this_process

KINDS = ["file", "server", "bucket"]
BEFORE = 300
JOBS = 40
PRODUCERS = 3
# So many messages come, at least, while tables are copied.
MEANWHILE = 40
AFTER = 30
LEASE_SECONDS = 600.0


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


def make_place(kind: str, server: Server, folder: Path, name: str) -> str:
    if kind == "server":
        return server.address(server.new_schema())
    return f"{folder}/{name}.db" if kind == "file" else f"file://{folder}/{name}.sqlite?lease_seconds=2"


class Program:
    """A program that has the store open, and opens it where it is told that it is."""

    def __init__(self, source: str, target: str) -> None:
        self._target = target
        self._turn = asyncio.Lock()
        self._source = source
        self.replaced = 0

    async def begin(self) -> None:
        self.hw = await headwater.open(self._source, housekeeping=False).__aenter__()

    async def end(self) -> None:
        await self.hw.__aexit__(None, None, None)

    async def do(self, work: Callable[[Headwater], Awaitable[Any]]) -> Any:
        """What the work comes to, in the store that is the one by then."""
        while True:
            hw = self.hw
            try:
                return await work(hw)
            except (StoreReplaced, Closed):
                await self._go_where_it_is(hw)
            except StoreBusy:
                await asyncio.sleep(0.02)

    async def _go_where_it_is(self, old: Headwater) -> None:
        async with self._turn:
            if old is not self.hw:
                return
            with suppress(StoreReplaced):
                await old.__aexit__(None, None, None)
            while True:
                try:
                    self.hw = await headwater.open(self._target, housekeeping=False).__aenter__()
                    break
                except StoreBusy:
                    await asyncio.sleep(0.02)
            self.replaced += 1


async def _push(name: str, partition: str, hw: Headwater) -> Receipt:
    return await hw.queue("q").push(name, partition=partition, transaction_id=name)


async def _ack(messages: list[Message], hw: Headwater) -> None:
    await hw.queue("q").ack(messages)


async def _settle(settle: Settle, hw: Headwater) -> None:
    await hw.jobs_service.run(settle)


class Traffic:
    """What was asked for and what was answered, of all programs together."""

    def __init__(self, programs: list[Program]) -> None:
        self.programs = programs
        self.pushed: dict[str, tuple[str, int | None]] = {}
        self.delivered: Counter[str] = Counter()
        self.acked: Counter[str] = Counter()
        self.settled: Counter[int] = Counter()
        self.stopping = asyncio.Event()
        self.more = asyncio.Event()

    async def produce(self, number: int) -> None:
        program, count = self.programs[number % len(self.programs)], 0
        while not self.stopping.is_set():
            name = f"{number}-{count}"
            partition = f"p{count % 4}"
            receipt = await program.do(partial(_push, name, partition))
            self.pushed[name] = (partition, receipt.offset)
            self.more.set()
            count += 1

    async def consume(self, program: Program) -> None:
        """What was leased in one store is acked in the other."""
        while not (self.stopping.is_set() and len(self.acked) == len(self.pushed)):
            messages = await program.do(lambda hw: hw.queue("q").pop(batch=7, lease_seconds=LEASE_SECONDS))
            self.delivered.update(message.payload for message in messages)
            await asyncio.sleep(0)
            if messages:
                await program.do(partial(_ack, messages))
            self.acked.update(message.payload for message in messages)

    async def work(self, program: Program) -> None:
        claim = Claim(worker="w", limit=2, lease_seconds=LEASE_SECONDS)
        while len(self.settled) < JOBS:
            claimed = await program.do(lambda hw: hw.jobs_service.run(claim))
            await asyncio.sleep(0.05)
            reports = [
                JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED) for job in claimed.jobs
            ]
            settle = Settle(worker="w", reports=reports)
            await program.do(partial(_settle, settle))
            self.settled.update(report.number for report in reports)

    async def grown(self, by: int) -> None:
        """Until so many more messages were answered."""
        wanted = len(self.pushed) + by
        while len(self.pushed) < wanted:
            self.more.clear()
            await self.more.wait()


async def move_beside(traffic: Traffic, source: str, target: str) -> Copied:
    """Move it in a thread, slowly: each round waits in its middle until others have written more."""
    loop, config = asyncio.get_running_loop(), load_config({})
    rounds = iter(range(100))

    @contextmanager
    def show(what: str, total: int) -> Iterator[Callable[[float], None]]:
        waited = what == "switching over" or next(rounds) > 1

        def tell(done: float) -> None:
            nonlocal waited
            if not waited and done > total / 2:
                waited = True
                asyncio.run_coroutine_threadsafe(traffic.grown(MEANWHILE), loop).result(60)

        yield tell

    def run() -> Copied:
        with open_transfer(target, config).hold(writes=True) as place:
            return move(open_transfer(source, config), place, show)

    return await asyncio.to_thread(run)


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("start", KINDS)
async def test_nothing_is_lost_or_done_twice_while_a_store_is_moved_under_its_users(
    start: str, to: str, server: Server, tmp_path: Path
) -> None:
    source, target = make_place(start, server, tmp_path, "old"), make_place(to, server, tmp_path, "new")
    # One program has a bucket at a time, and several have the others.
    held_by_one = "bucket" in (start, to)
    programs = [Program(source, target) for _ in range(1 if held_by_one else 2)]
    for program in programs:
        await program.begin()
    traffic = Traffic(programs)
    async with headwater.open(target, housekeeping=False):
        pass
    for number in range(BEFORE):
        at = f"p{number % 4}"
        receipt = await programs[0].hw.queue("q").push(f"b-{number}", partition=at, durability="written")
        traffic.pushed[f"b-{number}"] = (at, receipt.offset)
    for number in range(JOBS):
        await programs[0].hw.jobs.add(id=f"job-{number}", command="true")
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for number in range(PRODUCERS):
            tasks.create_task(traffic.produce(number))
        tasks.create_task(traffic.consume(programs[-1]))
        tasks.create_task(traffic.consume(programs[0]))
        tasks.create_task(traffic.work(programs[0]))
        before = len(traffic.pushed)
        copied = await move_beside(traffic, source, target)
        assert len(traffic.pushed) >= before + MEANWHILE
        await traffic.grown(AFTER)
        traffic.stopping.set()
    assert [program.replaced for program in programs] == [1] * len(programs)
    await check(traffic, programs[0].hw)
    for program in programs:
        await program.end()
    with pytest.raises(StoreReplaced, match="was moved to"):
        async with headwater.open(source):
            raise AssertionError("it was opened")
    assert copied.rows > BEFORE // 4


async def check(traffic: Traffic, hw: Headwater) -> None:
    found = {}
    while messages := await hw.queue("q").pop(group="check", batch=1_000, auto_ack=True):
        for message in messages:
            assert message.payload not in found, "a message is there twice"
            found[message.payload] = (message.partition, message.offset)
    assert found == traffic.pushed
    assert traffic.delivered == traffic.acked == Counter(dict.fromkeys(traffic.pushed, 1))
    assert traffic.settled.total() == JOBS
    jobs = [await hw.jobs.show(f"job-{number}") for number in range(JOBS)]
    assert {(job.state.value, job.attempts) for job in jobs} == {("completed", 1)}
