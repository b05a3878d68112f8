"""The first documents in an order, while they come in any."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.document import Document
from headwater.model.document_order import Foremost, count_within
from headwater.model.names import Lsn

Sized = list[tuple[int, int]]


def document(place: int, size: int) -> Document:
    return Document("notes", str(place), 1, False, msgspec.Raw(b"x" * size), Lsn(1))


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50)), unique_by=lambda one: one[0]),
    st.integers(1, 20),
    st.integers(1, 200),
)
def test_the_first_ones_are_kept_up_to_the_one_that_is_too_much(sized: Sized, limit: int, bytes_max: int) -> None:
    foremost = Foremost(limit, bytes_max)
    for place, size in sized:
        foremost.add((place,), document(place, size))
        kept = [one for _, one in foremost._kept]
        assert len(kept) <= 2 * limit + 1, "what comes behind is let go on the way"
        assert sum(len(one.body) for one in kept) <= 2 * bytes_max + 2 * 50
    ordered = [document(place, size) for place, size in sorted(sized)]
    expected = ordered[: min(limit, count_within(ordered, bytes_max) + 1)]
    assert [one.id for one in foremost.documents()] == [one.id for one in expected]
