"""A replica's pull in parts: bounded in size, and one answer together."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headwater
from headwater.services import replication
from headwater.services.replication import Checkpoint, Pulled, Replica

BODY = "x" * 1_000
COUNT = 12


@pytest.fixture
async def hw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[headwater.Headwater]:
    monkeypatch.setattr(replication, "PART_BYTES", 3_000)
    async with headwater.open(str(tmp_path / "log.db"), housekeeping=False) as found:
        for number in range(COUNT):
            await found.collection("notes").create({"text": BODY}, id=f"n{number:02}")
        yield found


def replica_of(hw: headwater.Headwater) -> Replica:
    return Replica(hw.queues_service, "main", "notes", None)


def ids(parts: list[Pulled]) -> list[str]:
    return [document.id for part in parts for document in part.documents]


async def pull(hw: headwater.Headwater, checkpoint: Checkpoint | None, limit: int) -> list[Pulled]:
    return [part async for part in replica_of(hw).pull_in_parts(checkpoint, limit)]


async def test_parts_are_small_and_together_what_was_asked_for(hw: headwater.Headwater) -> None:
    parts = await pull(hw, None, 10)
    assert ids(parts) == [f"n{number:02}" for number in range(10)]
    assert [len(part.documents) for part in parts] == [3, 3, 3, 1]
    rest = await pull(hw, parts[-1].checkpoint, 10)
    assert ids(rest) == ["n10", "n11"]
    assert rest[-1].is_last


async def test_a_document_written_again_between_two_parts_ends_the_answer_and_comes_next(
    hw: headwater.Headwater,
) -> None:
    notes = hw.collection("notes")
    told: list[Pulled] = []
    async for part in replica_of(hw).pull_in_parts(None, 100):
        if not told:
            await notes.update("n01", {"text": "again"})
            await notes.create({"text": BODY}, id="n99")
        told.append(part)
    assert ids(told) == [f"n{number:02}" for number in range(COUNT)], "each once, and none left out"
    assert ids(await pull(hw, told[-1].checkpoint, 100)) == ["n01", "n99"]


async def test_a_document_that_is_new_between_two_parts_is_told(hw: headwater.Headwater) -> None:
    told: list[Pulled] = []
    async for part in replica_of(hw).pull_in_parts(None, 100):
        if not told:
            await hw.collection("notes").create({"text": BODY}, id="n99")
        told.append(part)
    assert ids(told) == [*(f"n{number:02}" for number in range(COUNT)), "n99"]
