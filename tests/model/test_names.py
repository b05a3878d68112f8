"""Names: one alphabet, one length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidName
from headwater.model.names import GROUP_DEFAULT, NAME_LENGTH_MAX, PARTITION_DEFAULT, check_name


@given(st.from_regex(r"[A-Za-z0-9._:/-]{1,256}", fullmatch=True))
def test_a_name_of_the_alphabet_is_itself(name: str) -> None:
    assert check_name("queue", name) == name


@given(st.text())
def test_nothing_else_is_a_name(text: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-")
    if 1 <= len(text) <= NAME_LENGTH_MAX and set(text) <= allowed:
        assert check_name("queue", text) == text
    else:
        with pytest.raises(InvalidName):
            check_name("queue", text)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a\n", "\x00", "a" * 257, "a\\b", "a;b", "'", None, 7, b"a", ["a"]])
def test_a_wrong_name_is_refused_with_what_it_was_meant_for(name: object) -> None:
    with pytest.raises(InvalidName, match="partition name"):
        check_name("partition", name)


@pytest.mark.parametrize("name", [GROUP_DEFAULT, PARTITION_DEFAULT, "orders/eu-1", "a" * 256, "..", "-"])
def test_these_are_names(name: str) -> None:
    assert check_name("queue", name) == name


def test_an_error_does_not_repeat_a_name_of_any_length() -> None:
    with pytest.raises(InvalidName) as caught:
        check_name("queue", "x" * 100_000)
    assert len(str(caught.value)) < 300
