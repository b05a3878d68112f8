"""What the writing side remembers is bounded, and what it forgets it finds again."""

from pathlib import Path

import pytest

import headwater
from headwater.stores.tables import catalog, cursors, segments

PARTITIONS = 40


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> int:
    bound = 4
    monkeypatch.setattr(catalog, "PARTITIONS_KNOWN_MAX", bound)
    monkeypatch.setattr(segments, "ENDS_KNOWN_MAX", bound)
    monkeypatch.setattr(segments, "CURRENT_MAX", bound)
    monkeypatch.setattr(cursors, "KNOWN_MAX", bound)
    return bound


async def test_partitions_beyond_what_is_remembered_keep_their_order_and_lose_nothing(
    tmp_path: Path, forgetful: int
) -> None:
    async with headwater.open(str(tmp_path / "hw.db")) as hw:
        queue = hw.queue("orders")
        for turn in range(3):
            for partition in range(PARTITIONS):
                await queue.push_many([3 * turn, 3 * turn + 1, 3 * turn + 2], partition=f"p{partition}")
        found: dict[str, list[int]] = {}
        messages = await queue.pop(batch=2, group="g")
        while messages:
            for message in messages:
                found.setdefault(message.partition, []).append(message.payload)
            messages = await queue.pop(batch=2, group="g", ack=messages)
        assert found == {f"p{partition}": list(range(9)) for partition in range(PARTITIONS)}
        writer = hw.store._writer  # type: ignore[attr-defined]
        assert len(writer.catalog._partitions) <= forgetful
        assert len(writer.segments._ends) <= forgetful
        assert len(writer.segments._current) <= forgetful + 1
        assert len(writer.cursors._known) <= forgetful + 1
