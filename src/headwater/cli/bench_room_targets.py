"""`headwater bench rooms targets`: what rooms are held to (S0-58 to S0-61), each with its bound and whether it is met.

Two servers are played by two Headwaters on one temporary store in this process: what one says goes through the file to
the other, as between processes. Each figure is taken for a moment, so it is a look at this machine and no comparison.
"""

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli.bench import folder_of
from headwater.cli.commands import Result, command
from headwater.cli.exits import ExitCode
from headwater.cli.output import print_table
from headwater.cli.session import opened
from headwater.cli.settings import Settings

if TYPE_CHECKING:
    from headwater.app import Headwater

WRITERS = READERS = 64
ROOMS, MEMBERS, MESSAGES = 50, 20, 100
MEGABYTE = 1_000_000
PATIENCE_SECONDS = 30.0
DATA = {"id": "o1", "type": "rect", "x": 10, "y": 20}
INDEXED = ("USING INDEX", "USING COVERING INDEX", "USING PRIMARY KEY", "USING INTEGER PRIMARY KEY")


class Target(NamedTuple):
    """One figure and its bound: at least so much, or less than so much."""

    name: str
    unit: str
    bound: float
    is_least: bool
    measured: float

    @property
    def is_met(self) -> bool:
        """Whether the figure keeps within its bound."""
        return self.measured >= self.bound if self.is_least else self.measured < self.bound

    def document(self) -> dict[str, object]:
        """The figure for programs."""
        bound = {"at_least" if self.is_least else "below": self.bound}
        return {
            "target": self.name,
            "unit": self.unit,
            "measured": round(self.measured, 3),
            **bound,
            "is_met": self.is_met,
        }

    def row(self) -> list[str]:
        """The figure for people."""
        sign = "≥" if self.is_least else "<"
        figure = f"{self.measured:,.0f}" if self.measured >= 100 else f"{self.measured:.2f}"
        return [self.name, figure, f"{sign} {self.bound:,g}", self.unit, "yes" if self.is_met else "NO"]


def least(name: str, unit: str, bound: float, measured: float) -> Target:
    """A figure that should be as large as its bound."""
    return Target(name, unit, bound, True, measured)


def below(name: str, unit: str, bound: float, measured: float) -> Target:
    """A figure that should be smaller than its bound."""
    return Target(name, unit, bound, False, measured)


@command
async def targets(
    settings: Settings,
    seconds: Annotated[float, typer.Option(min=0.05, max=60, help="How long to measure each figure.")] = 1.0,
) -> Result:
    """Measure what rooms are held to, on a temporary store, and say for each figure whether it is within its bound.

    It ends with 5 when one is not. Whatever else the machine does meanwhile is in the figures.

    Examples:
      headwater bench rooms targets
      headwater bench rooms targets --seconds 10 --json
    """
    found = await measure(settings, seconds)
    columns = ("TARGET", "MEASURED", "BOUND", "UNIT", "MET")
    return Result(
        [target.document() for target in found],
        lambda: print_table(columns, [target.row() for target in found]),
        code=ExitCode.OK if all(target.is_met for target in found) else ExitCode.PROBLEMS,
    )


async def measure(settings: Settings, seconds: float) -> list[Target]:
    """All of them, one after the other."""
    with tempfile.TemporaryDirectory(prefix=".headwater-bench-", dir=folder_of(settings)) as place:
        there = settings._replace(store=f"{place}/bench.db")
        async with opened(there, create=True, housekeeping=None) as one, opened(there, housekeeping=None) as other:
            same_ms, across_ms = await heard_ms(one, one, seconds), await heard_ms(one, other, seconds)
            reads_a_second, _ = await reads(one, READERS, seconds)
            _, read_ms = await reads(one, 1, seconds)
            return [
                least("messages written", "a second", 1_000, await writes(one, seconds)),
                least("reads of a room", "a second", 10_000, reads_a_second),
                below("a read alone, p95", "ms", 1, percentile(read_ms, 95)),
                least("reads by an index", "%", 99, await indexed_share(one)),
                below("heard on the same server, p50", "ms", 1, percentile(same_ms, 50)),
                below("heard on another server, p95", "ms", 100, percentile(across_ms, 95)),
                below("state of 50 rooms", "MB", 10, await state_megabytes(one)),
            ]


