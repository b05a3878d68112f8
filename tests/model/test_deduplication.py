"""The memory of transaction ids: bounded, never sure, never wrong about what it just saw."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.deduplication import RecentIds

ids = st.text(max_size=5)


@given(st.lists(st.lists(ids, min_size=1, max_size=10), max_size=30), st.integers(1, 40))
def test_the_last_half_is_always_remembered(batches: list[list[str]], ids_max: int) -> None:
    recent = RecentIds(ids_max)
    added: list[int] = []
    for batch in batches:
        keys = RecentIds.keys(7, batch)
        recent.add(keys)
        added += keys
        last = added[-max(ids_max // 2, 1) :]
        assert all(key in recent for key in last)
        assert recent.perhaps_seen(last[-1:])


@given(st.lists(st.lists(ids, min_size=1, max_size=10), max_size=30), st.integers(2, 40))
def test_the_memory_is_bounded(batches: list[list[str]], ids_max: int) -> None:
    recent = RecentIds(ids_max)
    for batch in batches:
        recent.add(RecentIds.keys(7, batch))
        assert len(recent) <= ids_max + 2 * len(max(batches, key=len))


def test_an_id_belongs_to_its_partition() -> None:
    recent = RecentIds(100)
    recent.add(RecentIds.keys(1, ["a"]))
    assert recent.perhaps_seen(RecentIds.keys(1, ["b", "a"]))
    assert not recent.perhaps_seen(RecentIds.keys(2, ["a"]))
    assert not recent.perhaps_seen([])


def test_old_ids_are_forgotten() -> None:
    recent = RecentIds(10)
    for number in range(100):
        recent.add(RecentIds.keys(1, [str(number)]))
    assert not recent.perhaps_seen(RecentIds.keys(1, ["0"]))
    assert len(recent) <= 10


def test_everything_is_forgotten_at_once() -> None:
    recent = RecentIds(10)
    recent.add(RecentIds.keys(1, ["a", "b"]))
    recent.clear()
    assert len(recent) == 0
    assert not recent.perhaps_seen(RecentIds.keys(1, ["a", "b"]))
