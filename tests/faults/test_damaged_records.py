"""A damaged record in the middle of a partition: what lies before it is delivered, what lies behind it waits, others go
on, it is told, and an operator can pass it over."""

from pathlib import Path

import pytest

import headwater
from headwater.config import load_config
from headwater.errors import InvalidOption, QueueMissing, StoreDamaged
from headwater.log.store_operations import GiveUpDamaged
from headwater.model.names import Lsn
from headwater.stores.open import open_reader
from tests.cli.program import Program
from tests.faults.test_bad_files import damage_segment

BROKEN = Lsn(4)


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    """Six commits in one partition, of which the fourth is damaged, and one in another."""
    path = tmp_path / "headwater.db"
    async with headwater.open(str(path)) as hw:
        await hw.queue("orders").configure(deduplication_seconds=0)
        for number in range(6):
            payloads = [{"number": 2 * number + index, "filling": "x" * 100} for index in range(2)]
            await hw.queue("orders").push_many(payloads, partition="a")
        await hw.queue("orders").push({"number": 99}, partition="b")
    damage_segment(path, BROKEN)
    return path


async def numbers(hw: headwater.Headwater, partition: str, group: str = "g", batch: int = 100) -> list[int]:
    """What one pop brings, acked."""
    messages = await hw.queue("orders").pop(group=group, partition=partition, batch=batch)
    await hw.queue("orders").ack(messages)
    return [message.payload["number"] for message in messages]


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 100])
async def test_everything_before_the_damage_is_delivered_however_it_is_asked_for(place: Path, batch: int) -> None:
    async with headwater.open(str(place)) as hw:
        found: list[int] = []
        while len(found) < 6:
            found += await numbers(hw, "a", batch=batch)
        assert found == [0, 1, 2, 3, 4, 5]
        with pytest.raises(StoreDamaged, match=r"records 6 to 7 of orders, partition a.*give-up-damaged"):
            await numbers(hw, "a", batch=batch)
        assert await numbers(hw, "b") == [99]
        assert [letter.offset for letter in await hw.queue("orders").dead_letters()] == []


async def test_other_partitions_go_on_and_pushes_too(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        orders = hw.queue("orders")
        await numbers(hw, "a")
        for number in range(100, 103):
            await orders.push({"number": number}, partition="b")
            await orders.push({"number": number}, partition="a", transaction_id=str(number))
        told: list[str] = []
        found: list[int] = []
        for _ in range(9):
            try:
                messages = await orders.pop(group="g", batch=10)
            except StoreDamaged as error:
                told.append(str(error))
                continue
            found += [message.payload["number"] for message in messages]
            await orders.ack(messages)
        assert found == [99, 100, 101, 102]
        assert len(told) == 1


async def test_the_log_is_read_up_to_the_damage(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        segments = await hw.store.read(Lsn(0), Lsn(99), 100, ("main", "orders"))
        assert [segment.lsn for segment in segments] == [1, 2, 3]
        with pytest.raises(StoreDamaged):
            await hw.store.read(Lsn(3), Lsn(99), 100, ("main", "orders"))
        reader = open_reader(str(place), load_config({}))
        await reader.open()
        assert [body.lsn for body in await reader.bodies(Lsn(0), Lsn(99), 10**6, "main", ["orders"])] == [1, 2, 3]
        with pytest.raises(StoreDamaged):
            await reader.bodies(Lsn(3), Lsn(99), 10**6, "main", ["orders"])
        await reader.close()


async def test_what_is_given_up_is_passed_counted_and_told(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        orders = hw.queue("orders")
        assert await numbers(hw, "a", "behind", batch=2) == [0, 1]
        assert await numbers(hw, "a") == [0, 1, 2, 3, 4, 5]
        with pytest.raises(StoreDamaged):
            await numbers(hw, "a")
        reader = open_reader(str(place), load_config({}))
        await reader.open()
        before = (await reader.drops(Lsn(3), 0, "main", ["orders"])).number
        given_up = (await hw.committer.submit(GiveUpDamaged(lsn=BROKEN))).result
        assert (given_up.first_offset, given_up.count, given_up.lane.partition) == (6, 2, "a")
        # The group that was put off looks again at once, and offsets stay what they were.
        messages = await orders.pop(group="g", partition="a", batch=100)
        assert [message.offset for message in messages] == [8, 9, 10, 11]
        assert await numbers(hw, "a", "behind") == [2, 3, 4, 5]
        assert await numbers(hw, "a", "behind") == [8, 9, 10, 11]
        assert await numbers(hw, "a", "later") == [0, 1, 2, 3, 4, 5]
        assert {status.group: status.lost for status in await hw.groups()} == {"behind": 2, "g": 2, "later": 0}
        assert (await reader.drops(Lsn(3), before, "main", ["orders"])).partitions == ["orders/a"]
        bodies = await reader.bodies(Lsn(3), Lsn(4), 10**6, "main", ["orders"])
        assert (
            bodies[0].records == b'[{"data":null,"type":"headwater/damaged"},{"data":null,"type":"headwater/damaged"}]'
        )
        await reader.close()


async def test_only_what_is_damaged_can_be_given_up(place: Path) -> None:
    async with headwater.open(str(place)) as hw:
        with pytest.raises(InvalidOption, match="can be read"):
            await hw.committer.submit(GiveUpDamaged(lsn=Lsn(3)))
        with pytest.raises(QueueMissing):
            await hw.committer.submit(GiveUpDamaged(lsn=Lsn(1_000)))
        assert await numbers(hw, "a") == [0, 1, 2, 3, 4, 5]


async def test_damage_at_the_end_gives_no_offset_out_twice(tmp_path: Path) -> None:
    path = tmp_path / "headwater.db"
    async with headwater.open(str(path)) as hw:
        for number in range(2):
            await hw.queue("orders").push({"number": number, "filling": "x" * 100}, partition="a")
    damage_segment(path, 2)
    async with headwater.open(str(path)) as hw:
        await hw.committer.submit(GiveUpDamaged(lsn=Lsn(2)))
        assert (await hw.queue("orders").push({"number": 2}, partition="a")).offset == 2
        assert await numbers(hw, "a") == [0]
        assert await numbers(hw, "a") == [2]


def test_the_operator_finds_and_passes_the_damage(place: Path) -> None:
    program = Program(place.parent)
    damage_segment(place, 6)
    problems = program.expect(5, "doctor", "--full", "--json").document()["problems"]
    assert [problem["message"].partition(":")[0] for problem in problems] == ["LSN 4", "LSN 6"]
    assert {"give-up-damaged" in problem["remedy"] for problem in problems} == {True}
    assert "say --yes" in program.expect(2, "store", "give-up-damaged").err
    program.expect(5, "doctor", "--full")
    given_up = program.expect(0, "store", "give-up-damaged", "--yes").out.splitlines()
    assert given_up == [
        "given up: orders, partition a, offsets 6 to 7",
        "given up: orders, partition a, offsets 10 to 11",
    ]
    program.expect(0, "doctor", "--full")
    assert program.expect(0, "store", "give-up-damaged", "--yes", "--json").out == ""
