"""A whole store goes to another place: everything of it is there, or nothing, and the old place says where it is."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import headwater
from headwater.cli.output import progress
from headwater.config import load_config
from headwater.errors import StoreBusy, StoreMoved, StoreReplaced
from headwater.log.job_operations import Claim, JobReport, Settle
from headwater.model.job import JobOutcome
from headwater.stores import transfer
from headwater.stores.likeness import Difference, Digest, digest
from headwater.stores.open import open_transfer
from headwater.stores.transfer import META, OWN_KEYS
from tests.cli.program import Ended, Program
from tests.doors.live_door import on_the_edge
from tests.postgres_server import Server
from tests.postgres_server import server as server_of_this_process
from tests.waiting import expect_soon_async

Make = Callable[[], str]
WAYS = ["file to server", "server to file", "file to file", "server to server", "file to bucket", "bucket to file"]
OTHER_WAYS = ["server to bucket", "bucket to server", "bucket to bucket"]


@pytest.fixture(scope="module")
def server() -> Server:
    return server_of_this_process()


@pytest.fixture
def places(tmp_path: Path, server: Server) -> dict[str, Make]:
    """What makes an empty place of each kind. Brokers of the bucket take it from each other at once."""
    count = iter(range(100))
    return {
        "bucket": lambda: f"file://{tmp_path}/{next(count)}.sqlite?lease_seconds=0",
        "file": lambda: str(tmp_path / f"{next(count)}.db"),
        "server": lambda: server.address(server.new_schema()),
    }


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, places: dict[str, Make]) -> tuple[str, str]:
    """Where a store is, and an empty place."""
    return make_way(request.param, places)


def make_way(name: str, places: dict[str, Make]) -> tuple[str, str]:
    first, _, second = name.partition(" to ")
    return places[first](), places[second]()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


async def run(program: Program, *arguments: str) -> Ended:
    """A command beside a loop that runs."""
    return await asyncio.to_thread(program.run, *arguments)


async def expect(program: Program, code: int, *arguments: str) -> Ended:
    """A command that must end with this code."""
    return await asyncio.to_thread(program.expect, code, *arguments)


async def fill(address: str) -> dict[str, Any]:
    """A store with something of everything in it; what is needed to go on with it."""
    async with headwater.open(address, housekeeping=False) as hw:
        orders = hw.queue("orders")
        await orders.configure(compress_bytes_min=10)
        for number in range(5):
            await orders.push({"id": number, "text": "grüße \0 🌍" * 20}, partition="p", transaction_id=f"t{number}")
        await orders.push("later", partition="p", delay=3_600)
        await orders.push("zero", partition="z", type="a", headers={"x": "1"})
        done, held = await orders.pop(batch=2, partition="p", lease_seconds=600)
        await done.ack()
        (dead,) = await orders.pop(group="strict", batch=1, partition="z")
        await dead.fail(error="never", retry=False)
        await hw.jobs.add(id="held", command="true")
        (job,) = (await hw.jobs_service.run(Claim(worker="w", limit=1))).jobs
        await hw.jobs.add(id="waiting", command="true", priority=3)
        await hw.access_tokens("main").create("ada", ["publish"])
        return {"token": job.token, "number": job.number, "held": held.payload}


def contents(address: str) -> dict[str, Digest]:
    """What each table is, and what is known of the store apart from its place."""
    with ThreadPoolExecutor() as elsewhere:
        return elsewhere.submit(_contents, address).result()


def _contents(address: str) -> dict[str, Digest]:
    with open_transfer(address, load_config({})).hold(writes=False) as place:
        keys = place.keys()
        tables = place.tables().items()
        found = {name: digest(place.rows(name, sorted(columns), keys[name])) for name, columns in tables}
        known = {key: value for key, value in place.meta().items() if key not in OWN_KEYS}
        return {**found, META: digest([list(known.items())])}


async def test_everything_of_a_store_is_at_the_other_place(way: tuple[str, str], program: Program) -> None:
    source, target = way
    await fill(source)
    before = contents(source)
    copied = (await expect(program, 0, "copy", source, target, "--json")).document()
    assert contents(target) == before
    assert copied["rows"] == sum(found.rows for name, found in before.items() if name != META)
    assert len([found for found in before.values() if found.rows]) > 10


async def test_a_copy_tells_how_many_records_were_moved_and_not_rows_alone(
    way: tuple[str, str], program: Program
) -> None:
    source, target = way
    async with headwater.open(source, housekeeping=False) as hw:
        await hw.queue("orders").push_many([{"id": number} for number in range(100)])
    told = (await expect(program, 0, "copy", source, target)).out
    assert "copied 100 records with all else (" in told


async def test_a_server_whose_store_was_moved_says_so_and_not_that_it_is_gone(
    way: tuple[str, str], program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = way
    async with (
        headwater.open(source, housekeeping=False) as hw,
        on_the_edge(hw) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        message = {"items": [{"queue": "orders", "payload": 1}]}
        assert (await client.post("/api/v1/push", json=message)).status_code == 201
        await expect(program, 0, "copy", source, target)

        async def is_told() -> bool:
            return (await client.post("/api/v1/push", json=message)).status_code == 503

        await expect_soon_async(is_told, 60)
        for answer in (await client.post("/api/v1/push", json=message), await client.get("/health")):
            told = answer.json()
            assert (answer.status_code, told["code"]) == (503, "store_replaced")
            # Where it is now is for those who read the log.
            assert "was moved to another place" in told["detail"]
            assert target not in answer.text
        with pytest.raises(StoreMoved, match="was moved to"):
            await hw.queue("orders").push(2)


async def test_a_copy_to_a_bucket_that_may_not_grow_so_large_says_so(tmp_path: Path, program: Program) -> None:
    source, bucket = str(tmp_path / "from.db"), f"file://{tmp_path}/to.sqlite"
    async with headwater.open(source, housekeeping=False) as hw:
        for _ in range(100):
            await hw.queue("orders").push(os.urandom(60_000).hex())
    ended = await expect(program, 1, "copy", source, f"{bucket}?bytes_max=8388608")
    assert "has reached its bytes_max of 8,388,608 bytes" in ended.err
    assert "disk" not in ended.err
    # Nothing is lost by it: the same command with more room goes on.
    await expect(program, 0, "copy", source, f"{bucket}?bytes_max=67108864")
    async with headwater.open(f"{bucket}?bytes_max=67108864", housekeeping=False) as hw:
        status = await hw.queue("orders").status()
        assert status is not None
        assert status.records == 100


@pytest.mark.parametrize("name", OTHER_WAYS)
async def test_a_bucket_gets_everything_and_gives_everything(
    name: str, places: dict[str, Make], program: Program
) -> None:
    await test_everything_of_a_store_is_at_the_other_place(make_way(name, places), program)
    assert name


async def test_work_goes_on_at_the_other_place_where_it_was(way: tuple[str, str], program: Program) -> None:
    source, target = way
    known = await fill(source)
    await expect(program, 0, "copy", source, target)
    async with headwater.open(target, housekeeping=False) as hw:
        # One consumer still has its lease, so that nobody else gets what is behind it.
        assert await hw.queue("orders").pop(partition="p") == []
        duplicate = await hw.queue("orders").push("again", partition="p", transaction_id="t3")
        assert (duplicate.duplicate, duplicate.offset) == (True, 3)
        assert (await hw.queue("orders").push("new", partition="p")).offset == 5
        (others,) = [await hw.queue("orders").pop(group="others", partition="p", batch=100)]
        assert [message.offset for message in others] == list(range(6))
        report = JobReport(number=known["number"], token=known["token"], outcome=JobOutcome.COMPLETED)
        await hw.jobs_service.run(Settle(worker="w", reports=[report]))
        assert (await hw.jobs.show("held")).state.value == "completed"
        (job,) = (await hw.jobs_service.run(Claim(worker="v", limit=5))).jobs
        assert job.number > known["number"]
        assert len(await hw.access_tokens("main").list()) == 1
        (letter,) = await hw.queue("orders").dead_letters()
        assert letter.error == "never"


async def test_numbers_of_what_is_gone_are_not_given_again_at_the_other_place(
    way: tuple[str, str], program: Program
) -> None:
    """A consumer that comes late with the number of a partition that was deleted must not meet another one."""
    source, target = way
    await fill(source)
    async with headwater.open(source, housekeeping=False) as hw:
        await hw.queue("gone").push(1, partition="gone")
        await hw.queue("gone").delete()
    given = numbers(source)
    await expect(program, 0, "copy", source, target)
    async with headwater.open(target, housekeeping=False) as hw:
        await hw.queue("new").push(1, partition="new")
    after = numbers(target)
    assert after["hw_queues"] > given["hw_queues"]
    assert after["hw_partitions"] > given["hw_partitions"]


def numbers(address: str) -> dict[str, int]:
    """The highest number that each table has ever given."""

    def look() -> dict[str, int]:
        with open_transfer(address, load_config({})).hold(writes=False) as place:
            return dict(place.numbers())

    with ThreadPoolExecutor() as elsewhere:
        return elsewhere.submit(look).result()


async def test_who_has_the_old_store_open_is_told_and_nobody_opens_it_again(
    way: tuple[str, str], program: Program
) -> None:
    source, target = way
    await fill(source)
    async with headwater.open(source, housekeeping=False) as old:
        identity = (await expect(program, 0, "store", "identity", "--store", source)).out
        await expect(program, 0, "copy", source, target)
        with pytest.raises(StoreReplaced, match="was moved to"):
            await old.queue("orders").push("too late")
    assert (await expect(program, 0, "store", "identity", "--store", target)).out == identity
    with pytest.raises(StoreReplaced, match="was moved to"):
        async with headwater.open(source):
            raise AssertionError("it was opened")


async def test_a_store_that_is_kept_goes_on_beside_its_copy(way: tuple[str, str], program: Program) -> None:
    source, target = way
    await fill(source)
    async with headwater.open(source, housekeeping=False) as old:
        await expect(program, 0, "copy", source, target, "--keep")
        await old.queue("orders").push("goes on", partition="new")
        async with headwater.open(target, housekeeping=False) as new:
            assert await new.queue("orders").pop(partition="new") == []
    identities = [(await expect(program, 0, "store", "identity", "--store", place)).out for place in way]
    assert identities[0] != identities[1]


async def test_a_place_that_has_something_in_it_is_refused_and_left_alone(
    way: tuple[str, str], program: Program
) -> None:
    source, target = way
    await fill(source)
    async with headwater.open(target, housekeeping=False) as hw:
        await hw.queue("mine").push("there first")
    before = contents(source), contents(target)
    assert "has something in it already" in (await expect(program, 2, "copy", source, target)).err
    assert (contents(source), contents(target)) == before


@pytest.mark.parametrize("kind", ["file", "server"])
async def test_nobody_writes_at_the_moment_of_the_switch(places: dict[str, Make], kind: str) -> None:
    address = places[kind]()
    transfer = open_transfer(address, load_config({}, lock_wait_seconds=0.1))
    async with headwater.open(address, housekeeping=False, lock_wait_seconds=0.1) as hw:
        place = await asyncio.to_thread(transfer.hold(writes=True).__enter__)
        with ExitStack() as held:
            held.push(place.__exit__)
            with pytest.raises(StoreBusy):
                await hw.queue("orders").push("meanwhile")
            with pytest.raises(StoreBusy, match="all the time"):
                await asyncio.to_thread(transfer.hold(writes=True).__enter__)
        await hw.queue("orders").push("afterwards")
        assert [message.payload for message in await hw.queue("orders").pop(batch=10)] == ["afterwards"]


KILLED = """
import os, signal, sys
from headwater.stores import transfer
from headwater.cli import main
name, passes = sys.argv.pop(1), int(sys.argv.pop(1))
real = getattr(transfer, name)
def reach(*arguments):
    global passes
    passes -= 1
    if passes < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(transfer, name, reach)
