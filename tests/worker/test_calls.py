"""What lies between a worker and its runner: the line, the slate, and what becomes of calls on their way."""

import asyncio
import math
import os
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import NewJob
from headwater.log.job_operations import Claim, ClaimedJob, JobReport
from headwater.model.job import JobNumber, JobOutcome
from headwater.services.job_functions import Interrupted, JobFunction, RunAbout
from headwater.stores.job_starts import JobStarts
from headwater.worker.call_reports import FunctionSettings
from headwater.worker.calls import KEPT_BYTES_MAX, MESSAGE_BYTES_MAX, CallLine, Slate, make_line, make_slate
from headwater.worker.frames import MARK, Done, FrameReader, NoFrame, Progress, Run, decode_to_worker, encode_frame
from headwater.worker.functions import Functions
from headwater.worker.loading import FunctionSources
from headwater.worker.loop_watch import LoopWatch, Measure
from headwater.worker.printing import Printer
from headwater.worker.telling import Teller
from tests.forks import in_a_child
from tests.waiting import expect_soon_async
from tests.worker import functions
from tests.worker.bench import FUNCTIONS, Bench
from tests.worker.nasty_functions import SCRIBBLES

SECONDS = 30.0


def call(number: int, arguments: bytes = b"[[],{}]") -> Run:
    about = RunAbout(id=f"job{number}", queue="default", type="add", token=1, attempt=1, attempts_max=4)
    return Run(JobNumber(number), about, arguments, 0.0, number)


@pytest.fixture
def line() -> Iterator[tuple[CallLine, CallLine]]:
    ends = make_line()
    yield ends
    for end in ends:
        end.close()


def test_each_call_is_taken_once_by_whoever_takes_it(line: tuple[CallLine, CallLine]) -> None:
    workers, runners = line
    assert all(workers.put(call(number)) for number in range(5))
    assert runners.take() == call(0)
    assert [run.number for run in runners.take_all()] == [1, 2, 3, 4]
    assert runners.take() is None


@pytest.mark.parametrize("size", [0, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1, 5_000_000])
def test_a_call_of_any_size_goes_through_the_line(line: tuple[CallLine, CallLine], size: int) -> None:
    workers, runners = line
    assert workers.put(call(1, b"x" * size))
    assert runners.take(wait=True) == call(1, b"x" * size)


def test_a_full_line_says_so_and_has_room_again_when_a_call_is_taken(line: tuple[CallLine, CallLine]) -> None:
    workers, runners = line
    count = 0
    while workers.put(call(count)):
        count += 1
    for number in range(count):
        assert runners.take() == call(number)
    assert workers.put(call(count))


def test_a_runner_that_waits_learns_that_its_worker_is_gone(line: tuple[CallLine, CallLine]) -> None:
    workers, runners = line
    workers.close()
    assert runners.take(wait=True) is None


def test_both_sides_read_the_same_slate() -> None:
    file = make_slate()
    ours, theirs = Slate(file), Slate(file)
    assert ours.read()[0] == 0
    theirs.begin(JobNumber(7), 12.5)
    assert ours.read() == (7, 12.5)
    theirs.end()
    assert ours.read()[0] == 0
    ours.close()
    theirs.close()


