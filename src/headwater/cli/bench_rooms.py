"""`headwater bench rooms`: two loads on the rooms of a temporary store, beside the store in use.

`writes` is many writers at a steady rate (S0-51), `polls` many readers of many rooms (S0-52). Each says how many there
were, how long they took, and whether that is within the target.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli.bench import folder_of
from headwater.cli.output import print_json, print_table
from headwater.cli.session import opened, run_fast
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.app import Headwater

WRITE_P95_MS = 100.0
POLL_P95_MS = 5.0
DATA = {"id": "o1", "type": "rect", "x": 10, "y": 20}

Seconds = Annotated[float, typer.Option(min=0.05, max=3_600, help="How long, in seconds.")]


class Load(NamedTuple):
    """What came of a load: how many calls, how long each took, and the bound for 95 of 100."""

    name: str
    expected: int
    seconds: float
    call_ms: list[float]
    target_ms: float

    def document(self) -> dict[str, object]:
        """The finding for programs."""
        ordered = sorted(self.call_ms)
        p95 = ordered[int(len(ordered) * 0.95) - 1] if ordered else 0.0
        return {
            "load": self.name,
            "expected": self.expected,
            "done": len(ordered),
            "per_second": round(len(ordered) / self.seconds),
            "p50_ms": round(ordered[len(ordered) // 2], 3) if ordered else 0.0,
            "p95_ms": round(p95, 3),
            "target_p95_ms": self.target_ms,
            "within_target": bool(ordered) and p95 < self.target_ms,
        }


def writes(
    ctx: typer.Context,
    threads: Annotated[int, typer.Option(min=1, max=1_000, help="Writers at once.")] = 10,
    messages_per_sec: Annotated[float, typer.Option(min=0.1, help="Messages of each writer in a second.")] = 100.0,
    duration: Seconds = 60.0,
) -> None:
    """Write messages to rooms at a steady rate; the target is 100 ms for 95 of 100.

    Examples:
      headwater bench rooms writes
      headwater bench rooms writes --threads 10 --messages-per-sec 100 --duration 60
    """
    settings = settings_of(ctx)
    expected = round(threads * messages_per_sec * duration)
    paces = (1 / messages_per_sec, round(messages_per_sec * duration))

    async def load(hw: "Headwater") -> list[float]:
        return await _paced(threads, *paces, lambda number: _write(hw, number))

    _show(settings, run_fast(_measured(settings, "writes", expected, WRITE_P95_MS, load)))


async def _write(hw: "Headwater", number: int) -> None:
    await hw.room(f"canvas-{number}").send(DATA, type="object-update")


def polls(
    ctx: typer.Context,
    canvases: Annotated[int, typer.Option(min=1, max=10_000, help="Rooms that are read at once.")] = 50,
    poll_interval: Annotated[float, typer.Option(min=1, help="Milliseconds between two reads of a room.")] = 50.0,
    duration: Seconds = 60.0,
) -> None:
    """Read the newest messages of many rooms again and again; the target is 5 ms for 95 of 100.

    Servers do not read like this: they are woken. It shows what the store gives to those who do.

    Examples:
      headwater bench rooms polls
      headwater bench rooms polls --canvases 50 --poll-interval 50 --duration 60
    """
    settings = settings_of(ctx)
    count = round(duration * 1_000 / poll_interval)

    async def load(hw: "Headwater") -> list[float]:
        for number in range(canvases):
            await _write(hw, number)
        outlines = [await hw.rooms_service.kept.outline(hw.name, f"canvas-{number}") for number in range(canvases)]

        async def poll(number: int) -> None:
            await hw.rooms_service.kept.history(outlines[number], f"canvas-{number}", -1, 100)

        return await _paced(canvases, poll_interval / 1_000, count, poll)

    _show(settings, run_fast(_measured(settings, "polls", canvases * count, POLL_P95_MS, load)))


async def _measured(
    settings: Settings,
    name: str,
    expected: int,
    target_ms: float,
    load: "Callable[[Headwater], Awaitable[list[float]]]",
) -> Load:
    with tempfile.TemporaryDirectory(prefix=".headwater-bench-", dir=folder_of(settings)) as place:
        async with opened(
            settings._replace(store=f"{place}/bench.db", server=""), create=True, housekeeping=None
        ) as hw:
            begun = time.perf_counter()
            call_ms = await load(hw)
            return Load(name, expected, time.perf_counter() - begun, call_ms, target_ms)


async def _paced(callers: int, pause: float, count: int, call: Callable[[int], Awaitable[None]]) -> list[float]:
    """How long each call took, of callers who begin one in every `pause`, `count` times; one that is late goes on."""
    call_ms: list[float] = []

    async def repeat(number: int) -> None:
        begun = time.perf_counter() + pause * number / callers
        for place in range(count):
            await asyncio.sleep(max(0.0, begun + place * pause - time.perf_counter()))
            called = time.perf_counter()
            await call(number)
            call_ms.append((time.perf_counter() - called) * 1_000)

    await asyncio.gather(*map(repeat, range(callers)))
    return call_ms


def _show(settings: Settings, load: Load) -> None:
    document = load.document()
    if settings.json:
        print_json(document)
    else:
        columns = ("LOAD", "EXPECTED", "DONE", "PER SECOND", "P50 MS", "P95 MS", "TARGET MS", "WITHIN")
        print_table(columns, [list(document.values())])
