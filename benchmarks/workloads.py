"""The work that is timed, each once for every side: a workload takes a peer and a context and answers with a sample."""

import asyncio
from array import array
from contextlib import ExitStack, aclosing
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import uvloop

from benchmarks.helper import helper, receive
from benchmarks.peers import PAYLOAD, Context, Messages, Queue, load, make_payload
from benchmarks.timing import Sample, now_ns, peak_memory_mb, repeat, summarise

GAP_SECONDS = 0.002
GROUPS = 10
IDLE_LOOKS_MAX = 50
IDLE_SECONDS = 0.004
PRELOAD_BATCH = 1_000
PRELOAD_SECONDS_MAX = 25.0
REFILL = 500
SETTLE_SECONDS = 0.5


async def push_singly(name: str, context: Context) -> Sample:
    """One producer that waits for each message."""
    async with load(name).open(context) as queue:

        async def act() -> int:
            await queue.push(PAYLOAD)
            return 1

        return await repeat(act, context.seconds)


async def push_pairs(name: str, context: Context) -> Sample:
    """Two commits counted as one message: what popping and acknowledging cost when each has a commit of its own."""
    async with load(name).open(context) as queue:

        async def act() -> int:
            await queue.push(PAYLOAD)
            await queue.push(PAYLOAD)
            return 1

        return await repeat(act, context.seconds)


async def push_batches(size: int, name: str, context: Context) -> Sample:
    """One producer that waits for each batch."""
    batch = [PAYLOAD] * size
    async with load(name).open(context) as queue:

        async def act() -> int:
            await queue.push_many(batch)
            return size

        return await repeat(act, context.seconds)


async def push_concurrently(producers: int, partitions: int, name: str, context: Context) -> Sample:
    """Many producers as tasks of one process, each waiting for its own message."""
    async with load(name).open(replace(context, partitions=partitions)) as queue:
        await asyncio.gather(*(queue.push(PAYLOAD) for _ in range(producers)))
        latencies = array("Q")
        started = now_ns()
        finish = started + int(context.seconds * 1e9)
        await asyncio.gather(*(_produce(queue, finish, latencies) for _ in range(producers)))
        return summarise(latencies, len(latencies), now_ns() - started)


async def _produce(queue: Queue, finish: int, latencies: "array[int]") -> None:
    before = now_ns()
    while before < finish:
        await queue.push(PAYLOAD)
        after = now_ns()
        latencies.append(after - before)
        before = after


async def take_batches(size: int, waiting: int, name: str, context: Context) -> Sample:
    """One consumer that pops and acknowledges batch after batch until none is left."""
    async with load(name).open(context) as queue:
        await _preload(queue, waiting)
        return await repeat(lambda: queue.take(size), context.seconds)


async def take_from_processes(processes: int, size: int, waiting: int, name: str, context: Context) -> Sample:
    """Consumer processes of one group that share what waits."""
    spread = replace(context, partitions=16)
    async with load(name).open(spread) as queue:
        await _preload(queue, waiting)
    with ExitStack() as stack:
        pipes = [stack.enter_context(helper(_drain, size, name, spread)) for _ in range(processes)]
        for pipe in pipes:
            receive(pipe)
        for pipe in pipes:
            pipe.send("go")
        return _join([receive(pipe) for pipe in pipes])


class _Drained(msgspec.Struct, frozen=True):
    messages: int
    started: int
    finished: int
    memory_mb: float


def _drain(pipe: "Connection[Any, Any]", size: int, name: str, context: Context) -> None:
    async def work() -> None:
        async with load(name).open(context) as queue:
            pipe.send("ready")
            receive(pipe)
            pipe.send(await _drain_queue(queue, size, context.seconds))

    uvloop.run(work())


async def _drain_queue(queue: Queue, size: int, seconds: float) -> _Drained:
    messages = idle_looks = 0
    started = finished = now_ns()
    # An empty answer is not yet the end: another process may hold the lease on what is left.
    while idle_looks < IDLE_LOOKS_MAX and now_ns() < started + int(seconds * 1e9):
        if taken := await queue.take(size):
            messages += taken
            idle_looks = 0
            finished = now_ns()
        else:
            idle_looks += 1
            await asyncio.sleep(IDLE_SECONDS)
    return _Drained(messages, started, finished, peak_memory_mb())


def _join(parts: list[_Drained]) -> Sample:
    elapsed = max(part.finished for part in parts) - min(part.started for part in parts)
    messages = sum(part.messages for part in parts)
    if not messages:
        return Sample(error="nothing was moved")
    return Sample(
        rate=messages / elapsed * 1e9,
        memory_mb=max(part.memory_mb for part in parts),
        note=f"{min(part.messages for part in parts) / messages:.0%} by the slowest process",
    )


