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

from headwater.clock import steady_of
from headwater.config import load_config
from headwater.errors import HeadwaterError
from headwater.model.document import Condition, OrderBy
from headwater.stores.codec import Codec
from headwater.stores.contract import Store
from headwater.stores.document_questions import (
    DocumentQuery,
    ListDocumentIndexes,
    ListDocumentsAfter,
    QueryDocuments,
)
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
from headwater.stores.sqlite.store import SqliteStore
from headwater.stores.tables.writer import Writer
from tests.contracts.clock import FakeClock
from tests.contracts.factories import ENGINES, FACTORIES
from tests.contracts.log import LSN_MAX, Log, push
from tests.contracts.random_operations import QUEUE, STORES, Commits, Step

# With one engine there is nobody to compare it with but itself: that shows at least that nothing else plays a part.
PAIRS = list(combinations(ENGINES, 2)) or [(name, name) for name in ENGINES]
SEED = 20_261_116
SEEDED_STEPS = 150
NUMBERED = re.compile(r'(?P<before>"(?P<kind>partition_id|id)":|there is no (?P<named>partition) )(?P<number>\d+)')

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
    QueryDocuments("main", DocumentQuery(collection="notes", show_deleted=True)),
    QueryDocuments("main", DocumentQuery(collection="notes", filters=[Condition("n", "==", 1)])),
    QueryDocuments("main", DocumentQuery(collection="notes", order_by=[OrderBy("m", "desc")])),
    ListDocumentsAfter("main", "rooms/r/notes"),
    ListDocumentIndexes("main"),
]


class Engine:
    """Several stores open at one place of an engine, which take turns, and the commits for them."""

    def __init__(self, name: str, seed: int, stores: int = STORES) -> None:
        self.name = name
        self._handles = stores
        # Whether a handle forgets what it has in memory when another wrote before it, as one that takes a store over.
        self.begins_anew = False
        self._last = stores - 1
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
        if self.begins_anew and step.store != self._last:
            forget(self.stores[step.store])
        self._last = step.store
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
        kind = found["kind"] or f"{found['named']}_id"
        return f"{found['before']}{self._numbers.setdefault((kind, found['number']), len(self._numbers))}"


def forget(store: Store) -> None:
    """Let a handle of a file know no more than one that takes a store over: what lies there, and the latest time."""
    assert isinstance(store, SqliteStore)
    codec = Codec(store._config.encryption_key)
    writer = Writer(store._connection, store._config, codec, store.origin, store.medium.presence.lose)
    writer.jobs.judge_leases_by(steady_of(store._clock))
    store._take_in(writer, store._connection)
    store._writer = writer


def spelled(value: Any) -> str:
    """An error, or the kind of an operation."""
    return f"{value.code}: {value}" if isinstance(value, HeadwaterError) else value.__name__


async def compare(
    pair: tuple[str, str], seed: int, steps: int, stores: int = STORES, *, first_begins_anew: bool = False
) -> int:
    """Take the same steps on both engines; how many operations were refused by neither."""
    taken = 0
    async with AsyncExitStack() as stack:
        one, other = [await Engine(name, seed, stores).open(stack) for name in pair]
        one.begins_anew = first_begins_anew
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


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if "postgres" in pair], ids="-".join)
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
@pytest.mark.parametrize("stores", [1, STORES])
def test_commits_in_one_round_trip_give_the_same_answers(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str], seed: int, stores: int
) -> None:
    """PostgreSQL, where whoever was alone for one commit takes the lock with its writes, and is overtaken."""
    monkeypatch.setattr("headwater.stores.postgres.commits.ALONE_AFTER", 1)
    assert asyncio.run(compare(pair, seed, SEEDED_STEPS, stores=stores)) > SEEDED_STEPS


# What one handle keeps in memory shows in some answers: which lane is next, in which order it met the queues of jobs.
# Whoever takes a store over begins anew with both, so these are compared through one handle that holds it all along,
# and with handles of a file that begin anew whenever one of a bucket would.
ONE_HOLDER = sorted(set(FACTORIES) - set(ENGINES))


@pytest.mark.parametrize("name", ONE_HOLDER)
@pytest.mark.parametrize("seed", [21, SEED])
def test_a_store_that_is_taken_over_gives_the_same_answers_as_a_file_that_is_opened_anew(name: str, seed: int) -> None:
    taken = asyncio.run(compare(("sqlite", name), seed, SEEDED_STEPS, first_begins_anew=True))
    assert taken > SEEDED_STEPS


@pytest.mark.parametrize("name", ONE_HOLDER)
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


@pytest.mark.parametrize("pair", PAIRS[:1], ids="-".join)
async def test_an_answer_that_differs_is_noticed(pair: tuple[str, str]) -> None:
    async with AsyncExitStack() as stack:
        one, other = [await Engine(name, SEED).open(stack) for name in pair]
        await one.take(Step(0, 0, 0, [push("more")]))
        step = Step(0, 0, 0, [push("same")])
        assert await one.take(step) != await other.take(step)
        assert await one.shown() != await other.shown()


def test_the_same_seed_makes_the_same_operations() -> None:
    assert Commits(SEED).step() == Commits(SEED).step()
