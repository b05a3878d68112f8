"""`headwater bench`: a quick look at what this disk gives, on a store of its own beside the one in use.

It answers "is this disk slow?" in a few seconds. It compares nothing with anybody: `script/bench` does that.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from statistics import quantiles
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli.output import note, print_json, print_table, progress
from headwater.cli.session import opened, run_fast, store_location
from headwater.cli.settings import Settings, settings_of

if TYPE_CHECKING:
    from headwater.services.queue import Queue

PAYLOAD_BYTES = 200
TICK_SECONDS = 0.1
CAVEAT = "a quick look at this machine, not the comparison suite (script/bench in the source)"


class Question(NamedTuple):
    """One thing to measure: how many callers do the same call again and again."""

    name: str
    callers: int
    batch: int
    pops: bool = False


class Finding(NamedTuple):
    """What was measured."""

    question: Question
    messages: int
    seconds: float
    call_ms: list[float]

    def document(self) -> dict[str, object]:
        """The finding for programs."""
        p50, p99 = self.percentiles()
        return {
            "question": self.question.name,
            "callers": self.question.callers,
            "batch": self.question.batch,
            "messages_per_second": round(self.messages / self.seconds),
            "calls_per_second": round(len(self.call_ms) / self.seconds),
            "p50_ms": round(p50, 3),
            "p99_ms": round(p99, 3),
        }

    def percentiles(self) -> tuple[float, float]:
        """Half of the calls took at most the first, all but one in a hundred at most the second."""
        if len(self.call_ms) < 2:
            return (self.call_ms or [0.0])[0], (self.call_ms or [0.0])[0]
        cuts = quantiles(self.call_ms, n=100)
        return cuts[49], cuts[98]


QUESTIONS = (
    Question("push one, one producer", 1, 1),
    Question("push one, 64 producers", 64, 1),
    Question("push 100, 8 producers", 8, 100),
    Question("pop and ack 100, one consumer", 1, 100, pops=True),
)


def bench(
    ctx: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.05, max=60, help="How long to measure each of the four.")] = 1.0,
) -> None:
    """Measure pushes and pops for a few seconds, on a temporary store in the folder of the store.

    Every push is answered when it survives power loss. The store itself is not touched. This is a quick look at one
    machine, not the comparison suite. `headwater bench rooms` measures rooms.

    Examples:
      headwater bench
      headwater bench --store /mnt/other-disk/headwater.db --seconds 5
    """
    if ctx.invoked_subcommand is not None:
        return
    settings = settings_of(ctx)
    findings = run_fast(_bench(settings, seconds))
    if settings.json:
        print_json({"note": CAVEAT, "payload_bytes": PAYLOAD_BYTES, "findings": [f.document() for f in findings]})
        return
    columns = ("QUESTION", "MESSAGES/S", "CALLS/S", "P50 MS", "P99 MS")
    documents = [finding.document() for finding in findings]
    names = ("question", "messages_per_second", "calls_per_second", "p50_ms", "p99_ms")
    print_table(columns, [[document[name] for name in names] for document in documents])
    note(f"{PAYLOAD_BYTES}-byte payloads, synced; {CAVEAT}")


def folder_of(settings: Settings) -> str:
    """The folder of the store, which is on the disk to be measured."""
    from headwater.errors import StoreMissing

    folder = os.path.dirname(store_location(settings))
    if not os.path.isdir(folder):
        raise StoreMissing(f"there is no folder {folder} to measure in")
    return folder


async def _bench(settings: Settings, seconds: float) -> list[Finding]:
    with tempfile.TemporaryDirectory(prefix=".headwater-bench-", dir=folder_of(settings)) as place:
        temporary = settings._replace(store=f"{place}/bench.db")
        async with opened(temporary, create=True, housekeeping=None) as hw:
            return await _ask_all(hw.queue("bench"), seconds, shown=not settings.json)


async def _ask_all(queue: "Queue", seconds: float, *, shown: bool) -> list[Finding]:
    with progress("measuring", seconds * len(QUESTIONS), shown=shown) as tell:
        ticking = asyncio.ensure_future(_tick(tell))
        try:
            return [await _ask(queue, question, seconds) for question in QUESTIONS]
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking


async def _tick(tell: Callable[[float], None]) -> None:
    begun = time.perf_counter()
    while True:
        tell(time.perf_counter() - begun)
        await asyncio.sleep(TICK_SECONDS)


async def _ask(queue: "Queue", question: Question, seconds: float) -> Finding:
    call_ms: list[float] = []
    begun = time.perf_counter()
    call = _pop_call(queue, question) if question.pops else _push_call(queue, question)
    callers = (_repeat(call, begun + seconds, call_ms) for _ in range(question.callers))
    messages = sum(await asyncio.gather(*callers))
    return Finding(question, messages, time.perf_counter() - begun, call_ms)


async def _repeat(call: Callable[[], Awaitable[int]], until: float, call_ms: list[float]) -> int:
    """Call until the time is over or there is nothing left; how many messages that were."""
    messages = 0
    while (begun := time.perf_counter()) < until:
        count = await call()
        if not count:
            break
        messages += count
        call_ms.append((time.perf_counter() - begun) * 1_000)
    return messages


def _push_call(queue: "Queue", question: Question) -> Callable[[], Awaitable[int]]:
    payloads = [{"text": "x" * (PAYLOAD_BYTES - len('{"text":""}'))}] * question.batch

    async def call() -> int:
        return len(await queue.push_many(payloads, durability="synced"))

    return call


def _pop_call(queue: "Queue", question: Question) -> Callable[[], Awaitable[int]]:
    async def call() -> int:
        messages = await queue.pop(batch=question.batch)
        if messages:
            await queue.ack(messages)
        return len(messages)

    return call
