"""Keys compare as the values do."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.order_key import order_key

# Numbers that begin alike and have zeros within: their bytes could be taken for the end of a shorter one.
ALIKE = st.builds(
    lambda high, lows, places, scale: [
        number
        for low in (0, *lows)
        for sign in (1, -1)
        for number in (sign * ((high << places) + low), sign * ((high << places) + low) / scale)
    ],
    st.integers(1, 2**9),
    st.lists(st.integers(1, 2**9), min_size=1, max_size=5),
    st.integers(0, 80),
    st.sampled_from([2**places for places in range(0, 70, 7)]),
)
ANY = st.lists(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)), min_size=2)


@given(st.one_of(ALIKE, ANY))
def test_keys_of_numbers_compare_as_the_numbers_do(numbers: list[int | float]) -> None:
    for less, more in pairwise(sorted(numbers)):
        if less == more:
            assert order_key(less) == order_key(more)
        else:
            assert order_key(less) < order_key(more), (less, more)


def test_kinds_of_values_come_in_their_order() -> None:
    values: list[object] = [
        None,
        False,
        True,
        -(2**64),
        -65_537,
        -65_536,
        -0.5,
        0,
        0.5,
        65_536,
        65_537,
        "",
        "a",
        "ä",
        [],
        {},
    ]
    keys = [order_key(value) for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