@pytest.mark.parametrize("kind", SCRIBBLES)
def test_what_makes_no_sense_on_a_slate_is_nothing(kind: str) -> None:
    """A function has written to memory that is not its own: both sides go on."""
    file = make_slate()
    ours, theirs = Slate(file), Slate(file)
    teller_out, teller_in = os.pipe()
    teller = Teller(theirs, teller_in)
    done = [Progress(JobNumber(number), "x") for number in range(2)]
    teller.keep(done[0])
    os.pwrite(file, SCRIBBLES[kind][: len(SCRIBBLES[kind]) // 2], 0)
    assert (ours.read(), ours.read_step()) == ((0, 0.0), (0, 0.0)) or kind in ("text", "noise")
    assert [LoopWatch(ours).look(set())[0] for _ in range(3)] == [Measure.NONE] * 3
    assert len(ours.kept()) <= KEPT_BYTES_MAX
    theirs.beat()
    theirs.begin(JobNumber(7), 12.5)
    teller.keep(done[1])
    teller.tell()
    assert ours.read() == (7, 12.5)
    assert [decode_to_worker(frame) for frame in FrameReader().feed(os.read(teller_out, 65_536))] == done
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(file, 0)
    ours.close()
    theirs.close()
    for descriptor in (file, teller_out, teller_in):
        os.close(descriptor)


@pytest.mark.parametrize("entry", [b"\xff" * 16, struct.pack("<qd", 5, math.nan), struct.pack("<qd", 5, -1.0)])
@pytest.mark.parametrize("entry_number", [-1, 0])
def test_an_entry_that_cannot_be_is_none(entry: bytes, entry_number: int) -> None:
    file = make_slate()
    slate = Slate(file)
    for content in (entry, struct.pack("<qd", entry_number, 3.0), struct.pack("<qd", 5, math.inf)):
        os.pwrite(file, content, 0)
        assert slate.read() == (0, 0.0)
    slate.expect(JobNumber(8))
    slate.begin(JobNumber(9), 1.0)
    assert slate.read() == (0, 0.0), "one that was never sent"
    slate.begin(JobNumber(8), 1.0)
    assert slate.read() == (8, 1.0)
    slate.close()
    os.close(file)


@pytest.mark.parametrize("piece", [1, 3, 1_000_000])
def test_frames_are_found_however_the_bytes_are_cut(piece: int) -> None:
    sent = [Progress(JobNumber(number), "x" * number) for number in range(200)]
    stream = b"".join(map(encode_frame, sent))
    reader = FrameReader()
    got = []
    for start in range(0, len(stream), piece):
        got += [decode_to_worker(frame) for frame in reader.feed(stream[start : start + piece])]
    assert got == sent


NONSENSE = {
    "a length and no message": b"\x06\0\0\0\x92\x01\xa2\xff\xfe\0",
    "a huge length": b"\xff" * 12,
    "one byte": b"\0",
    "a mark and no more": MARK,
    "a mark with a huge length": MARK + b"\xff" * 4,
    "half a mark": MARK[:5],
    "two halves of marks": MARK[:5] + MARK[:3],
    "much": os.urandom(200_000).replace(MARK, b""),
}


@pytest.mark.parametrize("piece", [1, 7, 1_000_000])
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_frames_around_nonsense_are_found(nonsense: str, piece: int) -> None:
    sent = [Progress(JobNumber(number), "x" * number) for number in range(6)]
    frames = list(map(encode_frame, sent))
    # A mark alone stands for a frame until it is seen that what follows is no length.
    stream = b"".join(frames[:3]) + NONSENSE[nonsense] + b"".join(frames[3:])
    reader = FrameReader()
    got = []
    for start in range(0, len(stream), piece):
        got += [decode_to_worker(frame) for frame in reader.feed(stream[start : start + piece])]
    assert got == sent
    assert reader.nonsense_bytes == len(NONSENSE[nonsense])


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x92\x01\xa2\xff\xfe\0", msgspec.msgpack.encode({"type": "done"}), b"\x81\xa4type\xa2\xff\xfe"],
)
def test_a_frame_without_a_message_is_none(body: bytes) -> None:
    with pytest.raises(NoFrame, match="no message"):
        decode_to_worker(body)


class Calls:
    """A runner of its own, and what it reported."""

    def __init__(self, bench: Bench, grace_seconds: float = 0.3, concurrency: int = 1) -> None:
        self._bench = bench
        self.starts = JobStarts.make("", 200)
        sources = FunctionSources(app=FUNCTIONS)
        settings = FunctionSettings(sources=sources, grace_seconds=grace_seconds, concurrency=concurrency)
        self.runner = Functions(settings, self.starts)
        self.runner.on_report = self._take
        self.reports: dict[str, JobReport] = {}
        self._names: dict[int, str] = {}

    def _take(self, report: JobReport) -> None:
        self.reports[self._names[report.number]] = report

    async def run(self, jobs: Sequence[NewJob]) -> list[ClaimedJob]:
        """Claim new jobs and send them."""
        await self._bench.hw.jobs.add_many(jobs)
        claimed: list[ClaimedJob] = (await self._bench.hw.jobs_service.run(Claim(worker="w", limit=len(jobs)))).jobs
        self._names |= {job.number: job.id for job in claimed}
        for job in claimed:
            self.runner.run(job)
        return claimed

    async def ended(self, *names: str) -> list[JobOutcome]:
        """What calls came to."""

        async def are_told() -> bool:
            return self.reports.keys() >= set(names)

        await expect_soon_async(are_told)
        return [self.reports[name].outcome for name in names]


@pytest.fixture
async def calls(bench: Bench) -> AsyncIterator[Calls]:
    made = Calls(bench)
    yield made
    made.runner.close()
    await asyncio.wait_for(made.runner.closed(), SECONDS)
    made.starts.close()


async def begun(calls: Calls) -> None:
    async def runs() -> bool:
        return calls.runner.count > calls.runner.waiting()

    await expect_soon_async(runs)


def gated(gate: Path) -> NewJob:
    return functions.wait_for_file.using(id="gated").job(str(gate))


async def test_what_was_done_is_told_while_the_next_call_runs(calls: Calls, bench: Bench) -> None:
    gate = bench.folder / "gate"
    await calls.run([functions.add.using(id="first").job(1), gated(gate)])
    assert await calls.ended("first") == [JobOutcome.COMPLETED]
    assert "gated" not in calls.reports
    gate.touch()
    assert await calls.ended("gated") == [JobOutcome.COMPLETED]


async def test_a_call_that_is_stopped_before_it_began_leaves_its_neighbours_alone(calls: Calls, bench: Bench) -> None:
    gate = bench.folder / "gate"
    names = ("before", "stopped", "behind")
    jobs = await calls.run([gated(gate), *(functions.add.using(id=name).job(1) for name in names)])
    await begun(calls)
    process = calls.runner.processes
    calls.runner.stop(next(job.number for job in jobs if job.id == "stopped"), "cancelled")
    assert await calls.ended("stopped") == [JobOutcome.CANCELLED]
    gate.touch()
    assert await calls.ended("gated", "before", "behind") == [JobOutcome.COMPLETED] * 3
    assert calls.runner.processes == process


async def test_what_has_not_begun_is_taken_back_at_once(calls: Calls, bench: Bench) -> None:
    gate = bench.folder / "gate"
    await calls.run([gated(gate), *(functions.add.using(id=f"job{number}").job(1) for number in range(5))])
    await begun(calls)
    assert [job.id for job in calls.runner.recall()] == [f"job{number}" for number in range(5)]
    assert calls.runner.count == 1
    gate.touch()
    assert await calls.ended("gated") == [JobOutcome.COMPLETED]


async def test_more_calls_than_the_line_holds_are_all_run(calls: Calls) -> None:
    names = [f"job{number}" for number in range(1_000)]
    await calls.run([functions.add.using(id=name).job(1) for name in names])
    assert set(await calls.ended(*names)) == {JobOutcome.COMPLETED}


async def test_async_calls_that_wait_for_their_turn_are_taken_back_too(calls: Calls, bench: Bench) -> None:
    folder = bench.folder / "met"
    folder.mkdir()
    await calls.run([functions.meet.using(id=f"job{number}").job(str(folder), 2) for number in range(4)])
    await begun(calls)
    assert {job.id for job in calls.runner.recall()} == {"job1", "job2", "job3"}


TALKERS: dict[str, tuple[JobFunction[..., Any], JobFunction[..., Any]]] = {
    "plain": (functions.talk_nonsense, functions.tell_process_plainly),
    "async": (functions.talk_nonsense_politely, functions.tell_process),
}


@pytest.mark.parametrize("kind", TALKERS)
async def test_a_function_that_talks_nonsense_on_its_pipes_harms_nobody(calls: Calls, kind: str) -> None:
    """What was done before counts, what was begun behind it finishes, and what comes later has a new process."""
    talk, tell = TALKERS[kind]
    await calls.run([tell.using(id="before").job(), talk.using(id="talks").job(), tell.using(id="behind").job()])
    assert await calls.ended("before", "talks", "behind") == [JobOutcome.COMPLETED] * 3
    assert calls.reports["before"].result == calls.reports["talks"].result
    process = int(calls.reports["talks"].result or 0)

    async def is_gone() -> bool:
        return process not in calls.runner.processes

    await expect_soon_async(is_gone)
    await calls.run([tell.using(id="later").job()])
    assert await calls.ended("later") == [JobOutcome.COMPLETED]
    assert calls.reports["later"].result != calls.reports["talks"].result


@pytest.mark.parametrize("kind", TALKERS)
async def test_a_function_that_talks_nonsense_and_never_ends_fails_alone(calls: Calls, bench: Bench, kind: str) -> None:
    talk, tell = TALKERS[kind]
    await calls.run(
        [
            tell.using(id="before").job(),
            talk.using(id="talks").job(str(bench.folder / "no such gate")),
            tell.using(id="behind").job(),
        ]
    )
    assert await calls.ended("before", "talks", "behind") == [
        JobOutcome.COMPLETED,
        JobOutcome.FAILED,
        JobOutcome.COMPLETED,
    ]
    assert "SIGKILL" in calls.reports["talks"].error
    assert calls.reports["before"].result != calls.reports["behind"].result


async def test_a_job_with_large_arguments_is_run(bench: Bench) -> None:
    text = "a" * 100_000
    job = await bench.hw.jobs.add(functions.shout.job(text))
    await bench.drain()
    assert await job.result(5) == text.upper()


def test_an_interruption_waits_until_what_is_told_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a frame would take the next one along: that a call has ended, say."""
    reading, writing = os.pipe()
    file = make_slate()
    slate = Slate(file)
    teller = Teller(slate, writing)
    write = os.write

    def interrupt() -> None:
        raise Interrupted

    def write_a_little(descriptor: int, content: bytes) -> int:
        assert teller.defer(interrupt)
        return write(descriptor, content[:7])

    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", write_a_little)
            with pytest.raises(Interrupted):
                teller.send(Done(JobNumber(1), JobOutcome.COMPLETED, 0.0))
        teller.send(Done(JobNumber(2), JobOutcome.COMPLETED, 0.0))
        assert not teller.defer(interrupt)
        told = [decode_to_worker(frame) for frame in FrameReader().feed(os.read(reading, 65_536))]
        assert [done.number for done in told if isinstance(done, Done)] == [1, 2]
    finally:
        slate.close()
        for descriptor in (reading, writing, file):
            os.close(descriptor)


def test_a_child_that_a_function_forks_speaks_whatever_the_threads_of_its_parent_do() -> None:
    """It has their locks, and waits for none of them; what its parent has to tell it leaves to that."""
    reading, writing = os.pipe()
    file = make_slate()
    slate = Slate(file)
    teller = Teller(slate, writing)
    printer = Printer(JobNumber(2), teller)

    def speak() -> None:
        teller.send(Progress(JobNumber(2), "half"))
        printer.add("printed")

    def told() -> list[str]:
        frames = FrameReader().feed(os.read(reading, 65_536))
        return [type(decode_to_worker(frame)).__name__ for frame in frames]

    try:
        teller.keep(Done(JobNumber(1), JobOutcome.COMPLETED, 0.0))
        with teller._lock, printer._lock:
            assert in_a_child(speak) == "nothing"
        assert told() == ["Progress", "Output"]
        assert slate.kept()
        teller.tell()
        assert told() == ["Done"]
    finally:
        slate.close()
        for descriptor in (reading, writing, file):
            os.close(descriptor)
