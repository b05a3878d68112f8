"""JSON values are compared as JavaScript and filters do, and not as Python does."""

from typing import Any

import pytest

from headwater.model.json_values import is_same_json


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (False, 0),
        (True, 1.0),
        ([True], [1]),
        ({"a": {"b": [0, {"c": False}]}}, {"a": {"b": [0, {"c": 0}]}}),
        (None, False),
        (None, 0),
        ("1", 1),
        ({"a": None}, {}),
        ([1], [1, 1]),
        (2**53 + 1, float(2**53)),
    ],
)
def test_what_differs_in_json_is_not_the_same(one: Any, other: Any) -> None:
    assert not is_same_json(one, other)
    assert not is_same_json(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, -0.0),
        (True, True),
        ({"a": 1, "b": [False, 0]}, {"b": [False, 0.0], "a": 1.0}),
        ((1, True), (1, True)),
    ],
)
def test_numbers_of_one_value_and_objects_in_any_order_are_the_same(one: Any, other: Any) -> None:
    assert is_same_json(one, other)
