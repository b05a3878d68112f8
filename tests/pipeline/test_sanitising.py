"""What is recorded of documents: declared fields tell nothing, wherever they lie, and filters still mean the same."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.filters import parse, predicate
from headwater.pipeline.sanitising import Sanitising, hash_values, is_blind, is_sampled, sanitise

KEY = b"0123456789abcdef"
SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b"]) | st.just(2.0)
)
DOCUMENTS = st.fixed_dictionaries({}, optional={"a": SCALARS | st.lists(SCALARS), "b": SCALARS})
FILTERS = ["a == 'a'", "a == 2", "a == true", "a == null", "a != 'b'", "a in ['a', 1, null]", "'a' in a", "has(a)"]
FILTERS += ["!(a == 1) && b == 'a'", "a == 'a' || b > 1", "2 in a", "false in a"]


@example(document={"a": 2.0}, text="a == 2")
@example(document={"a": ["b", 2.0]}, text="2 in a")
@given(document=DOCUMENTS, text=st.sampled_from(FILTERS))
def test_a_filter_with_hashed_values_means_the_same_hashed_documents(document: dict[str, Any], text: str) -> None:
    rules = Sanitising(hashed=("a",), key=KEY)
    shown, met = sanitise(document, rules)
    assert met == ({"a"} if "a" in document else set())
    assert predicate(hash_values(parse(text), rules))(shown) == predicate(parse(text))(document)


@pytest.mark.parametrize("field", ["who.mail", "lists.mail", "deep.er.mail", "dotted.mail"])
def test_a_declared_field_is_found_in_objects_in_lists_and_under_names_with_dots(field: str) -> None:
    document = {
        "who": {"mail": "secret", "age": 7},
        "lists": [{"mail": "secret"}, [{"mail": "secret"}], 3],
        "deep": {"er": {"mail": ["secret", {"mail": "secret"}]}},
        "dotted.mail": "secret",
    }
    found = document[field.split(".")[0] if field != "dotted.mail" else field]
    for rules in (Sanitising(removed=(field,)), Sanitising(hashed=(field,), key=KEY)):
        shown, met = sanitise(document, rules)
        left = shown.get(field.split(".")[0] if field != "dotted.mail" else field)
        assert "secret" in str(found)
        assert "secret" not in str(left)
        assert met == {field}
        assert document["who"] == {"mail": "secret", "age": 7}, "the document itself stays as it is"


def test_a_greater_sample_has_all_of_a_smaller_one_and_about_its_share() -> None:
    names = [f"d{number}" for number in range(2_000)]
    small, large = ({name for name in names if is_sampled("orders", name, share)} for share in (0.1, 0.3))
    assert small < large
    assert 120 < len(small) < 280
    assert all(is_sampled("orders", name, 1.0) for name in names)


@pytest.mark.parametrize(
    ("text", "blind"),
    [
        ("a == 'x'", False),
        ("a > 'x'", True),
        ("a.b == 1", True),
        ("gone == 1", True),
        ("gone.x == 1", True),
        ("c > 1", False),
    ],
)
def test_a_filter_that_sanitised_documents_cannot_answer_is_known(text: str, blind: bool) -> None:
    assert is_blind(parse(text), Sanitising(hashed=("a",), removed=("gone",), key=KEY)) is blind


@pytest.mark.parametrize(
    ("text", "blind"), [("a == 'x'", True), ("a in ['x']", True), ("has(a)", False), ("b == 1", False)]
)
def test_without_the_key_nobody_can_ask_what_a_hashed_field_equals(text: str, blind: bool) -> None:
    assert is_blind(parse(text), Sanitising(hashed=("a",), removed=(), key=b"")) is blind
