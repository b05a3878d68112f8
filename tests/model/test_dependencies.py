"""Jobs must not wait for each other in a circle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidOption
from headwater.model.dependencies import check_no_cycle


@pytest.mark.parametrize(
    "needs",
    [{"a": ["a"]}, {"a": ["b"], "b": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["d", "a"]}, {"x": ["a"], "a": ["a"]}],
)
def test_a_circle_is_refused_and_named(needs: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidOption, match="→"):
        check_no_cycle(needs)


def test_many_ways_to_the_same_job_are_no_circle() -> None:
    check_no_cycle({"d": ["b", "c"], "b": ["a"], "c": ["a"], "e": ["d", "a"]})
    chain = {str(number): [str(number - 1)] for number in range(1, 5_000)}
    check_no_cycle(chain)
    with pytest.raises(InvalidOption):
        check_no_cycle({**chain, "0": ["4999"]})


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_a_circle_is_found_exactly_when_there_is_one(edges: list[tuple[int, int]]) -> None:
    needs: dict[str, list[str]] = {}
    for first, second in edges:
        needs.setdefault(str(first), []).append(str(second))
    left = {job: set(found) for job, found in needs.items()}
    while free := [job for job in left if not left[job] & set(left)]:
        for job in free:
            del left[job]
    if left:
        with pytest.raises(InvalidOption):
            check_no_cycle(needs)
    else:
        check_no_cycle(needs)
        assert True
