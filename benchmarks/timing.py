"""How work is timed: loops bounded in time, latencies kept in a flat array, and the figures taken from them."""

import resource
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

now_ns = time.monotonic_ns  # one clock for all processes of a machine, so that a message's stamp can cross them

WARM_UP_ACTS = 5


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one measure found. A figure that the work does not yield stays None."""

    rate: float | None = None  # messages a second
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    cpu_us: float | None = None  # CPU of the server for a request
    memory_mb: float | None = None
    lock_waits: float | None = None  # commits that found the lock held
    wal_mb: float | None = None  # the longest that the write-ahead log was
    note: str = ""
    error: str = ""


async def repeat(act: Callable[[], Awaitable[int]], seconds: float) -> Sample:
    """Acts until the time is over or an act moved nothing; an act answers how many messages it moved."""
    for _ in range(WARM_UP_ACTS):
        await act()
    latencies = array("Q")
    messages = 0
    before = started = now_ns()
    finish = started + int(seconds * 1e9)
    while before < finish and (moved := await act()):
        after = now_ns()
        latencies.append(after - before)
        messages += moved
        before = after
    return summarise(latencies, messages, before - started)


def summarise(latencies_ns: "array[int]", messages: int, elapsed_ns: int) -> Sample:
    """The sample of a measure in which each act took one of these latencies."""
    if not latencies_ns or not elapsed_ns:
        return Sample(error="nothing was moved")
    ordered = sorted(latencies_ns)
    return Sample(
        rate=messages / elapsed_ns * 1e9,
        p50_ms=percentile_ms(ordered, 50),
        p99_ms=percentile_ms(ordered, 99),
        memory_mb=peak_memory_mb(),
    )


def percentile_ms(ordered_ns: list[int], percent: int) -> float:
    return ordered_ns[min(len(ordered_ns) - 1, len(ordered_ns) * percent // 100)] / 1e6


def peak_memory_mb() -> float:
    """The most memory that this process ever held.

    Not ru_maxrss where Linux tells VmHWM: a process starts with its parent's ru_maxrss, and the parent is not measured.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
