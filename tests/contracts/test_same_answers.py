"""The same operations give the same answers on every store: two handles at one place take turns, by a seed."""

import asyncio
import re
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.log.job_operations import Cancel, Claim, DropJobs, Enqueue, NewJob, Rearm, Report, Rescue, Settle
from headwater.log.operations import (
    Ack,
    Batch,
    Clear,
    Configure,
    DeleteGroup,
    Extend,
    Operation,
    Pop,
    Popped,
    Retain,
    Seek,
    Transaction,
)
from headwater.model.cursor import Outcome
from headwater.model.job import Outcome as JobOutcome
from headwater.stores.job_questions import JobFilter, ListJobQueues, ListJobs
from headwater.stores.open import open_store
from headwater.stores.questions import ListCursors, ListDeadLetters, ListGroups, ListLeases, ListPartitions, ListQueues
from tests.contracts.clock import FakeClock
from tests.contracts.factories import FACTORIES
from tests.contracts.log import LSN_MAX, Log, push

SEEDS = 6
STEPS = 120
HANDLES = 2
NUMBER = re.compile(r'"(partition_id|id)":(\d+)')


class Round:
    """One seed on one store: what it asks depends on the seed and on what it was answered, and on nothing else."""

    def __init__(self, seed: int, logs: list[Log], clock: FakeClock) -> None:
        self.random = Random(seed)
        self.logs = logs
        self.clock = clock
        self.batches: list[Batch] = []
        self.claimed: list[tuple[str, int, int]] = []
        self.pushed = 0
        self.jobs = 0
        self.told: list[str] = []
        self.numbers: dict[tuple[str, str], int] = {}

    async def run(self) -> list[str]:
        """Everything that was answered."""
        await self.ask(self.logs[0], Configure(queue="orders", options={"retry_jitter": 0, "retry_limit": 2}))
        for _ in range(STEPS):
            log = self.random.choice(self.logs)
            await self.ask(log, *[self.operation() for _ in range(self.random.choice((1, 1, 2, 4)))])
            if self.random.random() < 0.2:
                self.clock.advance(self.random.choice((0.5, 5, 400)))
            if self.random.random() < 0.1:
                await self.look(self.random.choice(self.logs))
        await self.look(self.logs[0])
        return self.told

    async def ask(self, log: Log, *operations: Operation) -> None:
        commit = await log.store.apply(operations, self.clock.now())
        for operation, result in zip(operations, commit.results, strict=True):
            if isinstance(result, Popped):
                self.batches += result.batches
            if isinstance(operation, Claim) and not isinstance(result, HeadwaterError):
                self.claimed += [(operation.worker, job.number, job.token) for job in result.jobs]
            self.tell(result)
        self.tell(commit.touched)

    async def look(self, log: Log) -> None:
        """Everything there is to see."""
        questions = (
            ListQueues("main"),
            ListGroups("main"),
            ListLeases("main", "", "", 100),
            ListPartitions("main", "", 0, 100),
            ListCursors("main", "g", 100),
            ListDeadLetters("main", "orders", 100, 0),
            ListJobQueues("main"),
            ListJobs("main", JobFilter()),
        )
        for question in questions:
            self.tell(await log.store.ask(question))
        segments = await log.store.read(0, LSN_MAX, 10_000)  # type: ignore[arg-type]
        self.tell([msgspec.structs.replace(segment, origin=0) for segment in segments])

    def tell(self, value: Any) -> None:
        """Note an answer. Numbers that only name something are counted as they are met: some stores leave gaps."""
        if isinstance(value, HeadwaterError):
            text = f"{type(value).__name__}: {value}"
        else:
            text = msgspec.json.encode(value, enc_hook=repr).decode()
        self.told.append(NUMBER.sub(self.number, text))

    def number(self, found: re.Match[str]) -> str:
        kind, number = found[1], found[2]
        return f'"{kind}":{self.numbers.setdefault((kind, number), len(self.numbers))}'

    def operation(self) -> Operation:
        kinds = (self.push, self.push, self.push, self.pop, self.pop, self.ack, self.ack, self.ack, self.other)
        return self.random.choice((*kinds, self.job, self.job, self.job))()

    def push(self) -> Operation:
        self.pushed += 1
        ids = self.random.choice(((), (), (self.random.choice("xyz"),)))
        values = [self.pushed] * self.random.choice((1, 1, 3))
        more: dict[str, Any] = {"delay_seconds": 3.0} if self.random.random() < 0.1 else {}
        more |= {"key": self.random.choice("kl")} if self.random.random() < 0.1 else {}
        return push(*values, ids=ids, partition=self.random.choice(("a", "b", "")), **more)

    def pop(self) -> Operation:
        place = self.random.choice(("", "", "a"))
        bounds: dict[str, Any] = {"batch": self.random.choice((1, 2, 10)), "partitions": self.random.choice((0, 1))}
        return Pop(queue="orders", group=self.random.choice("gh"), partition=place, **bounds)

    def ack(self) -> Operation:
        if not self.batches:
            return self.push()
        batch = self.random.choice(self.batches)
        about: dict[str, Any] = {"partition_id": batch.partition_id, "group": batch.group, "token": batch.token}
        if self.random.random() < 0.2:
            return Extend(**about, seconds=30.0)
        outcomes: dict[int | str, Outcome] = {
            offset: self.random.choice(list(Outcome)) for offset in batch.offsets if self.random.random() < 0.7
        }
        return Ack(**about, outcomes=outcomes) if outcomes and self.random.random() < 0.5 else Ack(**about)

    def other(self) -> Operation:
        return self.random.choice(
            (
                lambda: Seek(queue="orders", group="g", to=self.random.choice(("beginning", "end"))),
                lambda: Transaction(operations=[self.push(), self.ack()]),
                lambda: Clear(queue="orders", partition="b"),
                lambda: DeleteGroup(queue="orders", group="h"),
                lambda: Configure(queue="orders", options={"retention_seconds": self.random.choice((0, 60))}),
                lambda: Retain(),
            )
        )()

    def job(self) -> Operation:
        worker = self.random.choice("vw")
        return self.random.choice((self.enqueue, self.enqueue, lambda: Claim(worker=worker, limit=2), self.settle))()

    def enqueue(self) -> Operation:
        self.jobs += 1
        needs = (f"job{self.jobs - 1}",) if self.jobs > 1 and self.random.random() < 0.2 else ()
        key = self.random.choice(("", "", "one", "two"))
        job = NewJob(
            id=f"job{self.jobs}",
            command="true",
            priority=self.random.choice((0, 0, 5)),
            concurrency_key=key,
            unique_key=self.random.choice(("", "", "u")),
            delay=self.random.choice((0, 0, 2)),
            depends_on=needs,
            backoff_jitter=0,
        )
        return Enqueue(jobs=[job])

    def settle(self) -> Operation:
        if not self.claimed or self.random.random() < 0.2:
            chosen: dict[str, Any] = {"ids": (f"job{self.random.randint(1, self.jobs + 1)}",), "skip_unfit": True}
            return self.random.choice((Cancel, Rearm, DropJobs, lambda **_: Rescue()))(**chosen)
        worker, number, token = self.claimed.pop(self.random.randrange(len(self.claimed)))
        outcome = self.random.choice((JobOutcome.COMPLETED, JobOutcome.COMPLETED, JobOutcome.FAILED))
        report = Report(number=number, token=token, outcome=outcome, error="no")  # type: ignore[arg-type]
        return Settle(worker=worker, reports=[report])


async def answers(name: str, seed: int) -> list[str]:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        async with FACTORIES[name](Path(folder)) as address:
            stores = [open_store(address, load_config({}), clock) for _ in range(HANDLES)]
            for store in stores:
                await store.open()
            told = await Round(seed, [Log(store, clock) for store in stores], clock).run()
            for store in stores:
                await store.close()
    return told


@pytest.mark.parametrize("name", [name for name in FACTORIES if name != "sqlite"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_store_answers_as_a_file_does(name: str, seed: int) -> None:
    expected, found = (asyncio.run(answers(store, seed)) for store in ("sqlite", name))
    for place, (right, answer) in enumerate(zip(expected, found, strict=True)):
        assert answer == right, f"answer {place} of seed {seed}"
