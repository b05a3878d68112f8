"""The work of the stores suite that no other has: several processes that push, and turns beside an open transaction."""

import asyncio
from array import array
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import uvloop

import headwater
from benchmarks.helper import helper, receive
from benchmarks.peers import PAYLOAD, Context, load
from benchmarks.timing import Sample, now_ns, percentile_ms

# So many turns at the end are looked at.
LAST_TURNS = 500


async def push_from_processes(processes: int, size: int, name: str, context: Context) -> Sample:
    """Processes that each push by so many and wait for each push."""
    async with load(name).open(context) as queue:
        await queue.push(PAYLOAD)
    with ExitStack() as stack:
        pipes = [stack.enter_context(helper(_push, size, name, context)) for _ in range(processes)]
        for pipe in pipes:
            receive(pipe)
        for pipe in pipes:
            pipe.send("go")
        return Sample(rate=sum([receive(pipe) for pipe in pipes]))


def _push(pipe: "Connection[Any, Any]", size: int, name: str, context: Context) -> None:
    async def work() -> None:
        batch = [PAYLOAD] * size
        async with load(name).open(context) as queue:
            await queue.push_many(batch)
            pipe.send("ready")
            receive(pipe)
            pushed, begun = 0, now_ns()
            while now_ns() < begun + int(context.seconds * 1e9):
                await (queue.push(PAYLOAD) if size == 1 else queue.push_many(batch))
                pushed += size
            pipe.send(pushed / (now_ns() - begun) * 1e9)

    uvloop.run(work())


async def pop_beside_a_transaction(turns: int, name: str, context: Context) -> Sample:
    """Push, pop, ack, so many times, while somebody has a transaction open; timed are the last pops."""
    async with headwater.open(context.address) as hw:
        queue = hw.queue("bench")
        with psycopg.connect(context.address) as held:
            held.execute("SELECT 1 FROM pg_class LIMIT 1")
            latencies = array("Q")
            for _ in range(turns):
                await queue.push(PAYLOAD, partition="p")
                before = now_ns()
                messages = await queue.pop(batch=10)
                latencies.append(now_ns() - before)
                await queue.ack(messages)
    return _last(latencies)


async def claim_beside_a_transaction(turns: int, name: str, context: Context) -> Sample:
    """The same with jobs: add, claim, complete."""
    from headwater.log.job_operations import Claim, JobReport, NewJob, Settle
    from headwater.model.job import JobOutcome

    async with headwater.open(context.address) as hw:
        service = hw.jobs_service
        with psycopg.connect(context.address) as held:
            held.execute("SELECT 1 FROM pg_class LIMIT 1")
            latencies = array("Q")
            for _ in range(turns):
                await hw.jobs.add_many([NewJob(type="mark")])
                before = now_ns()
                (job,) = (await service.run(Claim(worker="w", limit=1))).jobs
                latencies.append(now_ns() - before)
                report = JobReport(number=job.number, token=job.token, outcome=JobOutcome.COMPLETED)
                await service.run(Settle(worker="w", reports=[report]))
    return _last(latencies)


def _last(latencies: "array[int]") -> Sample:
    ordered = sorted(latencies[-LAST_TURNS:])
    return Sample(p50_ms=percentile_ms(ordered, 50), p99_ms=percentile_ms(ordered, 99))


async def push_from_connections(producers: int, name: str, context: Context) -> Sample:
    """Producers that are tasks of one process, each with a connection of its own."""
    async with load(name).open(context) as first:
        await first.push(PAYLOAD)
        finish = now_ns() + int(context.seconds * 1e9)
        begun = now_ns()
        pushed = await asyncio.gather(*(_produce(name, context, finish) for _ in range(producers)))
        return Sample(rate=sum(pushed) / (now_ns() - begun) * 1e9)


async def _produce(name: str, context: Context, finish: int) -> int:
    pushed = 0
    async with load(name).open(context) as queue:
        while now_ns() < finish:
            await queue.push(PAYLOAD)
            pushed += 1
    return pushed