main()
"""
# Where a move is killed, and how often it passes there before.
ENDS = {"the first table": ("make_alike", 0), "some tables": ("make_alike", 20), "a round": ("_compare", 0)}
ENDS |= {"the switch": ("_complete", 0), "the seal": ("_seal", 0)}
KILLS = [(name, end) for name in WAYS for end in (ENDS if name == "file to server" else ("some tables", "the seal"))]


async def kill_at(name: str, passes: int, source: str, target: str) -> None:
    command = [sys.executable, "-c", KILLED, name, str(passes), "copy", source, target]
    assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == -signal.SIGKILL


@pytest.mark.parametrize(("name", "end"), KILLS)
async def test_a_move_that_is_killed_leaves_one_store_and_goes_on_with_the_same_command(
    places: dict[str, Make], program: Program, name: str, end: str
) -> None:
    source, target = make_way(name, places)
    await fill(source)
    before = contents(source)
    await kill_at(*ENDS[end], source, target)
    assert contents(source) == before
    with pytest.raises(StoreBusy, match="is being moved to"):
        async with headwater.open(target):
            raise AssertionError("it was opened")
    async with headwater.open(source, housekeeping=False) as hw:
        await hw.queue("orders").push("since", partition="q")
        (message,) = await hw.queue("orders").pop(partition="q", lease_seconds=600)
        await message.ack()
        await hw.queue("gone").push(1)
        await hw.queue("gone").delete()
    since = contents(source)
    await expect(program, 0, "copy", source, target)
    assert contents(target) == since
    with pytest.raises(StoreReplaced):
        async with headwater.open(source):
            raise AssertionError("it was opened")


async def test_a_move_that_is_killed_behind_the_seal_is_finished_by_the_same_command(
    way: tuple[str, str], program: Program
) -> None:
    source, target = way
    await fill(source)
    before = contents(source)
    await kill_at("_unmark", 0, source, target)
    for place, error in ((source, StoreReplaced), (target, StoreBusy)):
        with pytest.raises(error):
            async with headwater.open(place):
                raise AssertionError("it was opened")
    await expect(program, 0, "copy", source, target)
    assert contents(target) == before
    assert "was moved to" in (await run(program, "copy", source, target)).err


async def test_a_place_that_is_filled_from_one_store_is_not_filled_from_another(
    places: dict[str, Make], program: Program
) -> None:
    first, second, target = places["file"](), places["file"](), places["server"]()
    await fill(first)
    await fill(second)
    await kill_at("_seal", 0, first, target)
    assert "is being filled from another store" in (await expect(program, 2, "copy", second, target)).err


async def test_a_difference_between_the_places_is_found_and_the_old_store_goes_on(
    way: tuple[str, str], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = way
    await fill(source)
    before = contents(source)

    def lose_one(ours: Any, theirs: Any, key: Any) -> Difference:
        return Difference([], list(ours)[1:])

    with monkeypatch.context() as broken:
        broken.setattr("headwater.stores.likeness.find_difference", lose_one)
        assert "nothing was moved" in (await run(program, "copy", source, target)).err
    assert contents(source) == before
    await expect(program, 0, "copy", source, target)
    assert contents(target) == before


async def test_a_store_that_is_not_there_is_not_made(places: dict[str, Make], program: Program) -> None:
    await expect(program, 3, "copy", places["file"](), places["server"]())


async def test_a_store_that_was_moved_away_makes_no_other_place_and_tells_the_whole_path(
    places: dict[str, Make], program: Program
) -> None:
    await fill(source := places["file"]())
    await expect(program, 0, "copy", source, "moved.db")
    told = await expect(program, 3, "copy", source, "another.db")
    assert f"was moved to {program.folder / 'moved.db'}" in told.err
    assert (program.folder / "moved.db").exists()
    assert not (program.folder / "another.db").exists()
    assert "use the store that it names" in (await expect(program, 3, "doctor", "--store", source)).out


async def test_the_wait_for_the_old_holder_counts_as_time_in_which_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = str(tmp_path / "old.db"), str(tmp_path / "new.db")
    await fill(source)
    async with headwater.open(target, housekeeping=False):
        pass
    clock = [0.0]
    monkeypatch.setattr(transfer, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class HeldByAnother:
        """Whoever wants to write waits for a lease."""

        def hold(self, *, writes: bool) -> transfer.Place:
            clock[0] += 15 * writes
            return open_transfer(source, load_config({})).hold(writes=writes)

    def move() -> transfer.Copied:
        with open_transfer(target, load_config({})).hold(writes=True) as new:
            return transfer.move(HeldByAnother(), new, partial(progress, shown=False))

    assert (await asyncio.to_thread(move)).switch_seconds == 15