def percentile(values: list[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


async def repeat(callers: int, seconds: float, call: Callable[[int], Awaitable[object]]) -> tuple[float, list[float]]:
    """Calls a second of so many callers, and how many ms each took. Everybody calls at least once."""
    call_ms: list[float] = []
    begun = time.perf_counter()

    async def go(number: int) -> None:
        while True:
            called = time.perf_counter()
            await call(number)
            now = time.perf_counter()
            call_ms.append((now - called) * 1_000)
            if now - begun >= seconds:
                return

    await asyncio.gather(*map(go, range(callers)))
    return len(call_ms) / (time.perf_counter() - begun), call_ms


async def writes(hw: "Headwater", seconds: float) -> float:
    """S0-58: messages a second of many who write at once."""

    async def write(number: int) -> None:
        await hw.room(f"canvas-{number}").send(DATA, type="object-update")

    rate, _ = await repeat(WRITERS, seconds, write)
    return rate


async def reads(hw: "Headwater", readers: int, seconds: float) -> tuple[float, list[float]]:
    """S0-59: what came last in a room is asked for, as a poller does: reads a second, and the ms of each."""
    name = "read"
    for number in range(MESSAGES):
        await hw.room(name).send(number)
    outline = await hw.rooms_service.kept.outline(hw.name, name)

    async def read(_: int) -> None:
        await hw.rooms_service.kept.history(outline, name, outline.end - 2, 100)

    return await repeat(readers, seconds, read)


async def indexed_share(hw: "Headwater") -> float:
    """S0-59: of a hundred looks at the tables behind rooms, how many go by an index, by the plans of the store."""
    from headwater.stores.room_questions import CheckRooms

    plans = [part.plan for part in await hw.store.ask(CheckRooms()) if part.kind == "index"]
    looks = [look for plan in plans for look in plan.split("; ")]
    return 100 * sum(any(sign in look for sign in INDEXED) for look in looks) / len(looks)


async def heard_ms(sender: "Headwater", receiver: "Headwater", seconds: float) -> list[float]:
    """S0-60: from saying something that is kept to hearing it, one after the other."""
    live = await receiver.rooms_service.enter(receiver.name, "heard")
    heard = asyncio.Event()
    live.listeners.append(lambda _: heard.set())

    call_ms: list[float] = []
    until = time.perf_counter() + seconds
    try:
        while not call_ms or time.perf_counter() < until:
            heard.clear()
            said = time.perf_counter()
            sending = asyncio.ensure_future(sender.room("heard").send(DATA))
            async with asyncio.timeout(PATIENCE_SECONDS):
                await heard.wait()
            call_ms.append((time.perf_counter() - said) * 1_000)
            await sending
        return call_ms
    finally:
        live.listeners.clear()
        receiver.rooms_service.leave(live)


async def state_megabytes(hw: "Headwater") -> float:
    """S0-61: what a server holds of 50 rooms with 20 members each, while 100 messages are kept in each."""
    from headwater.model.room import Member

    gc.collect()
    tracemalloc.start()
    try:
        lives = [await hw.rooms_service.enter(hw.name, f"state-{number}") for number in range(ROOMS)]
        members = [(live, Member(f"{live.name}-{number}")) for live in lives for number in range(MEMBERS)]
        await asyncio.gather(*(hw.rooms_service.connect(live, member) for live, member in members))
        for _ in range(MESSAGES):
            await asyncio.gather(*(hw.room(live.name).send(DATA) for live in lives))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for live in lives:
        hw.rooms_service.leave(live)
    return held / MEGABYTE
