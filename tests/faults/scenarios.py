"""One operation of every kind as a small program, to be run under strace and stopped or refused at any of its calls.

    python -m tests.faults.scenarios KIND FILE               says `done` after each step that was answered
    python -m tests.faults.scenarios KIND FILE stubborn      tries a refused step again, and says what refused it

The clock stands still and nothing is random, so that every run that gets as far leaves the same state.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import headwater
from headwater.clock import SECOND
from headwater.errors import LeaseLost
from headwater.log.operations import Retain
from tests.faults.bent_clock import START, BentClock
from tests.faults.tables import Rows, comparable, dump_file
from tests.stores.chores import run_chore

TRIES_MAX = 30
SETTINGS: dict[str, Any] = {"housekeeping": False, "wakeup": "data_version", "wal_bytes_max": 65_536}


class Scene:
    """What the steps of one run share."""

    def __init__(self, hw: headwater.Headwater) -> None:
        self.hw = hw
        self.orders = hw.queue("orders")
        self.messages: list[headwater.Message] = []


Step = Callable[[Scene], Awaitable[object]]


class Scenario(NamedTuple):
    """What is there before, and what is then done."""

    before: tuple[Step, ...]
    steps: tuple[Step, ...]
    later_seconds: float = 0


def push(number: int) -> Step:
    """Push one record; a second try is the same push."""
    return lambda scene: scene.orders.push({"number": number}, partition="p", transaction_id=f"id-{number}")


def push_many(first: int, count: int = 20) -> Step:
    """Push records in one call, larger together than some pages."""

    def step(scene: Scene) -> Awaitable[object]:
        numbers = range(first, first + count)
        batch = [
            headwater.Outgoing(payload={"number": number, "filling": "x" * 900}, transaction_id=f"id-{number}")
            for number in numbers
        ]
        return scene.orders.push_many(batch, partition="p", idempotency_key=f"many-{first}")

    return step


def pop(key: str) -> Step:
    """Lease three records; a second try gets the same lease."""

    async def step(scene: Scene) -> None:
        scene.messages = await scene.orders.pop(group="billing", batch=3, idempotency_key=key)
        assert len(scene.messages) == 3, scene.messages

    return step


async def ack(scene: Scene) -> None:
    """Report the lease as done. A second try may hear that there is no lease any more: then the first one counted."""
    try:
        await scene.orders.ack(scene.messages)
    except LeaseLost:
        if not (await scene.orders.groups())[0].leased:
            return
        raise


async def bury(scene: Scene) -> None:
    """Report the lease as failed for good."""
    try:
        await scene.orders.fail(scene.messages, error="broken", retry=False)
    except LeaseLost:
        if len(await scene.orders.dead_letters()) != 3:
            raise


async def transact(scene: Scene) -> None:
    """Ack and push as one."""
    async with scene.hw.transaction(idempotency_key="together") as together:
        together.ack(scene.messages)
        together.push("mails", {"about": "order"}, partition="p")
        together.push("orders", {"number": 99}, partition="p")


def configure(**options: Any) -> Step:
    """Change options."""
    return lambda scene: scene.orders.configure(**options)


async def retain(scene: Scene) -> None:
    """Drop what is old."""
    await scene.hw.committer.submit(Retain())


async def checkpoint(scene: Scene) -> None:
    """Move the log into the file."""
    await run_chore(scene.hw.store, "checkpointer")


_stocked: tuple[Step, ...] = (push_many(0),)
SCENARIOS = {
    "first open": Scenario((), (push(1),)),
    "push": Scenario(_stocked, (push(100), push(101), push(102))),
    "push_many": Scenario(_stocked, (push_many(200), push_many(300))),
    "pop": Scenario(_stocked, (pop("one"),)),
    "ack": Scenario(_stocked, (pop("one"), ack, pop("two"))),
    "fail": Scenario((*_stocked, configure(retry_limit=0)), (pop("one"), bury)),
    "transaction": Scenario(_stocked, (pop("one"), transact)),
    "configure": Scenario(_stocked, (configure(lease_seconds=7), configure(retry_limit=1))),
    "retention": Scenario((*_stocked, configure(retention_seconds=60)), (push(400), retain), later_seconds=3_600),
    "checkpoint": Scenario(_stocked, (push_many(500), checkpoint, push_many(600), checkpoint, push(700))),
}


def open_at(path: str, later_seconds: float) -> headwater.Headwater:
    """The store as all runs open it."""
    clock = BentClock(START + int(later_seconds * SECOND))
    return headwater.open(path, clock=clock, **SETTINGS)


async def prepare(kind: str, path: str) -> None:
    """Make what is there before."""
    if SCENARIOS[kind].before:
        async with open_at(path, 0) as hw:
            for step in SCENARIOS[kind].before:
                await step(Scene(hw))


async def states_of(kind: str, path: str) -> list[dict[str, Rows]]:
    """The state before the first step, and after each one."""
    async with open_at(path, SCENARIOS[kind].later_seconds) as hw:
        scene = Scene(hw)
        states = [comparable(dump_file(path))]
        for step in SCENARIOS[kind].steps:
            await step(scene)
            states.append(comparable(dump_file(path)))
    return states


async def run(kind: str, path: str) -> None:
    """All steps, each told when it was answered."""
    async with open_at(path, SCENARIOS[kind].later_seconds) as hw:
        scene = Scene(hw)
        for step in SCENARIOS[kind].steps:
            await step(scene)
            tell("done")


async def run_stubbornly(kind: str, path: str) -> None:
    """All steps, each tried until it is answered: a fault that is over must leave no trace."""
    hw = open_at(path, SCENARIOS[kind].later_seconds)
    await insist(hw.start)
    scene = Scene(hw)
    for step in SCENARIOS[kind].steps:
        await insist(lambda step=step: step(scene))  # type: ignore[misc]
        tell("done")
    await hw.close()


async def insist(act: Callable[[], Awaitable[object]]) -> None:
    """Try until it works; what is refused must be refused with one of our errors."""
    for _ in range(TRIES_MAX):
        try:
            await act()
        except headwater.HeadwaterError as error:
            tell(f"refused {error.code} retryable={error.retryable} {error}")
        except Exception as error:
            tell(f"untyped {type(error).__name__}: {error}")
        else:
            return
    tell("gave up")
    os._exit(3)


def tell(line: str) -> None:
    """One line, in one call, so that it is out even if the next call is the last."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    """See the module."""
    kind, path = sys.argv[1:3]
    asyncio.run((run_stubbornly if "stubborn" in sys.argv[3:] else run)(kind, path))


if __name__ == "__main__":
    main()
