"""The same commits by chance over two engines: they must give the same answers, and show the same afterwards.

A new engine is one more factory, and meets all the others here.
"""

import asyncio
import re
import tempfile
from contextlib import AsyncExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.stores.contract import Store
from headwater.stores.job_questions import (
    JobFilter,
    ListJobLimits,
    ListJobMinutes,
    ListJobQueues,
    ListJobs,
    ListWorkers,
)
from headwater.stores.open import open_store
from headwater.stores.questions import (
    FindLastLsn,
    FindMilestone,
    FindNextDue,
    ListDeadLetters,
    ListGroups,
    ListLeases,
    ListPartitions,
    ListPositions,
    ListQueues,
    ListSwitches,
    Question,
)
from tests.contracts.clock import FakeClock
from tests.contracts.factories import ENGINES, FACTORIES
from tests.contracts.log import LSN_MAX, Log, push
from tests.contracts.random_operations import QUEUE, STORES, Commits, Step

# With one engine there is nobody to compare it with but itself: that shows at least that nothing else plays a part.
PAIRS = list(combinations(ENGINES, 2)) or [(name, name) for name in ENGINES]
SEED = 20_261_116
SEEDED_STEPS = 150
NUMBERED = re.compile(r'"(partition_id|id)":(\d+)')

QUESTIONS: list[Question[Any]] = [
    FindLastLsn(),
    FindNextDue(),
    FindMilestone("main", "work"),
    ListQueues("main"),
    ListGroups("main"),
    ListPartitions("main"),
    ListPositions("main"),
    ListLeases("main"),
    ListSwitches(),
    ListDeadLetters("main", QUEUE, 1_000),
    ListJobs("main", JobFilter()),
    ListJobQueues("main"),
    ListJobLimits("main"),
    ListJobMinutes("main", FakeClock().now()),
    ListWorkers("main"),
]


class Engine:
    """Several stores open at one place of an engine, which take turns, and the commits for them."""

    def __init__(self, name: str, seed: int, stores: int = STORES) -> None:
        self.name = name
        self._handles = stores
        self.clock = FakeClock()
        self.stores: list[Store] = []
        self.commits = Commits(seed, stores)
        self.wrote = False
        self._numbers: dict[tuple[str, str], int] = {}

    async def open(self, stack: AsyncExitStack) -> "Engine":
        """Open the stores; `stack` closes them."""
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = await stack.enter_async_context(FACTORIES[self.name](Path(folder)))
        for _ in range(self._handles):
            store = open_store(address, load_config({}), self.clock)
            await store.open()
            stack.push_async_callback(store.close)
            self.stores.append(store)
        return self

    async def go_on(self) -> Any:
        """What the next commit is answered."""
        return await self.take(self.commits.step())

    async def take(self, step: Step) -> Any:
        """What a step is answered."""
        self.clock.advance(step.seconds)
        self.clock.set_by(-step.set_back)
        commit = await Log(self.stores[step.store], self.clock).commit(*step.operations)
        self.commits.learn(step.operations, commit.results)
        self.wrote = commit.wrote
        return self.told([list(map(type, step.operations)), commit.results, commit.touched])

    async def shown(self) -> dict[str, Any]:
        """What can be seen of all that was done."""
        found = {repr(question): self.told(await self._ask(question)) for question in QUESTIONS}
        segments = await self.stores[0].read(0, LSN_MAX, 10_000)  # type: ignore[arg-type]
        found["log"] = self.told([msgspec.structs.replace(segment, origin=0) for segment in segments])
        return found

    async def _ask(self, question: Question[Any]) -> Any:
        try:
            return await self.stores[-1].ask(question)
        except HeadwaterError as error:
            return error

    def told(self, answer: Any) -> Any:
        """An answer as it can be compared, and read when it differs. Numbers that only name something are counted as
        they are met: an engine may leave gaps."""
        text = msgspec.json.encode(answer, enc_hook=spelled).decode()
        return msgspec.json.decode(NUMBERED.sub(self._count, text))

    def _count(self, found: re.Match[str]) -> str:
        kind = found[1]
        return f'"{kind}":{self._numbers.setdefault((kind, found[2]), len(self._numbers))}'


def spelled(value: Any) -> str:
    """An error, or the kind of an operation."""
    return f"{value.code}: {value}" if isinstance(value, HeadwaterError) else value.__name__


async def compare(pair: tuple[str, str], seed: int, steps: int, stores: int = STORES) -> int:
    """Take the same steps on both engines; how many operations were refused by neither."""
    taken = 0
    async with AsyncExitStack() as stack:
        one, other = [await Engine(name, seed, stores).open(stack) for name in pair]
        for place in range(steps):
            answers = await one.go_on()
            assert answers == await other.go_on(), f"step {place} of seed {seed}"
            # The first counts rows exactly. One that sends its writes at the end also counts those that find no row: a
            # commit then waits for the disk that need not. The opposite would answer what is not safe.
            assert other.wrote or not one.wrote, f"step {place} of seed {seed}"
            taken += sum(not isinstance(answer, str) for answer in answers[1])
        assert await one.shown() == await other.shown(), f"seed {seed}"
    return taken


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_two_engines_give_the_same_answers_to_the_same_seed(pair: tuple[str, str]) -> None:
    assert asyncio.run(compare(pair, SEED, SEEDED_STEPS)) > SEEDED_STEPS


# What one handle keeps in memory shows in some answers: which lane is next, in which order it met the queues of jobs.
# Whoever takes a store over begins anew with both, so these are compared through one handle that holds it all along.
@pytest.mark.parametrize("name", sorted(set(FACTORIES) - set(ENGINES)))
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_a_store_of_one_holder_gives_the_same_answers_as_a_file(name: str, seed: int) -> None:
    assert asyncio.run(compare(("sqlite", name), seed, SEEDED_STEPS, stores=1)) > SEEDED_STEPS


@pytest.mark.timeout(600 if settings.get_current_profile_name() == "ci" else 0)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_two_engines_give_the_same_answers(pair: tuple[str, str]) -> None:
    @settings(max_examples=max(settings().max_examples // 5, 1))
    @given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
    def run(seed: int, steps: int) -> None:
        asyncio.run(compare(pair, seed, steps))

    run()
    assert len(pair) == 2


async def test_an_answer_that_differs_is_noticed() -> None:
    async with AsyncExitStack() as stack:
        one, other = [await Engine(name, SEED).open(stack) for name in PAIRS[0]]
        await one.take(Step(0, 0, 0, [push("more")]))
        step = Step(0, 0, 0, [push("same")])
        assert await one.take(step) != await other.take(step)
        assert await one.shown() != await other.shown()


def test_the_same_seed_makes_the_same_operations() -> None:
    assert Commits(SEED).step() == Commits(SEED).step()