async def consume_singly(waiting: int, name: str, context: Context) -> Sample:
    """One consumer, one message at a time, while about `waiting` messages wait. Refilling is off the clock."""
    async with load(name).open(context) as queue:
        loaded = await _preload(queue, waiting)
        latencies = array("Q")
        left_ns = int(context.seconds * 1e9)
        async with aclosing(queue.consume()) as messages:
            await anext(messages)
            while left_ns > 0:
                left_ns -= await _consume_for(messages, left_ns, latencies)
                await queue.push_many([PAYLOAD] * REFILL)
        sample = summarise(latencies, len(latencies), sum(latencies))
    return sample if loaded >= waiting else msgspec.structs.replace(sample, note=f"only {loaded:,} waiting")


async def _consume_for(messages: Messages, budget_ns: int, latencies: "array[int]") -> int:
    """Consumes until a refill is due or the time is over, and answers how long that took."""
    before = started = now_ns()
    for _ in range(REFILL):
        await anext(messages)
        after = now_ns()
        latencies.append(after - before)
        before = after
        if before - started > budget_ns:
            break
    return before - started


async def take_across_partitions(partitions: int, waiting: int, name: str, context: Context) -> Sample:
    """Ten groups, a task each, that pop and acknowledge ten messages at a time from a queue of so many partitions."""
    async with load(name).open(replace(context, partitions=partitions)) as queue:
        # Ten messages a partition and turn, so that a pop finds as many with few partitions as with many.
        batches = waiting // 10
        for start in range(0, batches, PRELOAD_BATCH):
            turns = min(PRELOAD_BATCH, batches - start)
            await asyncio.gather(*(queue.push_many([PAYLOAD] * 10) for _ in range(turns)))
        groups = [f"group-{number}" for number in range(GROUPS)]
        await asyncio.gather(*(queue.take(10, group) for group in groups))
        started = now_ns()
        finish = started + int(context.seconds * 1e9)
        taken = await asyncio.gather(*(_take_as_group(queue, group, finish) for group in groups))
        elapsed = now_ns() - started
    return Sample(rate=sum(taken) / elapsed * 1e9, memory_mb=peak_memory_mb())


async def _take_as_group(queue: Queue, group: str, finish: int) -> int:
    messages = 0
    while now_ns() < finish and (taken := await queue.take(10, group)):
        messages += taken
    return messages


async def wake_a_consumer(messages: int, name: str, context: Context) -> Sample:
    """From just before the push in one process to the payload in the hands of a waiting consumer in another."""
    with helper(_receive_stamps, messages, name, context) as consumer:
        receive(consumer)
        async with load(name).open(context) as queue:
            await asyncio.sleep(SETTLE_SECONDS)
            for _ in range(messages):
                await asyncio.sleep(GAP_SECONDS)
                await queue.push(make_payload(now_ns()))
            latencies: array[int] = receive(consumer)
    return _only_latency(latencies)


def _receive_stamps(pipe: "Connection[Any, Any]", messages: int, name: str, context: Context) -> None:
    async def work() -> None:
        latencies = array("Q")
        async with load(name).open(context) as queue:
            pipe.send("ready")
            async with aclosing(queue.consume()) as arriving:
                async for payload in arriving:
                    latencies.append(now_ns() - payload["sent_ns"])
                    if len(latencies) == messages:
                        break
        pipe.send(latencies)

    uvloop.run(work())


async def push_with_gaps(messages: int, name: str, context: Context) -> Sample:
    """The same spacing with nobody waiting: what the commit alone takes."""
    latencies = array("Q")
    async with load(name).open(context) as queue:
        for _ in range(messages):
            await asyncio.sleep(GAP_SECONDS)
            before = now_ns()
            await queue.push(PAYLOAD)
            latencies.append(now_ns() - before)
    return _only_latency(latencies)


def _only_latency(latencies: "array[int]") -> Sample:
    return msgspec.structs.replace(summarise(latencies, len(latencies), sum(latencies)), rate=None)


async def _preload(queue: Queue, messages: int) -> int:
    """Pushes what is to wait, bounded in time because some peers slow down; answers how many there are."""
    loaded = 0
    deadline = now_ns() + int(PRELOAD_SECONDS_MAX * 1e9)
    while loaded < messages and now_ns() < deadline:
        size = min(PRELOAD_BATCH, messages - loaded)
        await queue.push_many([PAYLOAD] * size)
        loaded += size
    return loaded
